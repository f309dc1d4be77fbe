// Regular expressions of a configuration, which run on what clients send.
package wirespeed.gateway.runtime;

import com.google.re2j.Matcher;
import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import wirespeed.gateway.core.Route;

/**
 * One in RE2's syntax: matching takes time in proportion to the path, whatever a client sends. The
 * JDK's expressions backtrack, for seconds and down to the end of the stack.
 *
 * @param pattern compiled
 */
record Expression(Pattern pattern) implements Route.PathPattern {
    /** Refuses what RE2 does not know. */
    static Expression of(String text) {
        try {
            return new Expression(Pattern.compile(text));
        } catch (PatternSyntaxException bad) {
            throw new IllegalArgumentException("pattern \"" + text + "\": " + bad.getDescription() + ", at \""
                    + bad.getPattern() + "\" (write it in RE2 syntax, which has no lookahead, lookbehind,"
                    + " backreferences or possessive quantifiers)", bad);
        }
    }

    Matcher matcher(String path) {
        return pattern.matcher(path);
    }

    @Override
    public boolean isFoundIn(String path) {
        return matcher(path).find();
    }

    @Override
    public String text() {
        return pattern.pattern();
    }
}
