//! Everything that is known before a program starts: profile, options, library, program.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use bypass_options::profile::{self, Profile, Reader};
use bypass_options::{programs, Resolved, KEEP_VARIABLE, PROFILE_VARIABLE};
use bypass_sys::directory;

use crate::failure::Failure;
use crate::program::{self, Program};

pub(crate) const LIBRARY: &str = "libbypass_preload.so";

/// The variable that `--interface` sets.
const INTERFACES: &str = "EF_INTERFACE_WHITELIST";
/// The variable that `--share` sets.
const DIRECTORY: &str = "EF_SHARE_DIR";

/// Choices made on the command line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chosen<'a> {
    /// Names given to `--profile`.
    pub(crate) profiles: &'a [String],
    /// The profile wins over EF_ variables.
    pub(crate) is_forced: bool,
    /// Names given to `--interface`.
    pub(crate) interfaces: &'a [String],
    /// Names given to `--only`.
    pub(crate) only: &'a [String],
    /// Names given to `--except`.
    pub(crate) except: &'a [String],
    /// The folder given to `--keep-stats`.
    pub(crate) keep_stats: &'a str,
    /// The directory given to `--share`.
    pub(crate) share: &'a str,
}

/// What it means: everything that is known before the program starts.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Names of the profiles, joined by commas; empty for none.
    pub(crate) profiles: String,
    /// Their contents.
    pub(crate) profile: Profile,
    /// Every option's value and origin.
    pub(crate) resolved: Resolved,
    /// The library next to this program.
    pub(crate) library: PathBuf,
    /// The executables on the way to the program, which is the last.
    pub(crate) programs: Vec<Program>,
    /// What is started.
    pub(crate) command: Vec<OsString>,
    /// EF_ variables that the profile overrules.
    pub(crate) overruled: Vec<String>,
    /// Variables for what was given on the command line: which programs are accelerated, where statistics are kept.
    pub(crate) given: Vec<(&'static str, String)>,
}

impl Plan {
    /// Reads the profiles and looks at the program.
    pub(crate) fn new(chosen: Chosen, command: &[OsString]) -> Result<Self, Failure> {
        let Chosen {
            profiles,
            is_forced,
            interfaces,
            only,
            except,
            keep_stats,
            share,
        } = chosen;
        if !keep_stats.is_empty() && !std::path::Path::new(keep_stats).is_dir() {
            let text = format!("run: --keep-stats {keep_stats}: not a folder (make it, writable for the program's user)");
            return Err(Failure::usage(text));
        }
        let keep_stats = std::path::absolute(keep_stats).unwrap_or_default();
        let named = [
            (programs::ONLY_VARIABLE, only.join(",")),
            (programs::EXCEPT_VARIABLE, except.join(",")),
            (KEEP_VARIABLE, keep_stats.display().to_string()),
        ];
        let given = named.into_iter().filter(|(_, value)| !value.is_empty());
        let environment = |name: &str| std::env::var(name).ok();
        let own = std::env::current_exe().ok();
        let words: Vec<String> = command
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let profiles = profiles.join(",");
        let profile = Reader::new(&environment)
            .folders(profile::folders(&environment, own.as_deref()))
            .command(&words)
            .read(&profiles)
            .map_err(|error| Failure::usage(error.to_string()))?;
        let overruled = if is_forced {
            overruled(&profile)
        } else {
            Vec::new()
        };
        let named = [
            (INTERFACES, interfaces.join(",")),
            (DIRECTORY, share.to_owned()),
        ];
        let named = named.into_iter().filter(|(_, value)| !value.is_empty());
        let named: Vec<_> = named
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        let is_kept = |name: &String| {
            !overruled.contains(name) && named.iter().all(|(other, _)| other != name)
        };
        let kept = variables().filter(|(name, _)| is_kept(name));
        let resolved = Resolved::new(&profile, kept.chain(named.clone()));
        let directory = resolved.text(DIRECTORY);
        let refusal = directory::refusal(&directory).filter(|_| !directory.is_empty());
        if let Some(why) = refusal {
            let text = format!("run: {DIRECTORY}: {directory}: {why}");
            return Err(Failure::usage(text));
        }
        if let Some(complaint) = resolved.complaints.first() {
            return Err(Failure::usage(format!("{complaint} (in the environment)")));
        }
        let programs = program::chain(command)?;
        let library = library(own.as_deref())?;
        let command = command.to_vec();
        Ok(Self {
            profiles,
            profile,
            resolved,
            library,
            programs,
            command,
            overruled,
            given: given.collect(),
        })
    }

    /// Why nothing can be accelerated, as the one line that ends the command.
    pub(crate) fn refuse(&self) -> Result<(), Failure> {
        let refused = self.programs.iter().filter(|program| !program.is_static);
        for program in refused {
            if let Some(obstacle) = &program.obstacle {
                return Err(Failure::usage(format!(
                    "{} {obstacle}",
                    program.path.display()
                )));
            }
        }
        for name in self.interfaces() {
            if !has_interface(&name) {
                let text = format!("interface {name} not found (`ip link` lists them)");
                return Err(Failure::usage(text));
            }
        }
        Ok(())
    }

    /// The interfaces over which connections with other hosts are to be accelerated.
    pub(crate) fn interfaces(&self) -> Vec<String> {
        bypass_options::interfaces(&self.resolved.text(INTERFACES))
    }

    /// That other network namespaces share; empty for none.
    pub(crate) fn directory(&self) -> String {
        self.resolved.text(DIRECTORY)
    }

    /// Says what the user should know before the program starts.
    pub(crate) fn say(&self, verbose: bool) {
        for program in self.programs.iter().filter(|program| program.is_static) {
            if let Some(obstacle) = &program.obstacle {
                let path = program.path.display();
                eprintln!("bypass: {path} {obstacle}; it runs on the kernel");
            }
        }
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

    /// Node batches its calls through io_uring unless it is configured not to.
    pub(crate) fn needs_plain_uv(&self) -> bool {
        let is_node = self.programs.iter().any(|program| program.is_node);
        is_node && std::env::var_os("UV_USE_IO_URING").is_none()
    }

    /// Becomes the program; returns only when that failed.
    pub(crate) fn start(&self) -> Failure {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        for name in self.resolved.ignored.iter().chain(&self.overruled) {
            command.env_remove(name);
        }
        command.envs(self.resolved.exported());
        // Of the command line, not of a profile.
        for name in [INTERFACES, DIRECTORY] {
            let value = self.resolved.text(name);
            if !value.is_empty() {
                command.env(name, value);
            }
        }
        command.env(
            PROFILE_VARIABLE,
            if self.profiles.is_empty() {
                "none"
            } else {
                &self.profiles
            },
        );
        command.envs(self.given.iter().map(|(name, value)| (name, value)));
        command.env("LD_PRELOAD", self.preload());
        if self.needs_plain_uv() {
            command.env("UV_USE_IO_URING", "0");
        }
        let error = command.exec();
        let shown = self.command[0].to_string_lossy();
        Failure::with_code(format!("{shown}: {error}"), 126)
    }

    /// Libraries that are preloaded already stay first, as they may have to be; ours follows. A program with AddressSanitizer wants its
    /// library before any other.
    fn preload(&self) -> OsString {
        let others = std::env::var("LD_PRELOAD").unwrap_or_default();
        let others = others.split([':', ' ']).filter(|other| !other.is_empty());
        let others: Vec<&str> = others.filter(|other| !other.ends_with(LIBRARY)).collect();
        let sanitizers = self
            .programs
            .iter()
            .filter_map(|program| program.sanitizer.as_deref());
        let is_missing = |name: &&str| !others.iter().any(|other| other.ends_with(name));
        let mut list = OsString::new();
        for other in sanitizers.filter(is_missing).chain(others.iter().copied()) {
            list.push(other);
            list.push(":");
        }
        list.push(&self.library);
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
            "{} is missing (build it with: ./wirespeed build bypass)",
            path.display()
        ))),
        None => Err(Failure::failed(
            "the folder of this program is unknown; is /proc mounted?",
        )),
    }
}

/// Whether this network namespace has it; `/sys` may show another namespace's.
fn has_interface(name: &str) -> bool {
    use rustix::net::{netdevice, socket, AddressFamily, SocketType};
    socket(AddressFamily::UNIX, SocketType::DGRAM, None)
        .and_then(|asked| netdevice::name_to_index(asked, name))
        .is_ok()
}
