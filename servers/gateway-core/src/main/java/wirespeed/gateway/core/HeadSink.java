// A growing byte array in which a head is composed before it is sent in one piece.
package wirespeed.gateway.core;

import java.util.Arrays;

/** Owned by one thread and reused; the array is only valid until the next {@link #clear}. */
public final class HeadSink {
    private byte[] bytes = new byte[1024];
    private int length;

    public byte[] array() {
        return bytes;
    }

    public int length() {
        return length;
    }

    public void clear() {
        length = 0;
    }

    public HeadSink put(byte[] source) {
        return put(source, 0, source.length);
    }

    public HeadSink put(byte[] source, int from, int count) {
        reserve(count);
        System.arraycopy(source, from, bytes, length, count);
        length += count;
        return this;
    }

    /** One byte a character; the text has been checked to be Latin-1. */
    @SuppressWarnings("deprecation") // the only copy from a string without an array in between
    public HeadSink put(String text) {
        int count = text.length();
        reserve(count);
        text.getBytes(0, count, bytes, length);
        length += count;
        return this;
    }

    public HeadSink put(char character) {
        reserve(1);
        bytes[length++] = (byte) character;
        return this;
    }

    /** A decimal number. */
    public HeadSink put(long number) {
        if (number < 0) {
            throw new IllegalArgumentException("a head holds no negative number: " + number);
        }
        int digits = 1;
        for (long rest = number / 10; rest > 0; rest /= 10) {
            digits++;
        }
        reserve(digits);
        for (int at = length + digits - 1; at >= length; at--) {
            bytes[at] = (byte) ('0' + number % 10);
            number /= 10;
        }
        length += digits;
        return this;
    }

    public HeadSink line(String name, String value) {
        return put(name).put(':').put(' ').put(value).crlf();
    }

    public HeadSink crlf() {
        reserve(2);
        bytes[length++] = '\r';
        bytes[length++] = '\n';
        return this;
    }

    private void reserve(int count) {
        if (length + count > bytes.length) {
            bytes = Arrays.copyOf(bytes, Math.max(bytes.length * 2, length + count));
        }
    }

    @Override
    public String toString() {
        return Ascii.string(bytes, 0, length);
    }
}
