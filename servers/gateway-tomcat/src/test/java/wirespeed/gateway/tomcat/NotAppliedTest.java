// Settings that gateway-netty applies and this carrier does not are reported.
package wirespeed.gateway.tomcat;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import wirespeed.gateway.core.Option;
import wirespeed.gateway.core.OptionTable;
import wirespeed.gateway.runtime.ConfigReader;
import wirespeed.gateway.runtime.GatewayRuntime;

class NotAppliedTest {
    private static final String ORIGIN = "[origins.o]\naddresses = [\"127.0.0.1:1\"]\n";

    /** A value that is not the default. */
    private static String value(Option option) {
        return switch (option.type()) {
            case BOOLEAN -> option.defaultText().equals("true") ? "false" : "true";
            case TEXTS -> "[\"127.0.0.1\"]";
            case DURATION -> "\"77ms\"";
            case BYTES -> "\"77KiB\"";
            case CHOICE -> "\"" + option.choices().get(option.choices().size() - 1) + "\"";
            default -> "7";
        };
    }

    private static List<String> reported(String toml) {
        try (GatewayRuntime runtime = new GatewayRuntime(
                ConfigReader.read(toml, "gw.toml", Map.of(), Map.of()))) {
            return NotApplied.report(runtime.gateway());
        }
    }

    @Test
    void every_option_of_gateway_netty_alone_is_named() {
        for (Option option : OptionTable.all()) {
            // Without tls.http2 both carriers do the same.
            if (!option.text().contains("gateway-netty only") || option.key().equals("tls.http2")) {
                continue;
            }
            String line = option.name() + " = " + value(option) + "\n";
            List<String> lines = reported(switch (option.section()) {
                case "origin" -> ORIGIN + line;
                case "listener" -> ORIGIN + "[[listener]]\nlisten = \"127.0.0.1:0\"\n" + line;
                default -> "[" + option.section() + "]\n" + line + ORIGIN;
            });
            assertTrue(lines.stream().anyMatch(one -> one.contains(option.name()
                    + " is not applied")), option.key() + ": " + lines);
        }
    }
}
