// Reads a JSON text (RFC 8259) into Java's own collections.
package wirespeed.gateway.runtime;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * For tokens and key sets, which anybody may have written: bounded in depth, and a name that comes twice
 * is refused, because two readers may take different ones.
 */
final class Json {
    private static final int DEPTH_MAX = 16;

    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /**
     * Maps, lists, strings, {@link BigDecimal} for numbers, booleans, and null.
     *
     * @throws IllegalArgumentException for anything that is not exactly one JSON value
     */
    static Object parse(String text) {
        Json json = new Json(text);
        Object value = json.value(0);
        json.blanks();
        if (json.at != text.length()) {
            throw json.bad("something follows the value");
        }
        return value;
    }

    /** An object; refused if it is something else. */
    @SuppressWarnings("unchecked") // names are strings, whatever the values are
    static Map<String, Object> object(String text) {
        if (parse(text) instanceof Map<?, ?> map) {
            return (Map<String, Object>) map;
        }
        throw new IllegalArgumentException("not a JSON object");
    }

    private IllegalArgumentException bad(String what) {
        return new IllegalArgumentException("JSON: " + what + " at character " + at);
    }

    private void blanks() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
    }

    private char peek() {
        if (at == text.length()) {
            throw bad("the text ends");
        }
        return text.charAt(at);
    }

    private void expect(char wanted) {
        if (peek() != wanted) {
            throw bad("no '" + wanted + "'");
        }
        at++;
    }

    private Object value(int depth) {
        if (depth > DEPTH_MAX) {
            throw bad("nested too deeply");
        }
        blanks();
        return switch (peek()) {
            case '{' -> members(depth);
            case '[' -> elements(depth);
            case '"' -> string();
            case 't' -> literal("true", Boolean.TRUE);
            case 'f' -> literal("false", Boolean.FALSE);
            case 'n' -> literal("null", null);
            default -> number();
        };
    }

    private Object literal(String word, Object value) {
        if (!text.startsWith(word, at)) {
            throw bad("unknown word");
        }
        at += word.length();
        return value;
    }

    private Map<String, Object> members(int depth) {
        Map<String, Object> members = new LinkedHashMap<>();
        at++;
        blanks();
        if (peek() == '}') {
            at++;
            return members;
        }
        while (true) {
            blanks();
            String name = string();
            blanks();
            expect(':');
            if (members.containsKey(name)) {
                throw bad("the name " + name + " comes twice");
            }
            members.put(name, value(depth + 1));
            blanks();
            if (peek() == '}') {
                at++;
                return members;
            }
            expect(',');
        }
    }

    private List<Object> elements(int depth) {
        List<Object> elements = new ArrayList<>();
        at++;
        blanks();
        if (peek() == ']') {
            at++;
            return elements;
        }
        while (true) {
            elements.add(value(depth + 1));
            blanks();
            if (peek() == ']') {
                at++;
                return elements;
            }
            expect(',');
        }
    }

    private String string() {
        expect('"');
        StringBuilder string = new StringBuilder();
        while (peek() != '"') {
            char c = text.charAt(at++);
            if (c < ' ') {
                throw bad("control character in a string");
            }
            string.append(c == '\\' ? escaped() : c);
        }
        at++;
        return string.toString();
    }

    private char escaped() {
        char c = peek();
        at++;
        return switch (c) {
            case '"', '\\', '/' -> c;
            case 'b' -> '\b';
            case 'f' -> '\f';
            case 'n' -> '\n';
            case 'r' -> '\r';
            case 't' -> '\t';
            case 'u' -> unicode();
            default -> throw bad("unknown escape");
        };
    }

    private char unicode() {
        int code = 0;
        for (int i = 0; i < 4; i++) {
            int digit = Character.digit(peek(), 16);
            if (digit < 0 || peek() > 'f') {
                throw bad("escape without four digits");
            }
            code = code << 4 | digit;
            at++;
        }
        return (char) code;
    }

    private BigDecimal number() {
        int from = at;
        while (at < text.length() && "+-.eE0123456789".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        String number = text.substring(from, at);
        // Bounded: a short text may stand for a number of a billion digits.
        if (!number.matches("-?(0|[1-9]\\d{0,30})(\\.\\d{1,30})?([eE][+-]?\\d{1,2})?")) {
            throw bad("unknown value");
        }
        return new BigDecimal(number);
    }
}
