// Header fields: the received bytes with an index, and the changes that filters made on top.
package wirespeed.gateway.core;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.BiConsumer;

/**
 * Ordered, case-insensitive, several values a name.
 *
 * <p>Received lines stay bytes and are copied unchanged to the other side; a string is made only
 * for what is asked for. Names and values given as strings are checked when they are set, so no
 * filter can split a message.
 */
public final class Headers {
    private static final int STRIDE = 5;
    private static final byte[] NONE = {};
    private static final String[] NOTHING_ADDED = {};
    private static final int REMOVED = -1;

    private byte[] source = NONE;
    /** Per received line: name start (or REMOVED), name end, value start, value end, field. */
    private int[] index = new int[8 * STRIDE];
    private int count;
    private long seen;
    private String[] added = NOTHING_ADDED;
    private int addedCount;

    /** Empty headers, for messages that were not received. */
    public Headers() {
    }

    Headers(byte[] source) {
        this.source = source;
    }

    void line(int nameStart, int nameEnd, int valueStart, int valueEnd) {
        int at = count * STRIDE;
        if (at == index.length) {
            index = Arrays.copyOf(index, at * 2);
        }
        Field field = Field.of(source, nameStart, nameEnd);
        index[at] = nameStart;
        index[at + 1] = nameEnd;
        index[at + 2] = valueStart;
        index[at + 3] = valueEnd;
        index[at + 4] = field == null ? -1 : field.ordinal();
        if (field != null) {
            seen |= field.bit;
        }
        count++;
    }

    int received() {
        return count;
    }

    /** Whether any of these fields may be present; a removed field may still say yes. */
    boolean mayHave(long bits) {
        return (seen & bits) != 0;
    }

    /** The only value of a field; null when absent. More than one line is refused. */
    String single(Field field, int status) {
        if (!mayHave(field.bit)) {
            return null;
        }
        int found = -1;
        for (int at = 0; at < count * STRIDE; at += STRIDE) {
            if (index[at + 4] == field.ordinal() && index[at] != REMOVED) {
                if (found >= 0) {
                    throw new Refusal(status, field.text + " appears " + all(field.text).size()
                            + " times");
                }
                found = at;
            }
        }
        return addedCount == 0 && found >= 0 ? value(found) : singleOfAll(field, status);
    }

    /** As {@link #single} where fields were added. */
    private String singleOfAll(Field field, int status) {
        List<String> values = all(field.text);
        if (values.size() > 1) {
            throw new Refusal(status, field.text + " appears " + values.size() + " times");
        }
        return values.isEmpty() ? null : values.get(0);
    }

    /** The first value of a name, or null. */
    public String get(String name) {
        for (int at = 0; at < count * STRIDE; at += STRIDE) {
            if (is(at, name)) {
                return value(at);
            }
        }
        for (int i = 0; i < addedCount; i += 2) {
            if (added[i].equalsIgnoreCase(name)) {
                return added[i + 1];
            }
        }
        return null;
    }

    /** All values of a name in order. */
    public List<String> all(String name) {
        List<String> values = new ArrayList<>(2);
        for (int at = 0; at < count * STRIDE; at += STRIDE) {
            if (is(at, name)) {
                values.add(value(at));
            }
        }
        for (int i = 0; i < addedCount; i += 2) {
            if (added[i].equalsIgnoreCase(name)) {
                values.add(added[i + 1]);
            }
        }
        return values;
    }

    public boolean has(String name) {
        return get(name) != null;
    }

    /** Adds a line; the value must be free of CR, LF and NUL. */
    public void add(String name, String value) {
        if (!Ascii.isToken(name)) {
            throw new IllegalArgumentException("\"" + name + "\" is no header name");
        }
        if (!Ascii.isValue(value)) {
            throw new IllegalArgumentException("value of header " + name
                    + " holds a control character or one above U+00FF");
        }
        append(name, value);
    }

    /** Replaces all lines of this name by one. */
    public void set(String name, String value) {
        remove(name);
        add(name, value);
    }

    /** As {@link #add} for constants of the gateway itself, which need no check. */
    void append(String name, String value) {
        appendLine(name, value);
        Field field = Field.of(name);
        if (field != null) {
            seen |= field.bit;
        }
    }

    /** As {@link #append(String, String)} without a search for the field. */
    void append(Field field, String value) {
        appendLine(field.text, value);
        seen |= field.bit;
    }

    private void appendLine(String name, String value) {
        if (addedCount == added.length) {
            added = Arrays.copyOf(added, Math.max(8, addedCount * 2));
        }
        added[addedCount++] = name;
        added[addedCount++] = value;
    }

    public void remove(String name) {
        for (int at = 0; at < count * STRIDE; at += STRIDE) {
            if (is(at, name)) {
                index[at] = REMOVED;
            }
        }
        int kept = 0;
        for (int i = 0; i < addedCount; i += 2) {
            if (!added[i].equalsIgnoreCase(name)) {
                added[kept++] = added[i];
                added[kept++] = added[i + 1];
            }
        }
        addedCount = kept;
    }

    /** Drops the known fields whose bits are set. */
    void removeKnown(long bits) {
        if ((seen & bits) == 0) {
            return;
        }
        for (int at = 0; at < count * STRIDE; at += STRIDE) {
            int field = index[at + 4];
            if (field >= 0 && (bits & 1L << field) != 0) {
                index[at] = REMOVED;
            }
        }
        int kept = 0;
        for (int i = 0; i < addedCount; i += 2) {
            Field field = Field.of(added[i]);
            if (field == null || (bits & field.bit) == 0) {
                added[kept++] = added[i];
                added[kept++] = added[i + 1];
            }
        }
        addedCount = kept;
        seen &= ~bits;
    }

    public void clear() {
        count = 0;
        addedCount = 0;
        seen = 0;
    }

    /** Number of lines. */
    public int size() {
        int size = addedCount / 2;
        for (int at = 0; at < count * STRIDE; at += STRIDE) {
            if (index[at] != REMOVED) {
                size++;
            }
        }
        return size;
    }

    public void forEach(BiConsumer<String, String> action) {
        for (int at = 0; at < count * STRIDE; at += STRIDE) {
            if (index[at] != REMOVED) {
                action.accept(Ascii.string(source, index[at], index[at + 1]), value(at));
            }
        }
        for (int i = 0; i < addedCount; i += 2) {
            action.accept(added[i], added[i + 1]);
        }
    }

    /** A copy that shares nothing with this one. */
    public Headers copy() {
        Headers copy = new Headers();
        forEach(copy::append);
        return copy;
    }

    /** Writes each line with its CRLF; received neighbours are copied together. */
    public void writeTo(HeadSink sink) {
        int end = count * STRIDE;
        for (int at = 0; at < end; at += STRIDE) {
            if (index[at] == REMOVED) {
                continue;
            }
            int from = index[at];
            // A line ends before its CRLF; whitespace after the value goes along.
            while (at + STRIDE < end && index[at + STRIDE] != REMOVED) {
                at += STRIDE;
            }
            int lineEnd = lineEnd(index[at + 3]);
            sink.put(source, from, lineEnd - from);
        }
        for (int i = 0; i < addedCount; i += 2) {
            sink.line(added[i], added[i + 1]);
        }
    }

    private int lineEnd(int at) {
        while (source[at] != '\n') {
            at++;
        }
        return at + 1;
    }

    private boolean is(int at, String name) {
        return index[at] != REMOVED
                && Ascii.equalsIgnoreCase(source, index[at], index[at + 1], name);
    }

    private String value(int at) {
        return Ascii.string(source, index[at + 2], index[at + 3]);
    }

    @Override
    public String toString() {
        HeadSink sink = new HeadSink();
        writeTo(sink);
        return sink.toString();
    }
}
