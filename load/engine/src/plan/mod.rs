//! The plan of a run: complete, and checked before anything starts.

mod pace;
mod protocol;
mod target;

pub use crate::expect::Expect;
pub use pace::{Closed, Dispatch, Late, Open, Pace, Think, Wait};
pub use protocol::{Protocol, NUMBER_BYTES};
pub use target::{dealt, weighted_order, Rendered, Target};

use crate::schedule::{Curve, Stretch};
use crate::sys::clock::SECOND_NS;
use crate::sys::control::Control;
use crate::sys::epoll::Trigger;
use crate::sys::options::SocketOptions;
use std::net::IpAddr;
use std::path::PathBuf;

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

/// What a script makes of the requests: decided on thread 1 for all threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shape {
    /// Requests in one text.
    pub depth: usize,
    /// The request is another each time.
    pub dynamic: bool,
    /// `response` wants to see answers.
    pub wants_answers: bool,
    /// `delay` is asked before each request.
    pub delays: bool,
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
            // those of the threads that send are for their responses only
            socket: SocketOptions {
                ports: None,
                ..load.socket.clone()
            },
            ..load.clone()
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
    /// What is set on each socket; threads share the source ports.
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
    /// Microseconds for which a wait polls network cards before it sleeps.
    pub busy_poll_us: Option<u32>,
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

/// The part of a run that a figure belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Opening the first connections; no load yet.
    Setup,
    /// Load whose figures are thrown away.
    Warmup,
    /// The measured window.
    Measured,
    /// After the window: answers to requests that were due in it.
    Drain,
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
    /// A closed loop of one thread over HTTP/1 with nothing that is optional, and no target yet: for
    /// tests, which state what differs from it.
    pub fn plain(connections: usize, length_ns: u64) -> Plan {
        Plan {
            threads: 1,
            steps: vec![Step {
                connections,
                length_ns,
            }],
            warmup_ns: 0,
            drain_ns: SECOND_NS,
            timeout_ns: SECOND_NS,
            connect_timeout_ns: SECOND_NS,
            requests: None,
            per_connection: None,
            expect: Expect::default(),
            socket: SocketOptions::default(),
            proxy_header: None,
            all_addresses: false,
            tls: TlsOptions::default(),
            protocol: Protocol::Http1 {
                depth: 1,
                timestamps: false,
                drop_bodies: false,
            },
            batch_latency: false,
            pace: Pace::Closed(Closed::default()),
            targets: Vec::new(),
            sources: Vec::new(),
            abort: false,
            close: false,
            trigger: Trigger::Edge,
            wait: Wait::Hybrid,
            busy_poll_us: None,
            coalesce: true,
            pins: Vec::new(),
            realtime: false,
            start_at_unix_ns: None,
            probe: None,
            sink: false,
        }
    }

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
