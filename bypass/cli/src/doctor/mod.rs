//! `bypass doctor PID`: looks at a running process for what keeps it from being accelerated, or slows it.

mod facts;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::process::ExitCode;

use bypass_stats::View;

use crate::check::FILE_BYTES;
use crate::failure::{print, Failure};
use crate::stat::{grouped, is_own, meaning, of_parent};
use facts::Facts;

const HELP: &str = "\
usage: bypass doctor PID …

Looks at running processes: whether the library is loaded and as it is on disk, limits, filters,
users, scheduling, memory, rings of io_uring; which waits look again each millisecond, and why
sockets were left to the kernel. Each line is ok, a note, or a problem with what to do.

  -h, --help

Exit codes: 0 no problem, 1 problems, or a process that is not accelerated or not ours, 2 bad input.
";

/// Of the limit, from which on descriptors are called few.
const DESCRIPTORS_PART: u64 = 80;
/// How descriptors and mappings of segments begin.
const SEGMENT: &str = "/memfd:wirespeed-segment";
/// The user that stands for all whom a user namespace does not know.
const OVERFLOW_USER: &str = "65534";
/// Sleeps in a hundred that look again each millisecond, from which on that is a problem.
const POLLING_PART: u64 = 5;

/// Examines each process.
pub(crate) fn command(words: &[OsString]) -> Result<ExitCode, Failure> {
    let mut pids = Vec::new();
    for word in words {
        let text = word.to_string_lossy();
        match (&*text, text.parse::<u32>()) {
            ("-h" | "--help", _) => return print(HELP),
            (_, Ok(pid)) => pids.push(pid),
            _ => {
                let text = format!("doctor: invalid process id {text:?} (bypass doctor --help)");
                return Err(Failure::usage(text));
            }
        }
    }
    if pids.is_empty() {
        return Err(Failure::usage(
            "doctor: missing process id (bypass doctor --help)",
        ));
    }
    let mut page = String::new();
    let mut problems = 0;
    for pid in pids {
        let found = examine(pid)?;
        problems += found.problems();
        let _ = writeln!(page, "{pid} {}", found.command);
        page.push_str(&found.page());
    }
    print(&page)?;
    Ok(ExitCode::from(u8::from(problems > 0)))
}

/// How a finding is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grade {
    Ok,
    Note,
    Problem,
}

/// Findings about one process.
#[derive(Debug, Default)]
struct Findings {
    command: String,
    lines: Vec<(Grade, String)>,
}

impl Findings {
    fn add(&mut self, grade: Grade, text: impl Into<String>) {
        self.lines.push((grade, text.into()));
    }

    fn problems(&self) -> usize {
        let is_problem = |(grade, _): &&(Grade, String)| *grade == Grade::Problem;
        self.lines.iter().filter(is_problem).count()
    }

    fn page(&self) -> String {
        let word = |grade| match grade {
            Grade::Ok => "ok",
            Grade::Note => "note",
            Grade::Problem => "problem",
        };
        let lines = self.lines.iter();
        lines.fold(String::new(), |mut page, (grade, text)| {
            let _ = writeln!(page, "  {:8} {text}", word(*grade));
            page
        })
    }
}

fn examine(pid: u32) -> Result<Findings, Failure> {
    let found = match View::open(pid) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Failure::failed(format!("process {pid} not found")));
        }
        Err(error) => return Err(Failure::failed(format!("process {pid}: {error}"))),
    };
    let facts = Facts::read(pid);
    let mut findings = Findings {
        command: facts
            .status_of("Name")
            .unwrap_or("?")
            .escape_debug()
            .to_string(),
        ..Findings::default()
    };
    library(&mut findings, &facts, found.is_some());
    let view = found.filter(|view| {
        let is_own = is_own(pid, view);
        if !is_own {
            findings.add(Grade::Note, of_parent(view));
        }
        is_own
    });
    machine(&mut findings, &facts);
    if let Some(view) = view {
        statistics(&mut findings, &facts, &view);
    }
    Ok(findings)
}

fn library(findings: &mut Findings, facts: &Facts, has_page: bool) {
    match facts.library() {
        None => findings.add(
            Grade::Problem,
            "the library is not loaded: start the program by bypass run (a static, Go or set-uid program cannot be)",
        ),
        Some(path) if path.ends_with("(deleted)") => findings.add(
            Grade::Note,
            "the library on disk is another one by now: a restart of both ends takes it up",
        ),
        Some(path) => findings.add(Grade::Ok, format!("library {path}")),
    }
    if facts.library().is_some() && !has_page {
        findings.add(Grade::Note, "the process has made no TCP socket yet");
    }
}

/// The kernel's view of it.
fn machine(findings: &mut Findings, facts: &Facts) {
    let open = facts.descriptors.len() as u64;
    match facts.limit_of("Max open files") {
        Some(limit) if open * 100 >= limit * DESCRIPTORS_PART => findings.add(
            Grade::Problem,
            format!("{open} of {limit} descriptors are open: raise LimitNOFILE= or ulimit -n"),
        ),
        Some(limit) => findings.add(Grade::Ok, format!("{open} of {limit} descriptors are open")),
        None => {}
    }
    if facts
        .limit_of("Max file size")
        .is_some_and(|limit| limit < FILE_BYTES)
    {
        let text =
            "the limit on the size of files is below what a segment needs: LimitFSIZE=infinity";
        findings.add(Grade::Problem, text);
    }
    if facts.overcommit.trim() == "2" {
        let text =
            "vm.overcommit_memory=2: no memory is shared, everything is on the kernel; set 0 or 1";
        findings.add(Grade::Problem, text);
    }
    if facts.count_of("anon_inode:[io_uring]") > 0 {
        let text =
            "the process has an io_uring: sockets that go through it are handled by the kernel";
        findings.add(Grade::Note, text);
    }
    if facts.status_of("Seccomp").is_some_and(|mode| mode != "0") {
        let text = "a seccomp filter is in force: bypass run --check under it says whether it lets the library work";
        findings.add(Grade::Note, text);
    }
    let knows_all = facts
        .uid_map
        .split_whitespace()
        .eq(["0", "0", "4294967295"]);
    let user = facts
        .status_of("Uid")
        .and_then(|ids| ids.split_whitespace().nth(1));
    if !facts.uid_map.is_empty() && !knows_all && user == Some(OVERFLOW_USER) {
        let text = "it runs as a user that its user namespace does not know: memory is shared with root only";
        findings.add(Grade::Problem, text);
    }
    if facts.is_locked(SEGMENT) {
        let text =
            "segments are locked, 1.2 GiB of memory each: a module called mlockall past the library";
        findings.add(Grade::Note, text);
    }
    if matches!(facts.policy(), 1 | 2) {
        let text = "it runs under a real-time policy: the processes at the other ends need processors of their own";
        findings.add(Grade::Note, text);
    }
}

/// The library's counters.
fn statistics(findings: &mut Findings, facts: &Facts, view: &View) {
    if view.is_switched_off() {
        findings.add(Grade::Note, "new connections are switched off (bypass on)");
    }
    let connections = view.connections();
    let shared = connections.iter().filter(|one| one.path == "shm").count();
    let segments = facts.count_of(SEGMENT);
    let memory = facts.resident_kilobytes(SEGMENT) >> 10;
    let text = format!(
        "{shared} sockets over shared memory, {segments} segments with {memory} MiB in memory"
    );
    findings.add(Grade::Ok, text);
    if shared > 0 && !facts.threads.iter().any(|name| name == "bypass") {
        let text = "the library's thread does not run: after a fork that is normal until the child accepts or connects";
        findings.add(Grade::Note, text);
    }
    let counters = view.counters();
    let count = |name: &str| {
        let found = counters.iter().find(|(known, _)| *known == name);
        found.map_or(0, |(_, value)| *value)
    };
    slow_waits(findings, count);
    if count("refused") > 0 {
        let text = format!(
            "{} calls failed, because EF_NO_FAIL=0 forbids the kernel (bypass stat --why)",
            count("refused")
        );
        findings.add(Grade::Problem, text);
    }
    for (reason, count) in view.fallbacks() {
        let grade = match reason {
            "not-local" | "not-accepting" | "switched-off" => Grade::Note,
            _ => Grade::Problem,
        };
        let text = format!(
            "{} left to the kernel, {reason}: {}",
            grouped(count),
            meaning(reason)
        );
        findings.add(grade, text);
    }
}

/// Sleeps that end after a millisecond to look again.
fn slow_waits(findings: &mut Findings, count: impl Fn(&str) -> u64) {
    let (polling, sleeps) = (count("polling_sleeps"), count("sleeps"));
    if polling == 0 {
        return;
    }
    let grade = match polling * 100 >= sleeps * POLLING_PART {
        true => Grade::Problem,
        false => Grade::Note,
    };
    for (name, why) in [
        (
            "polling_no_waker",
            "no descriptor or Unix socket for a waker (ulimit -n, RestrictAddressFamilies=)",
        ),
        (
            "polling_confined",
            "a process at the other end is confined by seccomp",
        ),
        (
            "polling_shared",
            "another thread, set or process waits for the same connection",
        ),
        (
            "polling_listener",
            "too many sets and threads wait for connections, or a child has to end first",
        ),
    ] {
        if count(name) > 0 {
            let text = format!(
                "{} of {} sleeps looked again each millisecond: {why}",
                grouped(count(name)),
                grouped(sleeps)
            );
            findings.add(grade, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn healthy() -> Facts {
        let mut stat = "7 (a b) c) S".to_owned();
        // Fields 4 to 40, then the policy.
        stat.extend(std::iter::repeat_n(" 1", 37));
        stat.push_str(" 0 0");
        Facts {
            status: "Name:\tx\nUid:\t0\t0\t0\t0\nSeccomp:\t0\n".to_owned(),
            stat,
            limits: "Max file size             unlimited            unlimited            bytes\n\
                     Max open files            1024                 4096                 files\n"
                .to_owned(),
            maps: "7f0-7f1 r-xp 00000000 08:01 99   /usr/lib/libbypass_preload.so\n".to_owned(),
            smaps: "7f2-7f3 rw-s 00000000 00:01 7   /memfd:wirespeed-segment (deleted)\nRss:     2048 kB\n\
                    VmFlags: rd wr sh mr mw me ms dd sd\n\
                    7f3-7f4 rw-p 00000000 00:00 0\nRss:     4096 kB\nVmFlags: rd wr mr mw me lo ac sd\n"
                .to_owned(),
            uid_map: "         0          0 4294967295\n".to_owned(),
            descriptors: vec!["socket:[1]".to_owned(); 10],
            threads: vec!["x".to_owned()],
            overcommit: "0\n".to_owned(),
        }
    }

    fn examined(facts: &Facts) -> Vec<(Grade, String)> {
        let mut findings = Findings::default();
        library(&mut findings, facts, true);
        machine(&mut findings, facts);
        findings.lines
    }

    fn problems(change: impl FnOnce(&mut Facts)) -> Vec<String> {
        let mut facts = healthy();
        change(&mut facts);
        let all = examined(&facts).into_iter();
        all.filter(|(grade, _)| *grade != Grade::Ok)
            .map(|(_, text)| text)
            .collect()
    }

    #[test]
    fn a_healthy_process_has_no_finding() {
        assert_eq!(problems(|_| ()), [""; 0]);
        let oks = examined(&healthy());
        assert_eq!(oks[0].1, "library /usr/lib/libbypass_preload.so");
        assert_eq!(oks[1].1, "10 of 1024 descriptors are open");
    }

    #[test]
    fn memory_is_counted_by_the_file_that_is_mapped() {
        let of = |file| healthy().resident_kilobytes(file);
        assert_eq!(of(SEGMENT), 2048);
        assert_eq!(of("/memfd:another"), 0);
    }

    #[test]
    fn each_obstacle_is_found() {
        let all: [(&str, fn(&mut Facts)); 9] = [
            ("not loaded", |facts| facts.maps.clear()),
            ("restart of both ends", |facts| {
                facts.maps = facts.maps.replace(".so", ".so (deleted)")
            }),
            ("LimitNOFILE", |facts| {
                facts.descriptors = vec![String::new(); 900]
            }),
            ("LimitFSIZE", |facts| {
                facts.limits = facts.limits.replacen("unlimited", "1048576", 1)
            }),
            ("overcommit_memory", |facts| {
                facts.overcommit = "2\n".to_owned()
            }),
            ("io_uring", |facts| {
                facts.descriptors.push("anon_inode:[io_uring]".to_owned())
            }),
            ("seccomp filter", |facts| {
                facts.status = facts.status.replace("Seccomp:\t0", "Seccomp:\t2")
            }),
            ("segments are locked", |facts| {
                facts.smaps = facts.smaps.replace("ms dd", "ms lo dd")
            }),
            ("real-time", |facts| {
                facts.stat = facts.stat.replace(" 0 0", " 1 0")
            }),
        ];
        for (word, change) in all {
            let found = problems(change);
            assert!(
                found.len() == 1 && found[0].contains(word),
                "{word}: {found:?}"
            );
        }
        let unknown = problems(|facts| {
            facts.uid_map = "0 1000 1\n".to_owned();
            facts.status = facts.status.replace("Uid:\t0\t0", "Uid:\t65534\t65534");
        });
        assert!(
            unknown.len() == 1 && unknown[0].contains("user namespace"),
            "{unknown:?}"
        );
    }

    #[test]
    fn waits_that_look_again_are_a_problem_when_they_are_many() {
        let of = |polling: u64| {
            let mut findings = Findings::default();
            slow_waits(&mut findings, |name| match name {
                "sleeps" => 1000,
                "polling_sleeps" | "polling_shared" => polling,
                _ => 0,
            });
            findings.lines
        };
        assert_eq!(of(0), []);
        assert_eq!(of(10)[0].0, Grade::Note);
        assert_eq!(of(500)[0].0, Grade::Problem);
        assert!(of(500)[0].1.contains("500 of 1 000 sleeps"));
    }
}
