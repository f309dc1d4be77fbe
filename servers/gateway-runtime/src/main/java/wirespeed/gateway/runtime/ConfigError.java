// A configuration that is not accepted, with every mistake that was found.
package wirespeed.gateway.runtime;

import java.util.List;

/** Each line says where, what is wrong and what would be right. */
public final class ConfigError extends RuntimeException {
    private static final long serialVersionUID = 1L;
    private final List<String> mistakes;

    public ConfigError(List<String> mistakes) {
        super(String.join("\n", mistakes));
        this.mistakes = List.copyOf(mistakes);
    }

    public ConfigError(String mistake) {
        this(List.of(mistake));
    }

    public List<String> mistakes() {
        return mistakes;
    }
}
