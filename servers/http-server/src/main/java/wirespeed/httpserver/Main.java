/** Entry point. */
package wirespeed.httpserver;

/** Starts the server. */
public final class Main {
    private Main() {
    }

    /** Runs until the process is told to stop. */
    public static void main(String[] args) {
        System.exit(2);
    }
}
