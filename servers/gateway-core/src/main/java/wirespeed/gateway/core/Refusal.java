// A message that is not accepted, with the status that says so.
package wirespeed.gateway.core;

/**
 * Thrown by the checks. It carries no stack trace: refusing must stay cheap under attack, and the
 * reason text already names the rule.
 */
public final class Refusal extends RuntimeException {
    private static final long serialVersionUID = 1L;
    private final int status;
    private final boolean isMalformed;

    public Refusal(int status, String reason) {
        this(status, reason, false);
    }

    private Refusal(int status, String reason, boolean isMalformed) {
        super(reason, null, false, false);
        this.status = status;
        this.isMalformed = isMalformed;
    }

    /** Of a request that is invalid by the rules of HTTP/2 itself (RFC 9113 §8.1.1). */
    public static Refusal malformed(String reason) {
        return new Refusal(400, reason, true);
    }

    /** The HTTP status of the answer. */
    public int status() {
        return status;
    }

    /** Whether a stream that brought this has to be reset with PROTOCOL_ERROR. */
    public boolean isMalformed() {
        return isMalformed;
    }

    static Refusal bad(String reason) {
        return new Refusal(400, reason);
    }
}
