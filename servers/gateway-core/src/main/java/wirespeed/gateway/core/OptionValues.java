// The values of one table of the configuration, checked and with defaults.
package wirespeed.gateway.core;

import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Asking for an option that was not declared is a fault of the program and says so. */
public final class OptionValues {
    private final String section;
    private final String place;
    private final Map<String, Object> given = new LinkedHashMap<>();
    private final Map<String, String> places = new HashMap<>();

    public OptionValues(String section) {
        this(section, "");
    }

    /**
     * A table that was read.
     *
     * @param place where it stands, such as "gateway.toml:7:1: "; empty when unknown
     */
    public OptionValues(String section, String place) {
        this.section = section;
        this.place = place;
    }

    /** Where it stands, to be put before a message about it. */
    public String place() {
        return place;
    }

    /** Checks and takes a value; the message of a refusal names value and bounds. */
    public void put(String name, Object value) {
        given.put(name, option(name).parse(value));
    }

    /** As {@link #put(String, Object)}, with where it stands in its file. */
    public void put(String name, Object value, String at) {
        put(name, value);
        places.put(name, at);
    }

    /** Where an option stands, to be put before a message about it; empty when that is not known. */
    public String place(String name) {
        return places.getOrDefault(name, "");
    }

    public boolean isGiven(String name) {
        return given.containsKey(name);
    }

    public String text(String name) {
        return (String) value(name);
    }

    @SuppressWarnings("unchecked") // Option.parse makes nothing else of this type
    public List<String> texts(String name) {
        Object value = value(name);
        return value.equals("") ? List.of() : (List<String>) value;
    }

    @SuppressWarnings("unchecked") // as above
    public Map<String, String> table(String name) {
        Object value = value(name);
        return value.equals("") ? Map.of() : (Map<String, String>) value;
    }

    public boolean isTrue(String name) {
        return (Boolean) value(name);
    }

    public int count(String name) {
        return Math.toIntExact((Long) value(name));
    }

    public long bytes(String name) {
        return (Long) value(name);
    }

    public int millis(String name) {
        return Math.toIntExact((Long) value(name));
    }

    /** The value in its type's own form, for comparing. */
    public Object raw(String name) {
        return value(name);
    }

    private Object value(String name) {
        Object value = given.get(name);
        if (value != null) {
            return value;
        }
        Option option = option(name);
        return option.defaultText().isEmpty() ? "" : option.parse(option.defaultText());
    }

    private Option option(String name) {
        Option option = OptionTable.find(section, name);
        if (option == null) {
            throw new IllegalArgumentException("unknown option " + section + "." + name);
        }
        return option;
    }
}
