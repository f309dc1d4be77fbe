//! Conditions that make a run untrustworthy, each with its value and advice.

use crate::latency::Latency;
use crate::outcome::Outcome;
use crate::plan::{Phase, Plan};
use load_http1::Malformed;

/// A finding.
#[derive(Clone, Debug)]
pub struct Warning {
    /// Stable name.
    pub id: &'static str,
    /// The figure.
    pub value: f64,
    /// What it should not exceed (or fall below).
    pub threshold: f64,
    /// One sentence with the figure and the advice.
    pub text: String,
}

/// Little's law for a closed loop: N users, rate X and mean time R belong together as N = X·R.
#[derive(Clone, Copy, Debug)]
pub struct Little {
    /// Users.
    pub n: f64,
    /// Answers per second.
    pub x_rps: f64,
    /// Mean service time.
    pub mean_ns: f64,
    /// X·R / N - 1.
    pub residual: f64,
}

/// The law's figures; nothing for open loops, pipelines, think times, scripted delays, threads that a
/// script stopped and a number of requests, whose last ones leave users with nothing to do, where it
/// does not apply.
pub fn little(plan: &Plan, outcome: &Outcome) -> Option<Little> {
    let scripted = outcome
        .shape
        .is_some_and(|shape| shape.delays || shape.depth != 1);
    let threads = &outcome.threads;
    let was_stopped = threads.iter().any(|thread| thread.ending.was_stopped);
    let is_paused = scripted || was_stopped || plan.think().is_some() || plan.requests.is_some();
    let has_one_each = plan.open().is_none() && plan.protocol.depth() == 1 && !is_paused;
    if !has_one_each || outcome.completed_in_window == 0 {
        return None;
    }
    let n = users(plan, outcome.window_length_ns);
    let times = &outcome.total.times;
    // with the kernel's stamps the answer's wait for us is not in the service time
    let waited_ns = if plan.protocol.has_timestamps() {
        times.client_delay.mean_ns()
    } else {
        0.0
    };
    // requests that were lost have occupied their users too
    let lost = times.service.lost().map_or(0, Latency::count) as f64;
    let x_rps = outcome.rps() + lost * 1e9 / outcome.window_length_ns.max(1) as f64;
    let mean_ns = times.service.mean_ns() + waited_ns;
    Some(Little {
        n,
        x_rps,
        mean_ns,
        residual: mean_ns * x_rps / 1e9 / n - 1.0,
    })
}

/// Mean number of users of a window, which may have ended before its last step.
fn users(plan: &Plan, length_ns: u64) -> f64 {
    let mut left_ns = length_ns;
    let mut weighted = 0.0;
    for step in &plan.steps {
        let step_ns = step.length_ns.min(left_ns);
        left_ns -= step_ns;
        weighted += step.connections as f64 * step_ns as f64;
    }
    weighted / (length_ns - left_ns).max(1) as f64 * plan.protocol.streams() as f64
}

/// Whether connections are closed and opened again by plan: users wait elsewhere meanwhile.
fn renews(plan: &Plan) -> bool {
    plan.close || plan.per_connection.is_some()
}

/// All findings of a run.
pub fn find(plan: &Plan, outcome: &Outcome) -> Vec<Warning> {
    let mut found = Vec::new();
    let mut add = |id, value, threshold, text| {
        found.push(Warning {
            id,
            value,
            threshold,
            text,
        })
    };
    generator(plan, outcome, &mut add);
    machine(outcome, &mut add);
    if plan.open().is_some() {
        schedule(plan, outcome, &mut add);
    }
    laws(plan, outcome, &mut add);
    setup(plan, outcome, &mut add);
    retransmits(outcome, &mut add);
    errors(outcome, &mut add);
    samples(plan, outcome, &mut add);
    // above capacity the whole run is one episode, and that has been said
    if !found.iter().any(|warning| warning.id == "backlog") {
        found.extend(few_episodes(plan, outcome));
    }
    found
}

/// A shorter window has no share of a core worth a warning: a run that a signal ended before it began
/// has one of microseconds, all of them at work.
const WINDOW_MIN_NS: u64 = 1_000_000;

type Add<'a> = &'a mut dyn FnMut(&'static str, f64, f64, String);

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn us(ns: f64) -> String {
    format!("{:.0} us", ns / 1e3)
}

fn generator(plan: &Plan, outcome: &Outcome, add: Add) {
    const BUSY_MAX: f64 = 0.95;
    let busiest = outcome
        .threads
        .iter()
        .map(|thread| thread.busy)
        .fold(0.0, f64::max);
    if busiest > BUSY_MAX && outcome.window_length_ns >= WINDOW_MIN_NS {
        let text = format!(
            "a thread of the generator used {} of a core: the figures may be the generator's, \
             not the server's; use more threads (-t) on more cores",
            percent(busiest)
        );
        add("generator-busy", busiest, BUSY_MAX, text);
    }
    const DELAY_SHARE_MAX: f64 = 0.1;
    let (delay, service) = (
        &outcome.total.times.client_delay,
        &outcome.total.times.service,
    );
    if let (Some(p99), Some(p50)) = (delay.known_at_ns(0.99), service.known_at_ns(0.5)) {
        let share = p99 as f64 / p50.max(1) as f64;
        // in closed loop on a busy core queueing in the generator is part of the picture
        if share > DELAY_SHARE_MAX && plan.open().is_some() {
            let text = format!(
                "responses waited in the generator: p99 {} against a median service time of {}; \
                 use more threads",
                us(p99 as f64),
                us(p50 as f64)
            );
            add("client-delay", share, DELAY_SHARE_MAX, text);
        }
    }
}

/// Losses of the generator to others: cores, time of the machine, a fast clock.
fn machine(outcome: &Outcome, add: Add) {
    const WAITED_MAX: f64 = 0.02;
    let waited = outcome.threads.iter().map(|thread| thread.waited);
    let (number, waited) =
        waited.enumerate().fold(
            (0, 0.0),
            |most, this| {
                if this.1 > most.1 {
                    this
                } else {
                    most
                }
            },
        );
    if waited > WAITED_MAX && outcome.window_length_ns >= WINDOW_MIN_NS {
        let text = format!(
            "other programs ran on the generator's core: thread {number} waited {} of the time for \
             it; keep server and others off it (--pin here, taskset there), or go before them \
             (--realtime)",
            percent(waited)
        );
        add("core-shared", waited, WAITED_MAX, text);
    }
    // what it waited for a core is said above
    let length_ns = outcome.window_length_ns.max(1) as f64;
    let threads = outcome.threads.iter();
    let away = threads.map(|thread| thread.ending.away_ns as f64 / length_ns - thread.waited);
    let away = away.fold(0.0, f64::max).min(1.0);
    if away > WAITED_MAX {
        let text = format!(
            "a thread of the generator did nothing for {} of the time: it was stopped, or the machine \
             was (SIGSTOP, a debugger, a hypervisor); what it waited for meanwhile looks slow",
            percent(away)
        );
        add("suspended", away, WAITED_MAX, text);
    }
    const UNSTAMPED_MAX: f64 = 0.001;
    let counts = &outcome.total.counts;
    let unstamped = counts.unstamped as f64 / counts.completed.max(1) as f64;
    if unstamped > UNSTAMPED_MAX {
        let text = format!(
            "the kernel did not stamp {} of the responses: their latencies end when they were read; \
             does a preloaded stack or the device leave stamps out?",
            percent(unstamped)
        );
        add("unstamped", unstamped, UNSTAMPED_MAX, text);
    }
    const STOLEN_MAX: f64 = 0.01;
    if let Some(stolen) = outcome.stolen.filter(|&stolen| stolen > STOLEN_MAX) {
        let text = format!(
            "the hypervisor took {} of the time of the generator's cores: latencies hold its \
             pauses; use a quieter host or dedicated cores",
            percent(stolen)
        );
        add("steal", stolen, STOLEN_MAX, text);
    }
    if let Some(clock) = &outcome.slow_clock {
        let text = format!(
            "the kernel's clock source is {clock}: reading the time is slow or may jump, and there \
             are two readings a request; boot with clocksource=tsc if the processor allows"
        );
        add("clock-source", 1.0, 0.0, text);
    }
}

fn schedule(plan: &Plan, outcome: &Outcome, add: Add) {
    if outcome.shape.is_some_and(|shape| shape.delays) {
        let text = "the script's delay() was not called: with a rate the clock says when requests \
                    are sent; leave -R out, or delay() out of the script";
        add("delay-unused", 1.0, 0.0, text.to_string());
    }
    const SENT_MIN: f64 = 0.99;
    const LATENESS_MAX_NS: u64 = 200_000;
    const LATENESS_SHARE_MAX: f64 = 0.05;
    const BACKLOG_MAX: f64 = 0.01;
    let unsent: u64 = outcome
        .threads
        .iter()
        .map(|thread| thread.ending.unsent)
        .sum();
    let due = outcome.total.counts.due + unsent;
    if due == 0 {
        return;
    }
    let sent_share = outcome.total.counts.sent as f64 / due as f64;
    if sent_share < SENT_MIN {
        let text = format!(
            "only {} of the due requests were sent: the rate is above what server, connections \
             or generator can do",
            percent(sent_share)
        );
        add("schedule-missed", sent_share, SENT_MIN, text);
    }
    let times = &outcome.total.times;
    if let (Some(late), Some(median)) = (
        times.lateness.known_at_ns(0.99),
        times.response.known_at_ns(0.5),
    ) {
        if late > LATENESS_MAX_NS && late as f64 > LATENESS_SHARE_MAX * median as f64 {
            let text = format!(
                "requests were sent late by the generator itself: p99 {}; give it an idle core \
                 (--pin) or more threads",
                us(late as f64)
            );
            add("lateness", late as f64, LATENESS_MAX_NS as f64, text);
        }
    }
    let left = outcome
        .unfinished()
        .saturating_sub(plan.connections_max() as u64) as f64;
    let backlog = left / due as f64;
    if backlog > BACKLOG_MAX {
        let text = format!(
            "{} of the requests were still waiting at the end: the rate is above capacity, and \
             the latencies are the length of the test",
            percent(backlog)
        );
        add("backlog", backlog, BACKLOG_MAX, text);
    }
}

fn laws(plan: &Plan, outcome: &Outcome, add: Add) {
    const RESIDUAL_MAX: f64 = 0.05;
    if let Some(little) = little(plan, outcome) {
        if little.residual.abs() > RESIDUAL_MAX && !renews(plan) {
            let text = format!(
                "Little's law is off by {}: {} connections, but rate x mean time = {:.1}; \
                 connections were missing or answers waited in the generator",
                percent(little.residual),
                little.n,
                little.n * (1.0 + little.residual)
            );
            add("little", little.residual, RESIDUAL_MAX, text);
        }
    }
    const PROBE_OFF_MAX: f64 = 0.2;
    let Some(probe) = &outcome.probe else { return };
    for quantile in [0.5, 0.99] {
        let own = probe.times.service.known_at_ns(quantile);
        let load = outcome.total.times.service.known_at_ns(quantile);
        if let (Some(own), Some(load)) = (own, load) {
            let off = own as f64 / load.max(1) as f64 - 1.0;
            if off.abs() > PROBE_OFF_MAX {
                let text = format!(
                    "the probe's p{} is {} and the load's {}: what the load reports is not what a \
                     bystander sees",
                    quantile * 100.0,
                    us(own as f64),
                    us(load as f64)
                );
                add("probe-differs", off, PROBE_OFF_MAX, text);
            }
        }
    }
}

/// Why connections could not be opened, each cause with what may be done about it.
fn connect_errors(outcome: &Outcome, add: Add) {
    let errors = &outcome.total.counts.errors;
    let causes = [
        (
            errors.connect_refused,
            "refused (nothing listens there, or it was restarted)",
        ),
        (
            errors.connect_timeout,
            "not open in time (overloaded, a queue of the server's that is too short for so many \
             at once, or packets dropped on the way; --connect-timeout sets the time)",
        ),
        (
            errors.connect_no_port,
            "without a free source port (give more addresses with --source)",
        ),
        (errors.connect_other, "failed"),
    ];
    if errors.connect() == 0 {
        return;
    }
    let told = causes.iter().filter(|(count, _)| *count > 0);
    let told: Vec<String> = told.map(|(count, why)| format!("{count} {why}")).collect();
    let note = first_connect_note(outcome).map_or(String::new(), |note| format!(": {note}"));
    add(
        "connect-errors",
        errors.connect() as f64,
        0.0,
        format!("connections could not be opened: {}{note}", told.join(", ")),
    );
}

/// The cause of the first failure to connect.
pub fn first_connect_note(outcome: &Outcome) -> Option<&str> {
    let notes = outcome.total.notes.iter();
    notes
        .filter_map(|note| note.strip_prefix("connect: "))
        .next()
}

/// Segments that the kernel had to send again.
fn retransmits(outcome: &Outcome, add: Add) {
    const SHARE_MAX: f64 = 0.001;
    let sent = outcome.tcp();
    let share = sent.retransmitted_share();
    if share > SHARE_MAX {
        let text = format!(
            "TCP retransmitted {} of the segments that the {} connections open at the end had sent: \
             latencies hold its waits; look for loss on the path or full queues",
            percent(share),
            sent.connections
        );
        add("retransmits", share, SHARE_MAX, text);
    }
}

/// Connections that were opened within the window, as the time before it was too short for them.
fn setup(plan: &Plan, outcome: &Outcome, add: Add) {
    const LATE_MAX: f64 = 0.01;
    let first = plan.steps.first().map_or(0, |step| step.connections);
    let each = outcome
        .threads
        .iter()
        .map(|thread| thread.ending.missing_at_start);
    let missing: usize = each.sum();
    let late = missing as f64 / first.max(1) as f64;
    if late > LATE_MAX {
        let open = first - missing.min(first);
        let text = format!(
            "the load began with {open} of {first} connections open: the others connected while it \
             was measured; give the server time (--connect-timeout) or fewer connections"
        );
        add("setup", late, LATE_MAX, text);
    }
}

fn errors(outcome: &Outcome, add: Add) {
    connect_errors(outcome, add);
    let counts = &outcome.total.counts;
    let errors = &counts.errors;
    let malformed = errors.malformed.iter().sum::<u64>();
    let classes = Malformed::ALL.map(Malformed::name);
    // the notes are of all errors: each warning names the first of its own
    let cause = |beginnings: &[&str]| {
        let mut notes = outcome.total.notes.iter();
        let own = notes.find(|note| beginnings.iter().any(|text| note.starts_with(text)));
        own.map_or(String::new(), |note| format!(" ({note})"))
    };
    let table: [(_, _, _, &[&str]); 13] = [
        ("read-errors", errors.read, "responses were cut off; the server closes connections or fails", &["read: "]),
        ("stale-connections", errors.stale, "requests met a connection in use that the server was closing unannounced; does it limit requests or idle time per connection?", &["a connection in use was closed", "the server went away"]),
        ("stream-resets", errors.stream_reset, "requests were ended by the server without a response (RST_STREAM, RESET_STREAM); the code is among the notes of --json", &["stream reset: "]),
        ("http2-errors", errors.http2, "connections were ended because the server broke the rules of HTTP/2; which is among the notes of --json", &["HTTP/2: "]),
        ("http3-errors", errors.http3, "connections were ended because the server broke the rules of HTTP/3; which is among the notes of --json", &["HTTP/3: "]),
        ("websocket-errors", errors.websocket, "connections were ended because the server broke the rules of WebSocket or spoke unasked; which is among the notes of --json", &["WebSocket: "]),
        ("echo-errors", errors.echo, "connections were ended because something else came than the echo of the message; does the server answer with another size (--reply-size)?", &["the response is not the echo"]),
        ("grpc-errors", errors.grpc, "calls were answered with another grpc-status than 0 or without one; which is among the notes of --json", &["grpc-status: ", "a response without grpc-status"]),
        ("unexpected", errors.unexpected, "responses were not as --expect has it; which is among the notes of --json", &["unexpected: "]),
        ("write-errors", errors.write, "requests could not be written; the server closes connections", &["write: "]),
        ("timeouts", errors.timeout, "requests had no response in time; --timeout sets the time, their ages are in the figures as lower bounds", &["no response in time"]),
        ("malformed", malformed, "responses were malformed; the first bytes are among the notes of --json", &classes),
        ("short-bodies", errors.short_body, "responses were shorter than the first one to the same request; does the page vary, or does the server cut it?", &[]),
    ];
    for (id, count, advice, beginnings) in table {
        if count > 0 {
            add(
                id,
                count as f64,
                0.0,
                format!("{count} {advice}{}", cause(beginnings)),
            );
        }
    }
    const NON_2XX_MAX: f64 = 0.001;
    let failed = counts.status_unless(|code| (200..300).contains(&code)) as f64;
    let answers = counts.completed - counts.earlier;
    let share = failed / answers.max(1) as f64;
    if share > NON_2XX_MAX {
        let text = format!(
            "{} of the responses have a status other than 2xx; they count as responses in every figure",
            percent(share)
        );
        add("non-2xx", share, NON_2XX_MAX, text);
    }
}

fn samples(plan: &Plan, outcome: &Outcome, add: Add) {
    let latency = outcome.total.times.counting(plan.open().is_some());
    const SAMPLES_MIN: f64 = 1000.0;
    if (latency.count() as f64) < SAMPLES_MIN {
        let text = format!(
            "only {} samples: the 99th percentile needs {SAMPLES_MIN}; run longer",
            latency.count()
        );
        add("few-samples", latency.count() as f64, SAMPLES_MIN, text);
    }
    let oldest_ns = outcome
        .threads
        .iter()
        .map(|t| t.ending.oldest_ns)
        .max()
        .unwrap_or(0) as f64;
    let usual_ns = latency.max_ns() as f64;
    if plan.open().is_none() && oldest_ns > usual_ns && oldest_ns > 100e6 {
        let text = format!(
            "a request in flight at the end was {:.1} s old, longer than any that was answered; \
             it is in no figure",
            oldest_ns / 1e9
        );
        add("in-flight", oldest_ns, usual_ns, text);
    }
    let missing: usize = outcome
        .threads
        .iter()
        .map(|t| t.ending.wanted.saturating_sub(t.ending.open))
        .sum();
    const MISSING_MAX: f64 = 0.01;
    let share = missing as f64 / plan.connections_max().max(1) as f64;
    if share > MISSING_MAX && !renews(plan) {
        let text = format!("{missing} connections were not open at the end");
        add("connections", share, MISSING_MAX, text);
    }
    drift(plan, outcome, add);
}

/// Separate events that the latencies above a quantile belong to; nothing where too few are known.
pub fn episodes(plan: &Plan, outcome: &Outcome, quantile: f64) -> Option<usize> {
    let latency = outcome.total.times.counting(plan.open().is_some());
    let threshold_ns = latency.known_at_ns(quantile)?;
    Some(outcome.peaks.episodes(threshold_ns)).filter(|&episodes| episodes > 0)
}

fn few_episodes(plan: &Plan, outcome: &Outcome) -> Option<Warning> {
    const EPISODES_MIN: usize = 3;
    const QUANTILE: f64 = 0.999;
    let found = episodes(plan, outcome, QUANTILE)?;
    (found < EPISODES_MIN).then(|| Warning {
        id: "few-episodes",
        value: found as f64,
        threshold: EPISODES_MIN as f64,
        text: format!(
            "all responses slower than p99.9 were in flight during {found} separate event(s): p99.9 \
             and beyond may be others in the next run; run longer"
        ),
    })
}

/// Compares the last quarter of the window with the third, where their rates should be equal.
fn drift(plan: &Plan, outcome: &Outcome, add: Add) {
    const DRIFT_MAX: f64 = 0.05;
    const SECONDS_MIN: usize = 8;
    let rates: Vec<f64> = outcome
        .seconds
        .iter()
        .filter(|second| second.phase == Phase::Measured && second.length_ns > 500_000_000)
        .map(|second| second.completed as f64 * 1e9 / second.length_ns as f64)
        .collect();
    let threads = &outcome.threads;
    let was_stopped = threads.iter().any(|thread| thread.ending.was_stopped);
    let changes = outcome.steps.len() > 1 || plan.open().is_some_and(|open| !open.is_steady());
    if rates.len() < SECONDS_MIN || changes || was_stopped {
        return;
    }
    let quarter = rates.len() / 4;
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let last = mean(&rates[rates.len() - quarter..]);
    let third = mean(&rates[rates.len() - 2 * quarter..rates.len() - quarter]);
    let drift = last / third.max(1e-9) - 1.0;
    if drift.abs() > DRIFT_MAX {
        let text = format!(
            "the rate of the last quarter is {} off the third: not settled; warm up or run longer",
            percent(drift)
        );
        add("drift", drift, DRIFT_MAX, text);
    }
}
