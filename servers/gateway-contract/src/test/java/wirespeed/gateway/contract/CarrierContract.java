// A contract's carriers, clients and recording origin, closed after each test.
package wirespeed.gateway.contract;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;

abstract class CarrierContract implements CarrierChoice {
    private static final long TURNS_NANOS_MAX = 180_000_000_000L;
    private final List<AutoCloseable> opened = new ArrayList<>();
    RecordingOrigin origin;

    @BeforeEach
    void open() throws IOException {
        origin = closedLater(new RecordingOrigin());
    }

    @AfterEach
    void close() throws Exception {
        for (int i = opened.size() - 1; i >= 0; i--) {
            opened.get(i).close();
        }
    }

    <T extends AutoCloseable> T closedLater(T one) {
        opened.add(one);
        return one;
    }

    /** What a client does within a time that the gateway gives it. */
    interface Turn {
        void run() throws Exception;
    }

    /**
     * A failure counts if the turn took no longer than this: a client that the machine held up until the
     * gateway waited no more has shown nothing, and has another turn.
     */
    static void inTime(long millis, Turn turn) throws Exception {
        long first = System.nanoTime();
        while (true) {
            long begin = System.nanoTime();
            try {
                turn.run();
                return;
            } catch (IOException | AssertionError failed) {
                long end = System.nanoTime();
                if (end - begin <= millis * 1_000_000 || end - first > TURNS_NANOS_MAX) {
                    throw failed;
                }
            }
        }
    }

    /** A carrier with this configuration. */
    Carrier start(String toml) {
        return closedLater(new Carrier(factory(), options(), toml));
    }

    RawClient client(Carrier gateway) throws IOException {
        return closedLater(gateway.client());
    }
}
