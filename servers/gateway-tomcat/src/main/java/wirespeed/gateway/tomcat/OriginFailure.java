// An attempt at an origin that gave no response, or not all of it.
package wirespeed.gateway.tomcat;

import java.io.IOException;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Loss;

/** Says whose fault it was and how far the attempt had come: both decide whether to try again. */
final class OriginFailure extends IOException {
    private static final long serialVersionUID = 1L;

    private final Category category;
    private final Loss loss;

    OriginFailure(Category category, Loss loss, String message, Throwable cause) {
        super(message, cause);
        this.category = category;
        this.loss = loss;
    }

    Category category() {
        return category;
    }

    Loss loss() {
        return loss;
    }
}
