// How large the parts of a message may be.
package wirespeed.gateway.core;

/**
 * Bounds on one message.
 *
 * @param lineBytesMax request line, above it 414
 * @param headBytesMax whole head, above it 431
 * @param fieldsMax number of header fields, above it 431
 * @param bodyBytesMax request body, above it 413; -1 for no bound
 * @param answerHeadBytesMax whole head of an origin's response, above it 502
 * @param answerFieldsMax number of its header fields, above it 502
 */
public record Limits(int lineBytesMax, int headBytesMax, int fieldsMax, long bodyBytesMax,
        int answerHeadBytesMax, int answerFieldsMax) {
    /** The defaults of the options. */
    public static final Limits DEFAULT = new Limits(8192, 16384, 100, 100L << 20, 65536, 1000);

    /** The bounds of a response as those of a message. */
    Limits ofAnswers() {
        return new Limits(answerHeadBytesMax, answerHeadBytesMax, answerFieldsMax, -1,
                answerHeadBytesMax, answerFieldsMax);
    }
}
