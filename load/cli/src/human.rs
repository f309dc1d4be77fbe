//! The report for people, line for line in the shape of wrk and wrk2, because scripts parse it.

use crate::spectrum;
use crate::units::{binary, metric, padded, time_s, time_us};
use load_engine::latency::Latency;
use load_engine::plan::Plan;
use load_engine::run::Outcome;
use std::fmt::Write;

/// Which parts are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts {
    /// The distribution of latencies.
    pub latency: bool,
    /// The spectrum of service times too (wrk2's `-U`).
    pub uncorrected: bool,
}

/// The lines before the run.
pub fn banner(plan: &Plan, url: &str, connections: &str) -> String {
    let seconds = plan.duration_ns() as f64 / 1e9;
    // whole seconds as wrk prints them; ours may be shorter
    let length = if seconds >= 0.9995 {
        time_s(seconds)
    } else {
        time_us(seconds * 1e6)
    };
    let threads = plan.threads;
    format!("Running {length} test @ {url}\n  {threads} threads and {connections} connections\n")
}

/// The lines after the run.
pub fn report(plan: &Plan, outcome: &Outcome, parts: Parts) -> String {
    let mut text = String::new();
    let times = &outcome.total.times;
    let open = plan.open.is_some();
    let latency = if open {
        &times.response
    } else {
        &times.service
    };
    let _ = writeln!(
        text,
        "  Thread Stats{:>6}{:>11}{:>8}{:>12}",
        "Avg", "Stdev", "Max", "+/- Stdev"
    );
    latency_row(&mut text, latency);
    rate_row(&mut text, &outcome.total.rates);
    if open && (parts.latency || parts.uncorrected) {
        text += &spectrum::block("HdrHistogram - Recorded Latency", latency);
        if parts.uncorrected {
            let title = "HdrHistogram - Uncorrected Latency (measured without taking delayed starts into account)";
            let _ = write!(text, "\n{}", spectrum::block(title, &times.service));
        }
    } else if parts.latency {
        distribution(&mut text, latency, &times.censored);
    }
    totals(&mut text, outcome);
    steps(&mut text, plan, outcome);
    probe(&mut text, outcome);
    text
}

/// One line for each step of a ramp.
fn steps(text: &mut String, plan: &Plan, outcome: &Outcome) {
    if plan.steps.len() < 2 {
        return;
    }
    let _ = writeln!(
        text,
        "\n  Step  Connections  Requests/sec       p50       p99       Max"
    );
    for (number, (step, interval)) in plan.steps.iter().zip(&outcome.steps).enumerate() {
        let times = &interval.times;
        let latency = if plan.open.is_some() {
            &times.response
        } else {
            &times.service
        };
        let length_ns = interval.end_ns.saturating_sub(interval.start_ns).max(1) as f64;
        let rps = interval.counts.completed as f64 * 1e9 / length_ns;
        let value = |ns: u64| padded(&time_us(ns as f64 / 1e3), 10);
        let _ = writeln!(
            text,
            "  {number:>4}  {:>11}  {rps:>12.2}{}{}{}",
            step.connections,
            value(latency.at_ns(0.5)),
            value(latency.at_ns(0.99)),
            value(latency.max_ns())
        );
    }
}

/// What a bystander saw.
fn probe(text: &mut String, outcome: &Outcome) {
    let Some(probe) = &outcome.probe else { return };
    let latency = &probe.times.response;
    let _ = writeln!(
        text,
        "\n  Probe: {} requests, p50 {}, p99 {}, max {}, errors {}",
        probe.counts.completed,
        time_us(latency.at_ns(0.5) as f64 / 1e3),
        time_us(latency.at_ns(0.99) as f64 / 1e3),
        time_us(latency.max_ns() as f64 / 1e3),
        probe.counts.errors.total()
    );
}

fn row(text: &mut String, name: &str, cells: [String; 3], within: Option<f64>) {
    let [average, deviation, max] = cells;
    // wrk's scripts have learnt to read its "-nan"
    let within = within.map_or("-nan".to_string(), |share| format!("{:.2}", share * 100.0));
    let _ = writeln!(
        text,
        "    {name:<10}{}{}{}{within:>8}%",
        padded(&average, 8),
        padded(&deviation, 10),
        padded(&max, 9)
    );
}

fn latency_row(text: &mut String, latency: &Latency) {
    let within = (!latency.is_empty()).then(|| latency.share_within(1.0));
    let cells = [
        latency.mean_ns(),
        latency.stdev_ns(),
        latency.max_ns() as f64,
    ];
    row(text, "Latency", cells.map(|ns| time_us(ns / 1e3)), within);
}

fn rate_row(text: &mut String, rates: &[f64]) {
    let n = rates.len().max(1) as f64;
    // an empty sum is -0
    let mean = (rates.iter().sum::<f64>() / n).max(0.0);
    let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
    let deviation = if rates.len() > 1 {
        (squares / (n - 1.0)).sqrt()
    } else {
        0.0
    };
    let max = rates.iter().copied().fold(0.0, f64::max);
    let within = rates
        .iter()
        .filter(|rate| (*rate - mean).abs() <= deviation)
        .count() as f64
        / n;
    let within = (!rates.is_empty()).then_some(within);
    row(text, "Req/Sec", [mean, deviation, max].map(metric), within);
}

fn distribution(text: &mut String, latency: &Latency, censored: &Latency) {
    text.push_str("  Latency Distribution\n");
    for percent in [50.0, 75.0, 90.0, 99.0] {
        let value_ns = latency.at_ns(percent / 100.0);
        let bound = if is_bound(value_ns, censored) {
            " (at least)"
        } else {
            ""
        };
        let value = padded(&time_us(value_ns as f64 / 1e3), 10);
        let _ = writeln!(text, "{percent:>7.0}%{value}{bound}");
    }
}

/// Whether a value is only known to be a lower bound: a request that was given up is not longer.
pub fn is_bound(value_ns: u64, censored: &Latency) -> bool {
    !censored.is_empty() && value_ns >= censored.min_ns()
}

fn totals(text: &mut String, outcome: &Outcome) {
    let counts = &outcome.total.counts;
    let _ = writeln!(
        text,
        "  {} requests in {}, {}B read",
        outcome.completed_in_window,
        time_us(outcome.window_length_ns as f64 / 1e3),
        binary(outcome.bytes_in_window as f64)
    );
    let errors = &counts.errors;
    let read = errors.read + errors.malformed.iter().sum::<u64>();
    if errors.connect() + read + errors.write + errors.timeout > 0 {
        let (connect, write, timeout) = (errors.connect(), errors.write, errors.timeout);
        let _ = writeln!(
            text,
            "  Socket errors: connect {connect}, read {read}, write {write}, timeout {timeout}"
        );
    }
    let failed = counts.status_unless(|code| code <= 399);
    if failed > 0 {
        let _ = writeln!(text, "  Non-2xx or 3xx responses: {failed}");
    }
    let _ = writeln!(text, "Requests/sec: {:>9.2}", outcome.rps());
    let _ = writeln!(
        text,
        "Transfer/sec: {:>10}B",
        binary(outcome.bytes_per_second())
    );
}
