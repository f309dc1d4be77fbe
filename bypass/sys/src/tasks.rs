//! Threads of the process as the kernel sees them: whether one has been kept from running.

use std::ffi::CString;

use crate::{kernel, numbers};

/// Remembers how long each thread had run at the last look.
#[derive(Debug, Default)]
pub struct Watch {
    ran: Vec<(i32, u64)>,
}

impl Watch {
    /// Nothing was looked at yet.
    pub const fn new() -> Self {
        Self { ran: Vec::new() }
    }

    /// Whether a thread has been kept from running since the look before: it wants to run, waits for a disk or is stopped, and
    /// has used none of the processor's time. The calling thread does not count; nor does any where there is no /proc.
    pub fn has_starved(&mut self) -> bool {
        let own = kernel::gettid().unwrap_or(0) as i32;
        let all = numbers::listed(c"/proc/self/task").unwrap_or_default();
        let others = all.into_iter().filter(|thread| *thread != own);
        let seen: Vec<(i32, Task)> = others
            .filter_map(|thread| Some((thread, Task::of(thread)?)))
            .collect();
        let has_starved = seen
            .iter()
            .any(|(thread, task)| task.could_run && self.ran.contains(&(*thread, task.time)));
        self.ran = seen
            .into_iter()
            .map(|(thread, task)| (thread, task.time))
            .collect();
        has_starved
    }
}

/// The kernel's facts about a thread.
#[derive(Debug, PartialEq, Eq)]
struct Task {
    /// It does not sleep of its own accord.
    could_run: bool,
    /// Time of the processor, in ticks of the kernel.
    time: u64,
}

impl Task {
    fn of(thread: i32) -> Option<Self> {
        let name = CString::new(format!("/proc/self/task/{thread}/stat")).ok()?;
        let file = numbers::high(|| kernel::open(&name, libc::O_RDONLY)).ok()?;
        let mut text = [0; 512];
        let count = kernel::read(file.0, &mut text).ok()?;
        Self::parse(core::str::from_utf8(&text[..count]).ok()?)
    }

    /// Fields 3, 14 and 15 of proc_pid_stat(5), behind a name in parentheses that may have blanks.
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        let mut times = fields.skip(10).map(str::parse::<u64>);
        let time = times.next()?.ok()? + times.next()?.ok()?;
        Some(Self {
            could_run: ["R", "D", "T", "t"].contains(&state),
            time,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn state_and_time_are_read_behind_any_name() {
        let text = "7 (a) S b) R 1 2 3 4 5 6 7 8 9 10 30 12 0 0 20";
        let task = Task::parse(text);
        assert_eq!(
            task,
            Some(Task {
                could_run: true,
                time: 42
            })
        );
        let asleep = Task::parse(&text.replace(") R", ") S")).expect("a task");
        assert!(!asleep.could_run);
        assert_eq!(Task::parse("7 (a) R 1 2"), None);
    }

    #[test]
    fn threads_that_sleep_have_not_starved() {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || receiver.recv().is_err());
        let mut watch = Watch::new();
        assert!(!watch.has_starved(), "nothing is known of earlier times");
        // Other tests' threads want to run, and may get no time: when they have ended, no thread starves.
        let since = std::time::Instant::now();
        while watch.has_starved() {
            assert!(since.elapsed() < Duration::from_secs(120), "a sleeper");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(sender);
        assert!(sleeper.join().expect("an end"));
    }
}
