/** Where resources come from. */
package wirespeed.httpserver;

/** Finds resources; each loop has its own, so that nothing is locked. */
interface Content extends AutoCloseable {
    /** The resource of a request's path and query; throws {@link Refusal} if there is none. */
    Resource find(byte[] bytes, int from, int to, long nowS) throws Refusal;

    /** Gives the memory back. */
    @Override
    void close();

    /** A status in place of a resource; without a stack trace, because clients cause it. */
    final class Refusal extends Exception {
        final transient Status status;

        Refusal(Status status) {
            super(status.name(), null, false, false);
            this.status = status;
        }
    }
}
