// Literal IP addresses, read without a resolver.
package wirespeed.gateway.core;

import java.net.InetAddress;
import java.net.UnknownHostException;

/**
 * What a peer writes in a header field must never lead to a query of DNS, which the JDK makes for
 * whatever it does not take for a literal.
 */
public final class IpAddress {
    private static final int IPV4_BYTES = 4;
    private static final int IPV6_BYTES = 16;

    private IpAddress() {
    }

    /** The 4 or 16 bytes of a literal, IPv4 inside of IPv6 as IPv4; null for anything else. */
    public static byte[] parse(String text) {
        if (text.indexOf(':') < 0) {
            byte[] bytes = new byte[IPV4_BYTES];
            return ipv4(text, 0, text.length(), bytes, 0) ? bytes : null;
        }
        int zone = text.indexOf('%');
        byte[] bytes = ipv6(zone < 0 ? text : text.substring(0, zone));
        return bytes != null && isMapped(bytes) ? java.util.Arrays.copyOfRange(bytes, 12, 16) : bytes;
    }

    private static boolean ipv4(String text, int from, int to, byte[] into, int at) {
        int parts = 0;
        int begin = from;
        for (int i = from; i <= to; i++) {
            if (i < to && text.charAt(i) != '.') {
                continue;
            }
            int value = octet(text, begin, i);
            if (value < 0 || parts == IPV4_BYTES) {
                return false;
            }
            into[at + parts++] = (byte) value;
            begin = i + 1;
        }
        return parts == IPV4_BYTES;
    }

    /** 0 to 255 without a sign; some read a leading 0 as octal, so there is none. */
    private static int octet(String text, int from, int to) {
        if (to == from || to - from > 3 || to - from > 1 && text.charAt(from) == '0') {
            return -1;
        }
        int value = 0;
        for (int i = from; i < to; i++) {
            char digit = text.charAt(i);
            if (digit < '0' || digit > '9') {
                return -1;
            }
            value = value * 10 + digit - '0';
        }
        return value > 255 ? -1 : value;
    }

    /** RFC 4291 §2.2: groups, at most one gap, and the last two groups maybe as IPv4. */
    private static byte[] ipv6(String text) {
        byte[] bytes = new byte[IPV6_BYTES];
        int gap = -1;
        int filled = 0;
        int at = 0;
        if (text.startsWith("::")) {
            gap = 0;
            at = 2;
        }
        while (at < text.length()) {
            int end = text.indexOf(':', at);
            int to = end < 0 ? text.length() : end;
            if (end < 0 && text.indexOf('.', at) >= 0) {
                if (filled > IPV6_BYTES - IPV4_BYTES || !ipv4(text, at, to, bytes, filled)) {
                    return null;
                }
                filled += IPV4_BYTES;
                break;
            }
            int group = group(text, at, to);
            if (group < 0 || filled == IPV6_BYTES) {
                return null;
            }
            bytes[filled++] = (byte) (group >> 8);
            bytes[filled++] = (byte) group;
            at = to + 1;
            if (end >= 0 && at < text.length() && text.charAt(at) == ':') {
                if (gap >= 0) {
                    return null;
                }
                gap = filled;
                at++;
            } else if (end >= 0 && at == text.length()) {
                return null;
            }
        }
        return spread(bytes, filled, gap);
    }

    private static int group(String text, int from, int to) {
        if (to == from || to - from > 4) {
            return -1;
        }
        int value = 0;
        for (int i = from; i < to; i++) {
            int digit = text.charAt(i) > 'f' ? -1 : Ascii.hex(text.charAt(i));
            if (digit < 0) {
                return -1;
            }
            value = value << 4 | digit;
        }
        return value;
    }

    private static byte[] spread(byte[] bytes, int filled, int gap) {
        if (gap < 0) {
            return filled == IPV6_BYTES ? bytes : null;
        }
        if (filled > IPV6_BYTES - 2) {
            return null;
        }
        byte[] whole = new byte[IPV6_BYTES];
        System.arraycopy(bytes, 0, whole, 0, gap);
        System.arraycopy(bytes, gap, whole, IPV6_BYTES - (filled - gap), filled - gap);
        return whole;
    }

    private static boolean isMapped(byte[] bytes) {
        for (int i = 0; i < 10; i++) {
            if (bytes[i] != 0) {
                return false;
            }
        }
        return bytes[10] == -1 && bytes[11] == -1;
    }

    /** One spelling for each address, that of connections: the key of limits and of logs. */
    public static String text(byte[] address) {
        if (address.length == IPV4_BYTES) {
            return (address[0] & 0xff) + "." + (address[1] & 0xff) + "." + (address[2] & 0xff) + "."
                    + (address[3] & 0xff);
        }
        try {
            return InetAddress.getByAddress(address).getHostAddress();
        } catch (UnknownHostException impossible) {
            throw new IllegalStateException("16 bytes are an address", impossible);
        }
    }

    /**
     * The address in an element of X-Forwarded-For, which may have brackets and a port: what a client's
     * port is says nothing about who it is.
     *
     * @return null for anything else
     */
    static byte[] ofHop(String hop) {
        if (hop.startsWith("[")) {
            int close = hop.indexOf(']');
            boolean isAlone = close == hop.length() - 1;
            return close > 0 && (isAlone || isPort(hop, close + 1))
                    ? parse(hop.substring(1, close)) : null;
        }
        int colon = hop.indexOf(':');
        boolean hasPort = colon > 0 && colon == hop.lastIndexOf(':') && isPort(hop, colon);
        return parse(hasPort ? hop.substring(0, colon) : hop);
    }

    private static boolean isPort(String text, int colon) {
        if (text.charAt(colon) != ':' || text.length() - colon > 6 || text.length() == colon + 1) {
            return false;
        }
        for (int i = colon + 1; i < text.length(); i++) {
            if (text.charAt(i) < '0' || text.charAt(i) > '9') {
                return false;
            }
        }
        return true;
    }
}
