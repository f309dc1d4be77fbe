// Lists of networks, such as 10.0.0.0/8 and ::1.
package wirespeed.gateway.core;

import java.util.ArrayList;
import java.util.List;

/** Addresses and networks of both families; no name is ever looked up. */
public final class Networks {
    /** No network at all. */
    public static final Networks NONE = new Networks(List.of());

    private static final int MAPPED_BITS = 96;

    private record Network(byte[] address, int bits) {
        boolean contains(byte[] other) {
            if (other.length != address.length) {
                return false;
            }
            for (int bit = 0; bit < bits; bit += 8) {
                int mask = bits - bit >= 8 ? 0xff : 0xff << 8 - (bits - bit);
                if (((other[bit / 8] ^ address[bit / 8]) & mask) != 0) {
                    return false;
                }
            }
            return true;
        }
    }

    private final List<Network> networks;

    private Networks(List<Network> networks) {
        this.networks = networks;
    }

    /** From ADDRESS or ADDRESS/BITS each; what is none of them is refused with a reason. */
    public static Networks parse(List<String> texts) {
        List<Network> networks = new ArrayList<>();
        for (String text : texts) {
            networks.add(network(text.trim()));
        }
        return networks.isEmpty() ? NONE : new Networks(List.copyOf(networks));
    }

    private static Network network(String text) {
        int slash = text.indexOf('/');
        byte[] address = IpAddress.parse(slash < 0 ? text : text.substring(0, slash));
        int bits = -1;
        if (address != null && slash < 0) {
            bits = address.length * 8;
        } else if (address != null && text.substring(slash + 1).matches("\\d{1,3}")) {
            bits = Integer.parseInt(text.substring(slash + 1));
            // IPv4 inside of IPv6 was read as IPv4.
            bits -= address.length == 4 && text.indexOf(':') >= 0 ? MAPPED_BITS : 0;
        }
        if (address == null || bits < 0 || bits > address.length * 8) {
            throw new IllegalArgumentException("invalid network \"" + text + "\" (for example 10.0.0.0/8,"
                    + " 192.0.2.1 or 2001:db8::/32)");
        }
        return new Network(address, bits);
    }

    public boolean isEmpty() {
        return networks.isEmpty();
    }

    /** Whether a literal address, with or without brackets, lies in one of the networks. */
    public boolean contains(String text) {
        if (networks.isEmpty()) {
            return false;
        }
        boolean isBracketed = text.startsWith("[") && text.endsWith("]");
        byte[] address = IpAddress.parse(isBracketed ? text.substring(1, text.length() - 1) : text);
        return contains(address);
    }

    /** Whether an address lies in one of the networks; null does not. */
    boolean contains(byte[] address) {
        if (address == null) {
            return false;
        }
        for (Network network : networks) {
            if (network.contains(address)) {
                return true;
            }
        }
        return false;
    }
}
