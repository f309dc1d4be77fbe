// Writes docs/gateway-options.md and the text of --help from the declarations.
package wirespeed.gateway.core;

import java.util.List;
import java.util.Map;

/** Run as a program it prints the page. */
public final class OptionPage {
    private static final Map<String, String> SECTIONS = new java.util.LinkedHashMap<>();

    static {
        SECTIONS.put("server", "[server]");
        SECTIONS.put("listener", "[[listener]]");
        SECTIONS.put("limits", "[limits]");
        SECTIONS.put("timeouts", "[timeouts]");
        SECTIONS.put("tls", "[tls]");
        SECTIONS.put("admin", "[admin]");
        SECTIONS.put("tracing", "[tracing]");
        SECTIONS.put("cache", "[cache]");
        SECTIONS.put("origin", "[origins.NAME]");
        SECTIONS.put("route", "[[route]]");
        SECTIONS.put("filters", "[filters]");
        SECTIONS.put("filter", "[[filter]]");
        SECTIONS.put("tomcat", "[tomcat]");
    }

    private OptionPage() {
    }

    public static void main(String[] arguments) {
        System.out.print(page());
    }

    /** The Markdown page. */
    public static String page() {
        StringBuilder page = new StringBuilder("""
                # Gateway options

                Generated from the declarations in `servers/gateway-core` (`OptionTable`); a test
                compares. Durations are written `250ms`, `10s`, `5m` or `1h`, sizes `4KiB`, `1MiB`.
                Options of tables that occur once can also be set by the environment: `[server]`
                `listen` is `WIRESPEED_GATEWAY_SERVER_LISTEN`. The order is: flag, environment,
                file, default.
                """);
        SECTIONS.forEach((section, title) -> section(page, section, title));
        return page.toString();
    }

    private static void section(StringBuilder page, String section, String title) {
        page.append("\n## `").append(title).append("`\n\n")
                .append("| option | type | default | limits | reload | what it does |\n")
                .append("|---|---|---|---|---|---|\n");
        for (Option option : OptionTable.section(section)) {
            page.append("| `").append(option.name()).append("` | ").append(type(option))
                    .append(" | ").append(code(option.defaultText()))
                    .append(" | ").append(limits(option))
                    .append(" | ").append(option.reloadable() ? "yes" : "no")
                    .append(" | ").append(option.text()).append(" |\n");
        }
    }

    private static String type(Option option) {
        return switch (option.type()) {
            case CHOICE -> String.join(", ", option.choices());
            case DURATION -> "duration";
            case BYTES -> "size";
            default -> option.type().label();
        };
    }

    private static String code(String text) {
        return text.isEmpty() ? "" : "`" + text + "`";
    }

    private static String limits(Option option) {
        return switch (option.type()) {
            case COUNT -> option.min() + " … " + option.max();
            case DURATION -> option.min() + " … " + option.max() + " ms";
            case BYTES -> option.min() + " … " + option.max() + " B";
            default -> "";
        };
    }

    /** The options of a table that occurs once, for --help. */
    public static String help(List<String> sections) {
        StringBuilder help = new StringBuilder();
        for (String section : sections) {
            for (Option option : OptionTable.section(section)) {
                help.append(String.format("  %-34s %s%s%n", option.key(), option.text(),
                        option.defaultText().isEmpty() ? ""
                                : " [" + option.defaultText() + "]"));
            }
        }
        return help.toString();
    }
}
