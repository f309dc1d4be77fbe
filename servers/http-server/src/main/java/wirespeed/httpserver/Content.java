/** The source of resources. */
package wirespeed.httpserver;

/** Finds resources; each loop has its own instance, so no locks are needed. */
interface Content extends AutoCloseable {
    /** The resource of a request's path and query; throws {@link Refusal} if there is none. */
    Resource find(byte[] bytes, int from, int to, long nowS) throws Refusal;

    /** Frees the memory. */
    @Override
    void close();

    /** A status instead of a resource; without a stack trace, because clients cause it. */
    final class Refusal extends Exception {
        final transient Status status;

        Refusal(Status status) {
            super(status.name(), null, false, false);
            this.status = status;
        }
    }
}
