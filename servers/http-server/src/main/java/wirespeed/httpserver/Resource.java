/** A resource: bytes in memory, or a large file. */
package wirespeed.httpserver;

import io.netty.buffer.ByteBuf;
import java.nio.file.Path;

/**
 * A resource.
 *
 * @param body       the bytes if they are in memory, else null
 * @param file       the real path if it is a file, else null
 * @param modifiedNs the file's modification time since 1970, for validators
 */
record Resource(ByteBuf body, Path file, long bytes, long modifiedNs) {
    boolean isInMemory() {
        return body != null;
    }
}
