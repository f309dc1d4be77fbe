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
    private static final byte[] NONE = {};
    private static final int[] NO_LINES = {};
    private static final String[] NOTHING_ADDED = {};
    /** In a line's number in {@link #index}: its place, above it its field, and whether it is gone. */
    private static final int PLACE_BITS = 26;
    private static final int PLACE = (1 << PLACE_BITS) - 1;
    private static final int FIELD = 31 << PLACE_BITS;
    private static final int REMOVED = 1 << 31;

    private byte[] source = NONE;
    /**
     * One number for each received line: two heads are read for each request, and what is not asked
     * for is not worth its place in memory.
     */
    private int[] index = NO_LINES;
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

    /** A line of the source, which holds a whole head, was read and found well-formed. */
    void line(int nameStart, int nameEnd) {
        if (count == index.length) {
            index = Arrays.copyOf(index, Math.max(8, count * 2));
        }
        Field field = Field.of(source, nameStart, nameEnd);
        if (field != null) {
            seen |= field.bit;
        }
        index[count++] = (field == null ? FIELD : field.ordinal() << PLACE_BITS) | nameStart;
    }

    private boolean isRemoved(int line) {
        return index[line] < 0;
    }

    private int start(int line) {
        return index[line] & PLACE;
    }

    /** After the line's CRLF. */
    private int end(int line) {
        return line + 1 < count ? start(line + 1) : source.length - 2;
    }

    /** The ordinal of the line's field; 31 for one that means nothing to the gateway. */
    private int field(int line) {
        return (index[line] & FIELD) >> PLACE_BITS;
    }

    int received() {
        return count;
    }

    /** Whether a field with this name is taken off each request before filters and routes see it. */
    public static boolean isNeverSeen(String name) {
        return isAmong(name, Field.HOP_BY_HOP | Field.NEVER_TAKEN);
    }

    /** Whether the gateway frames messages by a field with this name, or by its absence. */
    public static boolean isFraming(String name) {
        return isAmong(name, Field.HOP_BY_HOP | Field.CONTENT_LENGTH.bit);
    }

    private static boolean isAmong(String name, long bits) {
        Field field = Field.of(name);
        return field != null && (field.bit & bits) != 0;
    }

    /** Whether any of these fields may be present; a removed field may still say yes. */
    boolean mayHave(long bits) {
        return (seen & bits) != 0;
    }

    /** How many lines a field has. */
    int count(Field field) {
        int lines = 0;
        for (int line = 0; line < count; line++) {
            lines += field(line) == field.ordinal() && !isRemoved(line) ? 1 : 0;
        }
        for (int i = 0; i < addedCount; i += 2) {
            lines += added[i].equalsIgnoreCase(field.text) ? 1 : 0;
        }
        return lines;
    }

    /** The only value of a field; null when absent. More than one line is refused. */
    String single(Field field, int status) {
        if (!mayHave(field.bit)) {
            return null;
        }
        int found = -1;
        for (int line = 0; line < count; line++) {
            if (field(line) == field.ordinal() && !isRemoved(line)) {
                if (found >= 0) {
                    throw new Refusal(status, field.text + " appears " + all(field.text).size()
                            + " times");
                }
                found = line;
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
        for (int line = 0; line < count; line++) {
            if (is(line, name)) {
                return value(line);
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
        for (int line = 0; line < count; line++) {
            if (is(line, name)) {
                values.add(value(line));
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
        for (int line = 0; line < count; line++) {
            if (is(line, name)) {
                return true;
            }
        }
        for (int i = 0; i < addedCount; i += 2) {
            if (added[i].equalsIgnoreCase(name)) {
                return true;
            }
        }
        return false;
    }

    /** Adds a line; the value must be free of CR, LF and NUL. */
    public void add(String name, String value) {
        if (!Ascii.isToken(name)) {
            throw new IllegalArgumentException("invalid header name \"" + name + "\"");
        }
        if (!Ascii.isValue(value)) {
            throw new IllegalArgumentException("value of header " + name
                    + " holds a control character or one above U+00FF");
        }
        append(name, value);
    }

    /** Adds all lines of another, which were checked when they came there. */
    public void addAll(Headers other) {
        other.forEach(this::append);
    }

    /** Replaces all lines of this name by one; other spellings of it go, as with {@link #remove}. */
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

    /**
     * Drops all lines of this name, with an underscore in place of a hyphen, too: many origins take
     * {@code X_User} for {@code X-User}.
     */
    public void remove(String name) {
        for (int line = 0; line < count; line++) {
            if (isAlike(line, name)) {
                index[line] |= REMOVED;
            }
        }
        int kept = 0;
        for (int i = 0; i < addedCount; i += 2) {
            if (!added[i].replace('_', '-').equalsIgnoreCase(name.replace('_', '-'))) {
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
        for (int line = 0; line < count; line++) {
            if ((bits & 1L << field(line)) != 0) {
                index[line] |= REMOVED;
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
        for (int line = 0; line < count; line++) {
            if (!isRemoved(line)) {
                size++;
            }
        }
        return size;
    }

    public void forEach(BiConsumer<String, String> action) {
        for (int line = 0; line < count; line++) {
            if (!isRemoved(line)) {
                int start = start(line);
                action.accept(Ascii.string(source, start, nameEnd(start)), value(line));
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
        for (int line = 0; line < count; line++) {
            if (isRemoved(line)) {
                continue;
            }
            int from = start(line);
            while (line + 1 < count && !isRemoved(line + 1)) {
                line++;
            }
            sink.put(source, from, end(line) - from);
        }
        for (int i = 0; i < addedCount; i += 2) {
            sink.line(added[i], added[i + 1]);
        }
    }

    private boolean is(int line, String name) {
        int start = start(line);
        int end = start + name.length();
        return !isRemoved(line) && end < source.length && source[end] == ':'
                && Ascii.equalsIgnoreCase(source, start, end, name);
    }

    private boolean isAlike(int line, String name) {
        int start = start(line);
        int length = name.length();
        if (isRemoved(line) || start + length >= source.length || source[start + length] != ':') {
            return false;
        }
        for (int i = 0; i < length; i++) {
            if (hyphenated(source[start + i]) != hyphenated(name.charAt(i))) {
                return false;
            }
        }
        return true;
    }

    private static int hyphenated(int character) {
        return character == '_' ? '-' : Ascii.lower(character);
    }

    private int nameEnd(int start) {
        int end = start;
        while (source[end] != ':') {
            end++;
        }
        return end;
    }

    /** Without the whitespace around it. */
    private String value(int line) {
        int from = nameEnd(start(line)) + 1;
        int to = end(line) - 2;
        while (from < to && isBlank(source[from])) {
            from++;
        }
        while (to > from && isBlank(source[to - 1])) {
            to--;
        }
        return Ascii.string(source, from, to);
    }

    private static boolean isBlank(byte each) {
        return each == ' ' || each == '\t';
    }

    @Override
    public String toString() {
        HeadSink sink = new HeadSink();
        writeTo(sink);
        return sink.toString();
    }
}
