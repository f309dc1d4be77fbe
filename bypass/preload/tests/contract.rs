//! Runs every contract program on the kernel and accelerated, and demands the same output.
//!
//! The kernel is the oracle: no expected output is written down. Each pair of roles runs with both
//! ends accelerated, with one of them, and with both while they spin. `CONTRACT_ONLY=NAME` runs one
//! program and prints what it says.

mod library;
#[path = "contract/programs.rs"]
mod programs;
#[path = "contract/running.rs"]
mod running;

use std::collections::BTreeMap;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use programs::{programs, Program};
use running::{run_on, Hosts, Mode};

/// Runs on the kernel that may be needed to see all that it does.
const KERNEL_RUNS_MAX: usize = 5;
/// Of `Mode`.
const MODES: usize = 5;

/// Both roles on this host.
struct ThisHost;

impl Hosts for ThisHost {
    fn spawn(&self, _role: &str, mut command: Command) -> std::io::Result<Child> {
        command.spawn()
    }
}

fn run(program: &Program, mode: Mode) -> String {
    run_on(&ThisHost, program, mode)
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

/// The modes run in parallel, each begins elsewhere: while one waits for the kernel's run of a
/// program, the others do not.
fn compare(mode: Mode) {
    let mut complaints = Vec::new();
    let mut compared = 0;
    let all = programs();
    let first = all.len() * mode as usize / MODES;
    for program in all.iter().cycle().skip(first).take(all.len()) {
        if !program.is_pair && matches!(mode, Mode::Server | Mode::Client) {
            continue;
        }
        compared += 1;
        complaints.extend(complaint(program, mode, &run(program, mode)));
    }
    assert!(compared > 0, "no program was compared");
    let count = complaints.len();
    assert!(
        count == 0,
        "{count} of {compared} differ ({mode:?}):\n{}",
        complaints.join("\n")
    );
}

/// The kernel itself may do one thing or the other on a loaded machine. What is not what it did at
/// first is compared with more runs of the kernel; the accelerated program has its one run.
fn complaint(program: &Program, mode: Mode, actual: &str) -> Option<String> {
    let mut first = None;
    for number in 0..KERNEL_RUNS_MAX {
        let text = judge(program, mode, &on_the_kernel(program, number), actual)?;
        first.get_or_insert(text);
    }
    first
}

/// What a program does on the kernel in one of its runs there, which are made as they are asked for.
fn on_the_kernel(program: &Program, number: usize) -> String {
    type Runs = Arc<Mutex<Vec<String>>>;
    static RUNS: Mutex<BTreeMap<String, Runs>> = Mutex::new(BTreeMap::new());
    let runs = {
        let mut all = RUNS.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(program.name.clone()).or_default())
    };
    let mut outputs = runs.lock().unwrap_or_else(PoisonError::into_inner);
    while outputs.len() <= number {
        outputs.push(whole_run(program));
    }
    outputs[number].clone()
}

/// A run on the kernel that came to its end.
fn whole_run(program: &Program) -> String {
    let mut output = String::new();
    for _ in 0..KERNEL_RUNS_MAX {
        output = run(program, Mode::Kernel);
        let marks = ["stopped:", "hangs", "ended with"];
        if !marks.iter().any(|mark| output.contains(mark)) {
            if std::env::var_os("CONTRACT_ONLY").is_some() {
                println!("{} on the kernel:\n{output}", program.name);
            }
            return output;
        }
    }
    panic!(
        "{} does not run to its end on the kernel:\n{output}",
        program.name
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
