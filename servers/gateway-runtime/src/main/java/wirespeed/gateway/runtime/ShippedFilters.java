// The filters that come with the gateway, made from their tables in the configuration.
package wirespeed.gateway.runtime;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import wirespeed.gateway.core.Authority;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Filter;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Option;
import wirespeed.gateway.core.OptionTable;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.core.Phase;
import wirespeed.gateway.core.Refusal;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.Response;
import wirespeed.gateway.core.Step;
import wirespeed.gateway.core.TargetPath;

/** Routing itself is not a filter: it happens between the phases pre and route. */
final class ShippedFilters {
    private static final Set<String> AUTHENTICATION = Set.of("jwt", "api-key", "basic", "external-auth");
    /** Of filters that add a field to whatever response the others have left. */
    static final int LAST = Integer.MAX_VALUE;
    /** That of filters that say none. */
    private static final int ORDER = 100;

    private ShippedFilters() {
    }

    /** One filter a table; a table for both directions gives two. */
    static List<Filter> of(List<OptionValues> tables) {
        return of(tables, false);
    }

    /** As {@link #of(List)}; a check opens no file of a log. */
    static List<Filter> of(List<OptionValues> tables, boolean isCheck) {
        List<Filter> filters = new ArrayList<>();
        List<String> mistakes = new ArrayList<>();
        boolean hasTokens = tables.stream().anyMatch(values -> values.text("type").equals("jwt"));
        int number = 0;
        for (OptionValues values : tables) {
            number++;
            try {
                if (!hasTokens && RateLimit.needsTokens(values)) {
                    throw new IllegalArgumentException("key claim:NAME needs a filter of type jwt");
                }
                boolean isLog = isCheck && values.text("type").equals("access-log");
                filters.addAll(isLog ? AccessLog.checked(values) : make(values, number, tables));
            } catch (IllegalArgumentException bad) {
                mistakes.add(values.place() + "filter " + number + ": " + bad.getMessage());
            }
        }
        if (!mistakes.isEmpty()) {
            // Some have a thread and a file already.
            filters.forEach(Filter::close);
            throw new ConfigError(mistakes);
        }
        AccessRules.denyPreflights(filters);
        return filters;
    }

    /** A browser sends no credentials with a preflight: who asks for them would refuse it. */
    private static int beforeAuthentication(Scope scope, List<OptionValues> tables) {
        return tables.stream().filter(values -> AUTHENTICATION.contains(values.text("type"))
                && mayBothCover(scope, values))
                .mapToInt(values -> values.count("order")).reduce(ORDER, Math::min) - 1;
    }

    private static boolean mayBothCover(Scope scope, OptionValues values) {
        try {
            return scope.overlaps(scope("", values));
        } catch (IllegalArgumentException another) {
            // A mistake of that table, which is reported there.
            return false;
        }
    }

    private static Scope scope(String name, OptionValues values) {
        return new Scope(name, values.count("order"), values.text("prefix"), values.text("host"),
                values.text("scheme"));
    }

    private static List<Filter> make(OptionValues values, int number, List<OptionValues> tables) {
        String type = values.text("type");
        String name = values.text("name").isEmpty() ? type + "-" + number : values.text("name");
        checkOptions(values, type);
        Scope scope = scope(name, values);
        return switch (type) {
            case "headers" -> List.of(new RequestHeaders(scope, values),
                    new ResponseHeaders(scope, values));
            case "redirect" -> List.of(new Redirect(scope, values));
            case "rewrite" -> List.of(new Rewrite(scope, values));
            case "rate-limit" -> List.of(new RateLimit(scope, values.texts("key"),
                    values.count("rate"), values.count("burst"), values.count("ipv4-prefix"),
                    values.count("ipv6-prefix"), System::nanoTime));
            case "error-page" -> ErrorPage.of(scope, values);
            case "access-log" -> List.of(new AccessLog(scope, values.text("file"),
                    values.text("format")));
            case "request-id" -> RequestId.of(scope);
            case "compress" -> List.of(new Compress(scope, values));
            case "jwt" -> List.of(new Authentication.Jwt(scope, values));
            case "api-key" -> List.of(new Authentication.ApiKey(scope, values));
            case "basic" -> List.of(new BasicAuthentication(scope, values));
            case "external-auth" -> List.of(new ExternalAuthorization(scope, values));
            case "mirror" -> List.of(new Mirror(scope, values));
            case "ip" -> List.of(new AccessRules.Ip(scope, values));
            case "cors" -> AccessRules.Cors.of(scope, values, beforeAuthentication(scope, tables));
            case "debug" -> List.of(new Debug(scope));
            case "static-response" -> List.of(new StaticResponse(scope, values));
            default -> throw new IllegalArgumentException("type is missing (for example type ="
                    + " \"headers\")");
        };
    }

    /** For which requests a filter is. */
    record Scope(String name, int order, String prefix, String host, String scheme) {
        Scope {
            host = Authority.pattern(host);
            prefix = prefix.isEmpty() ? "/" : TargetPath.prefix(prefix);
        }

        /** The same requests, for the filter of another phase. */
        Scope named(String phase) {
            return new Scope(name + "." + phase, order, prefix, host, scheme);
        }

        /** The same requests, at another time. */
        Scope at(int otherOrder) {
            return new Scope(name, otherOrder, prefix, host, scheme);
        }

        /** Whether a request can be there that both are for. */
        boolean overlaps(Scope other) {
            return Authority.overlap(host, other.host)
                    && (scheme.equals("any") || other.scheme.equals("any") || scheme.equals(other.scheme))
                    && (TargetPath.isBelow(prefix, other.prefix) || TargetPath.isBelow(other.prefix, prefix));
        }

        boolean covers(Context context) {
            Request request = context.request();
            return Authority.matches(host, request.host())
                    && (scheme.equals("any") || scheme.equals(request.clientScheme()))
                    && TargetPath.isBelow(prefix, request.path());
        }
    }

    /** The parts that all shipped filters have in common. */
    abstract static class Scoped implements Filter {
        final Scope scope;
        private final Phase phase;

        Scoped(Scope scope, Phase phase) {
            this.scope = scope;
            this.phase = phase;
        }

        @Override
        public Phase phase() {
            return phase;
        }

        @Override
        public int order() {
            return scope.order();
        }

        @Override
        public String name() {
            return scope.name();
        }

        @Override
        public boolean shouldFilter(Context context) {
            return scope.covers(context);
        }
    }

    private static final class RequestHeaders extends Scoped {
        private final OptionValues values;

        RequestHeaders(Scope scope, OptionValues values) {
            super(scope.named("request"), Phase.PRE);
            this.values = values;
            checkNames(values, "request-set", "request-remove");
        }

        @Override
        public Step apply(Context context) {
            change(context.request().headers(), values.texts("request-remove"),
                    values.table("request-set"));
            return Step.NEXT;
        }
    }

    private static final class ResponseHeaders extends Scoped {
        private final OptionValues values;

        ResponseHeaders(Scope scope, OptionValues values) {
            super(scope.named("response"), Phase.POST);
            this.values = values;
            checkNames(values, "response-set", "response-remove");
        }

        @Override
        public Step apply(Context context) {
            change(context.response().headers(), values.texts("response-remove"),
                    values.table("response-set"));
            return Step.NEXT;
        }
    }

    /** Fields by which messages are framed are written last: a value set here would have no effect. */
    private static void checkNames(OptionValues values, String set, String removed) {
        values.table(set).forEach((name, value) -> {
            new Headers().add(name, value);
            if (Headers.isFraming(name)) {
                throw new IllegalArgumentException(set + ": " + name + " is written by the gateway itself"
                        + " (leave it out)");
            }
            if (set.equals("request-set") && name.equalsIgnoreCase("Host")) {
                checkHost(set, value);
            }
        });
        values.texts(removed).forEach(name -> new Headers().add(name, ""));
    }

    private static void checkHost(String option, String value) {
        try {
            Authority.check(value);
        } catch (Refusal none) {
            throw new IllegalArgumentException(option + ": Host = \"" + value + "\": " + none.getMessage()
                    + " (write a name, with or without a port)", none);
        }
    }

    private static void change(Headers headers, List<String> removed,
            java.util.Map<String, String> set) {
        removed.forEach(headers::remove);
        set.forEach(headers::set);
    }

    private static final class Redirect extends Scoped {
        /** RFC 9110 §15.4: 304 is not a redirect, 305 and 306 have no meaning any more. */
        private static final Set<Integer> STATUSES = Set.of(300, 301, 302, 303, 307, 308);
        private final Replacement replacement;
        private final int status;

        Redirect(Scope scope, OptionValues values) {
            super(scope, Phase.PRE);
            replacement = Replacement.ofLocation(values);
            status = values.count("status") == 0 ? 302 : values.count("status");
            if (replacement.text().isEmpty() || !STATUSES.contains(status)) {
                throw new IllegalArgumentException(
                        "redirect needs replacement, and a status of 300, 301, 302, 303, 307 or 308");
            }
        }

        @Override
        public Step apply(Context context) {
            String location = replacement.in(context.request());
            if (location == null) {
                return Step.NEXT;
            }
            Response response = Response.of(status, ByteBuffer.allocate(0));
            response.headers().add("Location", location);
            return Step.respond(response);
        }
    }

    private static final class Rewrite extends Scoped {
        private final Replacement replacement;

        Rewrite(Scope scope, OptionValues values) {
            super(scope, Phase.PRE);
            replacement = Replacement.ofTarget(values);
        }

        @Override
        public Step apply(Context context) {
            String target = replacement.in(context.request());
            if (target != null) {
                // A pattern may have taken the slash off with what stood behind it.
                TargetPath.split(context.request(), target.startsWith("/") ? target : "/" + target);
            }
            return Step.NEXT;
        }
    }

    /** Options that another type of filter has would be ignored silently. */
    private static void checkOptions(OptionValues values, String type) {
        for (Option option : OptionTable.section("filter")) {
            int colon = option.text().indexOf(':');
            String types = colon < 0 ? "" : option.text().substring(0, colon);
            boolean isOfSome = !types.isEmpty() && types.matches("[a-z, -]+");
            if (isOfSome && values.isGiven(option.name())
                    && !List.of(types.split(", ")).contains(type)) {
                throw new IllegalArgumentException(option.name() + " is an option of " + types
                        + " and has no effect on " + type);
            }
        }
    }

    /** A body for all clients: direct, or a socket's queue would copy it for each that does not read. */
    static ByteBuffer shared(byte[] body) {
        return ByteBuffer.allocateDirect(body.length).put(body).flip().asReadOnlyBuffer();
    }

    private static final class StaticResponse extends Scoped {
        private final int status;
        private final String contentType;
        private final ByteBuffer body;

        StaticResponse(Scope scope, OptionValues values) {
            super(scope, Phase.PRE);
            status = values.count("status") == 0 ? 200 : values.count("status");
            if (status < 200) {
                throw new IllegalArgumentException("static-response needs a status from 200 on");
            }
            contentType = values.text("content-type");
            new Headers().add("Content-Type", contentType);
            body = shared(values.text("body").getBytes(java.nio.charset.StandardCharsets.UTF_8));
        }

        @Override
        public Step apply(Context context) {
            Response response = Response.of(status, body.duplicate());
            response.headers().add("Content-Type", contentType);
            return Step.respond(response);
        }
    }

    /** Says in the response what was decided about the request. */
    private static final class Debug extends Scoped {
        Debug(Scope scope) {
            super(scope, Phase.POST);
        }

        @Override
        public Step apply(Context context) {
            context.response().headers().set("X-Wirespeed-Debug", "id=" + context.id()
                    + "; route=" + (context.route() == null ? "-" : context.route().name())
                    + "; origin=" + (context.origin() == null ? "-" : context.origin().name())
                    + "; address=" + (context.address() == null ? "-" : context.address().id())
                    + "; attempts=" + context.attempts() + "; snapshot="
                    + context.snapshot().version());
            return Step.NEXT;
        }
    }
}
