//! `bypass run`: reads the profile, checks the program, and becomes it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use bypass_options::profile::{self, Profile, Reader};
use bypass_options::{Resolved, PROFILE_VARIABLE};

use crate::check;
use crate::failure::{print, Failure};
use crate::program::{self, Program};

const LIBRARY: &str = "libbypass_preload.so";

const HELP: &str = "\
usage: bypass run [OPTIONS] [--] PROGRAM [ARGUMENTS]

Starts PROGRAM with the library that puts its TCP connections to accelerated programs of the
same host on shared memory. Everything else stays on the kernel. PROGRAM replaces this command:
signals, exit code, terminal and process id are its own.

  -p, --profile NAME[,NAME]   settings by name or path (docs/profiles.md); may be repeated
      --force-profiles        the profile wins over EF_ variables of the environment
      --check                 say what would be accelerated and why not; start nothing
  -v, --verbose               say what is exported before starting
  -h, --help

EF_ variables of the environment override the profile; bypass options lists them.
Exit codes: PROGRAM's own; 2 for bad input or a program that cannot be accelerated, 16 when an
earlier cluster of the profile does not end, 126 and 127 as from a shell.
";

/// What was typed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    profiles: Vec<String>,
    force: bool,
    check: bool,
    verbose: bool,
    help: bool,
    command: Vec<OsString>,
}

/// What it means: everything that is known before the program starts.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Names of the profiles, joined by commas; empty for none.
    pub(crate) profiles: String,
    /// What they say.
    pub(crate) profile: Profile,
    /// Every option's value and origin.
    pub(crate) resolved: Resolved,
    /// The library beside this program.
    pub(crate) library: PathBuf,
    /// The executables on the way to the program, which is the last.
    pub(crate) programs: Vec<Program>,
    /// What is started.
    pub(crate) command: Vec<OsString>,
    /// EF_ variables that the profile overrules.
    pub(crate) overruled: Vec<String>,
}

/// Runs a program, or says what would happen to it.
pub(crate) fn command(words: Vec<OsString>) -> Result<ExitCode, Failure> {
    let arguments = Arguments::parse(words)?;
    if arguments.help {
        return print(HELP);
    }
    let plan = Plan::new(&arguments)?;
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
                "-p" | "--profile" => {
                    let name = words.next().filter(|name| !name.is_empty());
                    let name =
                        name.ok_or_else(|| Failure::usage(format!("{text} wants a name")))?;
                    arguments.profiles.push(name.to_string_lossy().into_owned());
                }
                _ if text.starts_with("--profile=") => {
                    arguments.profiles.push(text[10..].to_owned())
                }
                _ if text.starts_with("-p") => arguments.profiles.push(text[2..].to_owned()),
                _ if text.starts_with('-') && text.len() > 1 => {
                    let text = format!("{text} is no option of bypass run (bypass run --help)");
                    return Err(Failure::usage(text));
                }
                _ => {
                    arguments.command = std::iter::once(word).chain(words).collect();
                    break;
                }
            }
        }
        if arguments.command.is_empty() && !arguments.help {
            return Err(Failure::usage("run wants a program (bypass run --help)"));
        }
        Ok(arguments)
    }
}

impl Plan {
    fn new(arguments: &Arguments) -> Result<Self, Failure> {
        let environment = |name: &str| std::env::var(name).ok();
        let own = std::env::current_exe().ok();
        let words: Vec<String> = arguments
            .command
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let profiles = arguments.profiles.join(",");
        let profile = Reader::new(&environment)
            .folders(profile::folders(&environment, own.as_deref()))
            .command(&words)
            .read(&profiles)
            .map_err(|error| Failure::usage(error.to_string()))?;
        let overruled = if arguments.force {
            overruled(&profile)
        } else {
            Vec::new()
        };
        let kept = variables().filter(|(name, _)| !overruled.contains(name));
        let resolved = Resolved::new(&profile, kept);
        if let Some(complaint) = resolved.complaints.first() {
            return Err(Failure::usage(format!("{complaint} (in the environment)")));
        }
        let programs = program::chain(&arguments.command)?;
        let library = library(own.as_deref())?;
        let command = arguments.command.clone();
        Ok(Self {
            profiles,
            profile,
            resolved,
            library,
            programs,
            command,
            overruled,
        })
    }

    /// Why nothing can be accelerated, as the one line that ends the command.
    fn refuse(&self) -> Result<(), Failure> {
        for program in &self.programs {
            if let Some(obstacle) = &program.obstacle {
                return Err(Failure::usage(format!(
                    "{} {obstacle}",
                    program.path.display()
                )));
            }
        }
        Ok(())
    }

    fn say(&self, verbose: bool) {
        for program in &self.programs {
            for warning in &program.warnings {
                eprintln!("bypass: {} {warning}", program.path.display());
            }
        }
        if self.needs_plain_uv() {
            eprintln!("bypass: UV_USE_IO_URING=0 is set, because io_uring of Node bypasses libc");
        }
        if verbose {
            for (name, value) in self.resolved.exported() {
                eprintln!("bypass: {name}={value}");
            }
        }
    }

    /// Node batches its calls through io_uring unless it is told not to.
    pub(crate) fn needs_plain_uv(&self) -> bool {
        let is_node = self.programs.iter().any(|program| program.is_node);
        is_node && std::env::var_os("UV_USE_IO_URING").is_none()
    }

    /// Becomes the program; returns only when that failed.
    fn start(&self) -> Failure {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        for name in self.resolved.ignored.iter().chain(&self.overruled) {
            command.env_remove(name);
        }
        command.envs(self.resolved.exported());
        command.env(
            PROFILE_VARIABLE,
            if self.profiles.is_empty() {
                "none"
            } else {
                &self.profiles
            },
        );
        command.env("LD_PRELOAD", self.preload());
        if self.needs_plain_uv() {
            command.env("UV_USE_IO_URING", "0");
        }
        let error = command.exec();
        let shown = self.command[0].to_string_lossy();
        Failure::with_code(format!("{shown}: {error}"), 126)
    }

    /// Ours first, then what somebody else preloads.
    fn preload(&self) -> OsString {
        let mut list = self.library.clone().into_os_string();
        let others = std::env::var("LD_PRELOAD").unwrap_or_default();
        for other in others.split([':', ' ']).filter(|other| !other.is_empty()) {
            if !other.ends_with(LIBRARY) {
                list.push(":");
                list.push(other);
            }
        }
        list
    }
}

/// A launcher above us has not applied our profile: its mark says nothing here.
fn variables() -> impl Iterator<Item = (String, String)> {
    bypass_options::environment().filter(|(name, _)| name != PROFILE_VARIABLE)
}

/// The EF_ variables that the profile sets too; EF_LOAD_ENV stays in the environment's hands.
fn overruled(profile: &Profile) -> Vec<String> {
    profile
        .settings
        .iter()
        .map(|setting| setting.option.name.to_owned())
        .filter(|name| std::env::var_os(name).is_some())
        .collect()
}

fn library(own: Option<&std::path::Path>) -> Result<PathBuf, Failure> {
    let beside = own
        .and_then(std::path::Path::parent)
        .map(|folder| folder.join(LIBRARY));
    match beside {
        Some(path) if path.is_file() => Ok(path),
        Some(path) => Err(Failure::failed(format!(
            "{} is missing; build it with: ./wirespeed build bypass",
            path.display()
        ))),
        None => Err(Failure::failed(
            "the folder of this program is unknown; is /proc mounted?",
        )),
    }
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
    fn options_behind_the_program_are_the_programs() {
        let arguments = parse("nginx -p /srv --check").expect("valid");
        assert!(!arguments.check && arguments.profiles.is_empty());
    }

    #[test]
    fn a_missing_program_and_an_unknown_option_are_bad_input() {
        for line in ["-p wrk", "--no-such x", "-p"] {
            assert_eq!(
                parse(line).expect_err(line).code(),
                ExitCode::from(2),
                "{line}"
            );
        }
    }
}
