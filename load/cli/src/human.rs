//! The report for people, line for line in the shape of wrk and wrk2, because scripts parse it.

use crate::figures::{quantile, time};
use crate::spectrum;
use crate::units::{binary, metric, padded, time_s, time_us};
use load_engine::latency::Latency;
use load_engine::outcome::Outcome;
use load_engine::plan::Plan;
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
    let (threads, requests) = (plan.threads, plan.requests);
    if let Some(requests) = requests {
        return format!(
            "Running {requests} requests @ {url}\n  {threads} threads and {connections} connections\n"
        );
    }
    let seconds = plan.duration_ns() as f64 / 1e9;
    // whole seconds as wrk prints them; ours may be shorter
    let length = if seconds >= 0.9995 {
        time_s(seconds)
    } else {
        time_us(seconds * 1e6)
    };
    format!("Running {length} test @ {url}\n  {threads} threads and {connections} connections\n")
}

/// The lines after the run.
pub fn report(plan: &Plan, outcome: &Outcome, parts: Parts) -> String {
    let mut text = String::new();
    let times = &outcome.total.times;
    let open = plan.open().is_some();
    let latency = times.counting(open);
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
        distribution(&mut text, latency);
    }
    if parts.latency {
        text += &crate::parts::lines(plan, outcome);
    }
    totals(&mut text, plan, outcome);
    steps(&mut text, plan, outcome);
    probe(&mut text, outcome);
    text
}

/// The pauses before waits, if there were any.
pub fn waiting(outcome: &Outcome) -> Option<String> {
    let pauses = outcome.pauses();
    if pauses.paused == 0 {
        return None;
    }
    let share = pauses.paused as f64 * 100.0 / pauses.waits.max(1) as f64;
    let each_us = pauses.paused_ns as f64 / pauses.paused as f64 / 1e3;
    Some(format!(
        "note: the server was the limit: {each_us:.0} us of pause before {share:.0} % of the waits \
         (--coalesce never: none)"
    ))
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
        let latency = interval.times.counting(plan.open().is_some());
        let length_ns = interval.end_ns.saturating_sub(interval.start_ns).max(1) as f64;
        let rps = interval.counts.completed as f64 * 1e9 / length_ns;
        let value = |at: f64| padded(&quantile(latency, at), 10);
        let _ = writeln!(
            text,
            "  {number:>4}  {:>11}  {rps:>12.2}{}{}{}",
            step.connections,
            value(0.5),
            value(0.99),
            value(1.0)
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
        probe.counts.completed - probe.counts.earlier,
        quantile(latency, 0.5),
        quantile(latency, 0.99),
        quantile(latency, 1.0),
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
    let is_bound = latency.is_incomplete();
    let cells = [
        time(latency.mean_ns(), is_bound),
        time(latency.stdev_ns(), false),
        time(latency.max_ns() as f64, is_bound),
    ];
    row(text, "Latency", cells, within);
}

fn rate_row(text: &mut String, rates: &[f64]) {
    let n = rates.len().max(1) as f64;
    // an empty sum is -0, which plus 0 is 0
    let mean = rates.iter().sum::<f64>() / n + 0.0;
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

fn distribution(text: &mut String, latency: &Latency) {
    text.push_str("  Latency Distribution\n");
    for percent in [50.0, 75.0, 90.0, 99.0] {
        let value = padded(&quantile(latency, percent / 100.0), 10);
        let _ = writeln!(text, "{percent:>7.0}%{value}");
    }
}

/// Requests that stand in the figures with the time they were outstanding.
fn without_answer(text: &mut String, plan: &Plan, outcome: &Outcome) {
    let counts = &outcome.total.counts;
    let lost = counts.lost;
    // in closed loop those in flight at the end are in no figure
    let unfinished = plan.open().map_or(0, |_| outcome.unfinished());
    let kinds = [
        (counts.dropped, "dropped"),
        (counts.shed, "too late to be sent"),
        (counts.unconnected, "without a connection"),
    ];
    if lost + unfinished > 0 || kinds.iter().any(|(count, _)| *count > 0) {
        let mut never_sent = String::new();
        for (count, what) in kinds {
            if count > 0 {
                let _ = write!(never_sent, ", {count} {what}");
            }
        }
        let _ = writeln!(
            text,
            "  Without a response: {lost} lost, {unfinished} unfinished{never_sent}; ≥ marks what they may raise"
        );
    }
}

fn totals(text: &mut String, plan: &Plan, outcome: &Outcome) {
    let counts = &outcome.total.counts;
    let _ = writeln!(
        text,
        "  {} requests in {}, {}B read",
        outcome.completed_in_window,
        time_us(outcome.window_length_ns as f64 / 1e3),
        binary(outcome.bytes_in_window as f64)
    );
    let errors = &counts.errors;
    let read = errors.broken();
    if errors.connect() + read + errors.write + errors.timeout > 0 {
        let (connect, write, timeout) = (errors.connect(), errors.write, errors.timeout);
        let _ = writeln!(
            text,
            "  Socket errors: connect {connect}, read {read}, write {write}, timeout {timeout}"
        );
    }
    without_answer(text, plan, outcome);
    let failed = counts.status_unless(|code| code <= 399);
    if failed > 0 {
        let _ = writeln!(text, "  Non-2xx or 3xx responses: {failed}");
    }
    if errors.grpc > 0 {
        let _ = writeln!(text, "  Failed gRPC calls: {}", errors.grpc);
    }
    let _ = writeln!(text, "Requests/sec: {:>9.2}", outcome.rps());
    let _ = writeln!(
        text,
        "Transfer/sec: {:>10}B",
        binary(outcome.bytes_per_second())
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_answers_has_a_rate_of_zero() {
        let mut text = String::new();
        rate_row(&mut text, &[]);
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(words, ["Req/Sec", "0.00", "0.00", "0.00", "-nan%"]);
    }
}
