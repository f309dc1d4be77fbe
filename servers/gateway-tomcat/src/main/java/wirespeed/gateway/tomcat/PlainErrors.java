// What a client reads when Tomcat itself refuses its request.
package wirespeed.gateway.tomcat;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.apache.catalina.connector.Request;
import org.apache.catalina.connector.Response;
import org.apache.catalina.valves.ErrorReportValve;
import wirespeed.gateway.core.StatusLine;

/** One line, as from the rest of the gateway, and no HTML. Tomcat makes it by its name. */
public final class PlainErrors extends ErrorReportValve {
    @Override
    protected void report(Request request, Response response, Throwable throwable) {
        int status = response.getStatus();
        if (status < 400 || response.getContentWritten() > 0 || !response.setErrorReported()) {
            return;
        }
        byte[] body = (status + " " + StatusLine.reason(status) + "\n").getBytes(
                StandardCharsets.US_ASCII);
        response.setContentType("text/plain;charset=utf-8");
        response.setContentLength(body.length);
        try {
            response.getOutputStream().write(body);
            response.finishResponse();
        } catch (IOException gone) {
            // Nobody is there to read it.
            throwable = gone;
        }
    }
}
