//! The result file: everything that was measured, for programs. All times in nanoseconds unless a name
//! has another unit.
//!
//! `json.rs` fills these records, `merge.rs` and `headroom.rs` read them, and `wirespeed-load schema`
//! and docs/load-results.md describe them.

mod distribution;
pub mod page;
pub mod record;

pub use distribution::{encoded, Distribution, QUANTILES};
use record::{record, Field, Same};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Name and version of the format; a reader refuses others.
pub const SCHEMA: &str = "wirespeed-load/1";

record! {
    /// A run, or the sum of several.
    Measured {
        /// Name and version of this format: `wirespeed-load/1`.
        schema: String,
        /// The program and its version.
        tool: String,
        /// The command line.
        argv: Vec<String>,
        /// The results that this is the sum of; null for a single run.
        merged: Option<Vec<Part>>,
        /// The plan of the run.
        plan: PlanFacts,
        /// The measured window; of a sum, the time that all runs had in common.
        window: Window,
        /// Requests, responses, bytes.
        totals: Totals,
        /// Responses per second of the window.
        rps: f64,
        /// Bytes of responses per second of the window; of a sum, of each run's own.
        bytes_per_second: f64,
        /// Errors by cause.
        errors: ErrorCounts,
        /// Distributions of times.
        latency: Latencies,
        /// The time that counts (response with a rate, else service) by request, target and status.
        breakdown: BreakdownFacts,
        /// What TCP did; null where the kernel does not report it, and of UDP.
        tcp: Option<TcpFacts>,
        /// How many separate events the times above a quantile belong to; empty of a sum.
        episodes: BTreeMap<String, Option<u64>>,
        /// The steps of a ramp.
        steps: Vec<StepFacts>,
        /// The seconds of the window.
        seconds: Vec<SecondFacts>,
        /// The threads that sent.
        threads: Vec<ThreadFacts>,
        /// Waits of a closed loop for responses, and pauses before them.
        waiting: Waiting,
        /// CPU time of the process in the window.
        cpu: Cpu,
        /// Little's law; null where it says nothing, and of a sum.
        little: Option<LittleFacts>,
        /// Notable things, each once.
        notes: Vec<String>,
        /// Reasons not to trust the run.
        warnings: Vec<WarningFacts>,
    }
}

record! {
    /// A result that is in a sum.
    Part {
        /// Its file.
        file: String,
        /// Of its content, by which it is known.
        fingerprint: String,
    }
}

record! {
    /// The plan of a run. Results are added if all of this is equal but `seed`, `threads`, `realtime`,
    /// `addresses` and `hosts`.
    PlanFacts {
        /// `closed` (each connection waits for its response) or `open` (at a rate).
        mode: String,
        /// The highest rate of an open loop, requests per second.
        rate_rps: Option<f64>,
        /// The rate over the window.
        rates: Vec<RateFacts>,
        /// `even`, `poisson` or `recorded` (`--replay`).
        arrival: String,
        /// Seed of Poisson arrivals.
        seed: Option<u64>,
        /// Connection of a due request: `pinned`, `any` or `random`.
        dispatch: Option<String>,
        /// Most connections over all threads.
        connections: u64,
        /// Requests sent together (pipelining).
        depth: u64,
        /// HTTP/2.
        http2: bool,
        /// HTTP/3.
        http3: bool,
        /// WebSocket.
        websocket: bool,
        /// Calls of gRPC.
        grpc: bool,
        /// Messages over TCP or UDP.
        raw: Option<RawFacts>,
        /// Requests at once on a connection: streams of HTTP/2 and HTTP/3, the window of messages.
        streams: u64,
        /// Threads that sent.
        threads: u64,
        /// Treatment of a due request whose connection is busy: `queue` or `drop`.
        late: Option<String>,
        /// URLs, the first of each server.
        targets: Vec<String>,
        /// A fingerprint, equal for the same requests in the same order.
        requests: String,
        /// Longest wait for a response, seconds.
        timeout_s: f64,
        /// Length of the window, seconds.
        duration_s: f64,
        /// Load before it, seconds.
        warmup_s: f64,
        /// The requests ask the server to close.
        close: bool,
        /// Connections end with RST.
        abort: bool,
        /// Times end when the kernel received the response.
        rx_timestamps: bool,
        /// The null server inside the program was asked.
        sink: bool,
        /// The threads had real-time priority.
        realtime: bool,
        /// Pauses before waits were allowed.
        coalesce: bool,
        /// Shortest and longest think time before a request, seconds (closed loop).
        think_s: Option<Vec<f64>>,
        /// Bodies were dropped in the kernel.
        drop_bodies: bool,
        /// Responses after which a connection was closed.
        requests_per_connection: Option<u64>,
        /// Lateness from which on a due request was not sent, seconds.
        deadline_s: Option<f64>,
        /// Connections resumed TLS sessions.
        tls_resume: bool,
        /// They sent their first request with the handshake.
        early_data: bool,
        /// A fingerprint, equal for the same expectations of responses and the same options of TLS, sockets
        /// and batches (`-B`).
        settings: String,
        /// Where each server was found.
        addresses: Vec<String>,
        /// How many runs a sum is of.
        hosts: Option<u64>,
    }
}

record! {
    /// A stretch of the window in which the rate changes linearly.
    RateFacts {
        /// Its length.
        length_ns: u64,
        /// The rate at its start, requests per second.
        from_rps: f64,
        /// The rate at its end.
        to_rps: f64,
    }
}

record! {
    /// Messages over TCP or UDP.
    RawFacts {
        /// `tcp` or `udp`.
        protocol: String,
        /// Size of a message.
        message_bytes: u64,
        /// Size of a response of another kind of server than an echo server.
        reply_bytes: Option<u64>,
    }
}

record! {
    /// The measured window.
    Window {
        /// Its start, ns since 1970.
        start_unix_ns: u64,
        /// Its length.
        length_ns: u64,
    }
}

record! {
    /// Requests, and their ends.
    Totals {
        /// Requests that fell due (open loop).
        due: Option<u64>,
        /// Requests written.
        sent: u64,
        /// Responses, without `earlier`.
        completed: u64,
        /// Responses that came within the window.
        completed_in_window: u64,
        /// Responses to requests that fell due in the warm-up.
        earlier: u64,
        /// Requests that will have no response.
        lost: u64,
        /// Requests not sent because their connection was busy (`--late drop`).
        dropped: u64,
        /// Requests not sent because they were too late (`--deadline`).
        shed: u64,
        /// Requests without a response at the end.
        unfinished: u64,
        /// Those among them that were never sent.
        unsent: u64,
        /// Responses by status code.
        status: BTreeMap<String, u64>,
        /// Responses with another status than 2xx.
        non_2xx: u64,
        /// Bytes of responses.
        bytes_in: u64,
        /// Bytes of requests.
        bytes_out: u64,
        /// Connections established.
        connects: u64,
        /// TLS sessions that were resumed.
        tls_resumed: u64,
        /// Connections whose first request the server took as early data of TLS (0-RTT).
        tls_early: u64,
        /// Responses in forms that are tolerated but not correct.
        tolerated: u64,
        /// Responses that the kernel did not stamp although it was asked to.
        unstamped: u64,
        /// Datagrams that answer nothing in flight.
        strays: u64,
        /// Errors in the warm-up.
        warmup_errors: u64,
        /// Responses in the warm-up.
        warmup_completed: u64,
    }
}

record! {
    /// Errors by cause.
    ErrorCounts {
        /// Connections that could not be opened.
        connect: ConnectErrors,
        /// Requests whose connection broke before their response was complete.
        read: u64,
        /// Requests on a connection in use that the server was closing.
        stale: u64,
        /// Requests that the server ended without a response (HTTP/2, HTTP/3).
        stream_reset: u64,
        /// Connections whose server broke the rules of HTTP/2.
        http2: u64,
        /// Connections whose server broke the rules of HTTP/3.
        http3: u64,
        /// Connections whose server broke the rules of WebSocket.
        websocket: u64,
        /// Connections on which something else came than the echo of the message (`tcp://`).
        echo: u64,
        /// Calls that failed (gRPC).
        grpc: u64,
        /// Responses that were not as expected (`--expect`).
        unexpected: u64,
        /// Writes that failed.
        write: u64,
        /// Requests without a response in time; lost datagrams among them.
        timeout: u64,
        /// Malformed responses by class.
        malformed: BTreeMap<String, u64>,
        /// Whole responses that are shorter than the first one to the same request; not in `total`.
        short_body: u64,
        /// All of them.
        total: u64,
    }
}

record! {
    /// Connections that could not be opened.
    ConnectErrors {
        /// Refused.
        refused: u64,
        /// Not open in time.
        timeout: u64,
        /// Without a free source port.
        no_port: u64,
        /// For another reason.
        other: u64,
    }
}

record! {
    /// Distributions of times; null where nothing was recorded.
    Latencies {
        /// Write (in closed loop: connection free) to last byte.
        service: Option<Distribution>,
        /// Due time to last byte (open loop).
        response: Option<Distribution>,
        /// Due time to write while a connection was free: the generator's own delay.
        lateness: Option<Distribution>,
        /// Due time until the connection was free, of requests that waited for it.
        queue: Option<Distribution>,
        /// Connect to established.
        connect: Option<Distribution>,
        /// TLS handshake.
        tls: Option<Distribution>,
        /// How long responses waited for the generator; of some of them.
        client_delay: Option<Distribution>,
        /// Write to first byte (HTTP/1.1).
        first_byte: Option<Distribution>,
        /// The lower bounds in the time that counts: requests that were lost.
        censored: Option<Distribution>,
        /// The probe in parallel with the load.
        probe: Option<ProbeFacts>,
    }
}

record! {
    /// The probe in parallel with the load.
    ProbeFacts {
        /// Its responses.
        completed: u64,
        /// Its errors.
        errors: u64,
        /// Write to last byte.
        service: Option<Distribution>,
        /// Due time to last byte.
        response: Option<Distribution>,
    }
}

record! {
    /// The time that counts, by part.
    BreakdownFacts {
        /// By request, where there are 2 to 100.
        requests: Vec<RequestPart>,
        /// By server, where there are several.
        targets: Vec<TargetPart>,
        /// By class of status; `lost` are requests without a response.
        status: BTreeMap<String, Distribution>,
    }
}

record! {
    /// The times of a request.
    RequestPart {
        /// The server's URL.
        target: String,
        /// Method and path.
        request: String,
        /// Its times.
        latency: Option<Distribution>,
    }
}

record! {
    /// The times of a server.
    TargetPart {
        /// Its URL.
        target: String,
        /// Its address.
        address: String,
        /// Its weight.
        weight: Same<u64>,
        /// Its times.
        latency: Option<Distribution>,
    }
}

record! {
    /// What TCP did, sampled ten times a second on one connection of each thread after the other.
    TcpFacts adds add_tcp {
        /// Smoothed round-trip times.
        rtt: Option<Distribution>,
        /// Their mean deviations.
        rtt_deviation: Option<Distribution>,
        /// Congestion windows.
        window_segments: Segments,
        /// Mean rate of delivery of a connection.
        delivery_bytes_per_second: f64,
        /// Of the connections that were open at the end.
        at_end: SentFacts,
    }
}

record! {
    /// Congestion windows, segments.
    Segments {
        /// Smallest.
        min: u64,
        /// Mean.
        mean: f64,
        /// Largest.
        max: u64,
    }
}

record! {
    /// Segments of connections.
    SentFacts {
        /// Connections that were asked.
        connections: u64,
        /// Segments sent.
        segments: u64,
        /// Those among them that were sent again.
        retransmitted: u64,
    }
}

record! {
    /// A step of a ramp.
    StepFacts {
        /// Its number.
        step: Same<u64>,
        /// Connections.
        connections: u64,
        /// Its length.
        length_ns: Same<u64>,
        /// Responses.
        completed: u64,
        /// Responses per second.
        rps: f64,
        /// Errors by cause.
        errors: ErrorCounts,
        /// Write to last byte.
        service: Option<Distribution>,
        /// Due time to last byte.
        response: Option<Distribution>,
    }
}

record! {
    /// A second of the window.
    SecondFacts {
        /// Its start, seconds of the window.
        t_s: f64,
        /// Responses that came in it.
        completed: u64,
        /// Median of the time that counts; null where fewer than ten times lie above, and of a sum.
        p50: Option<u64>,
        /// 99th percentile of it; null as the median.
        p99: Option<u64>,
        /// Errors; null of a sum.
        errors: Option<u64>,
    }
}

record! {
    /// A thread that sent.
    ThreadFacts {
        /// Its core, if it was bound to one.
        core: Option<u64>,
        /// CPU time in user space.
        user_ns: u64,
        /// CPU time in the kernel.
        sys_ns: u64,
        /// Share of the window in which it was at work.
        busy: f64,
        /// Share of the window in which it had work and waited for its core.
        waited: f64,
        /// Responses.
        completed: u64,
    }
}

record! {
    /// Waits of a closed loop for responses.
    Waiting {
        /// How many.
        waits: u64,
        /// Pauses before them.
        paused: u64,
        /// Their length together.
        paused_ns: u64,
    }
}

record! {
    /// CPU time.
    Cpu {
        /// In user space.
        user_ns: u64,
        /// In the kernel.
        sys_ns: u64,
    }
}

record! {
    /// Little's law: `n` = `x_rps` x mean time.
    LittleFacts {
        /// Users.
        n: f64,
        /// Responses per second, with lost requests.
        x_rps: f64,
        /// Mean service time.
        mean_ns: f64,
        /// `x_rps` x mean time / `n` - 1.
        residual: f64,
    }
}

record! {
    /// Something that makes the run untrustworthy.
    WarningFacts {
        /// Its name.
        id: String,
        /// The figure.
        value: f64,
        /// What it should not exceed, or not fall below.
        threshold: f64,
        /// A sentence with the figure and what to do.
        text: String,
    }
}

/// Means are weighted by their samples.
fn add_tcp(own: &mut TcpFacts, other: &TcpFacts) -> Result<(), String> {
    let samples = |facts: &TcpFacts| facts.rtt.as_ref().map_or(0, |rtt| rtt.count) as f64;
    let (before, more) = (samples(own), samples(other));
    let mean = |own: f64, other: f64| (own * before + other * more) / (before + more).max(1.0);
    let (windows, others) = (&mut own.window_segments, &other.window_segments);
    if more > 0.0 {
        let least = windows.min.min(others.min);
        windows.min = if before > 0.0 { least } else { others.min };
        windows.max = windows.max.max(others.max);
        windows.mean = mean(windows.mean, others.mean);
        own.delivery_bytes_per_second = mean(
            own.delivery_bytes_per_second,
            other.delivery_bytes_per_second,
        );
    }
    own.rtt.add(&other.rtt)?;
    own.rtt_deviation.add(&other.rtt_deviation)?;
    own.at_end.add(&other.at_end)
}

impl Measured {
    /// Reads a result file; why not, if it is none of this version.
    pub fn parse(text: &str) -> Result<Measured, String> {
        let document: Value =
            serde_json::from_str(text).map_err(|error| format!("not a result file: {error}"))?;
        let schema = &document["schema"];
        if schema != SCHEMA {
            return Err(format!("schema {schema}, not {SCHEMA}"));
        }
        Measured::read(&document).map_err(|why| format!("not a result file: {why}"))
    }

    /// Writes it to its file.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let mut text = serde_json::to_string_pretty(&self.write())?;
        text.push('\n');
        crate::file::replace(path, &text)
    }
}
