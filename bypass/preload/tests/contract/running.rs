//! Runs a contract program in its roles, on the kernel or accelerated, and collects what it says.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::library;
use crate::programs::{folder, Program};

/// Longer than the programs' own longest wait, so that they can say what they waited for.
const TIME_MAX: Duration = Duration::from_secs(150);

/// Which roles are accelerated, and whether they spin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    Kernel,
    Both,
    Server,
    Client,
    Spinning,
}

/// Where the roles of a program run, and which further settings they get.
pub trait Hosts {
    /// Starts a role.
    fn spawn(&self, role: &str, command: Command) -> std::io::Result<Child>;
}

/// Runs one program in one mode; its output, and its exit code when that is not 0.
pub fn run_on(hosts: &dyn Hosts, program: &Program, mode: Mode) -> String {
    if !program.is_pair {
        let role = start(hosts, (program, "solo"), mode != Mode::Kernel, mode, None);
        return finish(vec![("", role)]);
    }
    let (left, right) = UnixStream::pair().expect("a socket pair");
    let accelerates = |own: Mode| mode == own || matches!(mode, Mode::Both | Mode::Spinning);
    let server = start(
        hosts,
        (program, "server"),
        accelerates(Mode::Server),
        mode,
        Some(left),
    );
    let client = start(
        hosts,
        (program, "client"),
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
    hosts: &dyn Hosts,
    (program, role): (&Program, &str),
    accelerated: bool,
    mode: Mode,
    channel: Option<UnixStream>,
) -> Role {
    // The crate's name: contract and packets may run in parallel.
    let own = env!("CARGO_CRATE_NAME");
    let output = folder().join(format!("{}-{role}-{mode:?}-{own}.txt", program.name));
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
        command.env("LD_PRELOAD", library::built());
    }
    if mode == Mode::Spinning {
        command
            .env("EF_POLL_USEC", "300")
            .env("EF_TCP_ACCEPT_SPIN", "1");
        command.env("EF_TCP_CONNECT_SPIN", "1");
    }
    let child = hosts
        .spawn(role, command)
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
        let threads = match ended {
            Some(_) => String::new(),
            None => threads_of(role.child.id()),
        };
        end_group(&mut role.child, ended.is_none());
        let output = fs::read(&role.output).expect("an output file");
        for line in String::from_utf8_lossy(&output).lines() {
            text.push_str(&format!("{prefix}{line}\n"));
        }
        match ended {
            Some(status) if status.success() => {}
            Some(status) => text.push_str(&format!("{prefix}ended with {status}\n")),
            None => text.push_str(&format!("{prefix}hangs: {threads}\n")),
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

/// Activity of the threads of a process group, for the report of a hang: state and place in the kernel.
fn threads_of(group: u32) -> String {
    let mut found = Vec::new();
    for process in entries(Path::new("/proc")) {
        let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
        let mut fields = stat.rsplit(')').next().unwrap_or("").split_whitespace();
        if fields.nth(2) != Some(&group.to_string()) {
            continue;
        }
        for thread in entries(&process.join("task")) {
            let read = |name: &str| fs::read_to_string(thread.join(name)).unwrap_or_default();
            let status = read("status");
            let state = status.lines().find(|line| line.starts_with("State:"));
            found.push(format!(
                "{} {} in {} {}",
                thread.display(),
                state.unwrap_or("State: unknown").replace('\t', " "),
                read("wchan"),
                read("syscall").trim_end()
            ));
        }
    }
    found.join("; ")
}

/// The entries of a folder that are named by numbers.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let is_number = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let Ok(all) = fs::read_dir(folder) else {
        return Vec::new();
    };
    all.flatten()
        .map(|entry| entry.path())
        .filter(is_number)
        .collect()
}
