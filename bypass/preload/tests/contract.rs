//! Runs every contract program on the kernel and accelerated, and demands the same output.
//!
//! The kernel is the oracle: no expected output is written down. Each pair of roles runs with both
//! ends accelerated, with one of them, and with both while they spin. `CONTRACT_ONLY=NAME` runs one
//! program and prints what it says.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const TIME_MAX: Duration = Duration::from_secs(90);
const LIBRARY: &str = "libbypass_preload.so";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    Kernel,
    Both,
    Server,
    Client,
    Spinning,
}

#[derive(Debug)]
struct Program {
    name: String,
    command: Vec<String>,
    is_pair: bool,
}

#[test]
fn both_ends_accelerated_do_what_the_kernel_does() {
    compare(Mode::Both);
}

#[test]
fn an_accelerated_server_does_what_the_kernel_does() {
    compare(Mode::Server);
}

#[test]
fn an_accelerated_client_does_what_the_kernel_does() {
    compare(Mode::Client);
}

#[test]
fn spinning_ends_do_what_the_kernel_does() {
    compare(Mode::Spinning);
}

fn compare(mode: Mode) {
    let mut complaints = Vec::new();
    let mut compared = 0;
    for program in programs() {
        if !program.is_pair && matches!(mode, Mode::Server | Mode::Client) {
            continue;
        }
        let expected = &oracle()[&program.name];
        let actual = run(program, mode);
        compared += 1;
        complaints.extend(judge(program, mode, expected, &actual));
    }
    assert!(compared > 0, "no program was compared");
    let count = complaints.len();
    assert!(
        count == 0,
        "{count} of {compared} differ ({mode:?}):\n{}",
        complaints.join("\n")
    );
}

/// One line of known_differences.txt: `program | the kernel's line | reason`. The line may be `*`
/// when the program goes another way from there on.
#[derive(Debug)]
struct Known {
    program: String,
    line: String,
}

/// Each difference must be listed, and, with both ends accelerated, each listed one must be there.
fn judge(program: &Program, mode: Mode, expected: &str, actual: &str) -> Option<String> {
    let known: Vec<&Known> = known()
        .iter()
        .filter(|k| k.program == program.name)
        .collect();
    if known.iter().any(|known| known.line == "*") {
        let is_stale = mode == Mode::Both && expected == actual;
        return is_stale.then(|| format!("{} does not differ any more", program.name));
    }
    let differing: Vec<&str> = expected
        .lines()
        .zip(actual.lines())
        .filter(|(left, right)| left != right)
        .map(|(left, _)| left)
        .collect();
    let is_same_length = expected.lines().count() == actual.lines().count();
    let is_listed = |line: &&str| known.iter().any(|known| known.line == line.trim_end());
    if !is_same_length || !differing.iter().all(is_listed) {
        return Some(difference(program, expected, actual));
    }
    let is_stale = |known: &&&Known| !differing.iter().any(|line| line.trim_end() == known.line);
    let stale = known.iter().find(is_stale).filter(|_| mode == Mode::Both)?;
    Some(format!(
        "{}: {:?} does not differ any more",
        program.name, stale.line
    ))
}

fn known() -> &'static [Known] {
    static KNOWN: OnceLock<Vec<Known>> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let entries = include_str!("known_differences.txt").lines();
        entries
            .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
            .map(|line| {
                let parts: Vec<&str> = line.splitn(3, '|').map(str::trim).collect();
                let [program, line, reason] = parts[..] else {
                    panic!("{line}: 3 parts")
                };
                assert!(!reason.is_empty(), "{program}: no reason");
                Known {
                    program: program.to_owned(),
                    line: line.to_owned(),
                }
            })
            .collect()
    })
}

/// What every program does on the kernel, run once.
fn oracle() -> &'static BTreeMap<String, String> {
    static ORACLE: OnceLock<BTreeMap<String, String>> = OnceLock::new();
    ORACLE.get_or_init(|| {
        let output = |program: &Program| (program.name.clone(), run(program, Mode::Kernel));
        let all: BTreeMap<_, _> = programs().iter().map(output).collect();
        for (name, output) in &all {
            let is_whole = !["stopped:", "hangs", "ended with"]
                .iter()
                .any(|bad| output.contains(bad));
            assert!(
                is_whole,
                "{name} does not run to its end on the kernel:\n{output}"
            );
        }
        if std::env::var_os("CONTRACT_ONLY").is_some() {
            for (name, output) in &all {
                println!("{name} on the kernel:\n{output}");
            }
        }
        all
    })
}

/// The first lines that differ, with what the kernel said.
fn difference(program: &Program, expected: &str, actual: &str) -> String {
    const SHOWN: usize = 12;
    let (mut left, mut right) = (expected.lines(), actual.lines());
    let mut lines = vec![format!("== {}", program.name)];
    let mut place = 0;
    loop {
        place += 1;
        match (left.next(), right.next()) {
            (None, None) => break,
            (left, right) if left != right => lines.push(format!(
                "  line {place}: kernel {:?}, here {:?}",
                left.unwrap_or("nothing"),
                right.unwrap_or("nothing")
            )),
            _ => {}
        }
        if lines.len() > SHOWN {
            lines.push("  …".to_owned());
            break;
        }
    }
    lines.join("\n")
}

/// Runs one program in one mode; its output, and its exit code when that is not 0.
fn run(program: &Program, mode: Mode) -> String {
    if !program.is_pair {
        let role = start(program, "solo", mode != Mode::Kernel, mode, None);
        return finish(vec![("", role)]);
    }
    let (left, right) = UnixStream::pair().expect("a socket pair");
    let accelerates = |own: Mode| mode == own || matches!(mode, Mode::Both | Mode::Spinning);
    let server = start(
        program,
        "server",
        accelerates(Mode::Server),
        mode,
        Some(left),
    );
    let client = start(
        program,
        "client",
        accelerates(Mode::Client),
        mode,
        Some(right),
    );
    finish(vec![("server: ", server), ("client: ", client)])
}

struct Role {
    child: Child,
    output: PathBuf,
}

fn start(
    program: &Program,
    role: &str,
    accelerated: bool,
    mode: Mode,
    channel: Option<UnixStream>,
) -> Role {
    let output = folder().join(format!("{}-{role}-{mode:?}.txt", program.name));
    let file = File::create(&output).expect("an output file");
    let errors = file.try_clone().expect("a second handle");
    let mut command = Command::new(&program.command[0]);
    command
        .args(&program.command[1..])
        .arg(role)
        .stdout(file)
        .stderr(errors)
        .process_group(0);
    command.stdin(channel.map_or_else(Stdio::null, |channel| Stdio::from(OwnedFd::from(channel))));
    for (name, _) in std::env::vars() {
        if name.starts_with("EF_") || name == "LD_PRELOAD" {
            command.env_remove(name);
        }
    }
    // Test output must not depend on the language, nor on hash seeds.
    command
        .env("LC_ALL", "C")
        .env("PYTHONHASHSEED", "0")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    if accelerated {
        command.env("LD_PRELOAD", library());
    }
    if mode == Mode::Spinning {
        command
            .env("EF_POLL_USEC", "300")
            .env("EF_TCP_ACCEPT_SPIN", "1");
        command.env("EF_TCP_CONNECT_SPIN", "1");
    }
    let child = command
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", program.command[0]));
    Role { child, output }
}

/// Waits for all roles; one that hangs is ended with its children and said to hang.
fn finish(mut roles: Vec<(&str, Role)>) -> String {
    let started = Instant::now();
    let mut text = String::new();
    for (prefix, role) in &mut roles {
        let ended = loop {
            match role.child.try_wait().expect("a child of ours") {
                Some(status) => break Some(status),
                None if started.elapsed() > TIME_MAX => break None,
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        end_group(&mut role.child, ended.is_none());
        let output = fs::read(&role.output).expect("an output file");
        for line in String::from_utf8_lossy(&output).lines() {
            text.push_str(&format!("{prefix}{line}\n"));
        }
        match ended {
            Some(status) if status.success() => {}
            Some(status) => text.push_str(&format!("{prefix}ended with {status}\n")),
            None => text.push_str(&format!("{prefix}hangs\n")),
        }
    }
    text
}

/// The role has a process group of its own, so its children end with it.
fn end_group(child: &mut Child, hangs: bool) {
    if !hangs {
        return;
    }
    let group = format!("-{}", child.id());
    let _ = Command::new("kill")
        .args(["-9", "--", &group])
        .stderr(Stdio::null())
        .status();
    let _ = child.wait();
}

fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("contract");
        fs::create_dir_all(&folder).expect("a folder for the programs");
        folder
    })
}

/// The library that this test run has built.
fn library() -> &'static Path {
    static LIBRARY_PATH: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY_PATH.get_or_init(|| {
        let own = std::env::current_exe().expect("a path");
        let deps = own.parent().expect("a folder");
        let candidates = [deps.join(LIBRARY), deps.join("..").join(LIBRARY)];
        let age = |path: &PathBuf| path.metadata().and_then(|state| state.modified()).ok();
        candidates
            .into_iter()
            .filter(|path| path.is_file())
            .max_by_key(age)
            .unwrap_or_else(|| panic!("{LIBRARY} is not beside {}", own.display()))
    })
}

/// Every program, compiled when it or the header is newer than what is there.
fn programs() -> &'static [Program] {
    static PROGRAMS: OnceLock<Vec<Program>> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
        let only = std::env::var("CONTRACT_ONLY").ok();
        let mut paths: Vec<PathBuf> = fs::read_dir(&source)
            .expect("the programs")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| {
                path.extension()
                    .is_some_and(|ending| ending == "c" || ending == "py")
            })
            .filter(|path| {
                only.as_deref()
                    .is_none_or(|only| path.file_stem().is_some_and(|stem| stem == only))
            })
            .collect();
        paths.sort();
        compile_all(&paths);
        paths.iter().map(|path| program(path)).collect()
    })
}

fn program(path: &Path) -> Program {
    let name = path
        .file_stem()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    let text = fs::read_to_string(path).expect("readable");
    let first = text.lines().next().unwrap_or("");
    let is_pair = first.contains("pair:");
    assert!(
        is_pair || first.contains("solo:"),
        "{name} does not say pair: or solo:"
    );
    let command = if path.extension().is_some_and(|ending| ending == "py") {
        vec![python().to_owned(), path.display().to_string()]
    } else {
        vec![binary(path).display().to_string()]
    };
    Program {
        name,
        command,
        is_pair,
    }
}

fn binary(source: &Path) -> PathBuf {
    folder().join(source.file_stem().expect("a name"))
}

/// A real interpreter: a shell script in its place would be accelerated, too.
fn python() -> &'static str {
    static PYTHON: OnceLock<String> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let answer = Command::new("python3")
            .args(["-c", "import sys; print(sys.executable)"])
            .output();
        let answer = answer.expect("python3 is needed for the contract programs");
        String::from_utf8_lossy(&answer.stdout).trim().to_owned()
    })
}

/// Compiles with as many processes as there are cores.
fn compile_all(paths: &[PathBuf]) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let stale: Vec<&PathBuf> = paths.iter().filter(|path| is_stale(path)).collect();
    for batch in stale.chunks(cores) {
        let children: Vec<(&PathBuf, Child)> =
            batch.iter().map(|path| (*path, compile(path))).collect();
        for (path, mut child) in children {
            let status = child.wait().expect("a compiler that ends");
            assert!(status.success(), "{} does not compile", path.display());
        }
    }
}

fn is_stale(path: &Path) -> bool {
    if path.extension().is_none_or(|ending| ending != "c") {
        return false;
    }
    let time = |path: &Path| path.metadata().and_then(|state| state.modified()).ok();
    let built = time(&binary(path));
    built.is_none() || built < time(path) || built < time(&path.with_file_name("contract.h"))
}

fn compile(path: &Path) -> Child {
    Command::new("cc")
        .args([
            "-std=gnu11",
            "-D_GNU_SOURCE",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
        ])
        .args([
            "-Wno-unused-result",
            "-Wno-nonnull",
            "-Wno-stringop-overflow",
            "-pthread",
            "-o",
        ])
        .arg(binary(path))
        .arg(path)
        .spawn()
        .expect("cc is needed for the contract programs")
}
