// All options of the gateway.
package wirespeed.gateway.core;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The declaration; see docs/gateway-options.md, which is generated from it. */
public final class OptionTable {
    private static final long HOUR = 3_600_000;
    private static final Map<String, Option> ALL = declare();

    private OptionTable() {
    }

    public static List<Option> all() {
        return List.copyOf(ALL.values());
    }

    /** The option, or null for a key that there is not. */
    public static Option find(String section, String name) {
        return ALL.get(section + "." + name);
    }

    /** The options of one table in the order of their declaration. */
    public static List<Option> section(String section) {
        return ALL.values().stream().filter(option -> option.section().equals(section)).toList();
    }

    /** The key most like a wrong one, or null; for "did you mean". */
    public static String nearest(String section, String name) {
        String best = null;
        int bestDistance = Math.max(2, name.length() / 2);
        for (Option option : section(section)) {
            int distance = distance(name, option.name());
            if (distance < bestDistance) {
                bestDistance = distance;
                best = option.name();
            }
        }
        return best;
    }

    /** Levenshtein's distance. */
    private static int distance(String a, String b) {
        int[] row = new int[b.length() + 1];
        for (int j = 0; j <= b.length(); j++) {
            row[j] = j;
        }
        for (int i = 1; i <= a.length(); i++) {
            int diagonal = row[0];
            row[0] = i;
            for (int j = 1; j <= b.length(); j++) {
                int cost = a.charAt(i - 1) == b.charAt(j - 1) ? 0 : 1;
                int value = Math.min(Math.min(row[j], row[j - 1]) + 1, diagonal + cost);
                diagonal = row[j];
                row[j] = value;
            }
        }
        return row[b.length()];
    }

    private static Map<String, Option> declare() {
        Declaration d = new Declaration();
        server(d);
        listeners(d);
        limits(d);
        timeouts(d);
        tls(d);
        admin(d);
        tracing(d);
        cache(d);
        origins(d);
        health(d);
        routes(d);
        filters(d);
        tomcat(d);
        return d.options;
    }

    private static void server(Declaration d) {
        d.in("server", false);
        d.text("listen", "127.0.0.1:8080", "Listen address for clients; port 0 selects a free port.");
        d.count("threads", 0, 0, 1024, "Event loops; 0 = one per visible processor.");
        d.choice("transport", "epoll", List.of("nio", "epoll", "io_uring"),
                "Socket transport; an unavailable one is an error, without a fallback.");
        d.count("backlog", 4096, 1, 65535, "Listen backlog.");
        d.bool("reuse-port", false, "One listening socket per event loop, for many short connections.");
        d.bool("defer-accept", false, "Accept a connection when its first byte has arrived.");
        d.bool("h2c", false, "Take HTTP/2 without TLS from clients that begin with it (prior"
                + " knowledge); gateway-netty only.");
        d.texts("proxy-protocol", "", "Networks whose connections to server.listen begin with a"
                + " PROXY header (v1 or v2), which names the client; gateway-netty only.");
        d.bytes("receive-buffer", "4KiB", 1024, 1 << 20, "Size of a read; while a socket has more,"
                + " 32KiB at a time.");
        d.texts("dns", "", "DNS servers for resolving origins (ADDRESS:PORT); empty = system"
                + " resolver.");
        d.text("consul", "", "Consul agent that knows the services consul:NAME of origins, such as"
                + " http://127.0.0.1:8500.");
        d.text("consul-token", "", "Its X-Consul-Token.");
        d.text("eureka", "", "Eureka server that knows the services eureka:NAME of origins, such as"
                + " http://127.0.0.1:8761/eureka; it is polled every five seconds.");
        d.text("endpoints", "", "File that lists the endpoints of the services file:NAME of"
                + " origins: a line NAME HOST:PORT for each, with '*N' and ' backup' as in"
                + " addresses. It is read every second.");
        d.text("log-folder", "", "Folder that must contain all access logs, also those of"
                + " configurations sent to the admin port; empty for any place.");
        d.text("page-folder", "", "Folder that must contain all files of error pages, as"
                + " log-folder does access logs.");
        d.reloadable = true;
        d.text("via-name", "", "Name of the gateway in Via; empty = random.");
        d.texts("trusted-proxies", "", "Networks whose X-Forwarded-*, Forwarded and X-Real-IP are"
                + " trusted; from other networks these fields are removed.");
        d.duration("config-watch", "2s", 0, HOUR, "Interval of checking the --config file for changes,"
                + " which are applied; 0 = on SIGHUP only.");
        d.duration("drain", "30s", 0, HOUR, "Grace period for requests in flight after SIGTERM.");
        d.duration("drain-delay", "0ms", 0, HOUR,
                "Delay between /ready responding 503 and closing the listener.");
    }

    private static void listeners(Declaration d) {
        d.in("listener", false);
        d.text("listen", "", "A further address for clients, besides server.listen.");
        d.bool("tls", true, "Encrypt where tls.certificate is set; false for a plain listener next to"
                + " an encrypted one.");
        d.texts("proxy-protocol", "", "As server.proxy-protocol, for this listener; gateway-netty only.");
    }

    private static void limits(Declaration d) {
        d.in("limits", true);
        d.bytes("line", "8KiB", 256, 1 << 20, "Request line; above it 414.");
        d.bytes("head", "16KiB", 512, 1 << 20, "Request head; above it 431.");
        d.count("fields", 100, 1, 10_000, "Header fields; above it 431.");
        d.bytes("response-head", "64KiB", 512, 1 << 20, "Head of an origin's response; above it 502.");
        d.count("response-fields", 1000, 1, 10_000, "Header fields of a response; above it 502.");
        d.bytes("body", "100MiB", 0, 1L << 40, "Request body; above it 413.");
        d.reloadable = false;
        d.count("in-flight", 20_000, 1, 10_000_000, "Exchanges at one time; above it 503.");
        d.duration("loop-lag", "100ms", 10, 60_000, "Lag of an event loop above which it sheds load.");
        d.bytes("held-bodies", "32MiB", 0, 1L << 40, "Bodies in memory at one time: collected for"
                + " filters, until their exchange is over and their client has taken them, or kept"
                + " for another attempt. Above it 503, or no other attempt.");
        d.count("direct-memory-percent", 80, 10, 100, "Share of direct memory above which load is"
                + " shed.");
    }

    private static void timeouts(Declaration d) {
        d.in("timeouts", false);
        d.duration("head", "10s", 100, HOUR, "For a request head, from its first byte; then 408."
                + " In gateway-netty for a TLS handshake, too; then closed.");
        d.duration("body-idle", "20s", 100, HOUR, "Between two pieces of a request body; then 408.");
        d.duration("keep-alive", "75s", 100, HOUR, "For the next request of a connection.");
        d.duration("exchange", "10m", 100, 24 * HOUR, "For a whole exchange; then 504,"
                + " or 408 while filters wait for the request body.");
        d.bytes("body-rate", "100B", 0, 1 << 30, "Per second, on average over a request body and"
                + " after body-idle; below it 408.");
        d.duration("send", "60s", 100, HOUR, "For a client to read its response; then the"
                + " connection is closed.");
        d.duration("pool-idle", "30s", 100, HOUR, "For an unused connection to an origin.");
        d.duration("pool-wait", "5s", 1, HOUR, "For a free connection to an origin; then 503.");
    }

    private static void tls(Declaration d) {
        d.in("tls", false);
        d.text("certificate", "", "PEM file with the chain; switches TLS on for clients.");
        d.text("key", "", "PEM file with the private key (PKCS #8).");
        d.texts("more-certificates", "", "CHAIN.pem KEY.pem of further names; a client gets the"
                + " one for the name that it requests (SNI).");
        d.choice("min-version", "1.2", List.of("1.2", "1.3"), "Least version of TLS for clients.");
        d.texts("ciphers", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,"
                + " TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,"
                + " TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,"
                + " TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,"
                + " TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "Ciphers of TLS 1.2 for clients, by"
                + " IANA's names. The default is Mozilla's intermediate list without DHE; those of"
                + " TLS 1.3 are always on.");
        d.choice("client-auth", "none", List.of("none", "optional", "required"), "Whether clients"
                + " show a certificate; origins see it as X-Forwarded-Client-Cert.");
        d.text("client-ca", "", "PEM file that clients' certificates must come from.");
        d.bool("http2", true, "Offer HTTP/2 by ALPN; gateway-netty only.");
        d.text("origin-ca", "", "PEM file with the CA of origins' certificates; empty = the"
                + " platform's CAs.");
    }

    private static void admin(Declaration d) {
        d.in("admin", false);
        d.text("listen", "", "Address and port of the admin server; empty for none.");
        d.text("socket", "", "Path of a Unix socket for the admin API, which only the gateway's user may"
                + " open and which needs no token. With it admin.listen takes GET and HEAD only.");
        d.text("token", "", "Needed as 'Authorization: Bearer' by every client once it is set, but for"
                + " /ready and /health; an address that is not loopback must have one.");
    }

    private static void tracing(Declaration d) {
        d.in("tracing", false);
        d.text("endpoint", "", "URL to which spans are sent as OTLP over HTTP, such as"
                + " http://127.0.0.1:4318/v1/traces; empty for none.");
        d.count("sample-percent", 100, 0, 100, "Sampling rate of traces that start at the gateway;"
                + " for others the client's decision applies.");
        d.text("service", "wirespeed-gateway", "service.name of the spans.");
    }

    private static void cache(Declaration d) {
        d.in("cache", false);
        d.bool("enabled", false, "Store responses in memory as RFC 9111 says.");
        d.bytes("size", "64MiB", 1024, 1L << 40, "All stored responses together: bodies,"
                + " fields and URIs. A quarter of it more, or one entry, for bodies on their way in.");
        d.bytes("entry", "1MiB", 0, 1 << 30, "One stored body.");
        d.duration("collapse", "5s", 0, HOUR, "How long identical requests wait for one that is in"
                + " flight (request collapsing); 0 = off.");
    }

    private static void origins(Declaration d) {
        d.in("origin", true);
        d.texts("addresses", "", "host:port of each server, or the name of a service: of DNS (SRV)"
                + " such as _http._tcp.shop.internal, of server.consul such as consul:shop, of server.eureka"
                + " such as eureka:SHOP, or of server.endpoints such as file:shop; '*N' behind it is a weight,"
                + " ' backup' makes it a backup. Each address that a name leads to is an endpoint"
                + " of its own.");
        d.choice("balance", "random-two", java.util.Arrays.stream(Balancer.Method.values())
                .map(Balancer.Method::label).toList(), "Load-balancing method.");
        d.text("hash-key", "client", "For hash: client, path, header:NAME or cookie:NAME.");
        d.duration("connect", "1s", 1, HOUR, "For a connection to an address; its TLS handshake has"
                + " ten seconds, or as long if that is more.");
        d.duration("response", "20s", 1, HOUR, "From the request's end to the response head; then"
                + " 504.");
        d.duration("body-idle", "30s", 1, HOUR, "Between two pieces of a response body.");
        d.count("connections", 4096, 1, 1_000_000, "Per address, over all loops.");
        d.count("connection-requests", 100_000, 1, 1_000_000_000, "Per connection; then it is"
                + " closed.");
        d.duration("connection-age", "10m", 1, 24 * HOUR, "Of a connection, more or less a tenth; then"
                + " it is not used again. In gateway-tomcat a minute at most.");
        d.count("waiters", 1000, 0, 1_000_000, "Requests that may wait for a connection, per event loop.");
        d.duration("slow-start", "10s", 0, HOUR, "Period over which a recovered address ramps up to its"
                + " full share; not if it is the only one.");
        d.bool("interim", false, "Forward 103 and other interim responses; gateway-netty only.");
        d.count("retries", 1, 0, 10, "Retries of idempotent requests, on other addresses.");
        d.texts("retry-status", "", "Statuses that are retried on another address, such as 503.");
        d.count("retry-budget", 20, 0, 100, "Retries as a share of the requests, in per cent.");
        d.duration("hedge-after", "0ms", 0, HOUR, "Send an idempotent request to a second address when no"
                + " response arrived after this time (hedging), within retries and retry-budget; 0 = off;"
                + " gateway-netty only.");
        d.bool("eject-on-5xx", false, "Count a 5xx as a failure of its address.");
        d.duration("eject-slower-than", "0ms", 0, HOUR, "Count a slower response head as a failure of"
                + " its address; 0 = off.");
        d.choice("http2", "off", List.of("off", "alpn", "prior-knowledge"), "HTTP/2 to the origin:"
                + " negotiated by ALPN, or h2c by prior knowledge; gateway-netty only.");
        d.bool("request-trailers", false, "Forward trailers of requests; filters and checks of header"
                + " fields do not see them.");
        d.bool("preserve-host", true, "Send the client's Host and not the address.");
        d.bool("tls", false, "Encrypt and verify the certificate, for tls-name.");
        d.text("tls-name", "", "Name that is requested (SNI) and verified; empty for the host of"
                + " the address.");
        d.choice("persistence", "none", List.of("none", "cookie", "header"),
                "Session affinity: binds a client to an address.");
        d.text("persistence-name", "", "Name of that cookie or header; empty for the cookie wirespeed-NAME,"
                + " with the name of the origin, or the header wirespeed. Origins with the same addresses"
                + " share a session by one name.");
        d.text("persistence-key", "", "Secret of the cookie; empty = random at each start.");
    }

    private static void health(Declaration d) {
        d.in("origin", true);
        d.text("check-path", "", "Path that is requested regularly, if set.");
        d.duration("check-interval", "5s", 10, HOUR, "Between two checks, varied by a fifth.");
        d.duration("check-timeout", "2s", 10, HOUR, "For one check.");
        d.count("check-rise", 2, 1, 100, "Good checks until an address is used again.");
        d.count("check-fall", 3, 1, 100, "Bad checks until it is not.");
        d.text("check-status", "200-399", "Status or range that is good.");
        d.text("check-body", "", "Text that the first 4 KiB of the body must hold.");
        d.text("check-host", "", "Host of the check; empty for the address as configured.");
        d.count("check-port", 0, 0, 65535, "Port that is checked; 0 for that of the address.");
        d.table("check-fields", "Further header fields of the check.");
    }

    private static void routes(Declaration d) {
        d.in("route", true);
        d.text("name", "", "For metrics and the admin port; the default is its number.");
        d.text("host", "", "Exact host or *.suffix; empty for all.");
        d.text("prefix", "/", "Path prefix that ends on a segment border.");
        d.text("pattern", "", "Regular expression (RE2 syntax) that must match somewhere in the"
                + " path, besides the prefix; ^ and $ stand for its ends. Empty for all.");
        d.texts("methods", "", "Accepted methods; empty for all.");
        d.table("headers", "Fields that must have exactly these values.");
        d.table("query", "Parameters of the query whose first values, decoded, must be exactly these.");
        d.table("cookies", "Cookies that must have exactly these values.");
        d.texts("origins", "", "Names of origins; '*N' sets a weight.");
        d.text("sticky", "", "With several origins: client, path, header:NAME or cookie:NAME. Requests with"
                + " the same value go to the same origin; those without it, and all if this is empty, to a"
                + " random one. Clients can choose the value: do not use it for access control.");
        d.bool("strip-prefix", false, "Remove the prefix before the origin sees the path; it"
                + " gets it as X-Forwarded-Prefix.");
        d.bool("restore-prefix", false, "Put a stripped prefix before Location, Content-Location and"
                + " cookie paths of responses that lack it.");
        d.bool("encoded-slashes", false, "Take paths with %2F, which the origin gets as they are;"
                + " otherwise 400. Prefixes and filters see them as a part of a name: an origin that"
                + " takes them for a slash must not rely on rules about paths.");
        d.bool("upgrade", true, "Pass WebSocket through.");
        d.bytes("body", "0B", 0, 1L << 40, "Request body; above it 413. 0 for limits.body.");
        d.duration("timeout", "0ms", 0, 24 * HOUR, "For a whole exchange; then 504. 0 for"
                + " timeouts.exchange.");
        d.duration("response", "0ms", 0, 24 * HOUR, "For each attempt, from the request's end to the"
                + " response head. 0 for the origin's.");
    }

    private static void filters(Declaration d) {
        d.in("filters", false);
        d.text("folder", "", "Java and Groovy filters and jars, loaded again when they change.");
        d.table("parameters", "Given to filters of the folder whose constructor takes a"
                + " Map<String, String>.");
        d.in("filter", true);
        d.choice("type", "", List.of("headers", "redirect", "rewrite", "rate-limit", "access-log",
                "debug", "static-response", "request-id", "compress", "jwt", "api-key", "basic",
                "external-auth", "ip", "cors", "error-page", "mirror"),
                "Which of the shipped filters.");
        d.text("name", "", "Unique name; the default is its type and number.");
        d.count("order", 100, -1_000_000, 1_000_000, "Smaller runs earlier. Without it a mirror runs last,"
                + " and cors answers preflights that ip allows before the jwt, api-key, basic and external-auth"
                + " that its requests can pass.");
        d.text("prefix", "/", "Only below this path.");
        d.text("host", "", "Only for this host, or *.suffix; empty for all.");
        d.choice("scheme", "any", List.of("any", "http", "https"), "Only for requests that came by it.");
        d.table("request-set", "headers: set in requests.");
        d.texts("request-remove", "", "headers: removed from requests.");
        d.table("response-set", "headers: set in responses.");
        d.texts("response-remove", "", "headers: removed from responses.");
        d.text("pattern", "", "rewrite, redirect: regular expression on the path (RE2 syntax).");
        d.text("replacement", "", "rewrite, redirect: new path or location, with or without a"
                + " query; $1 is a group.");
        d.count("status", 0, 0, 599, "redirect, static-response: the status.");
        d.text("body", "", "static-response, error-page: the body.");
        d.text("content-type", "text/plain; charset=utf-8", "static-response, error-page: its"
                + " type; that of an error-page whose file ends with .html or .json is known without.");
        d.texts("key", "client", "rate-limit: what has its own bucket: client, route,"
                + " header:NAME, claim:NAME of a token that a jwt filter accepted, or each"
                + " combination of several.");
        d.count("rate", 100, 1, 10_000_000, "rate-limit: requests per second.");
        d.count("burst", 100, 1, 10_000_000, "rate-limit: burst size.");
        d.count("ipv4-prefix", 32, 1, 32, "rate-limit: as ipv6-prefix, for IPv4.");
        d.count("ipv6-prefix", 64, 1, 128, "rate-limit: clients whose IPv6 addresses share this many"
                + " first bits are one.");
        d.texts("encodings", "br, gzip", "compress: offered encodings, preferred first.");
        d.texts("content-types", "text/*, application/json, application/javascript,"
                + " application/xml, application/*+json, application/*+xml, image/svg+xml",
                "compress: content types to compress; * is a wildcard.");
        d.bytes("min", "1KiB", 0, 1 << 30, "compress: minimum size.");
        d.text("file", "", "access-log, error-page: the file; without one a log goes to standard output.");
        d.texts("statuses", "", "error-page: for which, such as 404 or 5xx; a status has"
                + " precedence over its class.");
        d.bool("from-origins", false, "error-page: whether responses of origins are replaced,"
                + " too.");
        d.text("format", "", "access-log: json, or a template with names in braces.");
        d.text("jwks", "", "jwt: key set of the issuer, a file or an http address; fetched again when"
                + " it is old or lacks a key.");
        d.texts("algorithms", "RS256, ES256", "jwt: the accepted ones.");
        d.text("issuer", "", "jwt: iss of every token, required; * for any.");
        d.text("audience", "", "jwt: what aud must contain, required; * for any.");
        d.duration("leeway", "30s", 0, HOUR, "jwt: by which clocks may differ.");
        d.table("claim-headers", "jwt: fields of the request that claims are set in, such as X-User ="
                + " \"sub\"; a client's own are removed.");
        d.text("keys-file", "", "api-key: a line NAME SHA256-OF-KEY for each key.");
        d.text("key-header", "X-API-Key", "api-key: the field with the key, which is removed.");
        d.text("users-file", "", "basic: a line NAME:HASH for each user, with the hash that openssl"
                + " passwd -6 prints.");
        d.text("realm", "gateway", "basic: text that browsers show when they prompt for the"
                + " password.");
        d.text("url", "", "external-auth, mirror: http address of the service. external-auth"
                + " sends it a request for each: 2xx lets it pass; redirects, 401 and 403 go to"
                + " the client, all else is 503. mirror appends the path that the origin gets.");
        d.duration("timeout", "2s", 1, HOUR, "external-auth, mirror: for the whole response.");
        d.count("percent", 100, 0, 100, "mirror: share of the requests that are copied.");
        d.bytes("mirror-body", "0B", 0, 65_536, "mirror: requests with a body up to this size are copied,"
                + " too, if they name its length; such a body is collected before filters see the request.");
        d.texts("remove-headers", "Authorization, Cookie", "mirror: fields of the request that copies lack;"
                + " Via, which ends loops, stays.");
        d.texts("send-headers", "Authorization, Cookie", "external-auth: fields of the request that"
                + " are sent along.");
        d.texts("copy-headers", "", "external-auth: fields of the response that the origin gets;"
                + " a client's own are removed.");
        d.text("identity-header", "", "api-key, basic: the field in which the origin gets NAME; a client's own"
                + " is removed.");
        d.texts("allow", "", "ip: networks whose clients may pass; empty for all.");
        d.texts("deny", "", "ip: networks whose clients may not.");
        d.texts("allow-origins", "", "cors: origins whose pages may read, or *.");
        d.texts("allow-methods", "GET, HEAD, POST", "cors: methods that pages may use.");
        d.texts("allow-headers", "", "cors: fields that pages may send.");
        d.texts("expose-headers", "", "cors: fields of responses that pages may read.");
        d.bool("credentials", false, "cors: whether pages may send cookies; not with *.");
        d.duration("max-age", "10m", 0, 24 * HOUR, "cors: how long a browser remembers.");
    }

    private static void tomcat(Declaration d) {
        d.in("tomcat", false);
        d.choice("threads", "platform", List.of("platform", "virtual"), "Kind of request threads.");
        d.count("max-threads", 5000, 1, 100_000, "maxThreads.");
        d.count("max-keep-alive-requests", 5000, -1, 1_000_000_000, "maxKeepAliveRequests.");
        d.duration("connection-timeout", "20s", 1, HOUR, "connectionTimeout.");
        d.count("accept-count", 5000, 1, 65535, "acceptCount.");
        d.count("max-connections", 20_000, 1, 1_000_000, "maxConnections.");
        d.count("max-tunnels", 1000, 0, 100_000, "WebSockets at one time, each with two threads; above"
                + " it 503.");
        d.count("origin-connections", 5000, 1, 1_000_000, "zuul.max.host.connections.");
        d.text("acceptor-thread-count", "", "Of 2013; accepted and reported as not applied.");
        d.text("socket-buffer", "", "Of 2013; accepted and reported as not applied.");
        d.text("poll-time", "", "Of 2013; accepted and reported as not applied.");
    }

    /** Collects rows; keeps the section and whether it is reloadable. */
    private static final class Declaration {
        private final Map<String, Option> options = new LinkedHashMap<>();
        private String section;
        private boolean reloadable;

        void in(String section, boolean reloadable) {
            this.section = section;
            this.reloadable = reloadable;
        }

        void text(String name, String value, String text) {
            row(name, Option.Type.TEXT, value, 0, 0, text);
        }

        void texts(String name, String value, String text) {
            row(name, Option.Type.TEXTS, value, 0, 0, text);
        }

        void table(String name, String text) {
            row(name, Option.Type.TABLE, "", 0, 0, text);
        }

        void bool(String name, boolean value, String text) {
            row(name, Option.Type.BOOLEAN, String.valueOf(value), 0, 0, text);
        }

        void count(String name, long value, long min, long max, String text) {
            row(name, Option.Type.COUNT, String.valueOf(value), min, max, text);
        }

        void duration(String name, String value, long min, long max, String text) {
            row(name, Option.Type.DURATION, value, min, max, text);
        }

        void bytes(String name, String value, long min, long max, String text) {
            row(name, Option.Type.BYTES, value, min, max, text);
        }

        void choice(String name, String value, List<String> choices, String text) {
            add(new Option(section, name, Option.Type.CHOICE, value, 0, 0, choices, reloadable,
                    text));
        }

        private void row(String name, Option.Type type, String value, long min, long max,
                String text) {
            add(new Option(section, name, type, value, min, max, new ArrayList<>(), reloadable,
                    text));
        }

        private void add(Option option) {
            options.put(option.key(), option);
        }
    }
}
