//! The snapshot in Prometheus' text format, for a text-file collector or any scraper's exporter.
//!
//! Source: <https://prometheus.io/docs/instrumenting/exposition_formats/>, text format 0.0.4.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::snapshot::{Process, Snapshot};

/// Counters of nanoseconds: published in seconds, as Prometheus' base units want.
const NS_SUFFIX: &str = "_ns";

/// All processes; names keep their meaning within a version of the library.
pub(super) fn page(snapshot: &Snapshot) -> String {
    let mut page = String::new();
    let processes = &snapshot.processes;
    head(
        &mut page,
        "bypass_process_start_time_seconds",
        "gauge",
        "When the process made its first TCP socket, in Unix time.",
    );
    for process in processes {
        let started = process.header.started_unix_ns as f64 / 1e9;
        sample(
            &mut page,
            "bypass_process_start_time_seconds",
            process,
            "",
            started,
        );
    }
    head(
        &mut page,
        "bypass_sockets",
        "gauge",
        "TCP sockets that exist now, by what carries them.",
    );
    for process in processes {
        for path in ["shm", "packets", "kernel"] {
            let label = format!(",path=\"{path}\"");
            sample(
                &mut page,
                "bypass_sockets",
                process,
                &label,
                process.sockets(path) as f64,
            );
        }
    }
    head(
        &mut page,
        "bypass_listeners",
        "gauge",
        "Listening sockets that exist now.",
    );
    for process in processes {
        sample(
            &mut page,
            "bypass_listeners",
            process,
            "",
            process.listeners() as f64,
        );
    }
    fallbacks(&mut page, processes);
    counters(&mut page, processes);
    page
}

fn fallbacks(page: &mut String, processes: &[Process]) {
    let name = "bypass_kernel_fallbacks_total";
    head(
        page,
        name,
        "counter",
        "Connections and sockets left to the kernel, by reason.",
    );
    for process in processes {
        for (reason, count) in &process.fallbacks {
            sample(
                page,
                name,
                process,
                &format!(",reason=\"{reason}\""),
                *count as f64,
            );
        }
    }
}

fn counters(page: &mut String, processes: &[Process]) {
    let all = processes.iter().flat_map(|process| &process.counters);
    let names: BTreeSet<&str> = all.map(|(name, _)| *name).collect();
    for name in names {
        let (metric, scale) = match name.strip_suffix(NS_SUFFIX) {
            Some(stem) => (format!("bypass_{stem}_seconds_total"), 1e-9),
            None => (format!("bypass_{name}_total"), 1.0),
        };
        head(
            page,
            &metric,
            "counter",
            &format!("Counter {name} of bypass stat."),
        );
        for process in processes {
            sample(
                page,
                &metric,
                process,
                "",
                process.counter(name) as f64 * scale,
            );
        }
    }
}

fn head(page: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn sample(page: &mut String, name: &str, process: &Process, more: &str, value: f64) {
    let header = &process.header;
    let _ = writeln!(
        page,
        "{name}{{pid=\"{}\",command=\"{}\",profile=\"{}\",cluster=\"{}\"{more}}} {value}",
        process.pid,
        escaped(&header.command),
        escaped(&header.profile),
        escaped(&header.cluster),
    );
}

/// Another process wrote these texts: nothing in them may end the label or the line.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            _ => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::of_one;
    use super::*;

    #[test]
    fn every_name_has_one_head_and_nanoseconds_become_seconds() {
        let page = page(&of_one(
            "a\"b\n",
            &[("spin_ns", 1_500_000_000), ("reads", 7)],
            &[("limit", 2)],
        ));
        for line in [
            "# TYPE bypass_spin_seconds_total counter",
            "bypass_spin_seconds_total{pid=\"7\",command=\"a\\\"b\\n\",profile=\"\",cluster=\"\"} 1.5",
            "bypass_reads_total{pid=\"7\",command=\"a\\\"b\\n\",profile=\"\",cluster=\"\"} 7",
            "bypass_sockets{pid=\"7\",command=\"a\\\"b\\n\",profile=\"\",cluster=\"\",path=\"shm\"} 1",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
        }
        assert!(page.contains("reason=\"limit\"} 2\n"));
        let heads: Vec<_> = page
            .lines()
            .filter(|line| line.starts_with("# TYPE"))
            .collect();
        let distinct: BTreeSet<_> = heads.iter().collect();
        assert_eq!(heads.len(), distinct.len());
    }
}
