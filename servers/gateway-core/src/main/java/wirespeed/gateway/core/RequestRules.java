// What a well-formed request head must also obey: target, Host, framing, Expect, Connection.
package wirespeed.gateway.core;

/** Applied to each request, whichever protocol version brought it. */
public final class RequestRules {
    private RequestRules() {
    }

    static void apply(Request request) {
        Headers headers = request.headers();
        String host = headers.single(Field.HOST, 400);
        if (host == null && request.minor() == 1) {
            throw Refusal.bad("HTTP/1.1 request without Host");
        }
        target(request, host);
        Framing framing = Framing.of(headers, request.minor(), 400);
        request.framing(framing == null ? Framing.NONE : framing);
        connection(request, headers);
        expect(request, headers);
    }

    /**
     * For a request that HTTP/2 brought: its fields become a request with the same rules.
     *
     * @param length the declared length, or -1
     */
    public static Request fromFields(String method, String target, String authority,
            Headers headers, boolean hasBody) {
        wellFormed(Ascii.isToken(method) && method.length() <= 32, "method is not a token");
        for (int i = 0; i < target.length(); i++) {
            wellFormed(target.charAt(i) < 0x7f && Ascii.isTarget(target.charAt(i)),
                    "path holds a character that it may not");
        }
        wellFormed(target.startsWith("/") || target.equals("*"), "path does not begin with /");
        wellFormed(!headers.mayHave(Field.CONNECTION_SPECIFIC), "connection header in HTTP/2");
        String host = headers.single(Field.HOST, 400);
        wellFormed(host == null || host.equalsIgnoreCase(authority), ":authority differs from Host");
        headers.remove("Host");
        headers.append("Host", authority);
        Request request = new Request(method.intern(), target, 1, headers);
        request.cameByHttp2();
        apply(request);
        if (request.framing().kind() == Framing.Kind.NONE && hasBody) {
            request.framing(Framing.CHUNKED);
        }
        return request;
    }

    private static void check(boolean isFine, String reason) {
        if (!isFine) {
            throw Refusal.bad(reason);
        }
    }

    private static void wellFormed(boolean isSo, String reason) {
        if (!isSo) {
            throw Refusal.malformed(reason);
        }
    }

    private static void target(Request request, String host) {
        String target = request.target();
        if (request.method().equals("CONNECT")) {
            throw new Refusal(405, "CONNECT is not offered");
        }
        if (target.charAt(0) == '/') {
            authority(request, host);
            TargetPath.split(request, target);
        } else if (target.equals("*")) {
            check(request.method().equals("OPTIONS"), "target * is for OPTIONS only");
            authority(request, host);
            request.path("*", null);
        } else {
            absolute(request, target, host);
        }
    }

    /** RFC 9112 §3.2.2: the target wins over Host, which is rewritten. */
    private static void absolute(Request request, String target, String host) {
        boolean isHttp = startsWithIgnoreCase(target, "http://");
        check(isHttp || startsWithIgnoreCase(target, "https://"), "request target has no known form");
        int start = isHttp ? 7 : 8;
        int end = start;
        while (end < target.length() && "/?".indexOf(target.charAt(end)) < 0) {
            end++;
        }
        if (host != null) {
            Authority.check(host);
        }
        String authority = target.substring(start, end);
        check(!authority.isEmpty(), "absolute request target without a host");
        authority(request, authority);
        if (host == null || !host.equals(authority)) {
            request.headers().remove("Host");
            request.headers().append("Host", authority);
        }
        String rest = target.substring(end);
        if (rest.isEmpty() && request.method().equals("OPTIONS")) {
            // §3.2.4: it asks for what OPTIONS * asks the host itself.
            request.path("*", null);
        } else {
            TargetPath.split(request, rest.startsWith("/") ? rest : "/" + rest);
        }
    }

    private static boolean startsWithIgnoreCase(String text, String prefix) {
        return text.regionMatches(true, 0, prefix, 0, prefix.length());
    }

    private static void authority(Request request, String host) {
        if (host != null) {
            Authority.check(host);
            request.host(host);
        }
    }

    private static void connection(Request request, Headers headers) {
        boolean isKept = request.minor() == 1;
        if (headers.mayHave(Field.CONNECTION.bit)) {
            for (String option : HopByHop.options(headers)) {
                if (option.equalsIgnoreCase("close")) {
                    request.keepAlive(false);
                    return;
                }
                isKept |= option.equalsIgnoreCase("keep-alive");
            }
        }
        request.keepAlive(isKept);
    }

    private static void expect(Request request, Headers headers) {
        if (!headers.mayHave(Field.EXPECT.bit)) {
            return;
        }
        String expect = headers.single(Field.EXPECT, 400);
        if (expect == null) {
            return;
        }
        if (!expect.equalsIgnoreCase("100-continue")) {
            throw new Refusal(417, "Expect is not 100-continue");
        }
        // RFC 9110 §10.1.1: ignored in HTTP/1.0 and when no body follows.
        request.expectsContinue(request.minor() == 1 && !request.framing().isEmpty());
        headers.remove("Expect");
    }
}
