//! Finds the program that a command line starts, and what keeps a library from being loaded into it.

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::elf;
use crate::failure::Failure;

/// Scripts that name scripts as their interpreters; the kernel allows 4.
const SCRIPTS_MAX: usize = 5;
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// Programs that only start another, with the options of theirs that take a value.
const WRAPPERS: &[(&str, &[&str])] = &[
    ("taskset", &[]),
    ("env", &["-u", "-C", "-S", "--unset", "--chdir"]),
    ("nice", &["-n", "--adjustment"]),
    ("nohup", &[]),
    ("setsid", &[]),
    (
        "stdbuf",
        &["-i", "-o", "-e", "--input", "--output", "--error"],
    ),
    ("timeout", &["-s", "-k", "--signal", "--kill-after"]),
    ("chrt", &["-T", "-P", "-D"]),
    (
        "numactl",
        &[
            "-N",
            "-m",
            "-C",
            "-p",
            "-i",
            "--cpunodebind",
            "--membind",
            "--physcpubind",
            "--preferred",
            "--interleave",
        ],
    ),
];

/// One executable file on the way to the program.
#[derive(Debug)]
pub(crate) struct Program {
    /// The file.
    pub(crate) path: PathBuf,
    /// Why the library cannot be loaded into it.
    pub(crate) obstacle: Option<String>,
    /// Nothing can be loaded into it: it runs as it is, on the kernel.
    pub(crate) is_static: bool,
    /// Causes of a fallback to the kernel although the library is loaded, and what has to be arranged.
    pub(crate) warnings: Vec<String>,
    /// It is Node, whose event loop submits reads where no library sees them.
    pub(crate) is_node: bool,
    /// See [`elf::Elf::sanitizer`].
    pub(crate) sanitizer: Option<String>,
}

/// Every executable that a command line starts one after another: wrappers, script interpreters,
/// and at last the program.
pub(crate) fn chain(command: &[OsString]) -> Result<Vec<Program>, Failure> {
    let mut programs = Vec::new();
    let mut rest = command;
    while let Some(name) = rest.first() {
        let path = match find(name) {
            // Not where the program stands behind a wrapper, or the wrapper says so itself.
            Err(_) if !programs.is_empty() => break,
            found => found?,
        };
        programs.extend(with_interpreters(&path)?);
        match wrapped(&path, rest) {
            Some(inner) if !inner.is_empty() => rest = inner,
            _ => break,
        }
    }
    Ok(programs)
}

/// As execvp: a name with a slash is a path, others are looked up in PATH.
fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    let shown = name.to_string_lossy();
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match path.metadata() {
            Err(error) => Err(Failure::with_code(format!("{shown}: {error}"), NOT_FOUND)),
            Ok(state) if !state.is_file() || state.permissions().mode() & 0o111 == 0 => Err(
                Failure::with_code(format!("{shown} is not executable"), NOT_EXECUTABLE),
            ),
            Ok(_) => Ok(path),
        };
    }
    let folders = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
    let is_executable = |path: &PathBuf| {
        path.metadata()
            .is_ok_and(|state| state.is_file() && state.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(is_executable)
        .ok_or_else(|| Failure::with_code(format!("{shown}: not found in PATH"), NOT_FOUND))
}

/// The file itself and, for scripts, the programs that will read it.
fn with_interpreters(path: &Path) -> Result<Vec<Program>, Failure> {
    let mut programs = Vec::new();
    let mut path = path.to_owned();
    for _ in 0..SCRIPTS_MAX {
        let (program, interpreter) = inspect(&path)?;
        programs.push(program);
        match interpreter {
            Some(next) => path = next,
            None => return Ok(programs),
        }
    }
    Err(Failure::usage(format!(
        "{}: too many scripts read by scripts",
        path.display()
    )))
}

fn inspect(path: &Path) -> Result<(Program, Option<PathBuf>), Failure> {
    let fail = |error: std::io::Error| Failure::failed(format!("{}: {error}", path.display()));
    let mut program = Program {
        path: path.to_owned(),
        obstacle: None,
        is_static: false,
        warnings: Vec::new(),
        is_node: false,
        sanitizer: None,
    };
    // A user who may only execute a file cannot look into it; the loader then decides.
    let elf = match elf::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            program
                .warnings
                .push("may not be read, so nothing is known about it".to_owned());
            return Ok((program, None));
        }
        result => result.map_err(fail)?,
    };
    let interpreter = if elf.is_none() {
        script_interpreter(path)?
    } else {
        None
    };
    // The kernel ignores the set-uid bits of scripts.
    program.is_static = elf
        .as_ref()
        .is_some_and(|elf| elf.is_ours && elf.loader.is_none());
    program.obstacle = match (&elf, &interpreter) {
        (Some(elf), _) => obstacle(path, elf),
        (None, Some(_)) => None,
        (None, None) => Some("is neither an ELF program nor a script with #!".to_owned()),
    };
    if let Some(elf) = elf {
        program.is_node = is_named(path, &["node", "nodejs"]);
        program.warnings.extend(warnings(&elf));
        program.sanitizer = elf.sanitizer;
    }
    Ok((program, interpreter))
}

fn obstacle(path: &Path, elf: &elf::Elf) -> Option<String> {
    const SET_UID_OR_GID: u32 = 0o6000;
    let mode = path.metadata().map(|state| state.mode()).unwrap_or(0);
    if mode & SET_UID_OR_GID != 0 {
        return Some("is set-uid or set-gid: the loader ignores LD_PRELOAD for it".to_owned());
    }
    if rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 64])
        .is_ok_and(|length| length > 0)
    {
        return Some("has file capabilities: the loader ignores LD_PRELOAD for it".to_owned());
    }
    if !elf.is_ours {
        return Some("is built for another processor or word size than the library".to_owned());
    }
    if elf.loader.is_none() {
        let hint = if elf.is_go {
            " (Go makes its system calls itself)"
        } else {
            ""
        };
        return Some(format!(
            "is statically linked: no library can be loaded into it{hint}"
        ));
    }
    None
}

fn warnings(elf: &elf::Elf) -> Vec<String> {
    let mut warnings = Vec::new();
    if elf.is_go {
        let text = "is a Go program: its sockets bypass libc and stay on the kernel";
        warnings.push(text.to_owned());
    }
    if elf
        .loader
        .as_deref()
        .is_some_and(|loader| loader.contains("ld-musl"))
    {
        let text = "uses musl: the library is built for glibc, and loading it may fail";
        warnings.push(text.to_owned());
    }
    warnings
}

/// The program on a script's first line; behind `/usr/bin/env NAME` the one that env will find.
fn script_interpreter(path: &Path) -> Result<Option<PathBuf>, Failure> {
    let mut head = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(256).read_to_end(&mut head));
    if read.is_err() || !head.starts_with(b"#!") {
        return Ok(None);
    }
    let line = head[2..].split(|byte| *byte == b'\n').next().unwrap_or(&[]);
    let mut words = line
        .split(|byte| byte.is_ascii_whitespace())
        .filter(|word| !word.is_empty());
    let Some(interpreter) = words
        .next()
        .map(|word| PathBuf::from(OsStr::from_bytes(word)))
    else {
        return Ok(None);
    };
    if is_named(&interpreter, &["env"]) {
        let is_program = |word: &&[u8]| !word.starts_with(b"-") && !word.contains(&b'=');
        if let Some(name) = words.find(is_program) {
            return find(OsStr::from_bytes(name)).map(Some);
        }
    }
    find(interpreter.as_os_str()).map(Some)
}

fn is_named(path: &Path, names: &[&str]) -> bool {
    path.file_name()
        .and_then(OsStr::to_str)
        .is_some_and(|name| names.contains(&name))
}

/// The command line behind a wrapper such as `taskset -c 1`, or None for other programs.
fn wrapped<'a>(path: &Path, command: &'a [OsString]) -> Option<&'a [OsString]> {
    let name = path.file_name()?.to_str()?;
    if name == "ip" && command.get(1..3)? == ["netns", "exec"] {
        return command.get(4..);
    }
    let (_, with_value) = WRAPPERS.iter().find(|(wrapper, _)| *wrapper == name)?;
    let mut index = 1;
    while let Some(word) = command.get(index).and_then(|word| word.to_str()) {
        let is_assignment = name == "env" && word.contains('=') && !word.starts_with('-');
        if !word.starts_with('-') && !is_assignment {
            break;
        }
        index += if with_value.contains(&word) { 2 } else { 1 };
    }
    // taskset's mask or list, chrt's priority and timeout's duration stand before the program.
    index += usize::from(matches!(name, "taskset" | "chrt" | "timeout"));
    command.get(index..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn behind(line: &str) -> String {
        let command: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let inner = wrapped(Path::new(&command[0]), &command).unwrap_or(&[]);
        inner
            .iter()
            .map(|word| word.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn the_program_behind_wrappers_is_found() {
        assert_eq!(behind("taskset -c 1 nginx -c x"), "nginx -c x");
        assert_eq!(behind("taskset 0x1 nginx"), "nginx");
        assert_eq!(behind("ip netns exec net1 wrk -t 1"), "wrk -t 1");
        assert_eq!(behind("env -u HOME A=1 B=2 node x.js"), "node x.js");
        assert_eq!(behind("nice -n 5 wrk"), "wrk");
        assert_eq!(behind("timeout -s INT 5 wrk -c 1"), "wrk -c 1");
        assert_eq!(behind("timeout --signal INT 5 wrk"), "wrk");
        assert_eq!(behind("numactl --cpunodebind 0 wrk"), "wrk");
        assert_eq!(behind("nginx -c x"), "");
    }

    #[test]
    fn a_program_that_is_not_there_has_the_shells_code() {
        let failure = chain(&[OsString::from("no-such-program")]).expect_err("missing");
        assert_eq!(failure.code(), std::process::ExitCode::from(127));
    }

    #[test]
    fn a_program_behind_a_wrapper_is_left_to_it_where_it_is_not_found() {
        let command = ["env", "no-such-program"].map(OsString::from);
        let programs = chain(&command).expect("env is there");
        assert!(programs[0].path.ends_with("env"), "{programs:?}");
    }

    #[test]
    fn the_shell_is_a_program_that_can_be_accelerated() {
        let programs = chain(&[OsString::from("sh")]).expect("every machine has it");
        assert!(
            programs.iter().all(|program| program.obstacle.is_none()),
            "{programs:?}"
        );
    }
}
