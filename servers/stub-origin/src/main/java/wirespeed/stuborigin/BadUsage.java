/** The error of an invalid command line. */
package wirespeed.stuborigin;

/** An error of the user; the message is the printed line, the exit code is 2. */
final class BadUsage extends RuntimeException {
    BadUsage(String message) {
        super(message, null, false, false);
    }
}
