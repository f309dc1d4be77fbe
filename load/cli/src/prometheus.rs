//! `--prometheus FILE`: the counts so far in Prometheus' text format, rewritten each second,
//! for a text-file collector. A reader never sees half a page: it is renamed into place.
//!
//! Source: <https://prometheus.io/docs/instrumenting/exposition_formats/>, text format 0.0.4.

use load_engine::interval::Counts;
use load_engine::latency::Latency;
use load_engine::outcome::Second;
use load_engine::plan::Phase;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Upper ends of the buckets, in seconds: 50 µs to 10 s, three in each power of ten.
const BUCKETS_S: [f64; 17] = [
    50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 100e-3, 200e-3, 500e-3,
    1.0, 2.0, 5.0, 10.0,
];

/// The measured window's counts, and where the page goes.
pub struct Page {
    path: PathBuf,
    counts: Counts,
    latency: Latency,
    told: bool,
}

impl Page {
    /// Nothing counted yet.
    pub fn new(path: PathBuf) -> Page {
        Page {
            path,
            counts: Counts::default(),
            latency: Latency::default(),
            told: false,
        }
    }

    /// Takes one second; the warm-up is not the window's.
    pub fn take(&mut self, second: &Second, times: &Latency) {
        if second.interval.phase != Phase::Measured {
            return;
        }
        self.counts.add(&second.interval.counts);
        self.latency.add(times);
        self.write();
    }

    /// The run is over: what came before and after its seconds is counted too.
    pub fn end(&mut self, counts: &Counts, times: &Latency) {
        (self.counts, self.latency) = (counts.clone(), times.clone());
        self.write();
    }

    /// Puts the page in place. A write that fails is reported once.
    fn write(&mut self) {
        let written = crate::file::replace(&self.path, &self.text());
        if let (Err(error), false) = (written, self.told) {
            self.told = true;
            crate::console::say(&format!(
                "--prometheus: cannot write {}: {error}",
                self.path.display()
            ));
        }
    }

    fn text(&self) -> String {
        let counts = &self.counts;
        let mut text = String::new();
        for (name, help, value) in [
            ("requests_total", "Answers read.", counts.completed),
            (
                "errors_total",
                "Requests that failed, by whatever cause.",
                counts.errors.total(),
            ),
            (
                "received_bytes_total",
                "Bytes of responses.",
                counts.bytes_in,
            ),
            ("sent_bytes_total", "Bytes of requests.", counts.bytes_out),
            (
                "connects_total",
                "Connections established.",
                counts.connects,
            ),
        ] {
            head(&mut text, name, "counter", help);
            let _ = writeln!(text, "wirespeed_load_{name} {value}");
        }
        head(
            &mut text,
            "responses_total",
            "counter",
            "Answers by status code.",
        );
        for (code, count) in counts
            .status
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
        {
            let _ = writeln!(
                text,
                "wirespeed_load_responses_total{{code=\"{code}\"}} {count}"
            );
        }
        self.histogram(&mut text);
        text
    }

    fn histogram(&self, text: &mut String) {
        let name = "latency_seconds";
        head(
            text,
            name,
            "histogram",
            "Time from a request to its response.",
        );
        for end_s in BUCKETS_S {
            let inside = self
                .latency
                .recorded()
                .filter(|(ns, _)| *ns as f64 <= end_s * 1e9);
            let count: u64 = inside.map(|(_, count)| count).sum();
            let _ = writeln!(
                text,
                "wirespeed_load_{name}_bucket{{le=\"{end_s}\"}} {count}"
            );
        }
        let all = self.latency.recorded().map(|(_, count)| count).sum::<u64>();
        let sum_s = self.latency.mean_ns() * all as f64 / 1e9;
        let _ = writeln!(
            text,
            "wirespeed_load_{name}_bucket{{le=\"+Inf\"}} {all}\n\
             wirespeed_load_{name}_sum {sum_s}\nwirespeed_load_{name}_count {all}"
        );
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(
        text,
        "# HELP wirespeed_load_{name} {help}\n# TYPE wirespeed_load_{name} {kind}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_count_everything_up_to_their_end() {
        let mut page = Page::new(PathBuf::new());
        page.latency.record_many(80_000, 3);
        page.latency.record(3_000_000_000);
        page.counts.status[200] = 4;
        let text = page.text();
        for line in [
            "wirespeed_load_latency_seconds_bucket{le=\"0.00005\"} 0",
            "wirespeed_load_latency_seconds_bucket{le=\"0.0001\"} 3",
            "wirespeed_load_latency_seconds_bucket{le=\"2\"} 3",
            "wirespeed_load_latency_seconds_bucket{le=\"5\"} 4",
            "wirespeed_load_latency_seconds_bucket{le=\"+Inf\"} 4",
            "wirespeed_load_latency_seconds_count 4",
            "wirespeed_load_responses_total{code=\"200\"} 4",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }
}
