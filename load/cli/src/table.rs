//! Every option once. The parser, `--help`, the shell completions and docs/load-options.md are all
//! made from this table.

/// Where an option comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Options of wrk.
    Wrk,
    /// Options of wrk2.
    Wrk2,
    /// What is sent, and where to.
    Load,
    /// How it is sent.
    Engine,
    /// What is written.
    Output,
}

impl Group {
    /// All groups in the order of the help.
    pub const ALL: [Group; 5] = [
        Group::Wrk,
        Group::Wrk2,
        Group::Load,
        Group::Engine,
        Group::Output,
    ];

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Group::Wrk => "Options of wrk",
            Group::Wrk2 => "Options of wrk2",
            Group::Load => "What is sent",
            Group::Engine => "How it is sent",
            Group::Output => "What is written",
        }
    }
}

/// One option.
#[derive(Debug)]
pub struct Entry {
    /// Long name.
    pub long: &'static str,
    /// Short name, if any.
    pub short: Option<char>,
    /// Name of its value; `None` for a switch.
    pub value: Option<&'static str>,
    /// Default, as shown.
    pub default: &'static str,
    /// Its group.
    pub group: Group,
    /// One line.
    pub text: &'static str,
}

const fn option(
    group: Group,
    long: &'static str,
    short: Option<char>,
    value: Option<&'static str>,
    default: &'static str,
    text: &'static str,
) -> Entry {
    Entry {
        long,
        short,
        value,
        default,
        group,
        text,
    }
}

use Group::{Engine, Load, Output, Wrk, Wrk2};

/// All options.
pub const TABLE: &[Entry] = &[
    option(
        Wrk,
        "connections",
        Some('c'),
        Some("N"),
        "10",
        "connections over all threads; A..B:S goes from A to B in steps of S (see --step)",
    ),
    option(
        Wrk,
        "duration",
        Some('d'),
        Some("TIME"),
        "10s",
        "length of the measured window",
    ),
    option(
        Wrk,
        "threads",
        Some('t'),
        Some("N"),
        "2",
        "threads that send; one where there is a single connection",
    ),
    option(
        Wrk,
        "script",
        Some('s'),
        Some("FILE"),
        "",
        "Lua script as for wrk (setup, init, delay, request, response, done)",
    ),
    option(
        Wrk,
        "header",
        Some('H'),
        Some("FIELD"),
        "",
        "header field for every request, such as 'Accept: text/plain'; may be repeated",
    ),
    option(
        Wrk,
        "latency",
        Some('L'),
        None,
        "",
        "print the distribution of latencies",
    ),
    option(
        Wrk,
        "timeout",
        Some('T'),
        Some("TIME"),
        "2s",
        "longest wait for an answer; then it counts as timed out and the connection is reopened",
    ),
    option(Wrk, "version", Some('v'), None, "", "print the version"),
    option(Wrk, "help", Some('h'), None, "", "print this help"),
    option(
        Wrk2,
        "rate",
        Some('R'),
        Some("N"),
        "",
        "open loop: requests per second over all threads, sent by the clock; A..B ramps from A to \
         B over the window, A..B:S goes in steps of S",
    ),
    option(
        Wrk2,
        "u_latency",
        Some('U'),
        None,
        "",
        "print the spectrum of service times too (implies --latency)",
    ),
    option(
        Wrk2,
        "batch_latency",
        Some('B'),
        None,
        "",
        "with pipelining record only the last answer of a batch",
    ),
    option(
        Load,
        "method",
        Some('X'),
        Some("NAME"),
        "GET",
        "method of the requests",
    ),
    option(
        Load,
        "body",
        None,
        Some("TEXT"),
        "",
        "body of the requests; the method is then POST unless --method says otherwise; with ws:// the text message that is sent",
    ),
    option(
        Load,
        "body-file",
        None,
        Some("FILE"),
        "",
        "body of the requests from a file; with ws:// the binary message that is sent",
    ),
    option(
        Load,
        "urls",
        None,
        Some("FILE"),
        "",
        "URLs or paths, one a line, each after an optional weight; # begins a comment",
    ),
    option(
        Load,
        "depth",
        None,
        Some("N"),
        "1",
        "requests that are sent together on a connection (pipelining)",
    ),
    option(
        Load,
        "http2",
        None,
        None,
        "",
        "HTTP/2: by prior knowledge with http://, chosen by ALPN with https://",
    ),
    option(
        Load,
        "streams",
        None,
        Some("N"),
        "1",
        "requests that are under way at once on each HTTP/2 connection",
    ),
    option(
        Load,
        "grpc",
        None,
        None,
        "",
        "unary gRPC calls over HTTP/2: --body or --body-file is the serialized message of each",
    ),
    option(
        Load,
        "arrival",
        None,
        Some("even|poisson"),
        "even",
        "how the requests of an open loop are spread over time",
    ),
    option(
        Load,
        "seed",
        None,
        Some("N"),
        "1",
        "seed of the Poisson arrivals",
    ),
    option(
        Load,
        "dispatch",
        None,
        Some("pinned|any|random"),
        "pinned",
        "connection of a due request: pinned: the next in turn, busy or not, as under wrk2; any: the \
         one that has been free for longest; random: one drawn by lot, busy or not",
    ),
    option(
        Load,
        "late",
        None,
        Some("queue|drop"),
        "queue",
        "what becomes of a due request when its connection is not free",
    ),
    option(
        Load,
        "step",
        None,
        Some("TIME"),
        "",
        "length of each step of a ramp; without it the duration is divided among them",
    ),
    option(
        Load,
        "probe",
        None,
        Some("RATE"),
        "",
        "beside the load a few requests per second on connections of their own, reported apart",
    ),
    option(
        Load,
        "probe-connections",
        None,
        Some("N"),
        "2",
        "connections of the probe",
    ),
    option(
        Load,
        "sink",
        None,
        None,
        "",
        "send to a null server inside this program instead of a URL: the headroom of the path",
    ),
    option(
        Engine,
        "warmup",
        None,
        Some("TIME"),
        "0s",
        "load before the window whose figures are thrown away; what an open loop has left unsent is sent first",
    ),
    option(
        Engine,
        "drain",
        None,
        Some("TIME"),
        "the timeout",
        "longest wait for answers after the window of an open loop",
    ),
    option(
        Engine,
        "pin",
        None,
        Some("CORES"),
        "",
        "bind threads to cores, one each, such as 2-5,8; one more core is the probe's",
    ),
    option(
        Engine,
        "realtime",
        None,
        None,
        "",
        "real-time priority for the threads that send, so that other programs take no time of \
         them; by the clock they rest 60 us of each ms, before the kernel makes them rest for 50 ms",
    ),
    option(
        Engine,
        "start-at",
        None,
        Some("UNIX_SECONDS"),
        "",
        "connect now, send from this moment on, so that several hosts start together",
    ),
    option(
        Engine,
        "source",
        None,
        Some("ADDRESSES"),
        "",
        "source addresses, separated by commas; each has its own 28 thousand ports",
    ),
    option(
        Engine,
        "abort",
        None,
        None,
        "",
        "close connections with RST: leaves nothing in TIME_WAIT, but is another load",
    ),
    option(
        Engine,
        "wait",
        None,
        Some("sleep|hybrid|spin"),
        "hybrid",
        "how a thread waits for the next due time",
    ),
    option(
        Engine,
        "coalesce",
        None,
        Some("auto|never"),
        "auto",
        "closed loop: up to 20 us of pause before a wait that would find little while many requests \
         are outstanding, so that the server need not wake this program for each answer",
    ),
    option(
        Engine,
        "rx-timestamps",
        None,
        None,
        "",
        "end latencies when the kernel received the answer, not when it was read (audit; TCP only)",
    ),
    option(
        Engine,
        "epoll",
        None,
        Some("edge|level"),
        "edge",
        "how readiness is reported; level for stacks that know only that",
    ),
    option(
        Engine,
        "control",
        None,
        Some("FILE"),
        "",
        "closed loop: make FILE, through which another program holds the load back and reads its \
         counters (docs/load.md, Holding the load back)",
    ),
    option(
        Output,
        "json",
        None,
        Some("FILE"),
        "",
        "write everything that was measured as JSON",
    ),
    option(
        Output,
        "csv",
        None,
        Some("FILE"),
        "",
        "write one line a second: rate, latencies, errors",
    ),
    option(
        Output,
        "hlog",
        None,
        Some("FILE"),
        "",
        "write an HdrHistogram log, one histogram a second",
    ),
    option(
        Output,
        "prometheus",
        None,
        Some("FILE"),
        "",
        "write counts and latencies in Prometheus' text format, anew each second",
    ),
    option(
        Output,
        "hgrm",
        None,
        Some("FILE"),
        "",
        "write the percentile spectrum for the HdrHistogram plotter",
    ),
    option(
        Output,
        "live",
        None,
        Some("auto|always|never"),
        "auto",
        "show rate, percentiles, errors and time left while a run of more than 2 s goes on; auto: if \
         standard error is a terminal",
    ),
    option(
        Output,
        "headroom",
        None,
        Some("FILE"),
        "",
        "result file of a --sink run: warn if the server comes within 1.3 x of it",
    ),
    option(
        Output,
        "strict",
        None,
        None,
        "",
        "exit with 1 if there are warnings",
    ),
];
