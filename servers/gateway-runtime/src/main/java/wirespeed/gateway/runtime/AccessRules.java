// Filters that decide by where a request comes from: networks, and origins of web pages.
package wirespeed.gateway.runtime;

import java.nio.ByteBuffer;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import wirespeed.gateway.core.Ascii;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Filter;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Networks;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.core.Phase;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.Response;
import wirespeed.gateway.core.Step;

/** Both answer in the phase PRE, before anything is asked of an origin. */
final class AccessRules {
    private AccessRules() {
    }

    /** Who is denied gets no answer to a preflight either, though that may come before the filter. */
    static void denyPreflights(List<Filter> filters) {
        List<Ip> rules = filters.stream().filter(Ip.class::isInstance).map(Ip.class::cast).toList();
        for (Filter filter : filters) {
            if (filter instanceof Cors.Preflight preflight) {
                preflight.rules = rules;
            }
        }
    }

    /** Lets clients of some networks pass; the client is who trusted proxies say it is. */
    static final class Ip extends ShippedFilters.Scoped {
        private final Networks allowed;
        private final Networks denied;

        Ip(ShippedFilters.Scope scope, OptionValues values) {
            super(scope, Phase.PRE);
            allowed = Networks.parse(values.texts("allow"));
            denied = Networks.parse(values.texts("deny"));
            if (allowed.isEmpty() && denied.isEmpty()) {
                throw new IllegalArgumentException("ip needs allow or deny");
            }
        }

        @Override
        public Step apply(Context context) {
            String client = context.request().clientAddress();
            boolean isAllowed = (allowed.isEmpty() || allowed.contains(client))
                    && !denied.contains(client);
            if (isAllowed) {
                return Step.NEXT;
            }
            context.category(Category.LIMIT);
            return Step.respond(Response.of(403, "text/plain; charset=utf-8", "403 Forbidden\n"));
        }
    }

    /** Lets browsers know whether a page of another origin may read (Fetch §3.2). */
    static final class Cors {
        private static final String ANY = "*";
        private static final int PORT_MAX = 65_535;
        private static final Pattern ORIGIN = Pattern.compile(
                "https?://(?:[a-z0-9._-]+|\\[[0-9a-f:.]+\\])(:[1-9][0-9]{0,4})?");

        private final List<String> origins;
        private final String methods;
        private final String headers;
        private final String exposed;
        private final boolean hasCredentials;
        private final long seconds;

        private Cors(OptionValues values) {
            origins = values.texts("allow-origins");
            methods = tokens(values, "allow-methods");
            headers = tokens(values, "allow-headers");
            exposed = tokens(values, "expose-headers");
            hasCredentials = values.isTrue("credentials");
            seconds = values.millis("max-age") / 1000;
            if (origins.isEmpty()) {
                throw new IllegalArgumentException("cors needs allow-origins, such as"
                        + " https://shop.example");
            }
            if (hasCredentials && origins.contains(ANY)) {
                throw new IllegalArgumentException("cors: credentials for every origin (*) would let"
                        + " any page act as its reader; name the origins");
            }
            for (String origin : origins) {
                if (!origin.equals(ANY) && !isOrigin(origin)) {
                    throw new IllegalArgumentException("allow-origins: \"" + origin
                            + "\" is not an origin as browsers write it (for example https://shop.example"
                            + " or http://10.0.0.7:8080)");
                }
            }
        }

        /** Refuses a name that would fail each response with it; one text may hold several. */
        private static String tokens(OptionValues values, String option) {
            for (String text : values.texts(option)) {
                for (String name : text.split(",", -1)) {
                    if (!Ascii.isToken(name.trim())) {
                        throw new IllegalArgumentException(option + ": \"" + text + "\" is not a token");
                    }
                }
            }
            return String.join(", ", values.texts(option));
        }

        /** In lower case, and without the usual port: any other spelling is equal to none that is sent. */
        private static boolean isOrigin(String text) {
            Matcher parts = ORIGIN.matcher(text);
            String usual = text.startsWith("https") ? ":443" : ":80";
            return parts.matches() && !usual.equals(parts.group(1))
                    && (parts.group(1) == null || Integer.parseInt(parts.group(1).substring(1)) <= PORT_MAX);
        }

        /**
         * The three filters: failures have a phase of their own.
         *
         * @param early where preflights are answered unless the configuration says so
         */
        static List<Filter> of(ShippedFilters.Scope scope, OptionValues values, int early) {
            Cors cors = new Cors(values);
            ShippedFilters.Scope first = values.isGiven("order") ? scope : scope.at(early);
            return List.of(cors.new Preflight(first), cors.new Answers(scope.named("response"), Phase.POST),
                    cors.new Answers(scope.named("failure").at(ShippedFilters.LAST), Phase.ERROR));
        }

        private boolean isAllowed(String origin) {
            return origin != null && (origins.contains(ANY) || origins.contains(origin));
        }

        private void allow(String origin, Headers answer) {
            answer.set("Access-Control-Allow-Origin", origins.contains(ANY) ? ANY : origin);
            if (hasCredentials) {
                answer.set("Access-Control-Allow-Credentials", "true");
            }
        }

        /** Answers the question; the origin is not asked. */
        private final class Preflight extends ShippedFilters.Scoped {
            private List<Ip> rules = List.of();

            Preflight(ShippedFilters.Scope scope) {
                super(scope, Phase.PRE);
            }

            @Override
            public Step apply(Context context) {
                Request request = context.request();
                boolean isAsked = request.method().equals("OPTIONS") && request.headers().has("Origin")
                        && request.headers().has("Access-Control-Request-Method");
                if (!isAsked) {
                    return Step.NEXT;
                }
                for (Ip rule : rules) {
                    Step step = rule.shouldFilter(context) ? rule.apply(context) : Step.NEXT;
                    if (step != Step.NEXT) {
                        return step;
                    }
                }
                Response answer = Response.of(204, ByteBuffer.allocate(0));
                Headers fields = answer.headers();
                if (isAllowed(request.headers().get("Origin"))) {
                    fields.add("Access-Control-Allow-Methods", methods);
                    if (!headers.isEmpty()) {
                        fields.add("Access-Control-Allow-Headers", headers);
                    }
                    fields.add("Access-Control-Max-Age", String.valueOf(seconds));
                }
                return Step.respond(answer);
            }
        }

        /** Says of each answer who may read it, and takes off what the origin says. */
        private final class Answers extends ShippedFilters.Scoped {
            Answers(ShippedFilters.Scope scope, Phase phase) {
                super(scope, phase);
            }

            @Override
            public Step apply(Context context) {
                Headers answer = context.response().headers();
                answer.remove("Access-Control-Allow-Origin");
                answer.remove("Access-Control-Allow-Credentials");
                if (!origins.contains(ANY) && !CacheTable.varyNames(answer).contains("origin")) {
                    // A cache must not give one origin's answer to another.
                    answer.add("Vary", "Origin");
                }
                String origin = context.request().headers().get("Origin");
                if (isAllowed(origin)) {
                    allow(origin, answer);
                    if (!exposed.isEmpty()) {
                        answer.set("Access-Control-Expose-Headers", exposed);
                    }
                }
                return Step.NEXT;
            }
        }
    }
}
