// A message that is not accepted, with the status that says so.
package wirespeed.gateway.core;

/**
 * Thrown by the checks. It carries no stack trace: refusing must stay cheap under attack, and the
 * reason text already names the rule.
 */
public final class Refusal extends RuntimeException {
    private static final long serialVersionUID = 1L;
    private final int status;

    public Refusal(int status, String reason) {
        super(reason, null, false, false);
        this.status = status;
    }

    /** The HTTP status of the answer. */
    public int status() {
        return status;
    }

    static Refusal bad(String reason) {
        return new Refusal(400, reason);
    }
}
