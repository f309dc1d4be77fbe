//! The command bypass: starts programs on user-level sockets and shows what they do there.
#![forbid(unsafe_code)]

mod check;
mod cluster;
mod elf;
mod failure;
mod options;
mod probe;
mod program;
mod run;
mod stat;

use std::ffi::OsString;
use std::process::ExitCode;

use failure::Failure;

const HELP: &str = "\
usage: bypass COMMAND [OPTIONS]

  run [-p PROFILE] [--] PROGRAM [ARGUMENTS]   start a program on user-level sockets
  run --check [-p PROFILE] [--] PROGRAM …     say what would be accelerated, and why not
  stat                                        what accelerated processes are doing
  top                                         the same, live: stat --watch
  options                                     every EF_* option

Each command has --help.
Exit codes: the program's own after run; else 0 done, 1 failed, 2 bad input.
";

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let command = words.next().unwrap_or_else(|| OsString::from("--help"));
    match dispatch(&command.to_string_lossy(), words.collect()) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("bypass: {failure}");
            failure.code()
        }
    }
}

fn dispatch(command: &str, rest: Vec<OsString>) -> Result<ExitCode, Failure> {
    match command {
        "-h" | "--help" | "help" => failure::print(HELP),
        "-V" | "--version" => failure::print(concat!("bypass ", env!("CARGO_PKG_VERSION"), "\n")),
        "run" => run::command(rest),
        "stat" => stat::command(&rest),
        "top" => stat::command(&[vec![OsString::from("--watch")], rest].concat()),
        "options" => options::command(&rest),
        other => Err(Failure::usage(format!(
            "{other:?} is no command; there are run, stat, top and options (bypass --help)"
        ))),
    }
}
