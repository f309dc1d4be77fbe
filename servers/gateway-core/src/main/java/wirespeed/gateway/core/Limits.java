// How large the parts of a message may be.
package wirespeed.gateway.core;

/**
 * Bounds on one message.
 *
 * @param lineBytesMax request line, above it 414
 * @param headBytesMax whole head, above it 431
 * @param fieldsMax number of header fields, above it 431
 * @param bodyBytesMax request body, above it 413; -1 for no bound
 */
public record Limits(int lineBytesMax, int headBytesMax, int fieldsMax, long bodyBytesMax) {
    /** What the options default to. */
    public static final Limits DEFAULT = new Limits(8192, 16384, 100, 100L << 20);
}
