/** The error of a command line that cannot be meant. */
package wirespeed.stuborigin;

/** A mistake of the user; the message is the one line that is printed, the exit code is 2. */
final class BadUsage extends RuntimeException {
    BadUsage(String message) {
        super(message, null, false, false);
    }
}
