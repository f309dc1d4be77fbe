/** Faults that a response can have on purpose. */
package wirespeed.stuborigin;

import java.util.Arrays;
import java.util.Locale;
import java.util.stream.Collectors;

/** A fault: an action, and where in the response it happens. */
enum Fault {
    /** No fault. */
    NONE("none", "the ordinary response"),
    STATUS_500("500", "Internal Server Error"),
    STATUS_503("503", "Service Unavailable, with Retry-After"),
    RESET_BEFORE("reset-before", "TCP reset in place of a response"),
    RESET_HEAD("reset-head", "TCP reset within the head"),
    RESET_BODY("reset-body", "TCP reset within the body"),
    CLOSE_BEFORE("close-before", "orderly close in place of a response"),
    CLOSE_HEAD("close-head", "orderly close within the head"),
    CLOSE_BODY("close-body", "orderly close within the body"),
    STALL_BEFORE("stall-before", "silence in place of a response; the connection stays open"),
    STALL_HEAD("stall-head", "silence after half of the head"),
    STALL_BODY("stall-body", "silence after half of the body"),
    LENGTH_SHORT("length-short", "more bytes than Content-Length announces"),
    LENGTH_LONG("length-long", "fewer bytes than Content-Length announces, then close"),
    GARBAGE("garbage", "random bytes that are not HTTP, then close"),
    DRIP("drip", "the response in small pieces with pauses");

    final String word;
    final String text;

    Fault(String word, String text) {
        this.word = word;
        this.text = text;
    }

    static Fault named(String word) {
        for (Fault each : values()) {
            if (each.word.equals(word.toLowerCase(Locale.ROOT))) {
                return each;
            }
        }
        throw new BadUsage("'" + word + "' is not a fault; there are " + words());
    }

    static String words() {
        return Arrays.stream(values()).map(each -> each.word).collect(Collectors.joining(", "));
    }

    /** How many bytes of a response are sent before the action. */
    int cut(int headBytes, int wholeBytes) {
        return switch (this) {
            case RESET_BEFORE, CLOSE_BEFORE, STALL_BEFORE -> 0;
            case RESET_HEAD, CLOSE_HEAD, STALL_HEAD -> headBytes / 2;
            case RESET_BODY, CLOSE_BODY, STALL_BODY -> headBytes + (wholeBytes - headBytes) / 2;
            default -> wholeBytes;
        };
    }

    boolean isReset() {
        return this == RESET_BEFORE || this == RESET_HEAD || this == RESET_BODY;
    }

    boolean isStall() {
        return this == STALL_BEFORE || this == STALL_HEAD || this == STALL_BODY;
    }

    /** Whether the connection is closed in an orderly way after the sent bytes. */
    boolean isClose() {
        return this == CLOSE_BEFORE || this == CLOSE_HEAD || this == CLOSE_BODY
                || this == LENGTH_LONG || this == GARBAGE;
    }
}
