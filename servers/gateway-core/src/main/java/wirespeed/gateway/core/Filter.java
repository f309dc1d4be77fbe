// What a filter is.
package wirespeed.gateway.core;

/**
 * One shared instance serves all exchanges. On event loops it runs on the loop: it never blocks,
 * and returns {@link Step#later} for what takes time.
 */
public interface Filter extends AutoCloseable {
    Phase phase();

    /** Smaller runs earlier within the phase; equal orders run by name, numbers in it by value. */
    int order();

    /** Unique; it appears in metrics and on the admin port. */
    default String name() {
        return getClass().getSimpleName();
    }

    default boolean shouldFilter(Context context) {
        return true;
    }

    Step apply(Context context);

    /** Above 0: the request body is collected up to this size before the filters run, else 413. */
    default int requestBodyBytesMax() {
        return 0;
    }

    /** Above 0: the response body is collected up to this size before post filters run, else 502. */
    default int responseBodyBytesMax() {
        return 0;
    }

    /** Called once when no exchange uses the filter any more. */
    @Override
    default void close() {
    }
}
