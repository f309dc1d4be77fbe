//! `bypass stat --watch`: one line for each process, with rates, drawn again and again.

use std::fmt::Write as _;
use std::io::{ErrorKind, IsTerminal as _, Read as _, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::snapshot::{Process, Snapshot};
use super::text::printable;
use crate::failure::Failure;

const HEAD: &str =
    "    PID COMMAND          PROFILE            SHM KERNEL LISTEN   CONN/S   MB IN/S  MB \
                    OUT/S  SPIN%   SLEEP/S    WAKE/S FALLBACK";
const LOOK_FOR_KEY: Duration = Duration::from_millis(50);

/// Draws until the user has seen enough, or the reader of a pipe is gone.
pub(super) fn run(pids: &[u32], interval: Duration) -> Result<ExitCode, Failure> {
    let is_terminal = std::io::stdout().is_terminal();
    let ended = watch_keys();
    let mut before = Snapshot::take(pids)?;
    loop {
        let started = Instant::now();
        while started.elapsed() < interval {
            if ended.load(Ordering::Relaxed) {
                return Ok(ExitCode::SUCCESS);
            }
            std::thread::sleep(LOOK_FOR_KEY.min(interval));
        }
        let now = Snapshot::take(pids)?;
        let mut text = String::from(if is_terminal { "\x1b[H\x1b[J" } else { "" });
        draw(&mut text, &before, &now);
        let mut out = std::io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        match written {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
            Err(error) => return Err(Failure::failed(format!("standard output: {error}"))),
        }
        before = now;
    }
}

/// q on standard input ends the view; without a terminal there only a signal does.
fn watch_keys() -> Arc<AtomicBool> {
    let ended = Arc::new(AtomicBool::new(false));
    if std::io::stdin().is_terminal() {
        let flag = Arc::clone(&ended);
        std::thread::spawn(move || {
            for byte in std::io::stdin().lock().bytes().map_while(Result::ok) {
                if byte == b'q' {
                    flag.store(true, Ordering::Relaxed);
                }
            }
        });
    }
    ended
}

fn draw(text: &mut String, before: &Snapshot, now: &Snapshot) {
    let seconds = now
        .taken
        .duration_since(before.taken)
        .as_secs_f64()
        .max(1e-3);
    let _ = writeln!(text, "{HEAD}");
    for process in &now.processes {
        let same = |old: &&Process| {
            old.pid == process.pid && old.header.started_unix_ns == process.header.started_unix_ns
        };
        let old = before.processes.iter().find(same);
        row(text, process, old, seconds);
    }
    if now.processes.is_empty() {
        text.push_str("    no accelerated process\n");
    }
}

fn row(text: &mut String, process: &Process, old: Option<&Process>, seconds: f64) {
    let rate = |names: &[&str]| {
        let sum = |of: &Process| names.iter().map(|name| of.counter(name)).sum::<u64>();
        sum(process).saturating_sub(old.map_or(0, sum)) as f64 / seconds
    };
    let _ = writeln!(
        text,
        "{:7} {:16.16} {:16.16} {:5} {:6} {:6} {:8.0} {:9.1} {:10.1} {:6.1} {:9.0} {:9.0} {:8}",
        process.pid,
        printable(&process.header.command),
        printable(&process.header.profile),
        process.sockets("shm") + process.sockets("packets"),
        process.sockets("kernel"),
        process.listeners(),
        rate(&[
            "connects_shm",
            "accepts_shm",
            "connects_packets",
            "accepts_packets"
        ]),
        rate(&["bytes_in_shm"]) / 1e6,
        rate(&["bytes_out_shm"]) / 1e6,
        rate(&["spin_ns"]) / 1e7,
        rate(&["sleeps"]),
        rate(&["wakes"]),
        process.fallback_count()
    );
}
