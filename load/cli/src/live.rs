//! The live view: on a terminal, while a run goes on, a few lines that are redrawn each second.

use crate::console::show;
use crate::figures::{quantile, time};
use crate::units::metric;
use load_engine::interval::{Errors, Interval};
use load_engine::latency::Latency;
use load_engine::outcome::Second;
use load_engine::plan::{Phase, Plan};

/// Characters of the bar, and seconds of the rate's history.
const WIDTH: usize = 40;
/// The levels of the rate's history.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Begins and ends writing without wrapping: a narrow terminal cuts lines instead of breaking them.
const UNWRAPPED: (&str, &str) = ("\x1b[?7l", "\x1b[?7h");

/// What is known so far.
pub struct View {
    open: bool,
    total_ns: u64,
    /// After so many the run ends.
    requests: Option<u64>,
    phase: Phase,
    elapsed_ns: u64,
    completed: u64,
    lost: u64,
    /// Requests that have ended, unsent ones included.
    ended: u64,
    errors: Errors,
    all: Latency,
    now: Latency,
    rates: Vec<f64>,
    /// Lines that stand on the terminal.
    drawn: usize,
}

impl View {
    /// The view of a run.
    pub fn new(plan: &Plan) -> View {
        View {
            open: plan.open().is_some(),
            total_ns: plan.duration_ns(),
            requests: plan.requests,
            phase: Phase::Setup,
            elapsed_ns: 0,
            completed: 0,
            lost: 0,
            ended: 0,
            errors: Errors::default(),
            all: Latency::default(),
            now: Latency::default(),
            rates: Vec::new(),
            drawn: 0,
        }
    }

    /// Takes a second and draws.
    pub fn take(&mut self, second: &Second) {
        self.add(&second.interval, second.offset_ns);
        self.draw();
    }

    fn add(&mut self, interval: &Interval, offset_ns: i64) {
        if interval.phase != self.phase {
            // what the warm-up showed is not the window's
            self.phase = interval.phase;
            (self.completed, self.lost, self.ended) = (0, 0, 0);
            self.errors = Errors::default();
            self.all.clear();
        }
        let length_ns = interval.end_ns - interval.start_ns;
        let times = interval.times.counting(self.open);
        self.now = times.clone();
        self.all.add(times);
        self.elapsed_ns = (offset_ns + length_ns as i64).max(0) as u64;
        self.completed += interval.counts.completed;
        self.lost += interval.counts.lost;
        let counts = &interval.counts;
        let never_sent = counts.dropped + counts.shed + counts.unconnected;
        self.ended += counts.completed + counts.lost + never_sent;
        self.errors.add(&interval.counts.errors);
        let rate = interval.counts.completed as f64 * 1e9 / length_ns.max(1) as f64;
        self.rates.push(rate);
    }

    fn lines(&self) -> Vec<String> {
        let now = self.rates.last().copied().unwrap_or(0.0);
        let mean = self.completed as f64 * 1e9 / self.elapsed_ns.max(1) as f64;
        vec![
            self.progress(),
            format!(
                "  requests/s  {:>9}   mean {:>9}   {}",
                metric(now),
                metric(mean),
                self.history()
            ),
            format!("  last second {}", percentiles(&self.now)),
            format!("  so far      {}", percentiles(&self.all)),
            self.faults(),
        ]
    }

    fn progress(&self) -> String {
        if self.phase == Phase::Warmup {
            return "  warming up".to_string();
        }
        let (past, total) = match self.requests {
            Some(requests) => (self.ended, requests),
            None => (self.elapsed_ns, self.total_ns),
        };
        let share = past as f64 / total.max(1) as f64;
        let done = ((share * WIDTH as f64) as usize).min(WIDTH);
        let (full, empty) = ("█".repeat(done), "░".repeat(WIDTH - done));
        let left = total.saturating_sub(past);
        let left = match self.requests {
            Some(_) => format!("{left} requests"),
            None => format!("{:.0} s", left as f64 / 1e9),
        };
        format!("  {full}{empty}  {left} left")
    }

    /// The rate of the last seconds, as a sparkline.
    fn history(&self) -> String {
        let recent = &self.rates[self.rates.len().saturating_sub(WIDTH / 2)..];
        let most = recent.iter().copied().fold(1.0, f64::max);
        let height = |rate: &f64| HEIGHTS[((rate / most * 8.0) as usize).min(7)];
        recent.iter().map(height).collect()
    }

    fn faults(&self) -> String {
        let errors = &self.errors;
        let kinds = [
            ("connect", errors.connect()),
            ("read", errors.broken()),
            ("write", errors.write),
            ("timeout", errors.timeout),
        ];
        let some = kinds.iter().filter(|(_, count)| *count > 0);
        let some: Vec<String> = some
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        let list = if some.is_empty() {
            String::new()
        } else {
            format!(" ({})", some.join(", "))
        };
        format!(
            "  errors      {}{list}   requests lost {}",
            errors.total(),
            self.lost
        )
    }

    fn draw(&mut self) {
        let lines = self.lines();
        let mut text = String::from(UNWRAPPED.0);
        text += &self.up();
        for line in &lines {
            text += line;
            text += "\x1b[K\n";
        }
        text += UNWRAPPED.1;
        show(&text);
        self.drawn = lines.len();
    }

    /// To the first of the lines that were drawn.
    fn up(&self) -> String {
        if self.drawn == 0 {
            return String::new();
        }
        format!("\x1b[{}A\r", self.drawn)
    }

    /// Takes the lines away.
    pub fn end(&mut self) {
        if self.drawn > 0 {
            show(&format!("{}\x1b[J", self.up()));
            self.drawn = 0;
        }
    }
}

fn percentiles(latency: &Latency) -> String {
    if latency.is_empty() {
        return "no responses".to_string();
    }
    let at = |share: f64| quantile(latency, share);
    let max = time(latency.max_ns() as f64, latency.is_incomplete());
    format!(
        "p50 {:>8}  p90 {:>8}  p99 {:>8}  p99.9 {:>8}  max {max:>8}",
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(total_ns: u64) -> View {
        View {
            open: false,
            total_ns,
            requests: None,
            phase: Phase::Setup,
            elapsed_ns: 0,
            completed: 0,
            lost: 0,
            ended: 0,
            errors: Errors::default(),
            all: Latency::default(),
            now: Latency::default(),
            rates: Vec::new(),
            drawn: 0,
        }
    }

    fn second(phase: Phase, answers: u64, latency_ns: u64) -> Interval {
        let mut interval = Interval {
            phase,
            end_ns: 1_000_000_000,
            ..Interval::default()
        };
        interval.counts.completed = answers;
        interval.times.service.record_many(latency_ns, answers);
        interval
    }

    #[test]
    fn rate_percentiles_errors_and_time_left_are_shown() {
        let mut view = view(4_000_000_000);
        view.add(&second(Phase::Warmup, 9_000, 9_000_000), -1_000_000_000);
        assert_eq!(view.lines()[0], "  warming up");
        view.add(&second(Phase::Measured, 1_000, 1_000_000), 0);
        let mut bad = second(Phase::Measured, 3_000, 2_000_000);
        bad.counts.errors.timeout = 2;
        bad.counts.lost = 2;
        bad.times.service.record_lost(2_000_000_000, 2);
        view.add(&bad, 1_000_000_000);
        let lines = view.lines();
        assert!(lines[0].contains("████████████████████░") && lines[0].ends_with("2 s left"));
        assert!(
            lines[1].contains("3.00k") && lines[1].contains("mean     2.00k"),
            "{}",
            lines[1]
        );
        assert!(lines[1].ends_with("█▁▃"), "{}", lines[1]);
        assert!(
            lines[2].contains("p50   2.00ms") && lines[2].contains("≥2.00s"),
            "{}",
            lines[2]
        );
        assert!(
            lines[3].contains("p50   2.00ms") && !lines[3].contains("9.00ms"),
            "{}",
            lines[3]
        );
        assert_eq!(lines[4], "  errors      2 (timeout 2)   requests lost 2");
        // the time is only a bound of a number of requests
        view.requests = Some(8_004);
        let first = &view.lines()[0];
        assert!(
            first.contains("████████████████████░") && first.ends_with("4002 requests left"),
            "{first}"
        );
        let mut refused = second(Phase::Measured, 0, 0);
        (refused.counts.shed, refused.counts.unconnected) = (1, 1);
        view.add(&refused, 2_000_000_000);
        assert!(view.lines()[0].ends_with("4000 requests left"));
    }

    #[test]
    fn a_maximum_that_dropped_requests_may_raise_is_marked() {
        let mut latency = Latency::default();
        latency.record_many(1_000_000, 20);
        latency.note_dropped(1);
        let text = percentiles(&latency);
        assert!(text.ends_with("≥1.00ms"), "{text}");
    }
}
