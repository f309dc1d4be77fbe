/** Creates the payloads that all servers under test serve. */
package wirespeed.httpserver;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.SplittableRandom;

/** Random text of a size, alone or as files named by their size. */
public final class PayloadMaker {
    /** Text, because it is sent as text/plain; 64 symbols, so that six random bits make one. */
    private static final byte[] SYMBOLS =
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
                    .getBytes(StandardCharsets.US_ASCII);
    /** The same size gives the same bytes on each machine, so that results compare. */
    private static final long SEED = 0x5eed;
    private static final long FILE_BYTES_MAX = 1L << 30;
    private static final int BLOCK_BYTES = 64 * 1024;

    private PayloadMaker() {
    }

    /** {@code PayloadMaker DIR SIZE…}: writes DIR/SIZE for each size. */
    public static void main(String[] args) {
        try {
            if (args.length < 2) {
                throw new BadUsage("usage: PayloadMaker DIR SIZE…");
            }
            make(Path.of(args[0]), Arrays.asList(args).subList(1, args.length));
        } catch (BadUsage mistake) {
            System.err.println("payload-maker: " + mistake.getMessage());
            System.exit(2);
        } catch (IOException failure) {
            System.err.println("payload-maker: cannot write: " + failure.getMessage());
            System.exit(1);
        }
    }

    /** Creates a file of each size, named as the size was given. */
    static void make(Path folder, List<String> sizes) throws IOException {
        if (sizes.isEmpty()) {
            throw new BadUsage("name the sizes: --make-payloads " + folder + " 16 512 1KiB");
        }
        // All sizes are parsed before the first file is written, so that an error leaves no files
        // behind.
        long[] bytes = sizes.stream()
                .mapToLong(text -> Settings.size(text, FILE_BYTES_MAX)).toArray();
        Files.createDirectories(folder);
        for (int at = 0; at < bytes.length; at++) {
            write(folder.resolve(sizes.get(at)), bytes[at]);
        }
    }

    private static void write(Path file, long size) throws IOException {
        SplittableRandom random = new SplittableRandom(SEED);
        try (OutputStream out = Files.newOutputStream(file)) {
            for (long left = size; left > 0; left -= BLOCK_BYTES) {
                out.write(fill(new byte[(int) Math.min(left, BLOCK_BYTES)], random));
            }
        }
    }

    /** The payload of this size. */
    static byte[] payload(int size) {
        return fill(new byte[size], new SplittableRandom(SEED));
    }

    private static byte[] fill(byte[] bytes, SplittableRandom random) {
        for (int at = 0; at < bytes.length; at++) {
            bytes[at] = SYMBOLS[random.nextInt(SYMBOLS.length)];
        }
        return bytes;
    }
}
