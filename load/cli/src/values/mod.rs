//! The values of options: numbers, times, ramps, lists; each refusal names option and value.

mod places;
mod request;

pub use places::{ConnectTo, Resolve};
pub use request::{Bytes, HeaderField, Method};

use crate::curve;
use crate::refusal::{because, wrong, Refusal, Wrong};
use crate::units::{parse_metric, parse_time_ns};
use load_engine::plan::{Dispatch, Late, Think, Wait};
use load_engine::schedule::Stretch;
use load_engine::sys::affinity;
use load_engine::sys::epoll::Trigger;
use load_engine::sys::options::Ports;
use std::net::IpAddr;

/// Most connections, threads and the like; more need more than one process.
const COUNT_MAX: f64 = 1_000_000.0;
/// Most steps of a ramp.
const STEPS_MAX: f64 = 1_000.0;

/// The value of an option.
pub trait Value: Sized {
    /// Reads the text of option `name`.
    fn read(name: &'static str, text: &str) -> Result<Self, Refusal>;
}

/// The effect of an option on its field.
pub trait Setting {
    /// The option `name` was given, with this text.
    fn set(&mut self, name: &'static str, text: &str) -> Result<(), Refusal>;
}

/// A switch.
impl Setting for bool {
    fn set(&mut self, _name: &'static str, _text: &str) -> Result<(), Refusal> {
        *self = true;
        Ok(())
    }
}

/// The last one counts.
impl<T: Value> Setting for Option<T> {
    fn set(&mut self, name: &'static str, text: &str) -> Result<(), Refusal> {
        *self = Some(T::read(name, text)?);
        Ok(())
    }
}

/// All count.
impl<T: Value> Setting for Vec<T> {
    fn set(&mut self, name: &'static str, text: &str) -> Result<(), Refusal> {
        self.push(T::read(name, text)?);
        Ok(())
    }
}

/// The last one counts; without any the default does.
impl<T: Value> Setting for T {
    fn set(&mut self, name: &'static str, text: &str) -> Result<(), Refusal> {
        *self = T::read(name, text)?;
        Ok(())
    }
}

impl Value for String {
    fn read(_name: &'static str, text: &str) -> Result<String, Refusal> {
        Ok(text.to_string())
    }
}

/// A number with a unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number(pub f64);

impl Value for Number {
    fn read(name: &'static str, text: &str) -> Result<Number, Refusal> {
        match parse_metric(text) {
            Some(number) => Ok(Number(number)),
            None => wrong(
                name,
                Wrong::Invalid("number", text.to_string(), "for example 100 or 1.5k"),
            ),
        }
    }
}

/// A whole number of at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub usize);

impl Value for Count {
    fn read(name: &'static str, text: &str) -> Result<Count, Refusal> {
        whole(name, Number::read(name, text)?.0).map(Count)
    }
}

/// Checks that a figure is a whole number of at least 1.
pub fn whole(name: &'static str, figure: f64) -> Result<usize, Refusal> {
    if !(1.0..=COUNT_MAX).contains(&figure) || figure.fract() != 0.0 {
        return wrong(
            name,
            Wrong::OutOfRange("a whole number from 1 to 1000000".into()),
        );
    }
    Ok(figure as usize)
}

/// A whole number up to a largest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpTo<const MOST: u32>(pub u32);

impl<const MOST: u32> Value for UpTo<MOST> {
    fn read(name: &'static str, text: &str) -> Result<UpTo<MOST>, Refusal> {
        let figure = Number::read(name, text)?.0;
        if figure.fract() != 0.0 || figure > f64::from(MOST) {
            return because(name, format!("must be a whole number from 0 to {MOST}"));
        }
        Ok(UpTo(figure as u32))
    }
}

/// Requests of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requests(pub u64);

impl Value for Requests {
    fn read(name: &'static str, text: &str) -> Result<Requests, Refusal> {
        let figure = Number::read(name, text)?.0;
        if figure < 1.0 || figure.fract() != 0.0 {
            return because(name, "must be a whole number of at least 1");
        }
        Ok(Requests(figure as u64))
    }
}

/// A length of time in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub u64);

impl Value for Time {
    fn read(name: &'static str, text: &str) -> Result<Time, Refusal> {
        match parse_time_ns(text) {
            Some(ns) => Ok(Time(ns)),
            None => wrong(
                name,
                Wrong::Invalid("time", text.to_string(), "for example 30s, 500ms or 2m"),
            ),
        }
    }
}

/// `TIME` or `A..B`.
impl Value for Think {
    fn read(name: &'static str, text: &str) -> Result<Think, Refusal> {
        let (least, most) = text.split_once("..").unwrap_or((text, text));
        match (parse_time_ns(least), parse_time_ns(most)) {
            (Some(least_ns), Some(most_ns)) if least_ns <= most_ns => {
                Ok(Think { least_ns, most_ns })
            }
            _ => wrong(
                name,
                Wrong::Invalid("time", text.to_string(), "for example 100ms or 50ms..2s"),
            ),
        }
    }
}

/// A moment in ns since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnixTime(pub u64);

impl Value for UnixTime {
    fn read(name: &'static str, text: &str) -> Result<UnixTime, Refusal> {
        match text.parse::<f64>() {
            Ok(seconds) if seconds > 0.0 && seconds < 1e10 => Ok(UnixTime((seconds * 1e9) as u64)),
            _ => wrong(
                name,
                Wrong::Invalid("time", text.to_string(), "seconds since 1970"),
            ),
        }
    }
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
impl Value for Ramp {
    fn read(name: &'static str, text: &str) -> Result<Ramp, Refusal> {
        let refused = || {
            Refusal::option(
                name,
                Wrong::Invalid("number", text.to_string(), "N, A..B or A..B:STEP"),
            )
        };
        let number = |text: &str| parse_metric(text).ok_or_else(refused);
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
            return Err(refused());
        }
        if by.is_some_and(|by| (ramp.to - ramp.from).abs() / by > STEPS_MAX) {
            return because(
                name,
                format!("'{text}' has more than {STEPS_MAX} steps (use a larger STEP)"),
            );
        }
        Ok(ramp)
    }
}

/// The rate of an open loop.
#[derive(Clone, Debug, PartialEq)]
pub enum Rate {
    /// A figure or a ramp.
    Ramp(Ramp),
    /// The points of a file.
    Curve(Vec<Stretch>),
}

impl Value for Rate {
    fn read(name: &'static str, text: &str) -> Result<Rate, Refusal> {
        match text.strip_prefix('@') {
            Some(path) => curve::read(path).map(Rate::Curve),
            None => Ramp::read(name, text).map(Rate::Ramp),
        }
    }
}

/// Words separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List(pub Vec<String>);

impl Value for List {
    fn read(_name: &'static str, text: &str) -> Result<List, Refusal> {
        let words = text.split(',').map(str::trim);
        let words = words.filter(|word| !word.is_empty());
        Ok(List(words.map(String::from).collect()))
    }
}

/// `A-B`.
impl Value for Ports {
    fn read(name: &'static str, text: &str) -> Result<Ports, Refusal> {
        let ends = text.split_once('-');
        let read = ends.and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
        match read {
            Some((first, last)) if 0 < first && first <= last => Ok(Ports { first, last }),
            _ => wrong(
                name,
                Wrong::Invalid("range", text.to_string(), "for example 40000-49999"),
            ),
        }
    }
}

/// Addresses separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources(pub Vec<IpAddr>);

impl Value for Sources {
    fn read(name: &'static str, text: &str) -> Result<Sources, Refusal> {
        let each = text.split(',').map(|part| {
            let address = part.trim().parse();
            address
                .map_err(|_| Refusal::option(name, Wrong::Invalid("address", part.to_string(), "")))
        });
        each.collect::<Result<_, _>>().map(Sources)
    }
}

/// Cores such as `2-5,8`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores(pub Vec<usize>);

impl Value for Cores {
    fn read(name: &'static str, text: &str) -> Result<Cores, Refusal> {
        let refused = || {
            Refusal::option(
                name,
                Wrong::Invalid("list of cores", text.to_string(), "for example 2-5,8"),
            )
        };
        let allowed = affinity::allowed();
        let mut cores = Vec::new();
        for part in text.split(',') {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let from: usize = from.trim().parse().map_err(|_| refused())?;
            let to: usize = to.trim().parse().map_err(|_| refused())?;
            if from > to || to - from > 4096 {
                return Err(refused());
            }
            cores.extend(from..=to);
        }
        if let Some(core) = cores.iter().find(|core| !allowed.contains(core)) {
            return because(
                name,
                format!("core {core} is not available to this process {allowed:?}"),
            );
        }
        Ok(Cores(cores))
    }
}

/// One of a few words.
pub fn word<T: Copy>(
    name: &'static str,
    text: &str,
    words: &[(&'static str, T)],
) -> Result<T, Refusal> {
    match words.iter().find(|(word, _)| *word == text) {
        Some((_, value)) => Ok(*value),
        None => {
            let known = words.iter().map(|(word, _)| *word).collect();
            wrong(name, Wrong::Unknown(text.to_string(), known))
        }
    }
}

/// Names the words of a type's values.
macro_rules! words {
    ($($type:ident { $($word:literal => $value:ident),* })*) => {$(
        impl $crate::values::Value for $type {
            fn read(name: &'static str, text: &str) -> Result<$type, $crate::refusal::Refusal> {
                $crate::values::word(name, text, &[$(($word, $type::$value)),*])
            }
        }
    )*};
}

/// How the requests of an open loop are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Evenly.
    Even,
    /// As a Poisson process.
    Poisson,
}

/// Which addresses of a name connections go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// The first that takes them.
    First,
    /// All in turn.
    All,
}

/// The version of the PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVersion {
    /// Text.
    V1 = 1,
    /// Bytes.
    V2 = 2,
}

/// Whether there are pauses before waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coalesce {
    /// Where they pay.
    Auto,
    /// No.
    Never,
}

/// Treatment of bodies that nothing looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bodies {
    /// They are read.
    Read,
    /// The kernel drops them.
    Drop,
}

words! {
    Arrival { "even" => Even, "poisson" => Poisson }
    Addresses { "first" => First, "all" => All }
    ProxyVersion { "v1" => V1, "v2" => V2 }
    Coalesce { "auto" => Auto, "never" => Never }
    Bodies { "read" => Read, "drop" => Drop }
    Dispatch { "pinned" => Pinned, "any" => Any, "random" => Random }
    Late { "queue" => Queue, "drop" => Drop }
    Wait { "hybrid" => Hybrid, "sleep" => Sleep, "spin" => Spin }
    Trigger { "edge" => Edge, "level" => Level }
}
pub(crate) use words;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ramps_have_their_steps() {
        let steps = |text: &str| Ramp::read("rate", text).map(|ramp| ramp.steps());
        assert_eq!(steps("5k"), Ok(vec![5000.0]));
        assert_eq!(steps("1..4:1"), Ok(vec![1.0, 2.0, 3.0, 4.0]));
        assert_eq!(
            steps("700..2000:500"),
            Ok(vec![700.0, 1200.0, 1700.0, 2000.0])
        );
        assert_eq!(steps("3..1:1"), Ok(vec![3.0, 2.0, 1.0]));
        assert_eq!(
            Ramp::read("rate", "1..4"),
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
        fn read<T: Value>(name: &'static str, text: &str) -> (String, String, Result<(), Refusal>) {
            (name.into(), text.into(), T::read(name, text).map(drop))
        }
        let table = [
            read::<Count>("threads", "two"),
            read::<Time>("duration", "soon"),
            read::<Cores>("pin", "x"),
            read::<Sources>("source", "home"),
            read::<Late>("late", "never"),
            read::<UnixTime>("start-at", "tomorrow"),
            read::<Think>("think", "2s..1s"),
        ];
        for (name, value, result) in table {
            let Err(Refusal::Usage(mistake)) = result else {
                panic!("--{name} {value} was taken")
            };
            let text = mistake.to_string();
            assert!(
                text.starts_with(&format!("--{name}: ")) && text.contains(&value),
                "{text}"
            );
        }
        for (text, is_taken) in [("0", false), ("1.5", false), ("1", true), ("1M", true)] {
            assert_eq!(Count::read("threads", text).is_ok(), is_taken, "{text}");
        }
    }
}
