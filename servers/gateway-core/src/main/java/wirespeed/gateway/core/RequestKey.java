// The part of a request by which it goes where earlier ones went.
package wirespeed.gateway.core;

/** The keys of consistent hashing, and of routes that send a client to the same origin each time. */
public final class RequestKey {
    private static final String HEADER = "header:";
    private static final String COOKIE = "cookie:";

    private RequestKey() {
    }

    /** Refuses an unknown key. */
    public static void check(String key) {
        boolean isNamed = key.startsWith(HEADER) && Ascii.isToken(key.substring(HEADER.length()))
                || key.startsWith(COOKIE) && Cookies.isName(key.substring(COOKIE.length()));
        if (!isNamed && !key.equals("client") && !key.equals("path")) {
            throw new IllegalArgumentException("unknown key \"" + key
                    + "\" (client, path, header:NAME or cookie:NAME)");
        }
    }

    /** The key's value in a request; null without that field or cookie. */
    static String of(Request request, String key) {
        if (key.startsWith(HEADER)) {
            return request.headers().get(key.substring(HEADER.length()));
        }
        if (key.startsWith(COOKIE)) {
            return Cookies.get(request.headers(), key.substring(COOKIE.length()));
        }
        return key.equals("path") ? request.path() : request.clientAddress();
    }
}
