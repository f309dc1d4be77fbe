//! Makes the result file from the outcome of a run.

use crate::parts;
use crate::result::record::Same;
use crate::result::{
    ConnectErrors, Cpu, Distribution, ErrorCounts, Latencies, LittleFacts, Measured, PlanFacts,
    ProbeFacts, RateFacts, RawFacts, SecondFacts, Segments, SentFacts, StepFacts, TcpFacts,
    ThreadFacts, Totals, Waiting, WarningFacts, Window, QUANTILES, SCHEMA,
};
use load_engine::interval::{Counts, Errors, Interval};
use load_engine::outcome::{Outcome, SecondSummary, ThreadOutcome};
use load_engine::plan::{Late, Open, Phase, Plan, Protocol, TlsOptions};
use load_engine::schedule::Stretch;
use load_engine::script::Script;
use load_engine::sys::options::SocketOptions;
use load_engine::warnings::{self, Warning};
use load_http1::Malformed;
use load_websocket::frame;
use std::collections::BTreeMap;

/// The whole result.
pub fn result(
    plan: &Plan,
    outcome: &Outcome,
    warnings: &[Warning],
    arguments: &[String],
    script: Option<&Script>,
) -> Measured {
    let total = &outcome.total;
    Measured {
        schema: SCHEMA.to_string(),
        tool: concat!("wirespeed-load ", env!("CARGO_PKG_VERSION")).to_string(),
        argv: arguments.to_vec(),
        merged: None,
        plan: plan_facts(plan, outcome, script),
        window: Window {
            start_unix_ns: outcome.window_start_unix_ns,
            length_ns: outcome.window_length_ns,
        },
        totals: totals(plan, outcome),
        rps: outcome.rps(),
        bytes_per_second: outcome.bytes_per_second(),
        errors: errors(&total.counts.errors),
        latency: latencies(plan, total, outcome.probe.as_ref()),
        breakdown: parts::facts(plan, outcome),
        tcp: tcp(outcome),
        episodes: episodes(plan, outcome),
        steps: steps(plan, outcome),
        seconds: outcome.seconds.iter().filter_map(second).collect(),
        threads: outcome.threads.iter().map(thread).collect(),
        waiting: waiting(outcome),
        cpu: Cpu {
            user_ns: outcome.cpu.user_ns,
            sys_ns: outcome.cpu.sys_ns,
        },
        little: warnings::little(plan, outcome).map(|little| LittleFacts {
            n: little.n,
            x_rps: little.x_rps,
            mean_ns: little.mean_ns,
            residual: little.residual,
        }),
        notes: total.notes.clone(),
        warnings: warnings.iter().map(warning).collect(),
    }
}

fn warning(warning: &Warning) -> WarningFacts {
    WarningFacts {
        id: warning.id.to_string(),
        value: warning.value,
        threshold: warning.threshold,
        text: warning.text.clone(),
    }
}

fn plan_facts(plan: &Plan, outcome: &Outcome, script: Option<&Script>) -> PlanFacts {
    let open = plan.open();
    let mode = if open.is_some() { "open" } else { "closed" };
    let late = |late| if late == Late::Drop { "drop" } else { "queue" };
    let ends = |stretch: &Stretch| [stretch.from_rps, stretch.to_rps];
    let rates = open.map(|open| open.stretches.iter().flat_map(ends));
    PlanFacts {
        mode: mode.to_string(),
        rate_rps: rates.and_then(|rates| rates.reduce(f64::max)),
        rates: open
            .map(|open| open.stretches.iter().map(rate).collect())
            .unwrap_or_default(),
        arrival: arrival(open).to_string(),
        seed: open.map(|open| open.seed),
        dispatch: open.map(|open| open.dispatch.name().to_string()),
        connections: plan.connections_max() as u64,
        depth: outcome.depth(plan) as u64,
        http2: matches!(plan.protocol, Protocol::Http2 { .. }),
        http3: matches!(plan.protocol, Protocol::Http3 { .. }),
        websocket: matches!(plan.protocol, Protocol::WebSocket { .. }),
        grpc: plan.protocol.is_grpc(),
        raw: raw(plan),
        streams: plan.protocol.streams() as u64,
        threads: plan.threads as u64,
        late: open.map(|open| late(open.late).to_string()),
        requests: requests(plan, script),
        timeout_s: plan.timeout_ns as f64 / 1e9,
        duration_s: plan.duration_ns() as f64 / 1e9,
        warmup_s: plan.warmup_ns as f64 / 1e9,
        close: plan.close,
        abort: plan.abort,
        rx_timestamps: plan.protocol.has_timestamps(),
        sink: plan.sink,
        realtime: plan.realtime,
        coalesce: plan.coalesce,
        think_s: plan.think().map(|think| {
            let range = [think.least_ns, think.most_ns];
            range.map(|ns| ns as f64 / 1e9).to_vec()
        }),
        drop_bodies: plan.protocol.drops_bodies(),
        requests_per_connection: plan.per_connection.map(u64::from),
        deadline_s: open
            .and_then(|open| open.deadline_ns)
            .map(|ns| ns as f64 / 1e9),
        tls_resume: plan.tls.resumes,
        early_data: plan.tls.early_data,
        settings: settings(plan, outcome.depth(plan)),
        targets: plan
            .targets
            .iter()
            .map(|target| target.url.clone())
            .collect(),
        addresses: plan
            .targets
            .iter()
            .map(|target| target.address.to_string())
            .collect(),
        hosts: None,
    }
}

fn arrival(open: Option<&Open>) -> &'static str {
    match open {
        Some(open) if open.recorded.is_some() => "recorded",
        Some(open) if open.poisson => "poisson",
        _ => "even",
    }
}

fn rate(stretch: &Stretch) -> RateFacts {
    RateFacts {
        length_ns: stretch.length_ns,
        from_rps: stretch.from_rps,
        to_rps: stretch.to_rps,
    }
}

fn raw(plan: &Plan) -> Option<RawFacts> {
    let (protocol, reply_bytes) = match plan.protocol {
        Protocol::Tcp { reply_bytes, .. } => ("tcp", reply_bytes),
        Protocol::Udp { .. } => ("udp", None),
        _ => return None,
    };
    let message = plan
        .targets
        .first()
        .and_then(|target| target.requests.first());
    Some(RawFacts {
        protocol: protocol.to_string(),
        message_bytes: message.map_or(0, |message| message.bytes.len() as u64),
        reply_bytes: reply_bytes.map(|bytes| bytes as u64),
    })
}

/// What is sent where, in short: equal for plans with the same requests in the same order, and the same script
/// that makes others of them.
fn requests(plan: &Plan, script: Option<&Script>) -> String {
    let mut hash = Fingerprint::default();
    for target in &plan.targets {
        hash.add(target.url.as_bytes());
        hash.add(&target.weight.to_be_bytes());
        // connections of each run have another mask
        let is_masked = matches!(plan.protocol, Protocol::WebSocket { .. });
        for one in &target.requests {
            if is_masked {
                hash.add(&frame::unmasked(&one.bytes));
            } else {
                hash.add(&one.bytes);
            }
        }
        target.upgrade.iter().for_each(|head| hash.add(head));
        target
            .order
            .iter()
            .for_each(|place| hash.add(&place.to_be_bytes()));
    }
    if let Some(script) = script {
        hash.add(&script.text);
        let arguments = script.arguments.iter();
        arguments.for_each(|argument| hash.add(argument.as_bytes()));
    }
    hash.text()
}

/// What is expected of responses, which of a batch at a rate are recorded, and how connections are set up, in
/// short. Files may have other names on another host.
fn settings(plan: &Plan, depth: usize) -> String {
    let tls = TlsOptions {
        authorities: None,
        identity: None,
        ..plan.tls.clone()
    };
    let files = (plan.tls.authorities.is_some(), plan.tls.identity.is_some());
    // addresses and ports of this side are each host's own
    let options = SocketOptions {
        ports: None,
        ..plan.socket.clone()
    };
    let polls = plan.busy_poll_us;
    let sockets = (options, plan.proxy_header, plan.all_addresses, polls);
    let mut hash = Fingerprint::default();
    hash.add(format!("{:?} {tls:?} {files:?} {sockets:?}", plan.expect).as_bytes());
    if plan.open().is_some() && plan.batch_latency && depth > 1 {
        hash.add(b"batch latency");
    }
    hash.text()
}

/// FNV-1a over texts of any length; not for what somebody may forge.
pub struct Fingerprint(u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Fingerprint(0xcbf2_9ce4_8422_2325)
    }
}

impl Fingerprint {
    /// Takes bytes, and that they end here.
    pub fn add(&mut self, bytes: &[u8]) {
        let length = bytes.len() as u64;
        for byte in bytes.iter().copied().chain(length.to_be_bytes()) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// As sixteen digits.
    pub fn text(&self) -> String {
        format!("{:016x}", self.0)
    }
}

fn totals(plan: &Plan, outcome: &Outcome) -> Totals {
    let counts = &outcome.total.counts;
    let threads = outcome.threads.iter();
    let unsent: u64 = threads.map(|thread| thread.ending.unsent).sum();
    Totals {
        due: plan.open().map(|_| counts.due + unsent),
        sent: counts.sent,
        completed: counts.completed - counts.earlier,
        completed_in_window: outcome.completed_in_window,
        earlier: counts.earlier,
        lost: counts.lost,
        dropped: counts.dropped,
        shed: counts.shed,
        unfinished: outcome.unfinished(),
        unsent,
        status: statuses(counts),
        non_2xx: counts.status_unless(|code| (200..300).contains(&code)),
        bytes_in: counts.bytes_in,
        bytes_out: counts.bytes_out,
        connects: counts.connects,
        tls_resumed: counts.resumed,
        tls_early: counts.early,
        tolerated: counts.tolerated,
        unstamped: counts.unstamped,
        strays: counts.strays,
        warmup_errors: outcome.warmup_errors,
        warmup_completed: warmup_completed(outcome),
    }
}

/// For a caller that reads counters of the server around warm-up and window.
fn warmup_completed(outcome: &Outcome) -> u64 {
    let seconds = outcome.seconds.iter();
    let before = seconds.filter(|second| second.phase == Phase::Warmup);
    before.map(|second| second.completed).sum()
}

fn statuses(counts: &Counts) -> BTreeMap<String, u64> {
    let seen = counts.status.iter().enumerate();
    seen.filter(|(_, count)| **count > 0)
        .map(|(code, count)| (code.to_string(), *count))
        .collect()
}

fn errors(errors: &Errors) -> ErrorCounts {
    let malformed = Malformed::ALL.iter().zip(errors.malformed);
    ErrorCounts {
        connect: ConnectErrors {
            refused: errors.connect_refused,
            timeout: errors.connect_timeout,
            no_port: errors.connect_no_port,
            other: errors.connect_other,
        },
        read: errors.read,
        stale: errors.stale,
        stream_reset: errors.stream_reset,
        http2: errors.http2,
        http3: errors.http3,
        websocket: errors.websocket,
        echo: errors.echo,
        grpc: errors.grpc,
        unexpected: errors.unexpected,
        write: errors.write,
        timeout: errors.timeout,
        malformed: malformed
            .filter(|(_, count)| *count > 0)
            .map(|(class, count)| (class.name().to_string(), count))
            .collect(),
        short_body: errors.short_body,
        total: errors.total(),
    }
}

fn latencies(plan: &Plan, total: &Interval, probe: Option<&Interval>) -> Latencies {
    let times = &total.times;
    let is_split = matches!(plan.protocol, Protocol::Http1 { .. });
    let counting = times.counting(plan.open().is_some());
    Latencies {
        service: Distribution::of(&times.service),
        response: Distribution::of(&times.response),
        lateness: Distribution::of(&times.lateness),
        queue: Distribution::of(&times.queue),
        connect: Distribution::of(&times.connect),
        tls: Distribution::of(&times.tls),
        client_delay: Distribution::of(&times.client_delay),
        first_byte: is_split
            .then(|| Distribution::of(&times.first_byte()))
            .flatten(),
        censored: counting.lost().and_then(Distribution::of),
        probe: probe.map(|probe| ProbeFacts {
            completed: probe.counts.completed - probe.counts.earlier,
            errors: probe.counts.errors.total(),
            service: Distribution::of(&probe.times.service),
            response: Distribution::of(&probe.times.response),
        }),
    }
}

/// What TCP did; nothing where the kernel does not report it.
fn tcp(outcome: &Outcome) -> Option<TcpFacts> {
    let (samples, sent) = (&outcome.total.tcp, outcome.tcp());
    if samples.count() == 0 && sent.connections == 0 {
        return None;
    }
    Some(TcpFacts {
        rtt: Distribution::of(&samples.rtt),
        rtt_deviation: Distribution::of(&samples.rtt_deviation),
        window_segments: Segments {
            min: samples.window_min.into(),
            mean: samples.window_mean(),
            max: samples.window_max.into(),
        },
        delivery_bytes_per_second: samples.delivery_mean(),
        at_end: SentFacts {
            connections: sent.connections,
            segments: sent.segments,
            retransmitted: sent.retransmitted,
        },
    })
}

/// Waits, and pauses before them.
fn waiting(outcome: &Outcome) -> Waiting {
    let pauses = outcome.pauses();
    Waiting {
        waits: pauses.waits,
        paused: pauses.paused,
        paused_ns: pauses.paused_ns,
    }
}

/// Separate events behind the latencies above a quantile: a stall of many answers is one.
fn episodes(plan: &Plan, outcome: &Outcome) -> BTreeMap<String, Option<u64>> {
    let each = QUANTILES.iter().filter(|(_, quantile)| *quantile >= 0.99);
    each.map(|(name, quantile)| {
        let count = warnings::episodes(plan, outcome, *quantile);
        ((*name).to_string(), count.map(|count| count as u64))
    })
    .collect()
}

fn steps(plan: &Plan, outcome: &Outcome) -> Vec<StepFacts> {
    if plan.steps.len() < 2 {
        return Vec::new();
    }
    let each = plan.steps.iter().zip(&outcome.steps).zip(0..);
    each.map(|((step, interval), number)| {
        let length_ns = interval.end_ns.saturating_sub(interval.start_ns);
        StepFacts {
            step: Same(number),
            connections: step.connections as u64,
            length_ns: Same(length_ns),
            completed: interval.counts.completed,
            rps: interval.counts.completed as f64 * 1e9 / length_ns.max(1) as f64,
            errors: errors(&interval.counts.errors),
            service: Distribution::of(&interval.times.service),
            response: Distribution::of(&interval.times.response),
        }
    })
    .collect()
}

fn second(second: &SecondSummary) -> Option<SecondFacts> {
    (second.phase == Phase::Measured).then(|| SecondFacts {
        t_s: second.offset_ns as f64 / 1e9,
        completed: second.completed,
        p50: second.p50_ns,
        p99: second.p99_ns,
        errors: Some(second.errors),
    })
}

fn thread(thread: &ThreadOutcome) -> ThreadFacts {
    ThreadFacts {
        core: thread.core.map(|core| core as u64),
        user_ns: thread.cpu.user_ns,
        sys_ns: thread.cpu.sys_ns,
        busy: thread.busy,
        waited: thread.waited,
        completed: thread.completed,
    }
}
