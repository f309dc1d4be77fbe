//! Processes that have queues of an interface: their ends are heard while the service thread sleeps, so that it need
//! not look all the time.

use std::sync::Mutex;

use bypass_sys::descriptor::Owned;
use bypass_sys::{kernel, numbers};

use crate::process::table;

struct Holder {
    process: i32,
    /// Readable at its end; None where that cannot be heard, or was.
    end: Option<Owned>,
}

impl Holder {
    fn of(process: i32) -> Self {
        // 0 is a process of another namespace.
        let opened = (process > 0).then(|| numbers::high(|| kernel::pidfd_open(process, 0)));
        let end = opened.and_then(Result::ok);
        end.iter().for_each(|end| table::hide(end.0));
        Self { process, end }
    }

    fn close(&mut self) {
        self.end.iter().for_each(|end| table::show(end.0));
        self.end = None;
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.close();
    }
}

static HOLDERS: Mutex<Vec<Holder>> = Mutex::new(Vec::new());

/// Locks them across a fork.
pub fn hold() -> impl Sized {
    HOLDERS.lock().ok()
}

/// In a forked child, which does not listen to any process yet.
pub fn forget() {
    follow(&[]);
}

/// Listens to these processes, and to no others. Whether the ends of all can be heard.
pub fn follow(processes: &[i32]) -> bool {
    let Ok(mut holders) = HOLDERS.lock() else {
        return false;
    };
    holders.retain(|one| processes.contains(&one.process));
    for process in processes {
        if !holders.iter().any(|one| one.process == *process) {
            holders.push(Holder::of(*process));
        }
    }
    holders.iter().all(|one| one.end.is_some())
}

/// Polled for reading.
pub fn fds() -> Vec<i32> {
    let Ok(holders) = HOLDERS.lock() else {
        return Vec::new();
    };
    let ends = holders.iter().filter_map(|one| one.end.as_ref());
    ends.map(|end| end.0).collect()
}

/// Whether any of them has ended, by what poll(2) has left. Each end is heard once.
pub fn have_ended(polled: &[libc::pollfd]) -> bool {
    let ended = polled.iter().filter(|one| one.revents != 0);
    let ended: Vec<i32> = ended.map(|one| one.fd).collect();
    if ended.is_empty() {
        return false;
    }
    let is_of = |one: &&mut Holder| one.end.as_ref().is_some_and(|end| ended.contains(&end.0));
    if let Ok(mut holders) = HOLDERS.lock() {
        holders.iter_mut().filter(is_of).for_each(Holder::close);
    }
    true
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn sleeper() -> Child {
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).spawn().expect("cat")
    }

    fn end(mut child: Child) {
        child.kill().expect("ended");
        child.wait().expect("its end");
    }

    fn have_any_ended() -> bool {
        let polled = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let mut all: Vec<_> = fds().into_iter().map(polled).collect();
        let _ = kernel::poll(&mut all, Some(core::time::Duration::ZERO), None);
        have_ended(&all)
    }

    #[test]
    fn an_end_is_heard_once() {
        let (first, second) = (sleeper(), sleeper());
        let [one, other] = [&first, &second].map(|child| child.id() as i32);
        assert!(follow(&[one, other]) && !have_any_ended());
        end(first);
        assert!(have_any_ended() && !have_any_ended());
        assert!(!follow(&[one, other]), "it has no other end");
        assert!(follow(&[other]));
        end(second);
        assert!(have_any_ended());
        assert!(!follow(&[0]), "who has no number here");
        assert!(follow(&[]) && fds().is_empty());
    }
}
