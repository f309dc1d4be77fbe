// An attempt at an origin that gave no response, or not all of it.
package wirespeed.gateway.tomcat;

import java.io.IOException;
import wirespeed.gateway.core.Category;

/** Says whose fault it was and how far the attempt had come: both decide whether to try again. */
final class OriginFailure extends IOException {
    private static final long serialVersionUID = 1L;

    /** How far an attempt had come when it was lost. */
    enum Loss {
        /** On a connection that was used before, without a byte of an answer: likely its end. */
        STALE,
        /** Without a byte of an answer. */
        BEFORE_ANSWER,
        AFTER_ANSWER
    }

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
