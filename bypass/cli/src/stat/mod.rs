//! `bypass stat`: what accelerated processes are doing, as text, as JSON, or live.

mod dump;
mod json;
mod kernel;
mod prometheus;
mod snapshot;
mod text;
mod watch;
mod why;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::failure::{print, Failure};
use snapshot::Snapshot;
pub(crate) use snapshot::{is_own, of_parent, own_page};
pub(crate) use text::grouped;
pub(crate) use why::meaning;

const HELP: &str = "\
usage: bypass stat [OPTIONS] [PID …]

Shows every process that has loaded the library and made a TCP socket: its connections over
shared memory and over the kernel, bytes, spins and sleeps, and why connections were left to the
kernel. Own processes only; root sees all.

  -p, --pid PID          only these processes; may be repeated
  -c, --connections      each connection with its path, bytes, bytes sent to it and not yet read,
                         and state
      --why              the latest 256 sockets that each process left to the kernel: when, in which
                         call, to which address, and what the reason means
      --json             everything, for programs (schema bypass-stat/1)
      --prometheus       every counter and gauge in Prometheus' text format
      --watch [SECONDS]  a live view with rates (default 1); Ctrl-C or q and Enter end it;
                         bypass top [PID …] is the same, each second
      --ended DIR        processes that were started by bypass run --keep-stats DIR and have ended
                         within the last hour
  -h, --help

Exit codes: 0 shown, 1 a process given by PID is not accelerated or not ours, 2 bad input.
";

const SECONDS_MIN: f64 = 0.1;
const SECONDS_MAX: f64 = 3600.0;

#[derive(Debug, Default, PartialEq)]
struct Arguments {
    pids: Vec<u32>,
    connections: bool,
    why: bool,
    json: bool,
    prometheus: bool,
    watch: Option<Duration>,
    ended: Option<PathBuf>,
    help: bool,
}

/// Shows processes once, or again and again.
pub(crate) fn command(words: &[OsString]) -> Result<ExitCode, Failure> {
    let arguments = Arguments::parse(words)?;
    if arguments.help {
        return print(HELP);
    }
    if let Some(interval) = arguments.watch {
        return watch::run(&arguments.pids, interval);
    }
    let snapshot = match &arguments.ended {
        Some(folder) => Snapshot::ended(folder, &arguments.pids)?,
        None => Snapshot::take(&arguments.pids)?,
    };
    let page = match &arguments {
        Arguments { json: true, .. } => json::page(&snapshot),
        Arguments {
            prometheus: true, ..
        } => prometheus::page(&snapshot),
        Arguments { why: true, .. } => why::page(&snapshot),
        _ => text::page(&snapshot, arguments.connections),
    };
    print(&page)
}

/// `onload_stackdump`: each process.
pub(crate) fn stacks() -> Result<ExitCode, Failure> {
    print(&dump::stacks(&Snapshot::take(&[])?))
}

/// `onload_stackdump lots`: every counter, zeros too when `zeros`, and every connection.
pub(crate) fn lots(zeros: bool) -> Result<ExitCode, Failure> {
    print(&dump::lots(&Snapshot::take(&[])?, zeros))
}

/// `onload_stackdump netstat`: every connection, a line each.
pub(crate) fn netstat() -> Result<ExitCode, Failure> {
    print(&dump::netstat(&Snapshot::take(&[])?))
}

impl Arguments {
    fn parse(words: &[OsString]) -> Result<Self, Failure> {
        let mut arguments = Self::default();
        let mut words = words.iter().map(|word| word.to_string_lossy()).peekable();
        while let Some(word) = words.next() {
            match word.as_ref() {
                "-h" | "--help" => arguments.help = true,
                "-c" | "--connections" => arguments.connections = true,
                "--why" => arguments.why = true,
                "--json" => arguments.json = true,
                "--prometheus" => arguments.prometheus = true,
                "--watch" | "--top" => {
                    let given = words.next_if(|next| next.parse::<f64>().is_ok());
                    arguments.watch = Some(interval(given.as_deref().unwrap_or("1"))?);
                }
                "--ended" => {
                    let given = words.next().filter(|name| !name.is_empty());
                    arguments.ended = Some(folder(given.as_deref())?);
                }
                "-p" | "--pid" => {
                    let given = words.next().unwrap_or_default();
                    arguments.pids.push(pid(&given)?);
                }
                other => match other.strip_prefix("--") {
                    Some(option) => arguments.long(option)?,
                    None => arguments.pids.push(pid(other)?),
                },
            }
        }
        arguments.check()?;
        Ok(arguments)
    }

    /// One page is shown: of options that ask for two, one would be ignored. JSON has everything.
    fn check(&self) -> Result<(), Failure> {
        let pages = [
            ("--watch", self.watch.is_some()),
            ("--json", self.json),
            ("--prometheus", self.prometheus),
            ("--why", self.why && !self.json),
            ("--connections", self.connections && !self.json),
        ];
        let mut given = pages.iter().filter(|(_, is_given)| *is_given);
        if let (Some((one, _)), Some((other, _))) = (given.next(), given.next()) {
            let text = format!("stat: {one} and {other} exclude each other");
            return Err(Failure::usage(text));
        }
        if self.watch.is_some() && self.ended.is_some() {
            let text = "stat: --watch shows no processes that have ended (leave out --ended)";
            return Err(Failure::usage(text));
        }
        Ok(())
    }

    fn long(&mut self, option: &str) -> Result<(), Failure> {
        match option.split_once('=') {
            Some(("pid", list)) => {
                for given in list.split(',') {
                    self.pids.push(pid(given)?);
                }
            }
            Some(("ended", name)) => self.ended = Some(folder(Some(name))?),
            Some(("watch", seconds)) => self.watch = Some(interval(seconds)?),
            _ => {
                let text = format!("stat: unknown option --{option} (see bypass stat --help)");
                return Err(Failure::usage(text));
            }
        }
        Ok(())
    }
}

fn folder(name: Option<&str>) -> Result<PathBuf, Failure> {
    let missing = || Failure::usage("stat: --ended needs a folder");
    name.filter(|name| !name.is_empty())
        .map(PathBuf::from)
        .ok_or_else(missing)
}

fn pid(text: &str) -> Result<u32, Failure> {
    text.parse()
        .map_err(|_| Failure::usage(format!("stat: invalid process id {text:?}")))
}

fn interval(text: &str) -> Result<Duration, Failure> {
    match text.parse::<f64>() {
        Ok(seconds) if (SECONDS_MIN..=SECONDS_MAX).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err(Failure::usage(format!(
            "--watch {text}: {SECONDS_MIN} to {SECONDS_MAX} seconds"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, Failure> {
        let words: Vec<_> = line.split_whitespace().map(OsString::from).collect();
        Arguments::parse(&words)
    }

    #[test]
    fn process_ids_are_given_in_any_form() {
        for line in ["1 2", "--pid 1 --pid 2", "-p 1 2", "--pid=1,2"] {
            assert_eq!(parse(line).expect(line).pids, [1, 2], "{line}");
        }
    }

    #[test]
    fn watch_takes_seconds_or_none() {
        let second = Some(Duration::from_secs(1));
        assert_eq!(parse("--watch").expect("valid").watch, second);
        assert_eq!(
            parse("--watch 0.5").expect("valid").watch,
            Some(Duration::from_millis(500))
        );
        assert_eq!(parse("--watch -p 1").expect("valid").watch, second);
    }

    #[test]
    fn why_may_stand_before_or_behind_the_process() {
        for line in ["--why 1", "1 --why", "--json --why -c 1"] {
            let arguments = parse(line).expect(line);
            assert!(arguments.why && arguments.pids == [1], "{line}");
        }
    }

    #[test]
    fn wrong_words_are_bad_input() {
        for line in [
            "--no-such",
            "x",
            "--watch=0",
            "--pid",
            "--pid=1,x",
            "--ended",
            "--ended=",
            "--json --prometheus",
            "--watch --json",
            "-c --why",
            "--watch 1 --ended /tmp",
        ] {
            assert_eq!(
                parse(line).expect_err(line).code(),
                ExitCode::from(2),
                "{line}"
            );
        }
    }
}
