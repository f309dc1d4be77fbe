//! Models of the holders of one end: whatever they do at once, one of them is the last and writes the end, and what a
//! dead one has begun is finished by who clears up after it.

use std::sync::Arc;

use loom::thread;

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::holders::{self, Holders};
use crate::Model;

pub const MODELS: &[Model] = &[
    ("of_two_that_leave_one_is_the_last", two_leave),
    ("a_child_is_named_before_its_parent_can_leave", parent_forks),
    ("the_end_of_a_last_holder_that_dies_is_written", last_dies),
];

/// Few and many processes: the word has a form for each.
const PARENT: usize = 1;
const CHILD: usize = 6;
const OTHER: usize = 7;

struct End {
    word: AtomicU64,
    /// How often the end was written.
    ends: AtomicU32,
}

impl End {
    fn held_by(processes: &[usize]) -> Arc<Self> {
        let add = |word: Holders, one: &usize| word.with(*one).expect("room");
        let word = processes.iter().fold(Holders(0), add);
        Arc::new(Self {
            word: AtomicU64::new(word.0),
            ends: AtomicU32::new(0),
        })
    }

    fn leave(&self, process: usize) {
        if holders::leave(&self.word, process) {
            self.ends.fetch_add(1, Ordering::SeqCst);
            holders::forget(&self.word, process);
        }
    }

    fn is_over(&self) -> bool {
        self.word.load(Ordering::SeqCst) == 0
    }
}

fn two_leave() {
    let end = End::held_by(&[PARENT, CHILD]);
    let other = end.clone();
    let thread = thread::spawn(move || other.leave(CHILD));
    end.leave(PARENT);
    thread.join().expect("no panic");
    assert!(end.is_over());
    assert_eq!(end.ends.load(Ordering::SeqCst), 1);
}

/// The parent names its child, which then leaves in parallel with it, as another holder leaves all the while.
fn parent_forks() {
    let end = End::held_by(&[PARENT, OTHER]);
    let other = end.clone();
    let leaving = thread::spawn(move || other.leave(OTHER));
    let is_named = holders::enter(&end.word, CHILD, |now| {
        !now.is_in_between() && now.has(PARENT)
    });
    assert!(is_named);
    let other = end.clone();
    let child = thread::spawn(move || other.leave(CHILD));
    end.leave(PARENT);
    leaving.join().expect("no panic");
    child.join().expect("no panic");
    assert!(end.is_over());
    assert_eq!(end.ends.load(Ordering::SeqCst), 1);
}

/// It is killed before it has written the end; two of the other side find that out.
fn last_dies() {
    let end = End::held_by(&[CHILD]);
    assert!(holders::leave(&end.word, CHILD));
    let other = end.clone();
    let thread = thread::spawn(move || other.leave(CHILD));
    end.leave(CHILD);
    thread.join().expect("no panic");
    assert!(end.is_over());
    assert!((1..=2).contains(&end.ends.load(Ordering::SeqCst)));
}
