// An address at which clients connect, and how they begin there.
package wirespeed.gateway.core;

import java.net.InetSocketAddress;

/**
 * Read when the process starts; its socket outlives configurations.
 *
 * @param option where it is configured, for messages
 * @param address port 0 takes a free one
 * @param isTls whether connections are encrypted
 * @param balancers networks whose connections begin with a PROXY header
 */
public record Listener(String option, Address address, boolean isTls, Networks balancers) {
    /** What to bind; a name without an address is refused. */
    public InetSocketAddress toBind() {
        InetSocketAddress found = new InetSocketAddress(address.host(), address.port());
        if (found.isUnresolved()) {
            throw new IllegalArgumentException(option + ": no host " + address.host());
        }
        return found;
    }

    /** Why the operating system did not let this process listen there. */
    public IllegalArgumentException refused(Throwable cause) {
        String reason = String.valueOf(cause.getMessage());
        // Netty puts the system call and its number before it.
        return new IllegalArgumentException(option + ": " + address.id() + ": "
                + reason.substring(reason.lastIndexOf(": ") + 1).trim(), cause);
    }
}
