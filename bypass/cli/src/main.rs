//! The command bypass: starts programs on user-level sockets and shows what they do there.
#![forbid(unsafe_code)]

mod capture;
mod check;
mod cluster;
mod doctor;
mod elf;
mod failure;
mod onload;
mod options;
mod plan;
mod probe;
mod program;
mod run;
mod stat;
mod switch;
mod unit;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use failure::Failure;

const HELP: &str = "\
usage: bypass COMMAND [OPTIONS]

  run [-p PROFILE] [--] PROGRAM [ARGUMENTS]   start a program on user-level sockets
  run --check [-p PROFILE] [--] PROGRAM …     show what would be accelerated, and why not
  stat                                        what accelerated processes are doing
  top                                         the same, live: stat --watch
  doctor                                      what keeps a running process from being accelerated
  unit                                        a drop-in for a systemd service
  off                                         leave new connections of running processes to the kernel
  on                                          accelerate them again
  capture                                     their frames, for Wireshark and tcpdump
  options                                     every EF_* option

Each command has --help.
Exit status: that of the program after run; else 0 done, 1 failed, 2 bad input.
";

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let name = called_as(words.next());
    let words: Vec<_> = words.collect();
    match onload::command(&name, &words).unwrap_or_else(|| by_command(words)) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("{name}: {failure}");
            failure.code()
        }
    }
}

/// The last part of the name that this program was called by, which a link chooses.
fn called_as(path: Option<OsString>) -> String {
    let name = path.as_deref().map(Path::new).and_then(Path::file_name);
    match name.and_then(|name| name.to_str()) {
        Some(name) if name.starts_with("onload") => name.to_owned(),
        _ => "bypass".to_owned(),
    }
}

fn by_command(mut words: Vec<OsString>) -> Result<ExitCode, Failure> {
    if words.is_empty() {
        words.push("--help".into());
    }
    let rest = words.split_off(1);
    dispatch(&words[0].to_string_lossy(), rest)
}

fn dispatch(command: &str, rest: Vec<OsString>) -> Result<ExitCode, Failure> {
    match command {
        "-h" | "--help" | "help" => failure::print(HELP),
        "-V" | "--version" => failure::print(concat!("bypass ", env!("CARGO_PKG_VERSION"), "\n")),
        "run" => run::command(rest),
        "stat" => stat::command(&rest),
        // With a value, so that a process id behind it is not taken for seconds.
        "top" => stat::command(&[vec![OsString::from("--watch=1")], rest].concat()),
        "doctor" => doctor::command(&rest),
        "unit" => unit::command(&rest),
        "off" => switch::command(false, &rest),
        "on" => switch::command(true, &rest),
        "capture" => capture::command(&rest),
        "options" => options::command(&rest),
        other => Err(Failure::usage(format!(
            "unknown command {other:?} (run, stat, top, doctor, unit, off, on, capture or options; see bypass --help)"
        ))),
    }
}
