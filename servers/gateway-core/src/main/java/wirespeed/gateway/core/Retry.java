// How a response of an address affects the next attempt and the address's place among the others.
package wirespeed.gateway.core;

import java.util.ArrayList;
import java.util.List;

/**
 * Attempts without an answer are judged by how far they came; this is about those with one.
 *
 * @param statuses answered with these, an idempotent request is sent to another address
 * @param budgetPercent how many retries there may be, as a share of the requests
 * @param ejectsOn5xx whether a 5xx counts as a failure of the address
 * @param slowMillis a response head that takes longer counts as a failure, too; 0 for none
 * @param hedgeMillis after which a second address is asked in parallel with the first; 0 for never
 */
public record Retry(List<Integer> statuses, int budgetPercent, boolean ejectsOn5xx,
        int slowMillis, int hedgeMillis) {
    /** No status is tried again, and a fifth of the requests may be retries of lost ones. */
    public static final Retry DEFAULT = new Retry(List.of(), 20, false, 0, 0);

    /** From the texts of a configuration; a status that is none is refused. */
    public static Retry of(List<String> statuses, int budgetPercent, boolean ejectsOn5xx,
            int slowMillis, int hedgeMillis) {
        List<Integer> numbers = new ArrayList<>();
        for (String status : statuses) {
            if (!status.matches("[45]\\d\\d")) {
                throw new IllegalArgumentException("invalid retry-status \"" + status
                        + "\" (400 to 599)");
            }
            numbers.add(Integer.valueOf(status));
        }
        return new Retry(List.copyOf(numbers), budgetPercent, ejectsOn5xx, slowMillis,
                hedgeMillis);
    }

    /** Whether an answer speaks against its address. */
    boolean isFailure(int status, long waitedMillis) {
        return status >= 500 && ejectsOn5xx || slowMillis > 0 && waitedMillis > slowMillis;
    }
}
