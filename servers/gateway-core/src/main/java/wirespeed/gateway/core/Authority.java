// Host and :authority values: host or address, with or without a port (RFC 9110 §4.2, §7.2).
package wirespeed.gateway.core;

/** Refuses lists, user information, spaces and ports that are none. */
public final class Authority {
    private Authority() {
    }

    /** Refuses what is no {@code host[:port]}. */
    public static void check(String host) {
        int end = hostEnd(host);
        if (end == 0 || end > 255) {
            throw Refusal.bad("Host is empty or longer than 255 characters");
        }
        if (end == host.length()) {
            return;
        }
        if (host.charAt(end) != ':') {
            throw Refusal.bad("Host holds a character that it may not");
        }
        port(host, end + 1);
    }

    /** The host of a request without its port, as {@link #canonical} writes it. */
    public static String name(String host) {
        return canonical(host.substring(0, hostEnd(host)));
    }

    /**
     * A host name in lower case, and without the dot that a fully qualified name may end with: to
     * most origins it is the same name, and must be to routes and rules. Names of a configuration
     * are compared in this form, too.
     */
    public static String canonical(String host) {
        int end = host.length();
        String name = end > 1 && host.charAt(end - 1) == '.' ? host.substring(0, end - 1) : host;
        for (int i = 0; i < name.length(); i++) {
            if (name.charAt(i) >= 'A' && name.charAt(i) <= 'Z') {
                return name.toLowerCase(java.util.Locale.ROOT);
            }
        }
        return name;
    }

    /**
     * A host of the configuration as {@link #canonical} writes it: a name or an address without a port,
     * {@code *.suffix}, or nothing for every host. A host that no request could have is refused with a reason.
     */
    public static String pattern(String text) {
        boolean isSuffix = text.startsWith("*.");
        String name = isSuffix ? text.substring(2) : text;
        int end;
        try {
            end = hostEnd(name);
        } catch (Refusal none) {
            end = 0;
        }
        if (end > 0 && name.substring(end).matches(":\\d*")) {
            throw new IllegalArgumentException("host \"" + text + "\" has a port, which is not compared"
                    + " (write \"" + text.substring(0, text.lastIndexOf(':')) + "\")");
        }
        boolean isName = end > 0 && end == name.length() && end <= 255 && name.charAt(0) != '.'
                && !(isSuffix && name.startsWith("["));
        if (!isName && !text.isEmpty()) {
            throw new IllegalArgumentException("host \"" + text + "\" is neither a host name nor *.suffix"
                    + (text.equals("*") ? " (leave it out for every host)" : " (for example \"example.com\""
                    + " or \"*.example.com\")"));
        }
        return canonical(text);
    }

    /** Whether a pattern stands for the host of a request. */
    public static boolean matches(String pattern, String host) {
        if (pattern.isEmpty() || host == null) {
            return pattern.isEmpty();
        }
        String name = name(host);
        return pattern.startsWith("*.") ? name.endsWith(pattern.substring(1)) : name.equals(pattern);
    }

    /** Whether a host can be one of those of both patterns. */
    public static boolean overlap(String one, String other) {
        boolean isEvery = one.isEmpty() || other.isEmpty() || one.equals(other);
        return isEvery || isWithin(one, other) || isWithin(other, one);
    }

    /** Whether a pattern, or the part of it that hosts end with, lies below {@code *.suffix}. */
    private static boolean isWithin(String one, String suffix) {
        return suffix.startsWith("*.") && one.endsWith(suffix.substring(1));
    }

    private static int hostEnd(String host) {
        if (host.startsWith("[")) {
            int close = host.indexOf(']');
            for (int i = 1; i < close; i++) {
                char c = host.charAt(i);
                if (Ascii.hex(c) < 0 && c != ':' && c != '.') {
                    throw Refusal.bad("Host is not an IPv6 address in brackets");
                }
            }
            if (close < 3) {
                throw Refusal.bad("Host has an open bracket");
            }
            return close + 1;
        }
        int end = 0;
        while (end < host.length() && isNameCharacter(host.charAt(end))) {
            end++;
        }
        return end;
    }

    /** Letters, digits, '.', '-' and '_'; percent-encoded names are in no use. */
    private static boolean isNameCharacter(char c) {
        return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
                || c == '.' || c == '-' || c == '_';
    }

    private static void port(String host, int from) {
        int port = 0;
        for (int i = from; i < host.length(); i++) {
            char c = host.charAt(i);
            port = c >= '0' && c <= '9' && port <= 65535 ? port * 10 + c - '0' : 65536;
        }
        if (port > 65535) {
            throw Refusal.bad("Host has a bad port");
        }
    }
}
