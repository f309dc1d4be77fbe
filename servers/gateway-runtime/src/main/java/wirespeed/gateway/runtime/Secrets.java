// Hides secrets in the configuration that the admin port shows.
package wirespeed.gateway.runtime;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * A secret is replaced by a mark wherever its text stands; a configuration with marks that comes back
 * has the secrets of the present one again.
 */
final class Secrets {
    private final Map<String, String> marks = new LinkedHashMap<>();

    private Secrets(Config config) {
        add("admin.token", config.table("admin").text("token"));
        add("server.consul-token", config.table("server").text("consul-token"));
        config.origins().forEach((name, origin) ->
                add("origins." + name + ".persistence-key", origin.text("persistence-key")));
    }

    private void add(String option, String secret) {
        if (!secret.isEmpty()) {
            marks.put("(secret " + option + ")", secret);
        }
    }

    static Secrets of(Config config) {
        return new Secrets(config);
    }

    /** The text without secrets; null where one is written in a way in which it is not found. */
    String hide(String text) {
        String hidden = text;
        for (Map.Entry<String, String> one : marks.entrySet()) {
            for (char quote : new char[] {'"', '\''}) {
                hidden = hidden.replace(quote + one.getValue() + quote, quote + one.getKey() + quote);
            }
        }
        return isLeft(hidden) ? null : hidden;
    }

    /** Several options may have one secret, and each may be written in another way. */
    private boolean isLeft(String hidden) {
        try {
            return of(ConfigReader.read(hidden, "configuration", Map.of(), Map.of())).marks.values().stream()
                    .anyMatch(marks::containsValue);
        } catch (ConfigError changed) {
            // A secret that is the value of another option, too.
            return true;
        }
    }

    /** With the secrets in place of their marks. */
    String show(String text) {
        String shown = text;
        for (Map.Entry<String, String> one : marks.entrySet()) {
            shown = shown.replace(one.getKey(), one.getValue());
        }
        return shown;
    }
}
