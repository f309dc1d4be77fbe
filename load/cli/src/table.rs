//! Every option once, with the type of its value. The parser, [`Args`], `--help`, the shell completions
//! and docs/load-options.md are all made from this table.

use crate::conditions::Conditions;
use crate::refusal::Refusal;
use crate::series::Live;
use crate::values::{
    Addresses, Arrival, Bodies, Bytes, Coalesce, ConnectTo, Cores, Count, HeaderField, List,
    Method, Number, ProxyVersion, Ramp, Rate, Requests, Resolve, Setting, Sources, Time, UnixTime,
    UpTo, Value,
};
use load_engine::plan::{Dispatch, Expect, Late, Think, Wait};
use load_engine::sys::epoll::Trigger;
use load_engine::sys::options::Ports;

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
    /// Reads the text of its value into its field.
    set: fn(&mut Args, &'static str, &str) -> Result<(), Refusal>,
}

/// Makes the table, and the type that holds the values of a command line. Each option is
/// `GROUP "long" / 'short' = "VALUE" => field: Type = "default", "text";`. A default behind `|` is only
/// shown: it depends on other options.
macro_rules! options {
    ($(
        $group:ident $long:literal $(/ $short:literal)? $(= $value:literal)?
        => $field:ident : $type:ty $(= $default:literal)? $(| $shown:literal)?, $text:literal;
    )*) => {
        /// All options.
        pub const TABLE: &[Entry] = &[$(Entry {
            long: $long,
            short: options!(@some $($short)?),
            value: options!(@some $($value)?),
            default: concat!($($default)? $($shown)?),
            group: Group::$group,
            text: $text,
            set: |args, name, text| args.$field.set(name, text),
        },)*];

        /// The values of a command line.
        #[derive(Clone, Debug)]
        pub struct Args {
            given: Vec<&'static str>,
            $(#[doc = $text] pub $field: $type,)*
        }

        impl Default for Args {
            fn default() -> Args {
                Args {
                    given: Vec::new(),
                    $($field: options!(@default $type $(, $default)?),)*
                }
            }
        }
    };
    (@some) => { None };
    (@some $some:literal) => { Some($some) };
    (@default $type:ty) => { <$type>::default() };
    (@default $type:ty, $default:literal) => {
        <$type>::read("default", $default).expect("a default is a value")
    };
}

/// The options and words of a command line.
#[derive(Debug, Default)]
pub struct Typed {
    /// Options with the texts of their values, in order.
    pub options: Vec<(&'static Entry, String)>,
    /// Other words.
    pub words: Vec<String>,
    /// Words after `--`.
    pub rest: Vec<String>,
}

impl Typed {
    /// Whether an option was given.
    pub fn has(&self, long: &str) -> bool {
        self.options.iter().any(|(entry, _)| entry.long == long)
    }
}

impl Args {
    /// The values of a command line that was read.
    pub fn read(typed: &Typed) -> Result<Args, Refusal> {
        let mut args = Args::default();
        for (entry, text) in &typed.options {
            (entry.set)(&mut args, entry.long, text)?;
            args.given.push(entry.long);
        }
        Ok(args)
    }

    /// Whether an option was given.
    pub fn has(&self, long: &str) -> bool {
        debug_assert!(TABLE.iter().any(|entry| entry.long == long), "{long}");
        self.given.contains(&long)
    }

    /// The first of some options that was given.
    pub fn first_of(&self, longs: &[&'static str]) -> Option<&'static str> {
        longs.iter().copied().find(|long| self.has(long))
    }
}

options! {
    Wrk "connections" / 'c' = "N" => connections: Ramp = "10",
        "connections over all threads; A..B:S goes from A to B in steps of S (see --step)";
    Wrk "duration" / 'd' = "TIME" => duration: Option<Time> | "10s",
        "length of the measured window";
    Wrk "threads" / 't' = "N" => threads: Option<Count> | "2",
        "threads that send; 1 if there is a single connection";
    Wrk "script" / 's' = "FILE" => script: Option<String>,
        "Lua script as for wrk (setup, init, delay, request, response, done)";
    Wrk "header" / 'H' = "FIELD" => header: Vec<HeaderField>,
        "header field for every request, such as 'Accept: text/plain'; may be repeated";
    Wrk "latency" / 'L' => latency: bool,
        "print the distribution of latencies";
    Wrk "timeout" / 'T' = "TIME" => timeout: Time = "2s",
        "longest wait for a response; then it counts as timed out and the connection is \
         reopened";
    Wrk "version" / 'v' => version: bool,
        "print the version";
    Wrk "help" / 'h' => help: bool,
        "print this help";
    Wrk2 "rate" / 'R' = "N" => rate: Option<Rate>,
        "open loop: requests per second over all threads, at a fixed rate; A..B ramps from A \
         to B over the window, A..B:S goes in steps of S; @FILE has points such as '10s 5k'";
    Wrk2 "u_latency" / 'U' => u_latency: bool,
        "print the spectrum of service times too (implies --latency)";
    Wrk2 "batch_latency" / 'B' => batch_latency: bool,
        "with pipelining record only the last response of a batch";
    Load "method" / 'X' = "NAME" => method: Option<Method> | "GET",
        "method of the requests";
    Load "body" = "TEXT" => body: Option<String>,
        "body of the requests; implies POST unless --method is given; with ws:// the text \
         message that is sent";
    Load "body-file" = "FILE" => body_file: Option<String>,
        "body of the requests from a file; with ws:// the binary message that is sent";
    Load "urls" = "FILE" => urls: Option<String>,
        "URLs or paths, one per line, each after an optional weight; # begins a comment";
    Load "data" = "FILE" => data: Option<String>,
        "CSV file whose rows fill {column} in path, header fields and body, one row after the \
         other";
    Load "replay" = "FILE" => replay: Option<String>,
        "open loop: the GET, HEAD and OPTIONS requests of an access log (common or combined \
         format, or lines 'SECONDS METHOD PATH') at the times at which they came";
    Load "speed" = "N" => speed: Option<Number> | "1",
        "replay the log N times as fast";
    Load "depth" = "N" => depth: Count = "1",
        "requests that are sent together on a connection (pipelining)";
    Load "http2" => http2: bool,
        "HTTP/2: by prior knowledge with http://, chosen by ALPN with https://";
    Load "http3" => http3: bool,
        "HTTP/3 over QUIC, with https://";
    Load "streams" = "N" => streams: Count = "1",
        "requests in flight on each connection of HTTP/2 or HTTP/3";
    Load "grpc" => grpc: bool,
        "unary gRPC calls over HTTP/2: --body or --body-file is the serialized message of \
         each";
    Load "size" = "BYTES" => size: Option<Bytes> | "64",
        "size of the messages of tcp:// and udp:// URLs";
    Load "reply-size" = "BYTES" => reply_size: Option<Bytes> | "that of the message",
        "size of each response of a tcp:// server that is not an echo server";
    Load "window" = "N" => window: Count = "1",
        "messages in flight on each connection of tcp:// and udp:// URLs";
    Load "arrival" = "even|poisson" => arrival: Arrival = "even",
        "how the requests of an open loop are spread over time";
    Load "think" = "TIME" => think: Option<Think>,
        "closed loop: each user waits TIME before each request; A..B draws the time from a \
         range";
    Load "seed" = "N" => seed: Number = "1",
        "seed of the Poisson arrivals";
    Load "dispatch" = "pinned|any|random" => dispatch: Dispatch = "pinned",
        "connection of a due request: pinned: the next in turn, busy or not, as under wrk2; \
         any: the one that has been free longest; random: a random one, busy or not";
    Load "late" = "queue|drop" => late: Late = "queue",
        "whether a due request waits (queue) or is dropped (drop) when its connection is not \
         free";
    Load "step" = "TIME" => step: Option<Time>,
        "length of each step of a ramp; without it the duration is divided among them";
    Load "probe" = "RATE" => probe: Option<Number>,
        "in addition to the load, RATE requests per second on connections of their own, \
         reported separately";
    Load "probe-connections" = "N" => probe_connections: Count = "2",
        "connections of the probe";
    Load "sink" => sink: bool,
        "send to a null server inside this program instead of a URL, to measure the generator";
    Engine "warmup" = "TIME" => warmup: Option<Time> | "0s",
        "load before the window, not measured; in an open loop overdue requests of the \
         warm-up are sent first";
    Engine "connect-timeout" = "TIME" => connect_timeout: Option<Time> | "the timeout",
        "longest wait for a connection with its handshakes; the load begins when all are \
         open, or when none has opened for TIME";
    Engine "drain" = "TIME" => drain: Option<Time> | "the timeout",
        "longest wait for responses after the window of an open loop";
    Engine "pin" = "CORES" => pin: Option<Cores>,
        "bind threads to cores, one each, such as 2-5,8; one more core is for the probe";
    Engine "realtime" => realtime: bool,
        "real-time priority for the threads that send, so that other programs cannot delay \
         them; at a fixed rate they yield 60 us of each ms, before the kernel makes them \
         yield 50 ms";
    Engine "start-at" = "UNIX_SECONDS" => start_at: Option<UnixTime>,
        "connect now, send from this moment on, so that several hosts start together";
    Load "tls-version" = "LIST" => tls_version: Option<List> | "1.2,1.3",
        "versions of TLS that are offered";
    Load "tls-groups" = "LIST" => tls_groups: Option<List>,
        "key exchange groups that are offered, in order, such as x25519,secp256r1";
    Load "tls-ciphers" = "LIST" => tls_ciphers: Option<List>,
        "cipher suites that are offered, in order, such as TLS13_AES_128_GCM_SHA256";
    Load "sni" = "NAME" => sni: Option<String> | "the host",
        "server name of the handshake, and of the certificate with --ca";
    Load "ca" = "FILE" => ca: Option<String>,
        "verify servers' certificates against these authorities (PEM); without it nothing is \
         verified";
    Load "cert" = "FILE" => cert: Option<String>,
        "certificate chain (PEM) that is shown to servers that ask for one";
    Load "key" = "FILE" => key: Option<String>,
        "its private key (PEM), if it is not in the same file";
    Load "tls-resume" => tls_resume: bool,
        "resume TLS sessions on later connections, where the server lets them";
    Load "early-data" => early_data: bool,
        "send the first request of each connection that resumes a TLS session with the \
         handshake (0-RTT, implies --tls-resume), where the server lets it";
    Load "requests" / 'n' = "N" => requests: Option<Requests>,
        "end after N requests; the duration is then an upper bound";
    Load "requests-per-connection" = "N" => requests_per_connection: Option<Count>,
        "close a connection after N responses, and open it again";
    Load "expect" = "LIST" => expect: Expect,
        "count responses as errors that differ: status=200,length=1024,body~TEXT; may be \
         repeated";
    Load "deadline" = "TIME" => deadline: Option<Time>,
        "open loop: do not send a request that is TIME late; it counts as lost after its wait";
    Load "stop-when" = "LIST" => stop_when: Conditions,
        "end early, with exit code 1, after a second that meets one of these: \
         errors>100,p99>50ms";
    Load "resolve" = "HOST:PORT:ADDRESSES" => resolve: Vec<Resolve>,
        "addresses of a host, separated by commas, in place of the system resolver; may be \
         repeated";
    Load "connect-to" = "HOST:PORT:HOST:PORT" => connect_to: Vec<ConnectTo>,
        "connect to the second host and port for requests to the first; an empty one is any, \
         or the same; may be repeated";
    Load "addresses" = "first|all" => addresses: Addresses = "first",
        "addresses of a host name to connect to: first: the first that accepts, and the next \
         one when it fails; all: spread over all";
    Engine "source" = "ADDRESSES" => source: Option<Sources>,
        "source addresses, separated by commas; each has its own 28 thousand ports";
    Engine "source-ports" = "A-B" => source_ports: Option<Ports>,
        "source ports, of which each thread gets an equal part, in order: for a card that steers \
         by ports (Linux 6.3)";
    Engine "proxy-protocol" = "v1|v2" => proxy_protocol: Option<ProxyVersion>,
        "begin each connection with a PROXY header that names its addresses";
    Engine "tcp-congestion" = "NAME" => tcp_congestion: Option<String>,
        "congestion control of the sockets, such as cubic or bbr";
    Engine "tcp-mss" = "BYTES" => tcp_mss: Option<UpTo<65_535>>,
        "largest segment";
    Engine "send-buffer" = "BYTES" => send_buffer: Option<UpTo<{ i32::MAX as u32 }>>,
        "send buffer of each socket; the kernel doubles it";
    Engine "receive-buffer" = "BYTES" => receive_buffer: Option<UpTo<{ i32::MAX as u32 }>>,
        "receive buffer of each socket; the kernel doubles it";
    Engine "tcp-fast-open" => tcp_fast_open: bool,
        "send the first request with the SYN, where kernel and server allow it";
    Engine "dscp" = "N" => dscp: Option<UpTo<63>>,
        "DSCP of the packets, 0 to 63";
    Engine "device" = "NAME" => device: Option<String>,
        "interface that packets leave by (root or CAP_NET_RAW)";
    Engine "abort" => abort: bool,
        "close connections with RST: leaves nothing in TIME_WAIT, but loads the server differently";
    Engine "wait" = "sleep|hybrid|spin" => wait: Wait = "hybrid",
        "how a thread waits for the time of the next request";
    Engine "busy-poll" = "TIME" => busy_poll: Option<Time>,
        "poll network cards for TIME before each wait sleeps (Linux 6.9, no effect on loopback)";
    Engine "coalesce" = "auto|never" => coalesce: Coalesce = "auto",
        "closed loop: sleep some 20 us before waiting while many requests are in flight, so \
         that the server need not wake this program for each response";
    Engine "bodies" = "read|drop" => bodies: Bodies = "read",
        "drop: bodies of http:// responses that nothing looks at are dropped in the kernel, \
         which saves the copy that other clients make";
    Engine "rx-timestamps" => rx_timestamps: bool,
        "end latencies when the kernel received the response, not when it was read (audit; \
         TCP only)";
    Engine "epoll" = "edge|level" => epoll: Trigger = "edge",
        "epoll's trigger mode; level for stacks that support only that";
    Engine "control" = "FILE" => control: Option<String>,
        "closed loop: make FILE, through which another program holds the load back and reads \
         its counters (docs/internals/load.md, Holding the load back)";
    Output "json" = "FILE" => json: Option<String>,
        "write all results as JSON";
    Output "csv" = "FILE" => csv: Option<String>,
        "write one line per second: rate, latencies, errors";
    Output "hlog" = "FILE" => hlog: Option<String>,
        "write an HdrHistogram log, one histogram per second";
    Output "prometheus" = "FILE" => prometheus: Option<String>,
        "write counts and latencies in Prometheus' text format, updated each second";
    Output "hgrm" = "FILE" => hgrm: Option<String>,
        "write the percentile spectrum for the HdrHistogram plotter";
    Output "live" = "auto|always|never" => live: Live = "auto",
        "show rate, percentiles, errors and time left while a run of more than 2 s goes on; \
         auto: if standard error is a terminal";
    Output "headroom" = "FILE" => headroom: Option<String>,
        "result file of a --sink run: warn if the server comes within 1.3 x of it";
    Output "strict" => strict: bool,
        "exit with status 1 if there are warnings, and with 3 if a signal ended the run early";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_letters_are_unique() {
        for (index, entry) in TABLE.iter().enumerate() {
            for other in &TABLE[index + 1..] {
                assert_ne!(entry.long, other.long);
                let is_same = entry.short.is_some() && entry.short == other.short;
                assert!(!is_same, "{}", other.long);
            }
        }
    }

    #[test]
    fn values_have_their_types_and_the_defaults_of_the_table() {
        let words = [
            "-c",
            "7",
            "-T500ms",
            "-Hx: y",
            "--wait=spin",
            "--dscp",
            "46",
        ];
        let words: Vec<String> = words.map(String::from).to_vec();
        let typed = crate::options::parse(&words, crate::measure::Compat::Own).expect("correct");
        let args = Args::read(&typed).expect("correct");
        assert_eq!((args.connections.from, args.timeout.0), (7.0, 500_000_000));
        assert_eq!((args.wait, args.dscp), (Wait::Spin, Some(UpTo(46))));
        assert!(args.has("header") && args.rate.is_none() && !args.latency);
        assert_eq!(args.first_of(&["rate", "wait", "dscp"]), Some("wait"));
        assert_eq!(
            (args.late, Args::default().timeout.0),
            (Late::Queue, 2_000_000_000)
        );
    }
}
