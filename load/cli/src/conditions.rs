//! Properties that responses must have (`--expect`), and conditions that end a run early (`--stop-when`).

use crate::options::Typed;
use crate::units::parse_time_ns;
use crate::values::{usage, Refusal};
use load_engine::interval::{Interval, Phase};
use load_engine::plan::Expect;

/// Reads `status=200,length=5,body~TEXT`; the option may be repeated.
pub fn expect(typed: &Typed) -> Result<Expect, Refusal> {
    let mut expect = Expect::default();
    for text in typed.all("expect") {
        // a text may hold commas: it is the last of its list
        let (list, body) = match text.split_once("body~") {
            Some((list, body)) => (list, Some(body)),
            None => (text, None),
        };
        if let Some(body) = body {
            expect.body = Some(body.as_bytes().to_vec());
        }
        for part in list.split(',').filter(|part| !part.is_empty()) {
            let known = match part.split_once('=') {
                Some(("status", figure)) => {
                    expect.status = figure
                        .parse()
                        .ok()
                        .filter(|code| (100..=999).contains(code));
                    expect.status.is_some()
                }
                Some(("length", figure)) => {
                    expect.length = figure.parse().ok();
                    expect.length.is_some()
                }
                _ => false,
            };
            if !known {
                return usage(format!(
                    "--expect: invalid '{part}' (status=200, length=1024 or body~TEXT)"
                ));
            }
        }
    }
    Ok(expect)
}

/// When a run ends before its time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Condition {
    /// More errors than these since the start.
    Errors(u64),
    /// A second whose quantile is above this time.
    Quantile(f64, u64),
}

/// Conditions that end a run, looked at each second of the measured window.
#[derive(Debug, Default)]
pub struct StopWhen {
    conditions: Vec<(String, Condition)>,
    errors: u64,
}

impl StopWhen {
    /// Reads `errors>100,p99>50ms`; the option may be repeated.
    pub fn read(typed: &Typed) -> Result<StopWhen, Refusal> {
        let mut conditions = Vec::new();
        for text in typed.all("stop-when").flat_map(|text| text.split(',')) {
            match condition(text) {
                Some(condition) => conditions.push((text.to_string(), condition)),
                None => {
                    return usage(format!(
                        "--stop-when: invalid '{text}' (such as 'errors>100' or 'p99>50ms')"
                    ))
                }
            }
        }
        Ok(StopWhen {
            conditions,
            errors: 0,
        })
    }

    /// Looks at a second; the condition that it meets.
    pub fn met_by(&mut self, second: &Interval) -> Option<&str> {
        self.errors += second.counts.errors.total();
        let times = &second.times;
        let latency = if times.response.is_empty() {
            &times.service
        } else {
            &times.response
        };
        let is_measured = second.phase == Phase::Measured;
        let met = self
            .conditions
            .iter()
            .find(|(_, condition)| match *condition {
                Condition::Errors(most) => self.errors > most,
                Condition::Quantile(quantile, most_ns) => {
                    is_measured && !latency.is_empty() && latency.at_ns(quantile) > most_ns
                }
            });
        met.map(|(text, _)| text.as_str())
    }
}

fn condition(text: &str) -> Option<Condition> {
    let (name, figure) = text.split_once('>')?;
    if name == "errors" {
        return figure.parse().ok().map(Condition::Errors);
    }
    let percent: f64 = name.strip_prefix('p')?.parse().ok()?;
    let is_percent = (0.0..=100.0).contains(&percent);
    let time_ns = parse_time_ns(figure)?;
    is_percent.then_some(Condition::Quantile(percent / 100.0, time_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(name: &'static str, value: &str) -> Typed {
        Typed {
            options: vec![(name, value.to_string())],
            ..Typed::default()
        }
    }

    #[test]
    fn expectations_are_read_and_compared() {
        let found = expect(&typed("expect", "status=200,length=5,body~a,b")).expect("correct");
        assert_eq!((found.status, found.length), (Some(200), Some(5)));
        assert_eq!(found.fault(200, 5, Some(b"xa,by")), None);
        let fault = |status, length, body| found.fault(status, length, body).expect("a fault");
        assert_eq!(fault(404, 5, None), "status 404 instead of 200");
        assert_eq!(fault(200, 6, None), "6 bytes instead of 5");
        assert_eq!(fault(200, 5, Some(b"hello")), "a body without 'a,b'");
        for wrong in ["status=2", "length=x", "size=3"] {
            assert!(expect(&typed("expect", wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn conditions_are_read_and_met() {
        let mut stop = StopWhen::read(&typed("stop-when", "errors>2,p99>50ms")).expect("correct");
        let mut second = Interval {
            phase: Phase::Measured,
            ..Interval::default()
        };
        second.times.service.record(60_000_000);
        assert_eq!(stop.met_by(&second), Some("p99>50ms"));
        second.times.service.clear();
        second.counts.errors.read = 2;
        assert_eq!(stop.met_by(&second), None);
        assert_eq!(stop.met_by(&second), Some("errors>2"));
        for wrong in ["errors", "errors>x", "p101>1s", "q>1s", "p99>"] {
            assert!(
                StopWhen::read(&typed("stop-when", wrong)).is_err(),
                "{wrong}"
            );
        }
    }
}
