//! `bypass run`: reads the profile, checks the program, and becomes it.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::check;
use crate::failure::{print, Failure};
use crate::plan::{Chosen, Plan};

const HELP: &str = "\
usage: bypass run [OPTIONS] [--] PROGRAM [ARGUMENTS]

Starts PROGRAM with the library loaded. Its TCP connections with accelerated programs of the same
host then use shared memory, and with --interface those with other hosts use TCP in the program
(AF_XDP). Everything else stays on the kernel. PROGRAM replaces this command: signals, exit code,
terminal and process id are its own.

  -p, --profile NAME[,NAME]   profile by name or path (docs/profiles.md); may be repeated
  -i, --interface IF          accelerate connections with other hosts over IF too; may be repeated;
                              needs root, or CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_IPC_LOCK (or
                              enough locked memory), at the start
      --share DIR             accelerate connections between network namespaces (containers) too, among
                              programs with the same directory (docs/containers.md)
      --only NAME[,NAME]      accelerate only programs of these names, of all that PROGRAM starts;
                              may be repeated
      --except NAME[,NAME]    leave programs of these names to the kernel; may be repeated
      --keep-stats DIR        keep the counters of each process in this folder for an hour after its end;
                              bypass stat --ended DIR shows them
      --force-profiles        the profile wins over EF_ variables of the environment
      --check                 show what would be accelerated and why not; start nothing
  -v, --verbose               print the exported variables before starting
  -h, --help

EF_ variables of the environment override the profile; bypass options lists them.
Exit codes: PROGRAM's own; 2 for bad input or a program that cannot be accelerated, 16 when an
earlier cluster of the profile does not end, 126 and 127 as from a shell.
";

/// The command line as typed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    profiles: Vec<String>,
    interfaces: Vec<String>,
    only: Vec<String>,
    except: Vec<String>,
    keep_stats: String,
    share: String,
    force: bool,
    check: bool,
    verbose: bool,
    help: bool,
    command: Vec<OsString>,
}

/// Runs a program, or says what would happen to it.
pub(crate) fn command(words: Vec<OsString>) -> Result<ExitCode, Failure> {
    let arguments = Arguments::parse(words)?;
    if arguments.help {
        return print(HELP);
    }
    let chosen = Chosen {
        profiles: &arguments.profiles,
        is_forced: arguments.force,
        interfaces: &arguments.interfaces,
        only: &arguments.only,
        except: &arguments.except,
        keep_stats: &arguments.keep_stats,
        share: &arguments.share,
    };
    let plan = Plan::new(chosen, &arguments.command)?;
    if arguments.check {
        return check::report(&plan);
    }
    plan.refuse()?;
    plan.say(arguments.verbose);
    if plan.profile.waits_for_cluster {
        crate::cluster::wait_until_gone(&plan.resolved.text("EF_CLUSTER_NAME"), &plan.command)?;
    }
    Err(plan.start())
}

impl Arguments {
    fn parse(words: Vec<OsString>) -> Result<Self, Failure> {
        let mut arguments = Self::default();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let text = word.to_string_lossy().into_owned();
            match text.as_str() {
                "--" => {
                    arguments.command = words.collect();
                    break;
                }
                "-h" | "--help" => arguments.help = true,
                "-v" | "--verbose" => arguments.verbose = true,
                "--check" => arguments.check = true,
                "--force-profiles" => arguments.force = true,
                "-p" | "--profile" => arguments.profiles.push(name_after(&text, &mut words)?),
                "-i" | "--interface" => arguments.interfaces.push(name_after(&text, &mut words)?),
                "--only" => arguments.only.push(name_after(&text, &mut words)?),
                "--keep-stats" => arguments.keep_stats = name_after(&text, &mut words)?,
                "--share" => arguments.share = name_after(&text, &mut words)?,
                "--except" => arguments.except.push(name_after(&text, &mut words)?),
                _ if text.starts_with("--keep-stats=") => {
                    arguments.keep_stats = text[13..].to_owned()
                }
                _ if text.starts_with("--share=") => arguments.share = text[8..].to_owned(),
                _ if text.starts_with("--only=") => arguments.only.push(text[7..].to_owned()),
                _ if text.starts_with("--except=") => arguments.except.push(text[9..].to_owned()),
                _ if text.starts_with("--profile=") => {
                    arguments.profiles.push(text[10..].to_owned())
                }
                _ if text.starts_with("--interface=") => {
                    arguments.interfaces.push(text[12..].to_owned())
                }
                _ if text.starts_with("-p") => arguments.profiles.push(text[2..].to_owned()),
                _ if text.starts_with('-') && text.len() > 1 => {
                    let text = format!("run: unknown option {text} (see bypass run --help)");
                    return Err(Failure::usage(text));
                }
                _ => {
                    arguments.command = std::iter::once(word).chain(words).collect();
                    break;
                }
            }
        }
        if arguments.command.is_empty() && !arguments.help {
            return Err(Failure::usage(
                "run: missing program (see bypass run --help)",
            ));
        }
        Ok(arguments)
    }
}

fn name_after(option: &str, words: &mut impl Iterator<Item = OsString>) -> Result<String, Failure> {
    let name = words.next().filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| Failure::usage(format!("run: {option} needs a name")))?;
    Ok(name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, Failure> {
        Arguments::parse(line.split(' ').map(OsString::from).collect())
    }

    #[test]
    fn onloads_own_forms_are_understood() {
        for line in [
            "-p wrk-profile.opf ./wrk -t 1",
            "--profile=wrk-profile.opf ./wrk -t 1",
            "-pwrk-profile.opf -- ./wrk -t 1",
            "--profile wrk-profile.opf -- ./wrk -t 1",
        ] {
            let arguments = parse(line).expect(line);
            assert_eq!(arguments.profiles, ["wrk-profile.opf"], "{line}");
            assert_eq!(arguments.command, ["./wrk", "-t", "1"], "{line}");
        }
    }

    #[test]
    fn interfaces_may_be_repeated() {
        let arguments =
            parse("--interface eth0 -i eth1 --interface=eth2 nginx -i x").expect("valid");
        assert_eq!(arguments.interfaces, ["eth0", "eth1", "eth2"]);
    }

    #[test]
    fn options_behind_the_program_are_the_programs() {
        let arguments = parse("nginx -p /srv --check").expect("valid");
        assert!(!arguments.check && arguments.profiles.is_empty());
    }

    #[test]
    fn a_missing_program_and_an_unknown_option_are_bad_input() {
        for line in ["-p wrk", "--no-such x", "-p", "--interface"] {
            assert_eq!(
                parse(line).expect_err(line).code(),
                ExitCode::from(2),
                "{line}"
            );
        }
    }
}
