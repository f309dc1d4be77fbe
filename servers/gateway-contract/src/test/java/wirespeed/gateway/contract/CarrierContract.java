// A contract's carriers, clients and recording origin, closed after each test.
package wirespeed.gateway.contract;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;

abstract class CarrierContract implements CarrierChoice {
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

    /** A carrier with this configuration. */
    Carrier start(String toml) {
        return closedLater(new Carrier(factory(), options(), toml));
    }

    RawClient client(Carrier gateway) throws IOException {
        return closedLater(gateway.client());
    }
}
