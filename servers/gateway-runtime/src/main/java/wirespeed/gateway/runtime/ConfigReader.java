// Reads the TOML file, the environment and the flags into checked options.
package wirespeed.gateway.runtime;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.tomlj.Toml;
import org.tomlj.TomlArray;
import org.tomlj.TomlParseResult;
import org.tomlj.TomlPosition;
import org.tomlj.TomlTable;
import wirespeed.gateway.core.Option;
import wirespeed.gateway.core.OptionTable;
import wirespeed.gateway.core.OptionValues;

/** All mistakes of a file are reported together. */
public final class ConfigReader {
    private static final List<String> SINGLE = List.of("server", "limits", "timeouts", "tls",
            "admin", "tracing", "cache", "filters", "tomcat");

    private final String file;
    private final List<String> mistakes = new ArrayList<>();
    private final Map<String, OptionValues> single = new LinkedHashMap<>();
    private final List<OptionValues> listeners = new ArrayList<>();
    private final Map<String, OptionValues> origins = new LinkedHashMap<>();
    private final List<OptionValues> routes = new ArrayList<>();
    private final List<OptionValues> filters = new ArrayList<>();

    private ConfigReader(String file) {
        this.file = file;
    }

    /**
     * Reads a configuration.
     *
     * @param file name for messages
     * @param environment overrides of single tables
     * @param flags overrides of the environment, "section.name" to value
     */
    public static Config read(String text, String file, Map<String, String> environment,
            Map<String, Object> flags) {
        ConfigReader reader = new ConfigReader(file);
        for (String section : SINGLE) {
            reader.single.put(section, new OptionValues(section));
        }
        reader.text(text);
        reader.environment(environment);
        flags.forEach(reader::flag);
        if (!reader.mistakes.isEmpty()) {
            throw new ConfigError(reader.mistakes);
        }
        return new Config(reader.single, reader.listeners, reader.origins, reader.routes,
                reader.filters);
    }

    private void text(String text) {
        TomlParseResult toml;
        try {
            toml = Toml.parse(text);
        } catch (StackOverflowError nested) {
            mistakes.add(file + ": arrays or tables are nested too deeply");
            return;
        }
        if (toml.hasErrors()) {
            toml.errors().forEach(error -> mistakes.add(file + ":" + error.position().line() + ":"
                    + error.position().column() + ": " + error.getMessage()));
            return;
        }
        for (String key : toml.keySet()) {
            Object value = toml.get(List.of(key));
            TomlPosition at = toml.inputPositionOf(List.of(key));
            if (SINGLE.contains(key) && value instanceof TomlTable table) {
                table(table, single.get(key), key);
            } else if (key.equals("origins") && value instanceof TomlTable table) {
                origins(table);
            } else if (key.equals("listener") && value instanceof TomlArray array) {
                tables(array, "listener", listeners, at);
            } else if (key.equals("route") && value instanceof TomlArray array) {
                tables(array, "route", routes, at);
            } else if (key.equals("filter") && value instanceof TomlArray array) {
                tables(array, "filter", filters, at);
            } else {
                mistake(at, "unknown table \"" + key + "\" (" + String.join(", ", SINGLE)
                        + ", origins, [[listener]], [[route]], [[filter]])");
            }
        }
    }

    private void mistake(TomlPosition at, String what) {
        mistakes.add(place(at) + what);
    }

    private String place(TomlPosition at) {
        return file + ":" + (at == null ? "" : at.line() + ":" + at.column() + ":") + " ";
    }

    private void origins(TomlTable table) {
        for (String name : table.keySet()) {
            TomlPosition at = table.inputPositionOf(List.of(name));
            if (table.get(List.of(name)) instanceof TomlTable origin) {
                OptionValues values = new OptionValues("origin", place(at));
                table(origin, values, "origins." + name);
                origins.put(name, values);
            } else {
                mistake(at, "origins." + name + " is not a table (write [origins." + name + "])");
            }
        }
    }

    private void tables(TomlArray array, String section, List<OptionValues> into,
            TomlPosition at) {
        for (int i = 0; i < array.size(); i++) {
            if (array.get(i) instanceof TomlTable table) {
                OptionValues values = new OptionValues(section, place(array.inputPositionOf(i)));
                table(table, values, section);
                into.add(values);
            } else {
                mistake(at, section + " is not a list of tables (write [[" + section + "]])");
            }
        }
    }

    private void table(TomlTable table, OptionValues into, String path) {
        String section = path.startsWith("origins.") ? "origin" : path;
        for (String name : table.keySet()) {
            TomlPosition at = table.inputPositionOf(List.of(name));
            Option option = OptionTable.find(section, name);
            if (option == null) {
                String nearest = OptionTable.nearest(section, name);
                mistake(at, "unknown option " + path + "." + name
                        + (nearest == null ? "" : " (did you mean " + nearest + "?)"));
                continue;
            }
            try {
                into.put(name, plain(table.get(List.of(name))), place(at));
            } catch (IllegalArgumentException bad) {
                mistake(at, path + "." + name + ": " + bad.getMessage());
            }
        }
    }

    private static Object plain(Object value) {
        if (value instanceof TomlArray array) {
            return array.toList();
        }
        return value instanceof TomlTable table ? table.toMap() : value;
    }

    private void environment(Map<String, String> environment) {
        for (Option option : OptionTable.all()) {
            String value = environment.get(option.environment());
            if (value != null && SINGLE.contains(option.section())) {
                put(option, value, option.environment());
            }
        }
    }

    private void flag(String key, Object value) {
        int dot = key.indexOf('.');
        Option option = dot < 0 ? null
                : OptionTable.find(key.substring(0, dot), key.substring(dot + 1));
        if (option == null || !SINGLE.contains(option.section())) {
            mistakes.add("unknown option " + key + " (see --help)");
            return;
        }
        put(option, value, key);
    }

    private void put(Option option, Object value, String name) {
        try {
            single.get(option.section()).put(option.name(), value);
        } catch (IllegalArgumentException bad) {
            mistakes.add(name + ": " + bad.getMessage());
        }
    }
}
