// What a filter puts in place of a part of a request's path.
package wirespeed.gateway.runtime;

import com.google.re2j.Matcher;
import java.nio.charset.StandardCharsets;
import java.util.function.IntFunction;
import wirespeed.gateway.core.Ascii;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.core.Refusal;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.TargetPath;

/**
 * The first part of a path that a pattern finds is replaced; parameters of segments stay with theirs.
 *
 * @param pattern on the path as rules see it
 * @param text with groups, as {@link Matcher#replaceFirst(String)} takes it
 */
record Replacement(Expression pattern, String text) {
    /** Stands for a group in a check: also behind a % it is valid. */
    private static final String ANY_GROUP = "aa";

    static Replacement of(OptionValues values) {
        Expression pattern = Expression.of(values.text("pattern"));
        return new Replacement(pattern, checked(pattern, values.text("replacement")));
    }

    /** Of a request's target: refuses what would fail each request that matches. */
    static Replacement ofTarget(OptionValues values) {
        Replacement made = of(values);
        String sample = made.expanded(group -> ANY_GROUP);
        sample.codePoints().filter(c -> c > 0x7e || !Ascii.isTarget(c)).findFirst().ifPresent(c -> {
            throw new IllegalArgumentException("replacement: \"" + Character.toString(c)
                    + "\" may not stand in a request target" + hint(c));
        });
        String path = "/" + sample.split("\\?", 2)[0];
        try {
            if (made.isAtStart()) {
                TargetPath.normalise(made.ownFolders());
            }
            TargetPath.normalise("/x".repeat(path.length()) + path);
        } catch (Refusal bad) {
            throw new IllegalArgumentException("replacement: the " + bad.getMessage(), bad);
        }
        return made;
    }

    /** Of a Location: refuses what no field may hold, and characters that a URI must encode. */
    static Replacement ofLocation(OptionValues values) {
        Replacement made = of(values);
        made.expanded(group -> ANY_GROUP).codePoints().filter(c -> c > 0x7e || !Ascii.isValue(c)).findFirst()
                .ifPresent(c -> {
                    throw new IllegalArgumentException("replacement: \"" + Character.toString(c)
                            + "\" may not stand in a Location" + hint(c));
                });
        return made;
    }

    /** An encoded control character or backslash would be refused, too. */
    private static String hint(int character) {
        if (character < ' ' || character == '\\' || character == 0x7f) {
            return "";
        }
        StringBuilder hint = new StringBuilder();
        for (byte one : Character.toString(character).getBytes(StandardCharsets.UTF_8)) {
            hint.append(String.format("%%%02X", one));
        }
        return " (write " + hint + ")";
    }

    /** The segments of its path before the first group, which may hold any number of them. */
    private String ownFolders() {
        String path = "/" + expanded(group -> "\0").split("\\?", 2)[0];
        int group = path.indexOf('\0');
        return group < 0 ? path : path.substring(0, path.lastIndexOf('/', group) + 1);
    }

    /** Whether nothing of a path stands before what the pattern finds. */
    private boolean isAtStart() {
        return pattern.text().startsWith("^") && pattern.text().indexOf('|') < 0;
    }

    /** The new target with the request's query behind it; null where the pattern finds nothing. */
    String in(Request request) {
        Matcher matcher = pattern.matcher(request.path());
        if (!matcher.find()) {
            return null;
        }
        return withQuery(TargetPath.replaced(request, matcher.start(), matcher.end(),
                expanded(group -> TargetPath.part(request, matcher.start(group), matcher.end(group)))),
                request.query());
    }

    /** As {@link Matcher#appendReplacement} does; groups have the parameters of their segments. */
    private String expanded(IntFunction<String> groups) {
        StringBuilder expanded = new StringBuilder();
        for (int at = 0; at < text.length(); at++) {
            char c = text.charAt(at);
            if (c == '\\') {
                expanded.append(text.charAt(++at));
            } else if (c != '$') {
                expanded.append(c);
            } else if (text.charAt(at + 1) == '{') {
                int close = text.indexOf('}', at);
                expanded.append(groups.apply(pattern.pattern().namedGroups().get(text.substring(at + 2, close))));
                at = close;
            } else {
                int group = text.charAt(++at) - '0';
                while (at + 1 < text.length() && Character.isDigit(text.charAt(at + 1))
                        && group * 10 + text.charAt(at + 1) - '0' <= pattern.pattern().groupCount()) {
                    group = group * 10 + text.charAt(++at) - '0';
                }
                expanded.append(groups.apply(group));
            }
        }
        return expanded.toString();
    }

    /** Refuses a group that the pattern does not have: it would fail each request that matches. */
    private static String checked(Expression pattern, String replacement) {
        int groups = pattern.pattern().groupCount();
        for (int at = 0; at < replacement.length(); at++) {
            char c = replacement.charAt(at);
            if (c == '\\') {
                at++;
                if (at == replacement.length()) {
                    throw new IllegalArgumentException("replacement: nothing follows the last \\");
                }
                continue;
            }
            if (replacement.startsWith("${", at)) {
                named(pattern, replacement, at);
            }
            boolean isGroup = c == '$' && at + 1 < replacement.length()
                    && Character.isDigit(replacement.charAt(at + 1));
            if (c == '$' && !isGroup && !replacement.startsWith("${", at)) {
                throw new IllegalArgumentException("replacement: \"$\" is followed by no group; write"
                        + " \\\\$ for the character");
            }
            if (isGroup && replacement.charAt(at + 1) - '0' > groups) {
                throw new IllegalArgumentException("replacement: the pattern has no group $"
                        + replacement.charAt(at + 1) + ", only " + groups);
            }
        }
        return replacement;
    }

    /** "${name}" at this place is a group of the pattern. */
    private static void named(Expression pattern, String replacement, int at) {
        int close = replacement.indexOf('}', at);
        String name = close < 0 ? "" : replacement.substring(at + 2, close);
        if (!pattern.pattern().namedGroups().containsKey(name)) {
            throw new IllegalArgumentException("replacement: the pattern has no group ${" + name + "}");
        }
    }

    /** A replacement may have a query of its own; the request's goes behind it, and before a fragment. */
    private static String withQuery(String replaced, String query) {
        if (query == null) {
            return replaced;
        }
        int hash = replaced.indexOf('#');
        int end = hash < 0 ? replaced.length() : hash;
        String before = replaced.substring(0, end);
        return before + (before.indexOf('?') < 0 ? '?' : '&') + query + replaced.substring(end);
    }
}
