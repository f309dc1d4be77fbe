/**
 * The gateway on event loops: one loop handles a request from client to origin, filters included.
 *
 * <p>{@link wirespeed.gateway.netty.Server} opens the sockets,
 * {@link wirespeed.gateway.netty.ClientConnection} and {@link wirespeed.gateway.netty.Http2Codec} read requests,
 * {@link wirespeed.gateway.netty.Exchange} is one request's life and
 * {@link wirespeed.gateway.netty.OriginConnection} asks the origin.
 */
package wirespeed.gateway.netty;
