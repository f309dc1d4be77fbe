//! Outputs written each second: the live view, the CSV file, the HdrHistogram log.

use crate::live::View;
use crate::prometheus::Page;
use crate::result::encoded;
use crate::values::words;
use load_engine::interval::Interval;
use load_engine::outcome::Second;
use load_engine::plan::{Phase, Plan};
use std::fmt::Write as _;
use std::io::IsTerminal;

/// Shorter runs are over before there is anything to watch.
const WATCHED_NS: u64 = 2_000_000_000;

/// Whether the live view is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Live {
    /// If standard error is a terminal.
    Auto,
    /// Yes.
    Always,
    /// No.
    Never,
}

words! { Live { "auto" => Auto, "always" => Always, "never" => Never } }

/// Collects what the files shall hold while the run goes on.
pub struct Series {
    view: Option<View>,
    open: bool,
    /// Lines of the CSV file.
    pub csv: String,
    /// Lines of the HdrHistogram log, without its head.
    pub hlog: String,
    keep_hlog: bool,
    prometheus: Option<Page>,
}

impl Series {
    /// Nothing yet.
    pub fn new(plan: &Plan, live: Live, keep_hlog: bool, prometheus: Option<&str>) -> Series {
        let terminal = std::io::stderr().is_terminal();
        let is_long = plan.warmup_ns + plan.duration_ns() > WATCHED_NS;
        let wanted = live == Live::Always || (live == Live::Auto && terminal && is_long);
        Series {
            view: wanted.then(|| View::new(plan)),
            open: plan.open().is_some(),
            csv: String::from(
                "t_s,length_s,phase,step,completed,rps,p50_us,p99_us,max_us,errors\n",
            ),
            hlog: String::new(),
            keep_hlog,
            prometheus: prometheus.map(|path| Page::new(path.into())),
        }
    }

    /// Takes one second.
    pub fn take(&mut self, second: &Second) {
        let interval = &second.interval;
        let times = interval.times.counting(self.open);
        let length_s = (interval.end_ns - interval.start_ns) as f64 / 1e9;
        let completed = interval.counts.completed;
        let rps = completed as f64 / length_s.max(1e-9);
        let errors = interval.counts.errors.total();
        // a second without an answer has no latencies; zeros would be the best ones of all
        let us = |ns: u64| match times.is_empty() {
            true => String::new(),
            false => format!("{:.1}", ns as f64 / 1e3),
        };
        let phase = if interval.phase == Phase::Warmup {
            "warmup"
        } else {
            "measured"
        };
        let _ = writeln!(
            self.csv,
            "{:.3},{length_s:.3},{phase},{},{completed},{rps:.1},{},{},{},{errors}",
            second.offset_ns as f64 / 1e9,
            interval.step,
            us(times.at_ns(0.5)),
            us(times.at_ns(0.99)),
            us(times.max_ns()),
        );
        if self.keep_hlog && interval.phase == Phase::Measured {
            self.log(second, length_s);
        }
        if let Some(page) = &mut self.prometheus {
            page.take(second, times);
        }
        if let Some(view) = &mut self.view {
            view.take(second);
        }
    }

    fn log(&mut self, second: &Second, length_s: f64) {
        for (tag, latency) in second.interval.times.named() {
            if (tag == "service" || tag == "response") && !latency.is_empty() {
                let start_s = second.offset_ns as f64 / 1e9;
                let max_ms = latency.max_ns() as f64 / 1e6;
                let histogram = encoded(latency);
                let _ = writeln!(
                    self.hlog,
                    "Tag={tag},{start_s:.3},{length_s:.3},{max_ms:.3},{histogram}"
                );
            }
        }
    }

    /// Takes the live view away, and the whole run into the page that shows the counts so far.
    pub fn end(&mut self, total: &Interval) {
        if let Some(page) = &mut self.prometheus {
            page.end(&total.counts, total.times.counting(self.open));
        }
        if let Some(view) = &mut self.view {
            view.end();
        }
    }

    /// The whole log file for a window that began at `start_unix_ns`.
    pub fn hlog_file(&self, start_unix_ns: u64) -> String {
        let start_s = start_unix_ns as f64 / 1e9;
        format!(
            "#[Logged with wirespeed-load {}]\n#[Histogram log format version 1.3]\n\
             #[StartTime: {start_s:.3} (seconds since epoch)]\n#[MaxValueDivisor: 1000000.0]\n\
             \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n{}",
            env!("CARGO_PKG_VERSION"),
            self.hlog
        )
    }
}
