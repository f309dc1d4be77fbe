// Byte classes of RFC 9110 and 9112, and case-insensitive comparison on bytes.
package wirespeed.gateway.core;

/** Tables instead of comparisons: a head is classified byte by byte for each request. */
public final class Ascii {
    private static final byte TOKEN = 1;
    private static final byte VALUE = 2;
    private static final byte TARGET = 4;
    private static final byte[] CLASS = new byte[256];
    private static final byte[] LOWER = new byte[256];

    static {
        for (int b = 0; b < 256; b++) {
            LOWER[b] = (byte) (b >= 'A' && b <= 'Z' ? b + 32 : b);
            // RFC 9110 §5.5: visible characters, space, tab and obs-text.
            if (b == '\t' || b >= 0x20 && b != 0x7f) {
                CLASS[b] |= VALUE;
            }
            // RFC 9112 §3.2; '#' never reaches a server, '\' reads as '/' elsewhere.
            if (b > 0x20 && b < 0x7f && b != '#' && b != '\\') {
                CLASS[b] |= TARGET;
            }
            boolean alphanumeric = b >= '0' && b <= '9' || b >= 'a' && b <= 'z'
                    || b >= 'A' && b <= 'Z';
            if (alphanumeric || b != 0 && b < 0x7f && "!#$%&'*+-.^_`|~".indexOf(b) >= 0) {
                CLASS[b] |= TOKEN;
            }
        }
    }

    private Ascii() {
    }

    /** RFC 9110 §5.6.2 {@code tchar}. */
    public static boolean isToken(int b) {
        return (CLASS[b & 0xff] & TOKEN) != 0;
    }

    /** What a field value may contain. */
    public static boolean isValue(int b) {
        return (CLASS[b & 0xff] & VALUE) != 0;
    }

    /** What a request target may contain. */
    public static boolean isTarget(int b) {
        return (CLASS[b & 0xff] & TARGET) != 0;
    }

    /** Lower-case of an ASCII letter, everything else unchanged. */
    public static int lower(int b) {
        return LOWER[b & 0xff];
    }

    /** Whether the bytes from..to equal {@code text} when case is ignored. */
    public static boolean equalsIgnoreCase(byte[] bytes, int from, int to, String text) {
        if (to - from != text.length()) {
            return false;
        }
        for (int i = 0; i < text.length(); i++) {
            if (LOWER[bytes[from + i] & 0xff] != LOWER[text.charAt(i) & 0xff]) {
                return false;
            }
        }
        return true;
    }

    /** The bytes from..to as a string, one character a byte. */
    public static String string(byte[] bytes, int from, int to) {
        return new String(bytes, from, to - from, java.nio.charset.StandardCharsets.ISO_8859_1);
    }

    /** One character a byte; the callers have checked that nothing is lost. */
    public static byte[] bytes(String text) {
        return text.getBytes(java.nio.charset.StandardCharsets.ISO_8859_1);
    }

    /** Whether {@code text} is a non-empty token. */
    public static boolean isToken(String text) {
        for (int i = 0; i < text.length(); i++) {
            if (text.charAt(i) > 0x7e || !isToken(text.charAt(i))) {
                return false;
            }
        }
        return !text.isEmpty();
    }

    /** Whether {@code text} may be a field value: no CR, LF, NUL or other control. */
    public static boolean isValue(String text) {
        for (int i = 0; i < text.length(); i++) {
            if (text.charAt(i) > 0xff || !isValue(text.charAt(i))) {
                return false;
            }
        }
        return true;
    }

    /** The index of a non-hexadecimal digit is -1, else 0..15. */
    public static int hex(int b) {
        if (b >= '0' && b <= '9') {
            return b - '0';
        }
        int lower = b | 0x20;
        return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
    }
}
