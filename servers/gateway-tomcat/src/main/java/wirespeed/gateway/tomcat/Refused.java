// A body that the strict checks refuse while Tomcat reads it.
package wirespeed.gateway.tomcat;

import org.apache.coyote.BadRequestException;
import wirespeed.gateway.core.Refusal;

/** Travels through Tomcat's streams, which pass on only its own kinds of failure. */
final class Refused extends BadRequestException {
    private static final long serialVersionUID = 1L;
    private final int status;

    Refused(Refusal refusal) {
        super(refusal.getMessage());
        status = refusal.status();
    }

    int status() {
        return status;
    }
}
