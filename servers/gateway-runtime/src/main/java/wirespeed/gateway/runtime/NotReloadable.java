// A change that needs a restart.
package wirespeed.gateway.runtime;

import java.util.List;

/** Answered with 409 on the admin port. */
final class NotReloadable extends RuntimeException {
    private static final long serialVersionUID = 1L;

    NotReloadable(List<String> mistakes) {
        super(String.join("\n", mistakes));
    }
}
