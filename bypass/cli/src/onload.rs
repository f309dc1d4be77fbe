//! The command names that the documents' readers type, `onload`, `onload_stackdump` and
//! `onload_tcpdump`, as links to this program (Onload User Guide SF-104474-CD).

use std::ffi::OsString;
use std::process::ExitCode;

use crate::failure::{print, Failure};
use crate::{capture, run, stat};

const HELP: &str = "\
usage: onload [OPTIONS] PROGRAM [ARGUMENTS]

Another name of bypass run: starts PROGRAM on user-level sockets.

  -p, --profile NAME[,NAME]   settings by name or path
      --force-profiles        the profile wins over EF_ variables of the environment
  -v                          print the exported variables before starting
      --app=NAME, --no-app-handler
                              taken and without effect: no program has settings of its own here
      --version, -h, --help
";

const DUMP_HELP: &str = "\
usage: onload_stackdump [lots [-z] | netstat]

Another name of bypass stat. A stack is one accelerated process here; its number is the process id.

  (nothing)   each stack with its processes
  lots        every counter and every connection; -z leaves out counters that are zero
  netstat     every connection, a line each
";

const TCPDUMP_HELP: &str = "\
usage: onload_tcpdump [-w FILE] [-c COUNT] [-s BYTES] [port PORT] [and] [host ADDRESS]

Another name of bypass capture: writes what every accelerated process sends and receives as a capture
file, to FILE or to standard output.

  -w FILE    write to FILE; - is standard output, the default
  -c COUNT   end after so many frames
  -s BYTES   keep so many bytes of each frame; 0 is all
  -i, -n     taken and without effect: no interface is chosen, no name is looked up
";

/// The command behind a link's name; None when the program was called by its own name.
pub(crate) fn command(name: &str, words: &[OsString]) -> Option<Result<ExitCode, Failure>> {
    match name {
        "onload" => Some(launch(words)),
        "onload_stackdump" => Some(dump(words)),
        "onload_tcpdump" => Some(match words.first().and_then(|word| word.to_str()) {
            Some("-h" | "--help") => print(TCPDUMP_HELP),
            _ => capture::as_tcpdump(words),
        }),
        _ => None,
    }
}

fn launch(words: &[OsString]) -> Result<ExitCode, Failure> {
    match words.first().and_then(|word| word.to_str()) {
        None | Some("-h" | "--help") => print(HELP),
        Some("--version") => print(concat!("bypass ", env!("CARGO_PKG_VERSION"), "\n")),
        _ => run::command(without_effectless(words)),
    }
}

/// Options before the program that have no counterpart here are left out.
fn without_effectless(words: &[OsString]) -> Vec<OsString> {
    let is_option = |word: &OsString| word.to_string_lossy().starts_with('-');
    let mut kept = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let text = word.to_string_lossy();
        if text == "--no-app-handler" || text.starts_with("--app=") {
            continue;
        }
        kept.push(word.clone());
        if text == "-p" || text == "--profile" {
            kept.extend(rest.next().cloned());
        } else if text == "--" || !is_option(word) {
            break;
        }
    }
    kept.extend(rest.cloned());
    kept
}

fn dump(words: &[OsString]) -> Result<ExitCode, Failure> {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        [] => stat::stacks(),
        ["-h" | "--help"] => print(DUMP_HELP),
        ["lots"] => stat::lots(true),
        ["lots", "-z"] | ["-z", "lots"] => stat::lots(false),
        ["netstat"] => stat::netstat(),
        [word, ..] => Err(Failure::usage(format!(
            "unknown command {word:?} (lots, lots -z and netstat; see onload_stackdump --help)"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(line: &str) -> String {
        let words: Vec<_> = line.split_whitespace().map(OsString::from).collect();
        without_effectless(&words)
            .join(" ".as_ref())
            .into_string()
            .expect("text")
    }

    #[test]
    fn only_options_in_front_of_the_program_are_left_out() {
        assert_eq!(kept("--app=x -p latency nginx"), "-p latency nginx");
        assert_eq!(kept("--no-app-handler sh --app=x"), "sh --app=x");
        assert_eq!(kept("-p --app=x -- --app=y"), "-p --app=x -- --app=y");
    }

    #[test]
    fn unknown_words_are_bad_input() {
        let failure = dump(&["stats".into()]).expect_err("not here");
        assert_eq!(failure.code(), ExitCode::from(2));
    }
}
