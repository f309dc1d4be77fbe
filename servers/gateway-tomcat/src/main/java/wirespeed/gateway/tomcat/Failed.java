// An exchange that cannot go on: the response that the client gets instead.
package wirespeed.gateway.tomcat;

import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Refusal;
import wirespeed.gateway.core.Response;
import wirespeed.gateway.core.StatusLine;

/** Without a stack trace: most of these are ordinary, and refusing must stay cheap. */
final class Failed extends Exception {
    private static final long serialVersionUID = 1L;
    private final Category category;
    private final transient Response response;

    private Failed(Category category, Response response, Throwable cause) {
        super(null, cause, false, false);
        this.category = category;
        this.response = response;
    }

    static Failed of(int status, Category category, Throwable cause) {
        boolean isPublic = cause instanceof Refusal || cause instanceof ClientFailure;
        String reason = isPublic ? ": " + cause.getMessage() : "";
        return new Failed(category, Response.of(status, "text/plain; charset=utf-8", status + " "
                + StatusLine.reason(status) + reason + "\n"), cause);
    }

    /** The client should come back. */
    static Failed later(Category category, String reason) {
        Response response = Response.of(503, "text/plain; charset=utf-8", reason + "\n");
        response.headers().add("Retry-After", "1");
        return new Failed(category, response, null);
    }

    Category category() {
        return category;
    }

    Response response() {
        return response;
    }
}
