//! Properties that responses must have (`--expect`), and conditions that end a run early (`--stop-when`).

use crate::refusal::{wrong, Refusal, Wrong};
use crate::units::parse_time_ns;
use crate::values::Setting;
use load_engine::interval::Interval;
use load_engine::plan::{Expect, Phase};

/// `status=200,length=5,body~TEXT`; the option may be repeated.
impl Setting for Expect {
    fn set(&mut self, name: &'static str, text: &str) -> Result<(), Refusal> {
        // a text may hold commas: it is the last of its list
        let (list, body) = match text.split_once("body~") {
            Some((list, body)) => (list, Some(body)),
            None => (text, None),
        };
        if let Some(body) = body {
            self.body = Some(body.as_bytes().to_vec());
        }
        for part in list.split(',').filter(|part| !part.is_empty()) {
            let known = match part.split_once('=') {
                Some(("status", figure)) => {
                    self.status = figure
                        .parse()
                        .ok()
                        .filter(|code| (100..=999).contains(code));
                    self.status.is_some()
                }
                Some(("length", figure)) => {
                    self.length = figure.parse().ok();
                    self.length.is_some()
                }
                _ => false,
            };
            if !known {
                return wrong(
                    name,
                    Wrong::Invalid("", part.to_string(), "status=200, length=1024 or body~TEXT"),
                );
            }
        }
        Ok(())
    }
}

/// When a run ends before its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Condition {
    /// More errors than these since the start.
    Errors(u64),
    /// A second whose quantile is above this time.
    Quantile(f64, u64),
}

/// Conditions with their texts.
#[derive(Clone, Debug, Default)]
pub struct Conditions(Vec<(String, Condition)>);

/// `errors>100,p99>50ms`; the option may be repeated.
impl Setting for Conditions {
    fn set(&mut self, name: &'static str, text: &str) -> Result<(), Refusal> {
        for text in text.split(',') {
            match condition(text) {
                Some(condition) => self.0.push((text.to_string(), condition)),
                None => {
                    return wrong(
                        name,
                        Wrong::Invalid("", text.to_string(), "such as 'errors>100' or 'p99>50ms'"),
                    )
                }
            }
        }
        Ok(())
    }
}

/// Conditions that end a run, looked at each second of the measured window.
#[derive(Debug, Default)]
pub struct StopWhen {
    conditions: Conditions,
    errors: u64,
}

impl StopWhen {
    /// Nothing has happened yet.
    pub fn new(conditions: Conditions) -> StopWhen {
        StopWhen {
            conditions,
            errors: 0,
        }
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
            .0
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

    fn read<T: Setting + Default>(text: &str) -> Result<T, Refusal> {
        let mut value = T::default();
        value.set("option", text).map(|()| value)
    }

    #[test]
    fn expectations_are_read_and_compared() {
        let found: Expect = read("status=200,length=5,body~a,b").expect("correct");
        assert_eq!((found.status, found.length), (Some(200), Some(5)));
        assert_eq!(found.fault(200, 5, Some(b"xa,by")), None);
        let fault = |status, length, body| found.fault(status, length, body).expect("a fault");
        assert_eq!(fault(404, 5, None), "status 404 instead of 200");
        assert_eq!(fault(200, 6, None), "6 bytes instead of 5");
        assert_eq!(fault(200, 5, Some(b"hello")), "a body without 'a,b'");
        for wrong in ["status=2", "length=x", "size=3"] {
            assert!(read::<Expect>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn conditions_are_read_and_met() {
        let mut stop = StopWhen::new(read("errors>2,p99>50ms").expect("correct"));
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
            assert!(read::<Conditions>(wrong).is_err(), "{wrong}");
        }
    }
}
