// A filter threw; names it.
package wirespeed.gateway.core;

/** The message is one line for the log; the client gets the status only. */
public final class FilterFailure extends RuntimeException {
    private static final long serialVersionUID = 1L;

    private final String filter;

    FilterFailure(String filter, Throwable cause) {
        super("filter " + filter + " failed: " + cause, cause);
        this.filter = filter;
    }

    /** The name of the filter. */
    public String filter() {
        return filter;
    }
}
