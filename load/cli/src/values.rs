//! The values of options: numbers, times, ramps, lists; each refusal names option and value.

use crate::options::Typed;
use crate::units::{parse_metric, parse_time_ns};
use load_engine::sys::affinity;
use std::net::IpAddr;

/// Most connections, threads and the like; more need more than one process.
pub const COUNT_MAX: f64 = 1_000_000.0;
/// Most steps of a ramp.
pub const STEPS_MAX: f64 = 1_000.0;

/// Why a run cannot be made.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Something typed is wrong.
    Usage(String),
    /// The input is valid, but a file or a server is missing.
    Absent(String),
}

/// Shorthand for a refusal.
pub fn usage<T>(text: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Usage(text.into()))
}

/// From one figure to another: linearly, or in steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ramp {
    /// First.
    pub from: f64,
    /// Last.
    pub to: f64,
    /// Difference between steps, if there are steps.
    pub by: Option<f64>,
}

impl Ramp {
    /// The figures of the steps; one if there are none.
    pub fn steps(&self) -> Vec<f64> {
        let Some(by) = self.by else {
            return vec![self.from];
        };
        let count = ((self.to - self.from).abs() / by + 1e-9).floor() as usize;
        let sign = (self.to - self.from).signum();
        let mut steps: Vec<f64> = (0..=count)
            .map(|n| self.from + sign * by * n as f64)
            .collect();
        if steps
            .last()
            .is_some_and(|last| (last - self.to).abs() > 1e-9)
        {
            steps.push(self.to);
        }
        steps
    }
}

/// `N`, `A..B` or `A..B:S`.
pub fn ramp(typed: &Typed, name: &str, default: f64) -> Result<Ramp, Refusal> {
    let Some(text) = typed.last(name) else {
        return Ok(Ramp {
            from: default,
            to: default,
            by: None,
        });
    };
    let wrong = || {
        Refusal::Usage(format!(
            "--{name}: invalid number '{text}' (N, A..B or A..B:STEP)"
        ))
    };
    let number = |text: &str| parse_metric(text).ok_or_else(wrong);
    let Some((from, rest)) = text.split_once("..") else {
        let figure = number(text)?;
        return Ok(Ramp {
            from: figure,
            to: figure,
            by: None,
        });
    };
    let (to, by) = match rest.split_once(':') {
        Some((to, by)) => (number(to)?, Some(number(by)?)),
        None => (number(rest)?, None),
    };
    let ramp = Ramp {
        from: number(from)?,
        to,
        by,
    };
    if by.is_some_and(|by| by <= 0.0) {
        return Err(wrong());
    }
    if by.is_some_and(|by| (ramp.to - ramp.from).abs() / by > STEPS_MAX) {
        return usage(format!(
            "--{name}: '{text}' has more than {STEPS_MAX} steps (use a larger STEP)"
        ));
    }
    Ok(ramp)
}

/// A number with a unit.
pub fn number(typed: &Typed, name: &str, default: f64) -> Result<f64, Refusal> {
    let Some(text) = typed.last(name) else {
        return Ok(default);
    };
    match parse_metric(text) {
        Some(number) => Ok(number),
        None => usage(format!(
            "--{name}: invalid number '{text}' (for example 100 or 1.5k)"
        )),
    }
}

/// A whole number of at least 1.
pub fn count(typed: &Typed, name: &str, default: f64) -> Result<usize, Refusal> {
    whole(name, number(typed, name, default)?)
}

/// Checks that a figure is a whole number of at least 1.
pub fn whole(name: &str, figure: f64) -> Result<usize, Refusal> {
    if !(1.0..=COUNT_MAX).contains(&figure) || figure.fract() != 0.0 {
        return usage(format!(
            "--{name}: out of range (a whole number from 1 to 1000000)"
        ));
    }
    Ok(figure as usize)
}

/// A length of time.
pub fn time(typed: &Typed, name: &str, default_ns: u64) -> Result<u64, Refusal> {
    let Some(text) = typed.last(name) else {
        return Ok(default_ns);
    };
    match parse_time_ns(text) {
        Some(ns) => Ok(ns),
        None => usage(format!(
            "--{name}: invalid time '{text}' (for example 30s, 500ms or 2m)"
        )),
    }
}

/// One of a few words; the first is the default.
pub fn choice<T: Copy>(typed: &Typed, name: &str, words: &[(&str, T)]) -> Result<T, Refusal> {
    let Some(text) = typed.last(name) else {
        return Ok(words[0].1);
    };
    match words.iter().find(|(word, _)| *word == text) {
        Some((_, value)) => Ok(*value),
        None => {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            usage(format!(
                "--{name}: unknown value '{text}' ({})",
                known.join(", ")
            ))
        }
    }
}

/// `--start-at` in ns since 1970.
pub fn start_at(typed: &Typed) -> Result<Option<u64>, Refusal> {
    let Some(text) = typed.last("start-at") else {
        return Ok(None);
    };
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds < 1e10 => Ok(Some((seconds * 1e9) as u64)),
        _ => usage(format!(
            "--start-at: invalid time '{text}' (seconds since 1970)"
        )),
    }
}

/// Addresses separated by commas.
pub fn sources(typed: &Typed) -> Result<Vec<IpAddr>, Refusal> {
    let Some(text) = typed.last("source") else {
        return Ok(Vec::new());
    };
    let each = text.split(',').map(|part| {
        let address = part.trim().parse();
        address.map_err(|_| Refusal::Usage(format!("--source: invalid address '{part}'")))
    });
    each.collect()
}

/// Cores such as `2-5,8`.
pub fn pins(typed: &Typed) -> Result<Vec<usize>, Refusal> {
    let Some(text) = typed.last("pin") else {
        return Ok(Vec::new());
    };
    let wrong = || {
        Refusal::Usage(format!(
            "--pin: invalid list of cores '{text}' (for example 2-5,8)"
        ))
    };
    let allowed = affinity::allowed();
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let from: usize = from.trim().parse().map_err(|_| wrong())?;
        let to: usize = to.trim().parse().map_err(|_| wrong())?;
        if from > to || to - from > 4096 {
            return Err(wrong());
        }
        cores.extend(from..=to);
    }
    if let Some(core) = cores.iter().find(|core| !allowed.contains(core)) {
        return usage(format!(
            "--pin: core {core} is not available to this process {allowed:?}"
        ));
    }
    Ok(cores)
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
    fn ramps_have_their_steps() {
        let steps = |text: &str| ramp(&typed("rate", text), "rate", 0.0).map(|ramp| ramp.steps());
        assert_eq!(steps("5k"), Ok(vec![5000.0]));
        assert_eq!(steps("1..4:1"), Ok(vec![1.0, 2.0, 3.0, 4.0]));
        assert_eq!(
            steps("700..2000:500"),
            Ok(vec![700.0, 1200.0, 1700.0, 2000.0])
        );
        assert_eq!(steps("3..1:1"), Ok(vec![3.0, 2.0, 1.0]));
        let linear = ramp(&typed("rate", "1..4"), "rate", 0.0);
        assert_eq!(
            linear,
            Ok(Ramp {
                from: 1.0,
                to: 4.0,
                by: None
            })
        );
        assert!(steps("1..x").is_err() && steps("1..4:0").is_err());
    }

    #[test]
    fn every_mistake_names_option_and_value() {
        let table: [(&str, &str, Result<(), Refusal>); 6] = [
            (
                "threads",
                "two",
                count(&typed("threads", "two"), "threads", 1.0).map(drop),
            ),
            (
                "threads",
                "",
                count(&typed("threads", "0"), "threads", 1.0).map(drop),
            ),
            (
                "duration",
                "soon",
                time(&typed("duration", "soon"), "duration", 1).map(drop),
            ),
            ("pin", "x", pins(&typed("pin", "x")).map(drop)),
            (
                "source",
                "home",
                sources(&typed("source", "home")).map(drop),
            ),
            (
                "late",
                "never",
                choice(&typed("late", "never"), "late", &[("queue", ())]),
            ),
        ];
        for (name, value, result) in table {
            let Err(Refusal::Usage(text)) = result else {
                panic!("--{name} {value} was taken")
            };
            assert!(
                text.starts_with(&format!("--{name}: ")) && text.contains(value),
                "{text}"
            );
        }
    }
}
