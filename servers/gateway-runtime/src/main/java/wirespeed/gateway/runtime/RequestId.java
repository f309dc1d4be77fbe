// Names each request for logs and traces: X-Request-ID and W3C Trace Context.
package wirespeed.gateway.runtime;

import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Filter;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Phase;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.Step;

/** Sets the fields of requests; {@link Answer} returns the id of its request to the client. */
final class RequestId extends ShippedFilters.Scoped {
    static final String ID = "X-Request-ID";
    private static final String TRACE = "traceparent";
    private static final String ATTRIBUTE = "request-id";
    private static final int ID_CHARS_MAX = 128;
    /** A later version than 00 may go on behind its flags; ff is none (W3C Trace Context §3.2). */
    private static final Pattern TRACE_PARENT = Pattern.compile("(?!ff|00.{54})[0-9a-f]{2}"
            + "-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})(?:-.*)?");
    /** Sampled, and that the id is random: others must be off in version 00. */
    private static final int FLAGS = 3;

    private RequestId(ShippedFilters.Scope scope) {
        super(scope, Phase.PRE);
    }

    static List<Filter> of(ShippedFilters.Scope scope) {
        return List.of(new RequestId(scope), new Answer(scope.named("response"), Phase.POST),
                new Answer(scope.named("failure").at(ShippedFilters.LAST), Phase.ERROR));
    }

    @Override
    public Step apply(Context context) {
        identify(context);
        if (context.attribute(Tracing.SPAN) == null) {
            trace(context.request().headers());
        }
        return Step.NEXT;
    }

    private static String identify(Context context) {
        Request request = context.request();
        String id = request.headers().get(ID);
        // A client could give all of its requests the name of another's.
        boolean isFromProxy = !request.peerAddress().equals(request.clientAddress());
        if (!isFromProxy || id == null || !isName(id)) {
            id = hex(2);
        }
        request.headers().set(ID, id);
        context.attribute(ATTRIBUTE, id);
        return id;
    }

    private static boolean isName(String id) {
        for (int i = 0; i < id.length(); i++) {
            if (id.charAt(i) <= ' ' || id.charAt(i) > '~') {
                return false;
            }
        }
        return !id.isEmpty() && id.length() <= ID_CHARS_MAX;
    }

    /** W3C Trace Context §3.2: the trace goes on with a span of ours, or begins here. */
    private static void trace(Headers headers) {
        List<String> given = headers.all(TRACE);
        Matcher parent = TRACE_PARENT.matcher(given.size() == 1 ? given.get(0) : "");
        String trace = hex(2);
        int flags = 1;
        if (parent.matches()) {
            trace = parent.group(1);
            flags = Integer.parseInt(parent.group(2), 16) & FLAGS;
        } else {
            // §3.3: it is about another trace.
            headers.remove("tracestate");
        }
        headers.set(TRACE, "00-" + trace + "-" + hex(1) + "-0" + flags);
    }

    private static String hex(int longs) {
        StringBuilder hex = new StringBuilder(16 * longs);
        for (int i = 0; i < longs; i++) {
            hex.append(HexFormat.of().toHexDigits(
                    ThreadLocalRandom.current().nextLong(1, Long.MAX_VALUE)));
        }
        return hex.toString();
    }

    /** The same name in the response. */
    private static final class Answer extends ShippedFilters.Scoped {
        private Answer(ShippedFilters.Scope scope, Phase phase) {
            super(scope, phase);
        }

        @Override
        public Step apply(Context context) {
            if (context.attribute(ATTRIBUTE) instanceof String id) {
                context.response().headers().set(ID, id);
            } else if (!context.response().isFromOrigin()) {
                // Refused before its turn.
                context.response().headers().set(ID, identify(context));
            }
            return Step.NEXT;
        }
    }
}
