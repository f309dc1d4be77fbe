//! The result file: everything that was measured, for programs. All times in nanoseconds.

use crate::parts;
use base64::Engine as _;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use load_engine::interval::{Counts, Errors, Interval, Phase};
use load_engine::latency::Latency;
use load_engine::plan::{Late, Plan};
use load_engine::run::{Outcome, SecondSummary, ThreadOutcome};
use load_engine::warnings::{self, Warning};
use load_http1::Malformed;
use serde_json::{json, Map, Value};
use std::io;
use std::path::Path;

/// Name and version of the format; a reader refuses others.
pub const SCHEMA: &str = "wirespeed-load/1";
/// Quantiles that are listed.
const QUANTILES: [(&str, f64); 8] = [
    ("0.5", 0.5),
    ("0.75", 0.75),
    ("0.9", 0.9),
    ("0.99", 0.99),
    ("0.999", 0.999),
    ("0.9999", 0.9999),
    ("0.99999", 0.99999),
    ("0.999999", 0.999999),
];

/// The whole document.
pub fn document(
    plan: &Plan,
    outcome: &Outcome,
    warnings: &[Warning],
    arguments: &[String],
) -> Value {
    let total = &outcome.total;
    json!({
        "schema": SCHEMA,
        "tool": concat!("wirespeed-load ", env!("CARGO_PKG_VERSION")),
        "argv": arguments,
        "plan": plan_value(plan),
        "window": {
            "start_unix_ns": outcome.window_start_unix_ns,
            "length_ns": outcome.window_length_ns,
        },
        "totals": totals(plan, outcome),
        "rps": outcome.rps(),
        "bytes_per_second": outcome.bytes_per_second(),
        "errors": errors(&total.counts.errors),
        "latency": latencies(plan, total, outcome.probe.as_ref()),
        "breakdown": parts::document(plan, outcome),
        "tcp": tcp(outcome),
        "episodes": episodes(plan, outcome),
        "steps": steps(plan, outcome),
        "seconds": outcome.seconds.iter().filter_map(second).collect::<Vec<_>>(),
        "threads": outcome.threads.iter().map(thread).collect::<Vec<_>>(),
        "waiting": waiting(outcome),
        "cpu": {"user_ns": outcome.cpu.user_ns, "sys_ns": outcome.cpu.sys_ns},
        "little": warnings::little(plan, outcome).map(|little| json!({
            "n": little.n,
            "x_rps": little.x_rps,
            "mean_ns": little.mean_ns,
            "residual": little.residual,
        })),
        "notes": total.notes,
        "warnings": warnings.iter().map(|warning| json!({
            "id": warning.id,
            "value": warning.value,
            "threshold": warning.threshold,
            "text": warning.text,
        })).collect::<Vec<_>>(),
    })
}

/// Writes a document to its file.
pub fn write(path: &Path, document: &Value) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(document)?;
    text.push('\n');
    crate::file::replace(path, &text)
}

fn plan_value(plan: &Plan) -> Value {
    let open = plan.open.as_ref();
    json!({
        "mode": if open.is_some() { "open" } else { "closed" },
        "rate_rps": open.and_then(|open| open.stretches.iter().map(|s| s.to_rps).reduce(f64::max)),
        "arrival": open.map_or("even", |open| if open.poisson { "poisson" } else { "even" }),
        "seed": open.map(|open| open.seed),
        "dispatch": open.map(|open| open.dispatch.name()),
        "connections": plan.connections_max(),
        "depth": plan.depth,
        "http2": plan.http2,
        "websocket": plan.websocket,
        "grpc": plan.grpc,
        "streams": plan.streams,
        "threads": plan.threads,
        "late": open.map(|open| if open.late == Late::Drop { "drop" } else { "queue" }),
        "requests": requests(plan),
        "timeout_s": plan.timeout_ns as f64 / 1e9,
        "duration_s": plan.duration_ns() as f64 / 1e9,
        "warmup_s": plan.warmup_ns as f64 / 1e9,
        "close": plan.close,
        "abort": plan.abort,
        "rx_timestamps": plan.stamps,
        "sink": plan.sink,
        "realtime": plan.realtime,
        "coalesce": plan.coalesce,
        "targets": plan.targets.iter().map(|target| &target.url).collect::<Vec<_>>(),
        "addresses": plan.targets.iter().map(|target| target.address.to_string()).collect::<Vec<_>>(),
    })
}

/// What is sent where, in short: equal for plans with the same requests in the same order.
fn requests(plan: &Plan) -> String {
    let mut hash = Fingerprint::default();
    for target in &plan.targets {
        hash.add(target.url.as_bytes());
        hash.add(&target.weight.to_be_bytes());
        target.requests.iter().for_each(|one| hash.add(&one.bytes));
        target
            .order
            .iter()
            .for_each(|place| hash.add(&place.to_be_bytes()));
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

fn totals(plan: &Plan, outcome: &Outcome) -> Value {
    let counts = &outcome.total.counts;
    let unsent: u64 = outcome
        .threads
        .iter()
        .map(|thread| thread.ending.unsent)
        .sum();
    json!({
        "due": plan.open.as_ref().map(|_| counts.due + unsent),
        "sent": counts.sent,
        "completed": counts.completed - counts.earlier,
        "completed_in_window": outcome.completed_in_window,
        "earlier": counts.earlier,
        "lost": counts.lost,
        "dropped": counts.dropped,
        "shed": counts.shed,
        "unfinished": outcome.unfinished(),
        "unsent": unsent,
        "status": statuses(counts),
        "non_2xx": counts.status_unless(|code| (200..300).contains(&code)),
        "bytes_in": counts.bytes_in,
        "bytes_out": counts.bytes_out,
        "connects": counts.connects,
        "tls_resumed": counts.resumed,
        "tolerated": counts.tolerated,
        "unstamped": counts.unstamped,
        "warmup_errors": outcome.warmup_errors,
        "warmup_completed": warmup_completed(outcome),
    })
}

/// Responses before the window, for whoever reads counters around both.
fn warmup_completed(outcome: &Outcome) -> u64 {
    let before = outcome
        .seconds
        .iter()
        .filter(|second| second.phase == Phase::Warmup);
    before.map(|second| second.completed).sum()
}

fn statuses(counts: &Counts) -> Map<String, Value> {
    let seen = counts
        .status
        .iter()
        .enumerate()
        .filter(|(_, count)| **count > 0);
    seen.map(|(code, count)| (code.to_string(), json!(count)))
        .collect()
}

/// Errors by cause.
pub fn errors(errors: &Errors) -> Value {
    let malformed: Map<String, Value> = Malformed::ALL
        .iter()
        .zip(errors.malformed)
        .filter(|(_, count)| *count > 0)
        .map(|(class, count)| (class.name().to_string(), json!(count)))
        .collect();
    json!({
        "connect": {
            "refused": errors.connect_refused,
            "timeout": errors.connect_timeout,
            "no_port": errors.connect_no_port,
            "other": errors.connect_other,
        },
        "read": errors.read,
        "stale": errors.stale,
        "stream_reset": errors.stream_reset,
        "http2": errors.http2,
        "websocket": errors.websocket,
        "grpc": errors.grpc,
        "unexpected": errors.unexpected,
        "write": errors.write,
        "timeout": errors.timeout,
        "malformed": malformed,
        "short_body": errors.short_body,
        "total": errors.total(),
    })
}

fn latencies(plan: &Plan, total: &Interval, probe: Option<&Interval>) -> Value {
    let mut all = Map::new();
    for (name, latency) in total.times.named() {
        all.insert(name.to_string(), distribution(latency));
    }
    let times = &total.times;
    let is_split = !plan.http2 && !plan.websocket;
    let first_byte = is_split.then(|| distribution(&times.first_byte()));
    all.insert("first_byte".to_string(), first_byte.unwrap_or(Value::Null));
    let counting = if plan.open.is_some() {
        &times.response
    } else {
        &times.service
    };
    let lost = counting.lost().map_or(Value::Null, distribution);
    all.insert("censored".to_string(), lost);
    all.insert("probe".to_string(), probe.map_or(Value::Null, probe_value));
    Value::Object(all)
}

fn probe_value(probe: &Interval) -> Value {
    json!({
        "completed": probe.counts.completed,
        "errors": probe.counts.errors.total(),
        "service": distribution(&probe.times.service),
        "response": distribution(&probe.times.response),
    })
}

/// One distribution; null if nothing was recorded.
pub fn distribution(latency: &Latency) -> Value {
    if latency.is_empty() {
        return Value::Null;
    }
    let quantiles: Map<String, Value> = QUANTILES
        .iter()
        .map(|(name, quantile)| ((*name).to_string(), json!(latency.known_at_ns(*quantile))))
        .collect();
    json!({
        "unit": "ns",
        "count": latency.count(),
        "min": latency.min_ns(),
        "max": latency.max_ns(),
        "mean": latency.mean_ns(),
        "stdev": latency.stdev_ns(),
        "lost": latency.lost().map_or(0, Latency::count),
        "dropped": latency.dropped(),
        "at_least": bounds(latency),
        "quantiles": quantiles,
        "hdr_v2": encoded(latency),
        "lost_hdr_v2": latency.lost().map(encoded),
    })
}

/// The figures that lost requests may raise: they are lower bounds.
fn bounds(latency: &Latency) -> Vec<&'static str> {
    let raised = QUANTILES.iter().filter(|(_, q)| latency.is_bound(*q));
    let mut names: Vec<_> = raised.map(|(name, _)| *name).collect();
    if latency.is_incomplete() {
        names.extend(["mean", "max"]);
    }
    names
}

/// The histogram in HdrHistogram's V2 deflate form, base64.
pub fn encoded(latency: &Latency) -> String {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(&latency.histogram(), &mut bytes)
        .expect("writing to memory does not fail");
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// What TCP did; null where the kernel does not report it.
fn tcp(outcome: &Outcome) -> Value {
    let (samples, sent) = (&outcome.total.tcp, outcome.tcp());
    if samples.count() == 0 && sent.connections == 0 {
        return Value::Null;
    }
    json!({
        "rtt": distribution(&samples.rtt),
        "rtt_deviation": distribution(&samples.rtt_deviation),
        "window_segments": {
            "min": samples.window_min,
            "mean": samples.window_mean(),
            "max": samples.window_max,
        },
        "delivery_bytes_per_second": samples.delivery_mean(),
        "at_end": {
            "connections": sent.connections,
            "segments": sent.segments,
            "retransmitted": sent.retransmitted,
        },
    })
}

/// What was chosen before waits: how many there were, and pauses before them.
fn waiting(outcome: &Outcome) -> Value {
    let pauses = outcome.pauses();
    json!({
        "waits": pauses.waits,
        "paused": pauses.paused,
        "paused_ns": pauses.paused_ns,
    })
}

/// Separate events behind the latencies above a quantile: a stall of many answers is one.
fn episodes(plan: &Plan, outcome: &Outcome) -> Map<String, Value> {
    let each = QUANTILES.iter().filter(|(_, quantile)| *quantile >= 0.99);
    each.map(|(name, quantile)| {
        let count = warnings::episodes(plan, outcome, *quantile);
        ((*name).to_string(), json!(count))
    })
    .collect()
}

fn steps(plan: &Plan, outcome: &Outcome) -> Vec<Value> {
    if plan.steps.len() < 2 {
        return Vec::new();
    }
    let each = plan.steps.iter().zip(&outcome.steps).enumerate();
    each.map(|(number, (step, interval))| {
        let length_ns = interval.end_ns.saturating_sub(interval.start_ns);
        json!({
            "step": number,
            "connections": step.connections,
            "length_ns": length_ns,
            "completed": interval.counts.completed,
            "rps": interval.counts.completed as f64 * 1e9 / length_ns.max(1) as f64,
            "errors": errors(&interval.counts.errors),
            "service": distribution(&interval.times.service),
            "response": distribution(&interval.times.response),
        })
    })
    .collect()
}

fn second(second: &SecondSummary) -> Option<Value> {
    (second.phase == Phase::Measured).then(|| {
        json!({
            "t_s": second.offset_ns as f64 / 1e9,
            "completed": second.completed,
            "p50": second.p50_ns,
            "p99": second.p99_ns,
            "errors": second.errors,
        })
    })
}

fn thread(thread: &ThreadOutcome) -> Value {
    json!({
        "core": thread.core,
        "user_ns": thread.cpu.user_ns,
        "sys_ns": thread.cpu.sys_ns,
        "busy": thread.busy,
        "waited": thread.waited,
        "completed": thread.completed,
    })
}
