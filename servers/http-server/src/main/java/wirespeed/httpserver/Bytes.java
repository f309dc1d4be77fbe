/** The classes of bytes in an HTTP/1.1 head (RFC 9110 §5.5, §5.6.2; RFC 3986). */
package wirespeed.httpserver;

/** Byte classes as one table of flags, so that a check is one load and one test. */
final class Bytes {
    static final byte CR = '\r';
    static final byte LF = '\n';
    static final int TOKEN = 1;
    /** Field content: visible, obs-text, space and tab. */
    static final int VALUE = 2;
    /** Visible ASCII, except bytes that no form of a target contains, and {@code #}. */
    static final int TARGET = 4;
    /** A registered name or an IPv4 address. */
    static final int HOST = 8;
    private static final byte[] FLAGS = new byte[256];

    static {
        for (int each = 0; each < 256; each++) {
            boolean visible = each > 0x20 && each < 0x7f;
            boolean alphanumeric = each >= '0' && each <= '9' || each >= 'A' && each <= 'Z'
                    || each >= 'a' && each <= 'z';
            boolean token = alphanumeric || visible && "!#$%&'*+-.^_`|~".indexOf(each) >= 0;
            boolean value = visible || each >= 0x80 || each == ' ' || each == '\t';
            boolean target = visible && "#\"<>".indexOf(each) < 0;
            boolean host = alphanumeric || visible && "-._~!$&'()*+;=%".indexOf(each) >= 0;
            FLAGS[each] = (byte) ((token ? TOKEN : 0) | (value ? VALUE : 0) | (target ? TARGET : 0)
                    | (host ? HOST : 0));
        }
    }

    private Bytes() {
    }

    static boolean is(int kind, byte each) {
        return (FLAGS[each & 0xff] & kind) != 0;
    }

    static boolean isBlank(byte each) {
        return each == ' ' || each == '\t';
    }

    /** Whether a range is this word; the word is lower case, the range in any case. */
    static boolean isWord(byte[] bytes, int from, int to, byte[] word) {
        if (to - from != word.length) {
            return false;
        }
        for (int at = 0; at < word.length; at++) {
            byte each = bytes[from + at];
            boolean isUpper = each >= 'A' && each <= 'Z';
            if ((isUpper ? each | 0x20 : each) != word[at]) {
                return false;
            }
        }
        return true;
    }

    /** The value of a hexadecimal digit, or -1. */
    static int hex(byte each) {
        if (each >= '0' && each <= '9') {
            return each - '0';
        }
        int letter = each | 0x20;
        return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
    }
}
