//! What a run shall do, complete and checked before anything starts.

pub use crate::expect::Expect;
use crate::interval::Phase;
use crate::schedule::{Curve, Stretch};
use crate::sys::control::Control;
use crate::sys::epoll::Trigger;
use crate::sys::options::SocketOptions;
use crate::sys::socket::Address;
use load_http1::request;
use std::cmp::{Ordering, Reverse};
use std::collections::binary_heap::{BinaryHeap, PeekMut};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// One request, rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The bytes of one batch: as many copies of the request as the plan's depth. Connections share
    /// them: an upload is in memory once.
    pub bytes: Arc<[u8]>,
    /// It is a HEAD request, whose answer has no body.
    pub head_only: bool,
    /// Which requests of a batch are HEAD requests, where not all are or are not.
    pub mixed: Option<Arc<[bool]>>,
}

impl Rendered {
    /// Method and path, where it is a request of HTTP/1.
    pub fn name(&self) -> Option<String> {
        let line = self.bytes.split(|byte| *byte == b'\r').next()?;
        let line = std::str::from_utf8(line).ok()?;
        Some(line.rsplit_once(" HTTP/")?.0.to_string())
    }

    /// Requests that a script has rendered.
    pub fn of_text(bytes: Vec<u8>) -> Rendered {
        let heads = request::heads(&bytes).unwrap_or_default();
        let head_only = heads.first().is_some_and(|head| *head);
        let is_mixed = heads.iter().any(|head| *head != head_only);
        Rendered {
            bytes: bytes.into(),
            head_only,
            mixed: is_mixed.then(|| heads.into()),
        }
    }
}

/// A server, and what it is asked.
#[derive(Clone, Debug)]
pub struct Target {
    /// As typed.
    pub url: String,
    /// Where it listens.
    pub address: Address,
    /// Other addresses of the same name.
    pub others: Vec<Address>,
    /// Name for the TLS handshake; `None` for plain connections.
    pub tls_name: Option<String>,
    /// The head of the upgrade to WebSocket without its key; `None` for HTTP.
    pub upgrade: Option<Vec<u8>>,
    /// Its requests.
    pub requests: Vec<Rendered>,
    /// Numbers of requests in the order in which they are sent, again and again.
    pub order: Vec<u32>,
    /// Its share of the requests of an open loop, and of the connections of a closed one, relative to
    /// the other targets.
    pub weight: u32,
}

/// The open loop: requests at a rate, whatever the answers do.
#[derive(Clone, Debug)]
pub struct Open {
    /// The rate over the measured window; the warm-up has the rate of its beginning.
    pub stretches: Vec<Stretch>,
    /// The due times of all requests from the start on, where they do not follow from the rate. Request k
    /// of them is the k-th of the one target's order.
    pub recorded: Option<Arc<[u64]>>,
    /// Poisson arrivals instead of even ones.
    pub poisson: bool,
    /// Seed of the Poisson process.
    pub seed: u64,
    /// Which connection a due request goes to.
    pub dispatch: Dispatch,
    /// Whether a due request whose connection is busy waits or is dropped.
    pub late: Late,
    /// A request that could not be sent so long after it was due is shed.
    pub deadline_ns: Option<u64>,
}

/// The closed loop: each user sends when the answer to the last request is there.
#[derive(Clone, Debug, Default)]
pub struct Closed {
    /// Users think before each request.
    pub think: Option<Think>,
    /// The file through which another program holds the load back.
    pub control: Option<Arc<Control>>,
}

/// When requests are sent.
#[derive(Clone, Debug)]
pub enum Pace {
    /// When answers come.
    Closed(Closed),
    /// When they are due.
    Open(Open),
}

/// Which connection of its target a due request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// Each connection has its own requests: the next one of the target, in turn. One that is busy
    /// keeps them waiting, as it does under wrk2.
    Pinned,
    /// The one that has been free for longest: a busy connection delays only its own request.
    Any,
    /// One drawn at random, whether it is free or not.
    Random,
}

impl Dispatch {
    /// Its name on the command line and in result files.
    pub fn name(self) -> &'static str {
        match self {
            Dispatch::Pinned => "pinned",
            Dispatch::Any => "any",
            Dispatch::Random => "random",
        }
    }
}

/// Whether a due request whose connection is busy waits or is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// It waits, and its wait counts.
    Queue,
    /// It is dropped and counted.
    Drop,
}

/// How long each user of a closed loop waits between a response and the next request: evenly drawn
/// from this range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Think {
    /// Shortest.
    pub least_ns: u64,
    /// Longest.
    pub most_ns: u64,
}

/// How a thread waits for the next due time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// In the kernel until it is due.
    Sleep,
    /// In the kernel until shortly before, then polling.
    Hybrid,
    /// Polling only.
    Spin,
}

/// How TLS is spoken; the default is what the library has, with nothing verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// Versions, `1.2` and `1.3`; empty: both.
    pub versions: Vec<String>,
    /// Key exchange groups in order of preference; empty: the library's.
    pub groups: Vec<String>,
    /// Cipher suites in order of preference; empty: the library's.
    pub ciphers: Vec<String>,
    /// Name that is asked for instead of the URL's host.
    pub name: Option<String>,
    /// Certificates (PEM) that servers' certificates must lead to; without it nothing is verified.
    pub authorities: Option<PathBuf>,
    /// Certificate chain and key (PEM) that are shown to servers.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Connections after the first resume its session where the server lets them.
    pub resumes: bool,
    /// Connections that resume a session send their first request with the handshake (0-RTT).
    pub early_data: bool,
}

/// Bytes of the number that a message over UDP begins with.
pub const NUMBER_BYTES: usize = size_of::<u64>();

/// The protocol of all connections, and how many requests each carries at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1 {
        /// Requests sent together on a connection.
        depth: usize,
        /// Latencies end when the kernel received the answer, not when it was read.
        timestamps: bool,
        /// Bodies that neither a script nor an expectation needs are dropped in the kernel instead of
        /// being read (http:// over TCP).
        drop_bodies: bool,
    },
    /// HTTP/2.
    Http2 {
        /// Streams at once on a connection, each the place of one user.
        streams: usize,
        /// Each request is a gRPC call, and its answer says how it went.
        grpc: bool,
    },
    /// Each request is a message of WebSocket, and so is its answer.
    WebSocket {
        /// Messages sent together on a connection.
        depth: usize,
    },
    /// Each request is a message over TCP.
    Tcp {
        /// Messages in flight on a connection, each the place of one user.
        window: usize,
        /// Size of an answer where it is not the echo of the message.
        reply_bytes: Option<usize>,
    },
    /// Each request is a datagram, and its answer the echo.
    Udp {
        /// Datagrams in flight on a connection, each the place of one user.
        window: usize,
    },
}

impl Protocol {
    /// Requests sent together on a connection.
    pub fn depth(self) -> usize {
        match self {
            Protocol::Http1 { depth, .. } | Protocol::WebSocket { depth } => depth,
            Protocol::Http2 { .. } | Protocol::Tcp { .. } | Protocol::Udp { .. } => 1,
        }
    }

    /// Requests at once on a connection, each of a user of its own.
    pub fn streams(self) -> usize {
        match self {
            Protocol::Http1 { .. } | Protocol::WebSocket { .. } => 1,
            Protocol::Http2 { streams, .. } => streams,
            Protocol::Tcp { window, .. } | Protocol::Udp { window } => window,
        }
    }

    /// Whether answers have a status.
    pub fn is_http(self) -> bool {
        matches!(self, Protocol::Http1 { .. } | Protocol::Http2 { .. })
    }

    /// Whether requests are gRPC calls.
    pub fn is_grpc(self) -> bool {
        matches!(self, Protocol::Http2 { grpc: true, .. })
    }

    /// Whether latencies end at the kernel's timestamps.
    pub fn has_timestamps(self) -> bool {
        matches!(
            self,
            Protocol::Http1 {
                timestamps: true,
                ..
            }
        )
    }

    /// Whether bodies are dropped in the kernel.
    pub fn drops_bodies(self) -> bool {
        matches!(
            self,
            Protocol::Http1 {
                drop_bodies: true,
                ..
            }
        )
    }

    /// The same with one request at a time.
    fn single(mut self) -> Protocol {
        match &mut self {
            Protocol::Http1 { depth: many, .. }
            | Protocol::WebSocket { depth: many }
            | Protocol::Http2 { streams: many, .. }
            | Protocol::Tcp { window: many, .. }
            | Protocol::Udp { window: many } => *many = 1,
        }
        self
    }
}

/// A stretch of the run with the same number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Open connections over all threads.
    pub connections: usize,
    /// Length.
    pub length_ns: u64,
}

/// An independent stream of requests at a low rate, measured apart from the load.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Requests per second.
    pub rate_rps: f64,
    /// Its own connections.
    pub connections: usize,
}

impl Probe {
    /// The probe as a run of its own: one thread, Poisson arrivals, and nothing else changed.
    pub fn plan(&self, load: &Plan) -> Plan {
        let (from_rps, to_rps) = (self.rate_rps, self.rate_rps);
        let length_ns = load.duration_ns();
        Plan {
            threads: 1,
            steps: vec![Step {
                connections: self.connections.max(load.targets.len()),
                length_ns,
            }],
            protocol: load.protocol.single(),
            pace: Pace::Open(Open {
                stretches: vec![Stretch {
                    length_ns,
                    from_rps,
                    to_rps,
                }],
                recorded: None,
                poisson: true,
                seed: load.open().map_or(0, |open| open.seed) ^ 0x70_72_6f_62_65,
                dispatch: Dispatch::Pinned,
                late: Late::Queue,
                deadline_ns: load.open().and_then(|open| open.deadline_ns),
            }),
            wait: Wait::Sleep,
            pins: load.pins.get(load.threads).copied().into_iter().collect(),
            targets: load
                .targets
                .iter()
                .map(|target| target.single(load.protocol.depth()))
                .collect(),
            requests: None,
            probe: None,
            ..load.clone()
        }
    }
}

impl Target {
    /// The same target with batches of one request each instead of `depth` copies.
    fn single(&self, depth: usize) -> Target {
        let one = |request: &Rendered| Rendered {
            bytes: request.bytes[..request.bytes.len() / depth].into(),
            head_only: request.head_only,
            mixed: None,
        };
        Target {
            requests: self.requests.iter().map(one).collect(),
            ..self.clone()
        }
    }
}

/// A whole run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Threads that send.
    pub threads: usize,
    /// The measured window, one step unless connections are ramped or rates stepped.
    pub steps: Vec<Step>,
    /// Load before the window.
    pub warmup_ns: u64,
    /// Longest wait for answers after the window (open loop).
    pub drain_ns: u64,
    /// Longest wait for an answer.
    pub timeout_ns: u64,
    /// Longest wait for a connection with its handshakes.
    pub connect_timeout_ns: u64,
    /// The protocol of all connections.
    pub protocol: Protocol,
    /// Record only the last answer of a pipelined batch.
    pub batch_latency: bool,
    /// When requests are sent.
    pub pace: Pace,
    /// Servers; connections are dealt to them in turn.
    pub targets: Vec<Target>,
    /// Requests of the whole run, after which it ends.
    pub requests: Option<u64>,
    /// Responses after which a connection is closed and opened again.
    pub per_connection: Option<u16>,
    /// Properties that responses must have.
    pub expect: Expect,
    /// Connections are dealt to all addresses of a name, not made to the first that takes them.
    pub all_addresses: bool,
    /// How https and wss are spoken.
    pub tls: TlsOptions,
    /// What is set on each TCP socket.
    pub socket: SocketOptions,
    /// Connections begin with a PROXY header of this version (1 or 2).
    pub proxy_header: Option<u8>,
    /// Source addresses, used in turn.
    pub sources: Vec<IpAddr>,
    /// Close with RST.
    pub abort: bool,
    /// The requests ask the server to close.
    pub close: bool,
    /// How readiness is reported.
    pub trigger: Trigger,
    /// How a thread waits for a due time.
    pub wait: Wait,
    /// Closed loop: short pauses before waits that would find little.
    pub coalesce: bool,
    /// Cores, one a thread; empty: wherever the kernel likes.
    pub pins: Vec<usize>,
    /// Threads that send come before all that have no real-time priority.
    pub realtime: bool,
    /// When the load starts, in ns since 1970.
    pub start_at_unix_ns: Option<u64>,
    /// The probe that runs in parallel with the load.
    pub probe: Option<Probe>,
    /// The target is the null server inside this program.
    pub sink: bool,
}

/// A stretch of the run on the clock of the run (0 = the load starts).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// What is done with its figures.
    pub phase: Phase,
    /// Number of the step.
    pub step: usize,
    /// Start.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// Open connections over all threads.
    pub connections: usize,
}

impl Plan {
    /// The open loop, if it is one.
    #[inline]
    pub fn open(&self) -> Option<&Open> {
        match &self.pace {
            Pace::Open(open) => Some(open),
            Pace::Closed(_) => None,
        }
    }

    /// The closed loop, if it is one.
    #[inline]
    pub fn closed(&self) -> Option<&Closed> {
        match &self.pace {
            Pace::Closed(closed) => Some(closed),
            Pace::Open(_) => None,
        }
    }

    /// How long users think, if they do.
    #[inline]
    pub fn think(&self) -> Option<Think> {
        self.closed().and_then(|closed| closed.think)
    }

    /// The file of a controller, if there is one.
    #[inline]
    pub fn control(&self) -> Option<&Control> {
        self.closed().and_then(|closed| closed.control.as_deref())
    }

    /// Most connections at any time.
    pub fn connections_max(&self) -> usize {
        self.steps
            .iter()
            .map(|step| step.connections)
            .max()
            .unwrap_or(0)
    }

    /// Length of the measured window.
    pub fn duration_ns(&self) -> u64 {
        self.steps.iter().map(|step| step.length_ns).sum()
    }

    /// The stretches of the run in order, without the drain.
    pub fn stages(&self) -> Vec<Stage> {
        let mut stages = Vec::with_capacity(self.steps.len() + 1);
        let first = self.steps.first().map_or(0, |step| step.connections);
        let mut start_ns = self.warmup_ns;
        if start_ns > 0 {
            let (phase, step) = (Phase::Warmup, 0);
            stages.push(Stage {
                phase,
                step,
                start_ns: 0,
                end_ns: start_ns,
                connections: first,
            });
        }
        for (
            step,
            &Step {
                connections,
                length_ns,
            },
        ) in self.steps.iter().enumerate()
        {
            let end_ns = start_ns + length_ns;
            stages.push(Stage {
                phase: Phase::Measured,
                step,
                start_ns,
                end_ns,
                connections,
            });
            start_ns = end_ns;
        }
        stages
    }

    /// The curve of batches of `depth` requests over warm-up and window; `None` in closed loop.
    pub fn curve(&self, depth: usize) -> Option<Curve> {
        let open = self.open()?;
        let depth = depth as f64;
        let first_rps = open
            .stretches
            .first()
            .map_or(0.0, |stretch| stretch.from_rps);
        let warmup = Stretch {
            length_ns: self.warmup_ns,
            from_rps: first_rps,
            to_rps: first_rps,
        };
        let batches: Vec<Stretch> = std::iter::once(&warmup)
            .chain(&open.stretches)
            .map(|stretch| Stretch {
                length_ns: stretch.length_ns,
                from_rps: stretch.from_rps / depth,
                to_rps: stretch.to_rps / depth,
            })
            .collect();
        Some(Curve::new(&batches))
    }

    /// The connections that belong to one thread out of `total`; the first ones take the rest.
    pub fn share(&self, total: usize, thread: usize) -> usize {
        total / self.threads + usize::from(thread < total % self.threads)
    }
}

/// Deals `connections` to targets by weight. The first ones go to one target each, so that every
/// target has one; a full round has the weights' shares.
pub fn dealt(weights: &[u32], connections: usize) -> Vec<usize> {
    let order = weighted_order(weights);
    let mut has_none = vec![true; weights.len()];
    let later = order
        .iter()
        .map(|&target| target as usize)
        .cycle()
        .filter(move |&target| !std::mem::take(&mut has_none[target]));
    (0..weights.len()).chain(later).take(connections).collect()
}

/// Spreads requests by weight so that equal ones do not follow each other more than they must: of a
/// weight of w the k-th stands at (2k + 1)/(2w) of the whole order, the first one where several meet.
pub fn weighted_order(weights: &[u32]) -> Vec<u32> {
    let weighted = weights.iter().zip(0..).filter(|(weight, _)| **weight > 0);
    let mut next: BinaryHeap<_> = weighted
        .map(|(&weight, index)| {
            Reverse(Place {
                weight,
                index,
                k: 0,
            })
        })
        .collect();
    let mut order = Vec::new();
    while let Some(mut first) = next.peek_mut() {
        order.push(first.0.index);
        first.0.k += 1;
        if first.0.k == first.0.weight {
            PeekMut::pop(first);
        }
    }
    order
}

/// Where in an order a request stands for the k-th time.
#[derive(PartialEq, Eq)]
struct Place {
    weight: u32,
    index: u32,
    k: u32,
}

impl Ord for Place {
    fn cmp(&self, other: &Place) -> Ordering {
        // (2k + 1)/(2w) of both, brought to one denominator
        let scaled = |own: &Place, by: u32| (2 * u64::from(own.k) + 1) * u64::from(by);
        let (own, theirs) = (scaled(self, other.weight), scaled(other, self.weight));
        own.cmp(&theirs).then(self.index.cmp(&other.index))
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Place) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_kept_and_spread() {
        assert_eq!(weighted_order(&[1, 1, 1]), [0, 1, 2]);
        assert_eq!(weighted_order(&[3, 1]), [0, 0, 1, 0]);
        let order = weighted_order(&[5, 2, 1]);
        let count = |which| order.iter().filter(|&&index| index == which).count();
        assert_eq!([count(0), count(1), count(2)], [5, 2, 1]);
        assert_eq!(weighted_order(&[0, 2, 0, 2]), [1, 3, 1, 3]);
    }

    #[test]
    fn connections_are_dealt_by_weight_and_every_target_has_one() {
        assert_eq!(dealt(&[1], 3), [0, 0, 0]);
        assert_eq!(dealt(&[1, 1, 1], 5), [0, 1, 2, 0, 1]);
        assert_eq!(dealt(&[9, 1], 2), [0, 1]);
        let many = dealt(&[9, 1], 20);
        assert_eq!(many.iter().filter(|&&target| target == 0).count(), 18);
    }

    #[test]
    fn a_long_list_is_spread_at_once() {
        let order = weighted_order(&vec![1; 100_000]);
        assert!(order.into_iter().eq(0..100_000));
    }
}
