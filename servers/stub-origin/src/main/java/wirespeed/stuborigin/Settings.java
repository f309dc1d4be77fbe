/** The options of the stub origin, each declared once, and their combined meaning. */
package wirespeed.stuborigin;

import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;

/**
 * The settings of a command line.
 *
 * @param chunkBytes size of a chunk, or 0 for Content-Length
 * @param record     the file for received bytes, or null
 */
record Settings(String host, int port, Transport transport, int threads, int payloadBytes,
                int chunkBytes, long latencyNs, Distribution distribution, FaultMix faults,
                long seed, Path record) {
    /** Payloads are held in memory. */
    static final int PAYLOAD_BYTES_MAX = 16 << 20;
    static final long LATENCY_NS_MAX = 60_000_000_000L;

    static final Option<String> HOST = new Option<>("host", "ADDRESS", "127.0.0.1",
            "address to listen on", text -> text);
    static final Option<Integer> PORT = new Option<>("port", "PORT", "9090",
            "port to listen on; 0 takes a free one and prints it",
            text -> Units.count(text, 0, 65535));
    static final Option<Transport> TRANSPORT = new Option<>("transport", "NAME", "epoll",
            "nio, epoll or io_uring", Transport::named);
    static final Option<Integer> THREADS = new Option<>("threads", "N", "1",
            "event loops; with more than one, another one accepts",
            text -> Units.count(text, 1, 1024));
    static final Option<Integer> PAYLOAD = new Option<>("payload", "SIZE", "1KiB",
            "random bytes in each response: 128, 1KiB, 1MiB",
            text -> Units.bytes(text, 0, PAYLOAD_BYTES_MAX));
    static final Option<Integer> CHUNKED = new Option<>("chunked", "SIZE", null,
            "send chunks of SIZE instead of Content-Length",
            text -> Units.bytes(text, 1, PAYLOAD_BYTES_MAX));
    static final Option<Long> LATENCY = new Option<>("latency", "TIME", "50ms",
            "mean time from the end of a request to its response",
            text -> Units.nanoseconds(text, LATENCY_NS_MAX));
    static final Option<Distribution> DISTRIBUTION = new Option<>("distribution", "NAME",
            "constant", "constant; uniform: 0 to 2x latency; exponential: cut at 20x",
            Distribution::named);
    static final Option<FaultMix> FAULTS = new Option<>("faults", "LIST", "",
            "per cent of the requests with a fault: 500=1,reset-body=0.5", FaultMix::of);
    static final Option<Long> SEED = new Option<>("seed", "N", "1",
            "seed of payloads, latencies and faults", text -> (long) Units.number(text));
    static final Option<Path> RECORD = new Option<>("record", "FILE", null,
            "record received bytes as JSON lines", Path::of);
    static final Option<Boolean> HELP = new Option<>("help", null, "false", "show this",
            Boolean::valueOf);
    static final List<Option<?>> OPTIONS = List.of(HOST, PORT, TRANSPORT, THREADS, PAYLOAD, CHUNKED,
            LATENCY, DISTRIBUTION, FAULTS, SEED, RECORD, HELP);

    static Settings of(CommandLine line) {
        if (!line.words().isEmpty()) {
            throw new BadUsage(line.words().get(0) + ": unexpected argument; --help lists the options");
        }
        Integer chunk = line.get(CHUNKED);
        return new Settings(line.get(HOST), line.get(PORT), line.get(TRANSPORT), line.get(THREADS),
                line.get(PAYLOAD), chunk == null ? 0 : chunk, line.get(LATENCY),
                line.get(DISTRIBUTION), line.get(FAULTS), line.get(SEED), line.get(RECORD));
    }

    static String help() {
        String faults = Arrays.stream(Fault.values())
                .map(each -> String.format("  %-24s %s%n", each.word, each.text))
                .collect(Collectors.joining());
        return "usage: stub-origin [OPTIONS]\n\n"
                + "Responds to every request after a delay. The response repeats X-Request-Id and\n"
                + "has X-Connection, the number of the connection since start.\n\n"
                + CommandLine.help(OPTIONS)
                + "\nFaults, for --faults and for the request field X-Stub-Fault (and\n"
                + "X-Stub-Latency: 200ms sets the latency of one request):\n" + faults
                + "\nExit codes: 0 stopped, 1 cannot listen, 2 bad usage or no such transport.\n";
    }
}
