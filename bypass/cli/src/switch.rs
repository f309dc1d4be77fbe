//! `bypass off` and `bypass on`: whether running processes accelerate new connections.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::process::ExitCode;

use bypass_stats::View;

use crate::failure::{print, Failure};
use crate::stat::own_page;

const HELP: &str = "\
usage: bypass off PID … | --all
       bypass on PID … | --all

off: new connections of these processes use the kernel; existing ones keep their path. A listener
refuses shared memory from the next connection that it accepts on. Children forked later are
switched off too, programs started by exec are not. Clients that come over an interface named
with --interface stay accelerated.
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
    if all && !pids.is_empty() {
        let text = format!("{name} wants process ids or --all, not both (bypass {name} --help)");
        return Err(Failure::usage(text));
    }
    if all {
        pids.extend(View::list().into_iter().map(|(pid, _)| pid));
    } else if pids.is_empty() {
        let text = format!("{name} wants process ids, or --all (bypass {name} --help)");
        return Err(Failure::usage(text));
    }
    if !all {
        // Where one of them cannot be switched, none is.
        for pid in &pids {
            open(*pid)?;
        }
    }
    let mut done = String::new();
    for pid in pids {
        match open(pid) {
            Ok(view) => {
                view.switch_off(!is_on);
                let way = if is_on {
                    "accelerated"
                } else {
                    "left to the kernel"
                };
                let _ = writeln!(done, "{pid}: new connections are {way}");
            }
            Err(_) if all => {}
            Err(failure) => return Err(failure),
        }
    }
    print(&done)
}

/// The page of a process that may be changed.
fn open(pid: u32) -> Result<View, Failure> {
    own_page(pid, View::open_for_capture(pid))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use bypass_stats::Stats;
    use bypass_sys::kernel;

    use super::*;

    /// Looks at a child that has this page of ours, and none of its own.
    fn at_child(stats: &Stats, look: impl FnOnce(u32)) {
        /// Of fcntl.h.
        const F_SETFD: i32 = 2;
        const FD_CLOEXEC: usize = 1;
        let keep = |flags| kernel::fcntl(stats.fd(), F_SETFD, flags).expect("open");
        keep(0);
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
        keep(FD_CLOEXEC);
        look(child.id());
        child.kill().expect("ours");
        child.wait().expect("an end");
    }

    #[test]
    fn where_one_process_cannot_be_switched_none_is() {
        let stats = Stats::create("", "", "test").expect("memory");
        let words = [std::process::id(), u32::MAX].map(|pid| OsString::from(pid.to_string()));
        assert!(command(false, &words).is_err());
        assert!(!stats.is_switched_off());
        at_child(&stats, |pid| {
            let failure = command(false, &[OsString::from(pid.to_string())]);
            let text = failure.expect_err("not its own").to_string();
            let parent = format!("it has the statistics of process {}", std::process::id());
            assert!(text.contains(&parent), "{text}");
        });
        assert!(!stats.is_switched_off());
        assert!(command(false, &words[..1]).is_ok());
        assert!(stats.is_switched_off());
        // A user who names a process does not mean all.
        let all_and_one = [OsString::from("--all"), words[0].clone()];
        assert!(command(true, &all_and_one).is_err() && stats.is_switched_off());
        assert!(command(true, &words[..1]).is_ok());
        assert!(!stats.is_switched_off());
    }
}
