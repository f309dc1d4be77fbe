package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class ExpressionTest {
    /** The second one takes the JDK longer than anybody waits. */
    @ParameterizedTest
    @ValueSource(strings = {"(a+)+$", "(.*a){20}$"})
    @Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
    void a_path_that_suits_backtracking_badly_is_answered(String text) {
        String path = "/" + "a".repeat(4000);
        assertTrue(Expression.of(text).isFoundIn(path));
        assertFalse(Expression.of(text).isFoundIn(path + "!"));
    }

    @ParameterizedTest
    @CsvSource({"/a(?=b), (?=", "/(a)\\1, \\1", "/a(?<!b)c, (?<!b)c", "/a++, ++", "/(?>a), (?>", "/(, /("})
    void syntax_that_re2_lacks_is_refused_by_name(String text, String part) {
        String said = assertThrows(IllegalArgumentException.class, () -> Expression.of(text)).getMessage();
        assertTrue(said.startsWith("pattern \"" + text + "\": "), said);
        assertTrue(said.contains("at \"" + part + "\" (write it in RE2 syntax"), said);
    }

    @Test
    void it_is_shown_as_it_was_written() {
        assertEquals("^/(?<id>[0-9]+)$", Expression.of("^/(?<id>[0-9]+)$").text());
    }
}
