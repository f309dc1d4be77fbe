// The request that filters see: as the strict reader took it, or made from Tomcat's.
package wirespeed.gateway.tomcat;

import java.security.cert.X509Certificate;
import java.util.Enumeration;
import org.apache.catalina.Globals;
import org.apache.catalina.connector.Request;
import wirespeed.gateway.core.ClientCertificate;
import wirespeed.gateway.core.HeadCheck;
import wirespeed.gateway.core.HeadSink;
import wirespeed.gateway.core.Limits;
import wirespeed.gateway.core.Refusal;

/**
 * In HTTP/1 the strict reader has it. Otherwise Tomcat's values are written as a head again and read by gateway-core: what Tomcat was lenient
 * about has become harmless or is refused by the same rules as in the other carrier.
 */
final class RequestReader {
    private RequestReader() {
    }

    static wirespeed.gateway.core.Request read(Request from, Limits limits, HeadSink sink) {
        StrictReader reader = (StrictReader) from.getCoyoteRequest().getNote(Http11.READER);
        wirespeed.gateway.core.Request request = reader == null ? made(from, limits, sink)
                : reader.request();
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

    private static wirespeed.gateway.core.Request made(Request from, Limits limits,
            HeadSink sink) {
        sink.clear();
        sink.put(from.getMethod()).put(' ').put(target(from)).put(' ').put(from.getProtocol())
                .crlf();
        Enumeration<String> names = from.getHeaderNames();
        while (names.hasMoreElements()) {
            String name = names.nextElement();
            Enumeration<String> values = from.getHeaders(name);
            while (values.hasMoreElements()) {
                sink.line(name, values.nextElement());
            }
        }
        sink.crlf();
        int end = HeadCheck.end(sink.array(), 0, sink.length(), 0, limits);
        if (end != sink.length()) {
            throw new Refusal(400, "a header field holds a line break");
        }
        return HeadCheck.request(sink.array(), 0, end, limits);
    }

    private static String target(Request from) {
        String query = from.getQueryString();
        return query == null ? from.getRequestURI() : from.getRequestURI() + '?' + query;
    }
}
