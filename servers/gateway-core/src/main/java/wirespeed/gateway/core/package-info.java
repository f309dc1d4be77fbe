/**
 * The gateway without a carrier: messages, filters, routes, origins and the strict HTTP checks.
 *
 * <p>Only {@code java.*} is used here, so that everything below is tested without a socket. Start
 * with {@link wirespeed.gateway.core.HeadCheck} (bytes in, message out),
 * {@link wirespeed.gateway.core.Chain} (filters) and {@link wirespeed.gateway.core.Snapshot}
 * (everything that one configuration means).
 */
package wirespeed.gateway.core;
