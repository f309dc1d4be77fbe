// The request of an active health check, and the responses that it accepts.
package wirespeed.gateway.core;

import java.util.Map;

/**
 * Checks run on their own connections, apart from traffic.
 *
 * @param path what is asked with GET
 * @param intervalMillis between two checks of an address, varied by a fifth
 * @param timeoutMillis for one check
 * @param rise successes until an address is healthy again
 * @param fall failures until it is not
 * @param statusMin lowest status that is healthy
 * @param statusMax highest status that is healthy
 * @param bodyContains text that the first 4 KiB of the body hold; empty for none
 * @param host the value of Host; empty for the address as it is configured
 * @param port what is connected to; 0 for that of the address
 * @param fields further fields of the request
 */
public record HealthCheck(String path, int intervalMillis, int timeoutMillis, int rise, int fall,
        int statusMin, int statusMax, String bodyContains, String host, int port,
        Map<String, String> fields) {
    /** With the host and the port of each address. */
    public HealthCheck(String path, int intervalMillis, int timeoutMillis, int rise, int fall,
            int statusMin, int statusMax, String bodyContains) {
        this(path, intervalMillis, timeoutMillis, rise, fall, statusMin, statusMax, bodyContains, "",
                0, Map.of());
    }
}
