// The request that filters see: as the strict reader took it, from whom Tomcat says it comes.
package wirespeed.gateway.tomcat;

import java.security.cert.X509Certificate;
import org.apache.catalina.Globals;
import org.apache.catalina.connector.Request;
import wirespeed.gateway.core.ClientCertificate;

/** Tomcat itself has read a short head in its place. */
final class RequestReader {
    private RequestReader() {
    }

    static wirespeed.gateway.core.Request read(Request from) {
        StrictReader reader = (StrictReader) from.getCoyoteRequest().getNote(Http11.READER);
        wirespeed.gateway.core.Request request = reader.request();
        request.clientAddress(from.getRemoteAddr());
        if (from.isSecure()) {
            request.scheme("https");
            if (from.getAttribute(Globals.CERTIFICATES_ATTR) instanceof X509Certificate[] shown
                    && shown.length > 0) {
                request.clientCertificate(ClientCertificate.describe(shown[0]));
            }
        }
        return request;
    }
}
