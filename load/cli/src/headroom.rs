//! `--headroom`: whether a measured server came too near to what the path itself can do, as
//! measured by a run with `--sink`.

use crate::refusal::{because, Refusal, Wrong};
use crate::result::record::Field as _;
use crate::result::Measured;
use load_engine::outcome::Outcome;
use load_engine::plan::Plan;
use load_engine::warnings::Warning;
use serde_json::Value;

/// A server within this factor of the null server has not been measured, but the path.
const FACTOR_MIN: f64 = 1.3;

/// The capacity of the path.
#[derive(Clone, Debug, PartialEq)]
pub struct Headroom {
    rps: f64,
    depth: u64,
    file: String,
}

impl Headroom {
    /// Reads the result file of a `--sink` run that was made as `plan` will be. A script has a depth of its own,
    /// which is known when it runs.
    pub fn read(file: &str, plan: &Plan, has_script: bool) -> Result<Headroom, Refusal> {
        let text = std::fs::read_to_string(file).map_err(|error| {
            Refusal::option(
                "headroom",
                Wrong::Unreadable(file.to_string(), error.to_string()),
            )
        })?;
        Headroom::parse(file, &text, plan, has_script)
    }

    fn parse(file: &str, text: &str, plan: &Plan, has_script: bool) -> Result<Headroom, Refusal> {
        let Ok(known) = Measured::parse(text) else {
            return because(
                "headroom",
                format!("{file}: not a result file (write one with --json)"),
            );
        };
        if !known.plan.sink || known.plan.mode != "closed" {
            return because(
                "headroom",
                format!("{file} is not from a run with --sink and without -R"),
            );
        }
        let depth = known.plan.depth.write();
        let own_depth = if has_script {
            depth.clone()
        } else {
            Value::from(plan.protocol.depth())
        };
        let own = [
            (
                "threads",
                known.plan.threads.write(),
                Value::from(plan.threads),
            ),
            ("depth", depth, own_depth),
            ("close", known.plan.close.write(), Value::from(plan.close)),
        ];
        for (key, then, this) in own {
            if then != this {
                let why = format!(
                    "{file} was measured with {key} {then}, this run has {this}; measure --sink \
                     with the same options"
                );
                return because("headroom", why);
            }
        }
        Ok(Headroom {
            rps: known.rps,
            depth: known.plan.depth,
            file: file.to_string(),
        })
    }

    /// The finding, if there is too little room above the server, or if the path was measured otherwise.
    pub fn judge(&self, plan: &Plan, outcome: &Outcome) -> Option<Warning> {
        let depth = outcome.depth(plan) as u64;
        if depth != self.depth {
            return Some(Warning {
                id: "headroom",
                value: depth as f64,
                threshold: self.depth as f64,
                text: format!(
                    "{} was measured with depth {}, this run has {depth}; measure --sink with the same script",
                    self.file, self.depth
                ),
            });
        }
        let factor = self.rps / outcome.rps().max(f64::MIN_POSITIVE);
        (factor < FACTOR_MIN).then(|| Warning {
            id: "headroom",
            value: factor,
            threshold: FACTOR_MIN,
            text: format!(
                "the path itself does {:.0}/s ({}), only {factor:.2} x what was measured: this \
                 may be the generator's limit or the kernel's; use more threads on more cores",
                self.rps, self.file
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::SCHEMA;
    use crate::setup;
    use crate::table::Args;

    fn plan(line: &str) -> Plan {
        let words: Vec<String> = line.split(' ').map(String::from).collect();
        let typed = crate::options::parse(&words, crate::measure::Compat::Own).expect("correct");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("bound"));
        let args = Args::read(&typed).expect("correct");
        setup::plan(&args, &[url]).expect("correct").0
    }

    fn result(rps: f64, sink: bool) -> String {
        let plan = serde_json::json!(
            {"mode": "closed", "sink": sink, "threads": 1, "depth": 1, "close": false});
        serde_json::json!({"schema": SCHEMA, "plan": plan, "rps": rps}).to_string()
    }

    #[test]
    fn a_server_near_the_sink_is_warned_about() {
        let headroom =
            Headroom::parse("f", &result(1299.0, true), &plan("-t1"), false).expect("fits");
        let outcome = Outcome {
            window_length_ns: 1_000_000_000,
            completed_in_window: 1000,
            ..Outcome::default()
        };
        let warning = headroom.judge(&plan("-t1"), &outcome).expect("too near");
        assert_eq!((warning.id, warning.value), ("headroom", 1.299));
        let wide = Headroom::parse("f", &result(1300.0, true), &plan("-t1"), false).expect("fits");
        assert!(wide.judge(&plan("-t1"), &outcome).is_none());
        // a script may send several at once, which is known after the run
        let outcome = Outcome {
            shape: Some(load_engine::plan::Shape {
                depth: 3,
                ..Default::default()
            }),
            ..outcome
        };
        let scripted = Headroom::parse("f", &result(1300.0, true), &plan("-t1"), true);
        let warning = scripted.expect("fits").judge(&plan("-t1"), &outcome);
        let text = warning.expect("another path").text;
        assert!(
            text.starts_with("f was measured with depth 1, this run has 3"),
            "{text}"
        );
    }

    #[test]
    fn a_measure_of_another_path_is_refused() {
        let refused = |text: &str, line: &str| match Headroom::parse("f", text, &plan(line), false)
        {
            Err(Refusal::Usage(mistake)) => mistake.to_string(),
            other => panic!("{other:?}"),
        };
        assert!(refused("{", "-t1").contains("not a result file"));
        assert!(refused(&result(1.0, false), "-t1").contains("not from a run with --sink"));
        assert!(refused(&result(1.0, true), "-t2").contains("threads 1, this run has 2"));
        assert!(refused(&result(1.0, true), "-t1 --depth 2").contains("depth 1"));
    }
}
