//! Results of one thread over an interval of at most a second.
//!
//! Threads hand intervals over and get empty ones back, so that adding up and printing never take
//! time from the hot path.

use crate::breakdown::{Breakdown, Ended};
use crate::latency::Latency;
use crate::peaks::Peaks;
use crate::plan::Phase;
use crate::tcp::TcpSamples;
use load_http1::Malformed;
use std::collections::BTreeMap;

/// Everything that is only counted.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Requests that fell due (open loop).
    pub due: u64,
    /// Requests written.
    pub sent: u64,
    /// Requests not sent because no connection was free (open loop, `--late drop`).
    pub dropped: u64,
    /// Requests that were too late to be sent (open loop, `--deadline`); they are entered as lost after
    /// the time that they had waited.
    pub shed: u64,
    /// Requests of users without a connection, which could not be opened (closed loop).
    pub unconnected: u64,
    /// Answers read.
    pub completed: u64,
    /// Among them those to requests that fell due in the warm-up (open loop): they are in the rate, and
    /// in no other figure.
    pub earlier: u64,
    /// Requests written that will have no answer: their connection broke, or they were given up.
    pub lost: u64,
    /// Bytes of answers.
    pub bytes_in: u64,
    /// Bytes of requests.
    pub bytes_out: u64,
    /// Connections established.
    pub connects: u64,
    /// TLS sessions that were resumed.
    pub resumed: u64,
    /// Connections whose first request the server took as early data of TLS.
    pub early: u64,
    /// Answers by status code.
    pub status: Box<[u64; 1000]>,
    /// Errors by cause.
    pub errors: Errors,
    /// Answers with forms that are tolerated but not correct.
    pub tolerated: u64,
    /// Answers whose reception the kernel did not stamp although it was asked to.
    pub unstamped: u64,
    /// Datagrams that answer nothing in flight: late, sent twice, or something else.
    pub strays: u64,
}

impl Default for Counts {
    fn default() -> Self {
        Counts {
            due: 0,
            sent: 0,
            dropped: 0,
            shed: 0,
            unconnected: 0,
            completed: 0,
            earlier: 0,
            lost: 0,
            bytes_in: 0,
            bytes_out: 0,
            connects: 0,
            resumed: 0,
            early: 0,
            status: Box::new([0; 1000]),
            errors: Errors::default(),
            tolerated: 0,
            unstamped: 0,
            strays: 0,
        }
    }
}

/// Errors by what caused them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    /// Refused connections.
    pub connect_refused: u64,
    /// Connections that were not established in time.
    pub connect_timeout: u64,
    /// No source port was free.
    pub connect_no_port: u64,
    /// Other failures to connect.
    pub connect_other: u64,
    /// Requests whose connection broke or was closed before they were answered.
    pub read: u64,
    /// Requests that met a connection which had carried answers and which the server was closing:
    /// RFC 9112, 9.3.1 lets a client repeat them.
    pub stale: u64,
    /// Requests that the server ended without an answer (HTTP/2, HTTP/3).
    pub stream_reset: u64,
    /// Connections whose server broke the rules of HTTP/2.
    pub http2: u64,
    /// Connections whose server broke the rules of HTTP/3.
    pub http3: u64,
    /// Connections whose server broke the rules of WebSocket, or spoke unasked.
    pub websocket: u64,
    /// Connections on which something else came than the echo of what was sent (`tcp://`).
    pub echo: u64,
    /// Calls whose answer says that they failed, or says nothing (gRPC).
    pub grpc: u64,
    /// Whole responses that were not as expected (`--expect`).
    pub unexpected: u64,
    /// Writes that failed.
    pub write: u64,
    /// Requests without an answer in time.
    pub timeout: u64,
    /// Malformed answers by class.
    pub malformed: [u64; Malformed::ALL.len()],
    /// Whole answers whose body is shorter than the first one to the same request. Reported and warned
    /// of, and no error: pages may vary, and what is cut off counts as read error.
    pub short_body: u64,
}

impl Errors {
    /// Failures to connect.
    pub fn connect(&self) -> u64 {
        self.connect_refused + self.connect_timeout + self.connect_no_port + self.connect_other
    }

    /// The failures to connect alone.
    pub fn connects(&self) -> Errors {
        Errors {
            connect_refused: self.connect_refused,
            connect_timeout: self.connect_timeout,
            connect_no_port: self.connect_no_port,
            connect_other: self.connect_other,
            ..Errors::default()
        }
    }

    /// Read errors in wrk's sense: answers that broke off, never came or made no sense.
    pub fn broken(&self) -> u64 {
        let rules = self.http2 + self.http3 + self.websocket + self.echo;
        let malformed: u64 = self.malformed.iter().sum();
        self.read + self.stale + self.stream_reset + rules + malformed
    }

    /// All of them; short bodies are whole answers.
    pub fn total(&self) -> u64 {
        let malformed: u64 = self.malformed.iter().sum();
        let rules = self.stream_reset + self.http2 + self.http3 + self.websocket + self.echo;
        let lost = self.read + self.stale + self.write + self.timeout + rules;
        self.connect() + lost + malformed + self.grpc + self.unexpected
    }

    /// Adds those of another interval.
    pub fn add(&mut self, other: &Errors) {
        self.connect_refused += other.connect_refused;
        self.connect_timeout += other.connect_timeout;
        self.connect_no_port += other.connect_no_port;
        self.connect_other += other.connect_other;
        self.read += other.read;
        self.stale += other.stale;
        self.stream_reset += other.stream_reset;
        self.http2 += other.http2;
        self.http3 += other.http3;
        self.websocket += other.websocket;
        self.echo += other.echo;
        self.grpc += other.grpc;
        self.unexpected += other.unexpected;
        self.write += other.write;
        self.timeout += other.timeout;
        self.short_body += other.short_body;
        for (own, more) in self.malformed.iter_mut().zip(other.malformed) {
            *own += more;
        }
    }
}

impl Counts {
    /// Adds those of another interval.
    pub fn add(&mut self, other: &Counts) {
        self.due += other.due;
        self.sent += other.sent;
        self.dropped += other.dropped;
        self.shed += other.shed;
        self.unconnected += other.unconnected;
        self.completed += other.completed;
        self.earlier += other.earlier;
        self.lost += other.lost;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.connects += other.connects;
        self.resumed += other.resumed;
        self.early += other.early;
        self.tolerated += other.tolerated;
        self.unstamped += other.unstamped;
        self.strays += other.strays;
        self.errors.add(&other.errors);
        for (own, more) in self.status.iter_mut().zip(other.status.iter()) {
            *own += more;
        }
    }

    /// Answers whose status fails `good`.
    pub fn status_unless(&self, good: impl Fn(usize) -> bool) -> u64 {
        self.status
            .iter()
            .enumerate()
            .filter(|(code, _)| !good(*code))
            .map(|(_, n)| n)
            .sum()
    }
}

/// The distributions that are kept.
#[derive(Clone, Debug, Default)]
pub struct Distributions {
    /// Write (in closed loop: connection free for it) to last byte.
    pub service: Latency,
    /// Due time to last byte (open loop).
    pub response: Latency,
    /// Due time to write while a connection was free: this program's own delay (open loop).
    pub lateness: Latency,
    /// Due time until a connection was free (open loop).
    pub queue: Latency,
    /// Connect to established.
    pub connect: Latency,
    /// TLS handshake.
    pub tls: Latency,
    /// Wake-up to read: how long an answer waited for this program.
    pub client_delay: Latency,
    /// Write to first byte, of answers that came in more than one read …
    pub first_of_split: Latency,
    /// … and their service times: of all others the first byte came with the last.
    pub last_of_split: Latency,
}

impl Distributions {
    /// All of them, with their names in reports.
    pub fn named(&self) -> [(&'static str, &Latency); 7] {
        [
            ("service", &self.service),
            ("response", &self.response),
            ("lateness", &self.lateness),
            ("queue", &self.queue),
            ("connect", &self.connect),
            ("tls", &self.tls),
            ("client_delay", &self.client_delay),
        ]
    }

    /// The time that counts: from the due time in an open loop, service time in a closed one.
    pub fn counting(&self, is_open_loop: bool) -> &Latency {
        if is_open_loop {
            &self.response
        } else {
            &self.service
        }
    }

    /// Enters when the first and the last byte came of an answer that came in more than one read.
    pub fn note_split(&mut self, first_ns: u64, last_ns: u64) {
        self.first_of_split.record(first_ns);
        self.last_of_split.record(last_ns);
    }

    /// Write to first byte (HTTP/1.1).
    pub fn first_byte(&self) -> Latency {
        let mut all = self.service.without(&self.last_of_split);
        all.add(&self.first_of_split);
        all
    }

    fn each_mut(&mut self) -> [&mut Latency; 9] {
        [
            &mut self.service,
            &mut self.response,
            &mut self.lateness,
            &mut self.queue,
            &mut self.connect,
            &mut self.tls,
            &mut self.client_delay,
            &mut self.first_of_split,
            &mut self.last_of_split,
        ]
    }

    /// Adds those of another interval.
    pub fn add(&mut self, other: &Distributions) {
        let split = [&other.first_of_split, &other.last_of_split];
        let named = other.named().into_iter().map(|(_, latency)| latency);
        for (own, more) in self.each_mut().into_iter().zip(named.chain(split)) {
            own.add(more);
        }
    }
}

/// The times of a request that fell due in an earlier step than the one in which it ended. They
/// belong to the step in which it fell due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Straggler {
    /// Number of its step.
    pub step: usize,
    /// Write to last byte; of a request that was never written there is none.
    pub service_ns: Option<u64>,
    /// Due time to last byte.
    pub response_ns: u64,
    /// Write to first byte, of an answer that came in more than one read.
    pub first_byte_ns: Option<u64>,
    /// It was lost: its true times are at least these.
    pub lost: bool,
    /// Its row and its status.
    pub ended: Ended,
}

impl Straggler {
    /// Enters it.
    pub fn record(&self, times: &mut Distributions, breakdown: &mut Breakdown) {
        breakdown.record(self.ended, self.response_ns, 1);
        let enter = |latency: &mut Latency, took_ns: u64| {
            if self.lost {
                latency.record_lost(took_ns, 1);
            } else {
                latency.record(took_ns);
            }
        };
        enter(&mut times.response, self.response_ns);
        if let Some(service_ns) = self.service_ns {
            enter(&mut times.service, service_ns);
            if let Some(first_byte_ns) = self.first_byte_ns {
                times.note_split(first_byte_ns, service_ns);
            }
        }
    }
}

/// One stretch of one thread.
#[derive(Clone, Debug)]
pub struct Interval {
    /// The part of the run.
    pub phase: Phase,
    /// Number of the step in a ramp; 0 without one.
    pub step: usize,
    /// Start, monotonic.
    pub start_ns: u64,
    /// End, monotonic.
    pub end_ns: u64,
    /// Counts.
    pub counts: Counts,
    /// Distributions.
    pub times: Distributions,
    /// What TCP did.
    pub tcp: TcpSamples,
    /// The time that counts, by request and by status.
    pub breakdown: Breakdown,
    /// Requests of earlier steps that ended here; they are not in the distributions.
    pub stragglers: Vec<Straggler>,
    /// How many requests of earlier steps were dropped here, by step; the distributions do not know of them.
    pub dropped_earlier: BTreeMap<usize, u64>,
    /// The longest latencies and when they were.
    pub peaks: Peaks,
    /// Answers per second in stretches of about 100 ms, for the thread statistics.
    pub rates: Vec<f64>,
    /// Notable things, first of their kind.
    pub notes: Vec<String>,
    /// The thread has ended with it.
    pub is_last: bool,
}

impl Default for Interval {
    fn default() -> Self {
        Interval {
            phase: Phase::Setup,
            step: 0,
            start_ns: 0,
            end_ns: 0,
            counts: Counts::default(),
            times: Distributions::default(),
            tcp: TcpSamples::default(),
            breakdown: Breakdown::default(),
            stragglers: Vec::new(),
            dropped_earlier: BTreeMap::new(),
            peaks: Peaks::default(),
            rates: Vec::new(),
            notes: Vec::new(),
            is_last: false,
        }
    }
}

impl Interval {
    /// Makes it as new.
    pub fn clear(&mut self) {
        self.counts = Counts::default();
        self.times.each_mut().into_iter().for_each(Latency::clear);
        self.tcp.clear();
        self.breakdown.clear();
        self.stragglers.clear();
        self.dropped_earlier.clear();
        self.peaks.clear();
        self.rates.clear();
        self.notes.clear();
        self.is_last = false;
    }
}
