//! `bypass off` and `bypass on`: whether running processes accelerate new connections.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::process::ExitCode;

use bypass_stats::View;

use crate::failure::{print, Failure};

const HELP: &str = "\
usage: bypass off PID … | --all
       bypass on PID … | --all

off: new connections of these processes use the kernel, those that exist go on until they end. A
listener stops taking clients through shared memory with the next one that it accepts. Children
that are forked later are switched off too; a program that is started by exec is not. Over an
interface connections that were named with --interface go on.
on: new connections are accelerated again.

      --all    every accelerated process that may be changed: own ones, or all as root
  -h, --help

Exit codes: 0 done, 1 a process given by PID is not accelerated or not ours, 2 bad input.
";

/// Switches processes off, or on.
pub(crate) fn command(is_on: bool, words: &[OsString]) -> Result<ExitCode, Failure> {
    let name = if is_on { "on" } else { "off" };
    let (mut pids, mut all) = (Vec::new(), false);
    for word in words {
        let text = word.to_string_lossy();
        match (&*text, text.parse::<u32>()) {
            ("-h" | "--help", _) => return print(HELP),
            ("--all", _) => all = true,
            (_, Ok(pid)) => pids.push(pid),
            _ => {
                let text = format!("{text} is not a process id (bypass {name} --help)");
                return Err(Failure::usage(text));
            }
        }
    }
    if all {
        pids.extend(View::list().into_iter().map(|(pid, _)| pid));
    } else if pids.is_empty() {
        let text = format!("{name} wants process ids, or --all (bypass {name} --help)");
        return Err(Failure::usage(text));
    }
    let mut done = String::new();
    for pid in pids {
        match View::open_for_capture(pid) {
            Ok(Some(view)) => {
                view.switch_off(!is_on);
                let way = if is_on {
                    "accelerated"
                } else {
                    "left to the kernel"
                };
                let _ = writeln!(done, "{pid}: new connections are {way}");
            }
            _ if all => {}
            Ok(None) => {
                let text = format!("process {pid} is not accelerated: it was not started by bypass run, or it has made no TCP socket yet");
                return Err(Failure::failed(text));
            }
            Err(error) => return Err(Failure::failed(format!("process {pid}: {error}"))),
        }
    }
    print(&done)
}
