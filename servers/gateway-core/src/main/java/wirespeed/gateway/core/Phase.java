// The four places in an exchange at which filters run.
package wirespeed.gateway.core;

/** In the order in which an exchange passes them. */
public enum Phase {
    /** Before the route is chosen; may answer. */
    PRE,
    /** After the route is chosen and before the origin is asked; may answer. */
    ROUTE,
    /** When a response head is there and no byte of it was sent; may change or replace it. */
    POST,
    /**
     * For a failure, while no response head was sent; may replace the answer. Post filters see the
     * replacement, unless they have run before.
     */
    ERROR
}
