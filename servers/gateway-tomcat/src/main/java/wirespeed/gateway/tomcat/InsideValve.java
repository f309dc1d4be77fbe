// Lets the servlet reach Tomcat's own request behind the facade.
package wirespeed.gateway.tomcat;

import jakarta.servlet.ServletException;
import java.io.IOException;
import org.apache.catalina.connector.Request;
import org.apache.catalina.connector.Response;
import org.apache.catalina.valves.ValveBase;

/** Response heads have to be passed unchanged and broken ones cut, which facades do not offer. */
final class InsideValve extends ValveBase {
    static final String REQUEST = "wirespeed.gateway.tomcat.request";

    @Override
    public void invoke(Request request, Response response) throws IOException, ServletException {
        request.setAttribute(REQUEST, request);
        getNext().invoke(request, response);
    }
}
