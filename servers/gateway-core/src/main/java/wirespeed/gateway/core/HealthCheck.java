// What an active health check asks and accepts.
package wirespeed.gateway.core;

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
 */
public record HealthCheck(String path, int intervalMillis, int timeoutMillis, int rise, int fall,
        int statusMin, int statusMax, String bodyContains) {
}
