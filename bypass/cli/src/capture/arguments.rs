//! Arguments of `bypass capture` and `onload_tcpdump`.

use std::ffi::OsString;
use std::time::Duration;

use bypass_stats::capture::{Filter, FRAME_MAX};

use crate::failure::Failure;

/// Longer than anybody waits, and far from what a clock can count.
const SECONDS_MAX: f64 = 1e9;

#[derive(Debug, PartialEq)]
pub(super) struct Arguments {
    pub(super) pids: Vec<u32>,
    pub(super) write: Option<String>,
    pub(super) filter: Filter,
    pub(super) count: Option<u64>,
    pub(super) duration: Option<Duration>,
    pub(super) snap: usize,
    pub(super) help: bool,
}

impl Default for Arguments {
    fn default() -> Self {
        Self {
            pids: Vec::new(),
            write: None,
            filter: Filter::default(),
            count: None,
            duration: None,
            snap: FRAME_MAX,
            help: false,
        }
    }
}

impl Arguments {
    pub(super) fn parse(words: &[OsString]) -> Result<Self, Failure> {
        let mut arguments = Self::default();
        let mut words = words.iter().map(|word| word.to_string_lossy());
        while let Some(word) = words.next() {
            let (name, mut given) = match word.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
                _ => (word.as_ref(), None),
            };
            let mut value = || {
                let next = given.take().or_else(|| words.next().map(Into::into));
                next.ok_or_else(|| Failure::usage(format!("{name} needs a value")))
            };
            match name {
                "-h" | "--help" => arguments.help = true,
                "-p" | "--pid" => {
                    for one in value()?.split(',') {
                        arguments.pids.push(number(name, one, 1)?);
                    }
                }
                "-w" | "--write" => arguments.write = Some(value()?),
                "--port" => arguments.filter.port = Some(number(name, &value()?, 1)?),
                "--host" => arguments.filter.host = Some(host(&value()?)?),
                "-c" | "--count" => arguments.count = Some(number(name, &value()?, 1)?),
                "-d" | "--duration" => arguments.duration = Some(duration(name, &value()?)?),
                "-s" | "--snap-length" => arguments.snap = number(name, &value()?, 1)?,
                option if option.starts_with('-') => {
                    let text = format!("capture: unknown option {option} (see --help)");
                    return Err(Failure::usage(text));
                }
                pid => arguments.pids.push(number("PID", pid, 1)?),
            }
        }
        arguments.pids.dedup();
        Ok(arguments)
    }

    /// tcpdump's words: -w, -c and -s, "port N" and "host A"; interfaces are not chosen, every process is
    /// captured, and addresses are never looked up.
    pub(super) fn parse_as_tcpdump(words: &[OsString]) -> Result<Self, Failure> {
        let mut arguments = Self::default();
        let mut words = words.iter().map(|word| word.to_string_lossy().into_owned());
        while let Some(word) = words.next() {
            let mut value = || {
                let text = || Failure::usage(format!("{word} needs a value"));
                words.next().ok_or_else(text)
            };
            match word.as_str() {
                "-w" => arguments.write = Some(value()?),
                "-c" => arguments.count = Some(number("-c", &value()?, 1)?),
                "-s" => match number("-s", &value()?, 0)? {
                    0 => {}
                    bytes => arguments.snap = bytes,
                },
                "-i" => drop(value()?),
                "port" => arguments.filter.port = Some(number("port", &value()?, 1)?),
                "host" => arguments.filter.host = Some(host(&value()?)?),
                "-n" | "-nn" | "-U" | "and" | "tcp" => {}
                other => {
                    return Err(Failure::usage(format!(
                        "{other:?}: onload_tcpdump knows -w, -c, -s, port N and host A; for more \
                         let tcpdump read what it writes: onload_tcpdump | tcpdump -n -r - {other}"
                    )))
                }
            }
        }
        Ok(arguments)
    }
}

fn number<T>(name: &str, text: &str, least: T) -> Result<T, Failure>
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    match text.parse() {
        Ok(number) if number >= least => Ok(number),
        _ => Err(Failure::usage(format!(
            "{name} {text}: invalid number (at least {least})"
        ))),
    }
}

fn host(text: &str) -> Result<std::net::IpAddr, Failure> {
    text.parse()
        .map_err(|_| Failure::usage(format!("invalid host {text:?} (an IPv4 or IPv6 address)")))
}

fn duration(name: &str, text: &str) -> Result<Duration, Failure> {
    let seconds = text.trim_end_matches('s').parse::<f64>();
    match seconds {
        Ok(seconds) if seconds > 0.0 && seconds < SECONDS_MAX => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err(Failure::usage(format!("{name} {text}: seconds are wanted"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn parse(line: &str) -> Result<Arguments, Failure> {
        Arguments::parse(&words(line))
    }

    #[test]
    fn options_are_taken_in_both_forms() {
        let long = parse("--pid=7,8 --write=x --port=80 --host=::1 --count=5 --duration=0.5");
        let short = parse("-p 7 8 -w x --port 80 --host ::1 -c 5 -d 0.5s");
        let long = long.expect("valid");
        assert_eq!(long, short.expect("valid"));
        assert_eq!((long.pids, long.filter.port), (vec![7, 8], Some(80)));
    }

    #[test]
    fn wrong_words_are_bad_input() {
        for line in [
            "--no-such",
            "x",
            "0",
            "-c 0",
            "--port",
            "--port 70000",
            "--host name",
            "-d 0",
            "-d -1",
            "-d inf",
            "-s 0",
            "-p",
        ] {
            let failure = parse(line).expect_err(line);
            assert_eq!(failure.code(), std::process::ExitCode::from(2), "{line}");
        }
    }

    #[test]
    fn the_words_of_tcpdump_mean_what_they_mean_there() {
        let line = "-n -i any -s 0 -w x.pcap -c 3 tcp and port 80 and host 10.0.0.1";
        let arguments = Arguments::parse_as_tcpdump(&words(line)).expect("valid");
        assert_eq!(arguments.write.as_deref(), Some("x.pcap"));
        assert_eq!((arguments.count, arguments.snap), (Some(3), FRAME_MAX));
        assert_eq!(arguments.filter.port, Some(80));
        assert!(arguments.filter.host.is_some());
        assert!(Arguments::parse_as_tcpdump(&words("udp")).is_err());
    }
}
