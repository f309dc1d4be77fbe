// Who is to blame for the way an exchange ended; a status alone does not say that.
package wirespeed.gateway.core;

/** Appears next to the HTTP status in metrics and log. */
public enum Category {
    OK, CLIENT_BAD, CLIENT_GONE, LIMIT, NO_ROUTE, NO_ADDRESS, CONNECT, ORIGIN_TIMEOUT,
    ORIGIN_RESET, ORIGIN_MALFORMED, FILTER_ERROR, SHED;

    private final String label = name().toLowerCase(java.util.Locale.ROOT);

    /** As it is written in metrics and log. */
    public String label() {
        return label;
    }
}
