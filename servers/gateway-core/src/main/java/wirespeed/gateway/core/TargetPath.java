// One reading of a path for routes, filters and origin (RFC 3986 §6.2.2).
package wirespeed.gateway.core;

/**
 * Normalises once. A path that normalising changed is forwarded in its normal form, so that a rule
 * about {@code /admin} cannot be passed by {@code /x/../admin}, {@code //admin} or
 * {@code /%61dmin}. Parameters of segments ({@code /admin;x}) mean nothing to some origins and are a
 * part of the name to others: rules see the path without them, the origin with them.
 */
public final class TargetPath {
    private static final String ENCODED_SLASH = "%2F";

    private TargetPath() {
    }

    /** Sets path and query of a request from an origin-form target. */
    public static void split(Request request, String target) {
        int question = target.indexOf('?');
        String path = question < 0 ? target : target.substring(0, question);
        String query = question < 0 ? null : target.substring(question + 1);
        String normal = normalise(path);
        if (hasEncodedSlash(normal)) {
            checkDecoded(normal);
        }
        String plain = normal.indexOf(';') < 0 ? normal : withoutParameters(normal);
        request.path(plain, query);
        if (plain != normal) {
            request.pathWithParameters(normal);
        }
    }

    /**
     * The path of a request with a part of what rules see replaced. Parameters of segments around that part
     * stay where they are.
     *
     * @param start of the part, as an index of {@link Request#path}
     * @param end behind its last character
     */
    public static String replaced(Request request, int start, int end, String by) {
        String whole = request.pathWithParameters();
        return whole.substring(0, position(whole, start)) + by + whole.substring(position(whole, end));
    }

    /**
     * The text that rules see between two indexes of {@link Request#path}, with the parameters of
     * its segments; empty for a start of -1, as a group that took no part has.
     */
    public static String part(Request request, int start, int end) {
        String whole = request.pathWithParameters();
        return start < 0 ? "" : whole.substring(position(whole, start), position(whole, end));
    }

    /** Where the character with this index stands when parameters are not counted. */
    private static int position(String whole, int index) {
        boolean isParameter = false;
        for (int at = 0, counted = 0; at < whole.length(); at++) {
            isParameter = whole.charAt(at) == ';' || isParameter && whole.charAt(at) != '/';
            if (!isParameter && counted++ == index) {
                return at;
            }
        }
        return whole.length();
    }

    /** Whether a path that rules see is a prefix, or lies below it: /a covers /a and /a/b, not /ab. */
    public static boolean isBelow(String prefix, String path) {
        return prefix.equals("/") || path.startsWith(prefix) && (path.length() == prefix.length()
                || prefix.endsWith("/") || path.charAt(prefix.length()) == '/');
    }

    /** A prefix of the configuration. One that no path as rules see it begins with is refused with a sentence. */
    public static String prefix(String text) {
        if (!text.startsWith("/")) {
            throw new IllegalArgumentException("prefix \"" + text + "\" does not start with /");
        }
        String form;
        try {
            form = prefixForm(text);
        } catch (Refusal none) {
            throw new IllegalArgumentException("prefix \"" + text + "\": " + none.getMessage(), none);
        }
        if (!form.equals(text)) {
            throw new IllegalArgumentException("prefix \"" + text + "\" is the beginning of no path as rules"
                    + " see it (write \"" + form + "\")");
        }
        return text;
    }

    /** Without a query, parameters and a star for all that follows, and in the normal form. */
    private static String prefixForm(String text) {
        int end = text.indexOf('?');
        String path = end < 0 ? text : text.substring(0, end);
        String plain = path.endsWith("/*") ? path.substring(0, Math.max(1, path.length() - 2)) : path;
        StringBuilder encoded = new StringBuilder(plain.length());
        for (byte b : plain.getBytes(java.nio.charset.StandardCharsets.UTF_8)) {
            encoded.append(Ascii.isTarget(b) ? String.valueOf((char) b) : String.format("%%%02X", b));
        }
        String normal = normalise(encoded.toString());
        checkDecoded(normal);
        return normal.indexOf(';') < 0 ? normal : withoutParameters(normal);
    }

    /** Whether a normal path holds %2F: a slash to some origins, and a part of a name to others. */
    static boolean hasEncodedSlash(String normal) {
        return normal.indexOf('%') >= 0 && normal.contains(ENCODED_SLASH);
    }

    /** An origin that decodes it must not climb where no rule has looked. */
    private static void checkDecoded(String normal) {
        for (String piece : normal.replace(ENCODED_SLASH, "/").split("/", -1)) {
            int semicolon = piece.indexOf(';');
            String name = semicolon < 0 ? piece : piece.substring(0, semicolon);
            if (name.equals(".") || name.equals("..")) {
                throw Refusal.bad("path holds dots next to an encoded slash");
            }
        }
    }

    /** Refuses segments that are empty or dots once their parameters are gone. */
    private static String withoutParameters(String path) {
        StringBuilder plain = new StringBuilder(path.length());
        for (String segment : path.substring(1).split("/", -1)) {
            int semicolon = segment.indexOf(';');
            String name = semicolon < 0 ? segment : segment.substring(0, semicolon);
            if (semicolon >= 0 && (name.isEmpty() || name.equals(".") || name.equals(".."))) {
                throw Refusal.bad("path holds parameters of an empty segment or of dots");
            }
            plain.append('/').append(name);
        }
        return plain.toString();
    }

    /** The normal form; refuses control characters, encoded backslashes, and climbing above the root. */
    public static String normalise(String path) {
        return isNormal(path) ? path : withoutDots(decodeUnreserved(path));
    }

    private static boolean isNormal(String path) {
        for (int i = 0; i < path.length(); i++) {
            char c = path.charAt(i);
            if (c == '%') {
                return false;
            }
            if ((c == '.' || c == '/') && i > 0 && path.charAt(i - 1) == '/') {
                return false;
            }
        }
        return true;
    }

    private static String decodeUnreserved(String path) {
        StringBuilder decoded = new StringBuilder(path.length());
        for (int i = 0; i < path.length(); i++) {
            char c = path.charAt(i);
            if (c != '%') {
                decoded.append(c);
                continue;
            }
            int high = i + 2 < path.length() ? Ascii.hex(path.charAt(i + 1)) : -1;
            int low = i + 2 < path.length() ? Ascii.hex(path.charAt(i + 2)) : -1;
            if (high < 0 || low < 0) {
                throw Refusal.bad("path holds % without two hexadecimal digits");
            }
            append(decoded, high << 4 | low);
            i += 2;
        }
        return decoded.toString();
    }

    private static void append(StringBuilder decoded, int value) {
        if (value < 0x20 || value == 0x7f || value == '\\') {
            throw Refusal.bad("path holds an encoded control character or separator");
        }
        boolean isUnreserved = value >= 'a' && value <= 'z' || value >= 'A' && value <= 'Z'
                || value >= '0' && value <= '9' || "-._~".indexOf(value) >= 0;
        if (isUnreserved) {
            decoded.append((char) value);
        } else {
            decoded.append('%').append("0123456789ABCDEF".charAt(value >> 4))
                    .append("0123456789ABCDEF".charAt(value & 15));
        }
    }

    /** RFC 3986 §5.2.4, except that ".." above the root is refused; empty segments go, too. */
    private static String withoutDots(String path) {
        StringBuilder out = new StringBuilder(path.length());
        int from = 1;
        while (from <= path.length()) {
            int to = path.indexOf('/', from);
            boolean isLast = to < 0;
            String segment = path.substring(from, isLast ? path.length() : to);
            if (segment.equals("..")) {
                int parent = out.lastIndexOf("/");
                if (parent < 0) {
                    throw Refusal.bad("path climbs above the root");
                }
                out.setLength(parent);
            } else if (!segment.equals(".") && !segment.isEmpty()) {
                out.append('/').append(segment);
            }
            if (isLast) {
                boolean isFolder = segment.equals(".") || segment.equals("..")
                        || segment.isEmpty();
                return isFolder ? out.append('/').toString() : out.toString();
            }
            from = to + 1;
        }
        return out.length() == 0 ? "/" : out.toString();
    }
}
