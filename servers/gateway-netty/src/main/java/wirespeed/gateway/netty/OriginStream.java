// The carrier of one exchange to its origin: a connection of HTTP/1, or a stream of HTTP/2.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import wirespeed.gateway.core.Headers;

/** Called on the exchange's loop only; calls the exchange back until its response is complete. */
interface OriginStream {
    /** Sends the head of a request. */
    void begin(Attempt user);

    /** A piece of the request body; takes it over. */
    void sendBody(ByteBuf slice);

    /**
     * The request is complete.
     *
     * @param trailers that follow its body; null for none
     */
    void sendEnd(Headers trailers);

    /** Raw bytes after a switch of protocols; takes them over. */
    void sendRaw(ByteBuf bytes);

    /** No raw bytes follow; those of the origin still go to the client. */
    void endRaw();

    /** The request body waits for the origin to take what is written. */
    void stalled();

    boolean isWritable();

    /** Stops or resumes reading the response; what is not read is not the origin's delay. */
    void read(boolean isOn);

    /** Hands what was written to the socket. */
    void flush();

    /** The exchange does not want the rest. */
    void abandon();
}
