//! Models of the processes that share an end: exactly one ends it, after all have left, whoever is added and killed
//! meanwhile.

use std::sync::Arc;

use loom::thread;

use crate::segment::Segment;
use crate::Model;

pub const MODELS: &[Model] = &[
    ("one_of_two_that_leave_ends_the_connection", two_leave),
    (
        "one_of_two_ends_it_if_the_word_names_one",
        named_and_sharer_leave,
    ),
    (
        "a_process_that_shares_as_another_leaves_holds_it",
        shares_as_another_leaves,
    ),
    (
        "a_holder_in_another_word_of_the_set_is_not_missed",
        moves_on,
    ),
    ("a_share_that_comes_too_late_leaves_nothing", comes_too_late),
    ("a_dead_holder_is_taken_away_as_others_leave", killed),
];

/// Held by process 0, and by `sharers`.
fn held(sharers: &[usize]) -> Arc<Segment> {
    let segment = Arc::new(Segment::new());
    let holders = segment.holders(0, 1);
    holders.start(0);
    assert!(sharers.iter().all(|sharer| holders.share(Some(0), *sharer)));
    segment
}

fn leave(segment: &Segment, process: usize) -> bool {
    segment.holders(0, 1).leave(process)
}

/// Runs `act` in another thread of the model.
fn beside<T: 'static>(
    segment: &Arc<Segment>,
    act: impl FnOnce(&Segment) -> T + 'static,
) -> thread::JoinHandle<T> {
    let segment = segment.clone();
    thread::spawn(move || act(&segment))
}

fn two_leave() {
    let segment = held(&[1, 2]);
    assert!(!leave(&segment, 0));
    let other = beside(&segment, |segment| leave(segment, 2));
    let is_first_last = leave(&segment, 1);
    let is_other_last = other.join().expect("no panic");
    assert!(is_first_last != is_other_last);
}

fn named_and_sharer_leave() {
    let segment = held(&[1]);
    let other = beside(&segment, |segment| leave(segment, 0));
    let is_first_last = leave(&segment, 1);
    let is_other_last = other.join().expect("no panic");
    assert!(is_first_last != is_other_last);
}

/// A process forks while the one that the word names leaves.
fn shares_as_another_leaves() {
    let segment = held(&[1]);
    let other = beside(&segment, |segment| leave(segment, 0));
    assert!(segment.holders(0, 1).share(Some(1), 2));
    assert!(!other.join().expect("no panic"));
    assert!(!leave(&segment, 1) && leave(&segment, 2));
}

/// The holder moves to the word that was looked at before, as the last other one leaves.
fn moves_on() {
    let segment = held(&[1]);
    let other = beside(&segment, |segment| leave(segment, 0));
    let has_shared = segment.holders(0, 1).share(Some(1), 2);
    let is_last = leave(&segment, 1);
    assert!(has_shared && !is_last && !other.join().expect("no panic"));
    assert!(segment.holders(0, 1).has_only(2) && leave(&segment, 2));
}

/// A thread of the process that shares closes the end at the same time.
fn comes_too_late() {
    let segment = held(&[]);
    let other = beside(&segment, |segment| leave(segment, 0));
    let holders = segment.holders(0, 1);
    let is_shared = holders.share(Some(0), 1);
    let ends_here = match is_shared {
        true => holders.leave(1),
        false => holders.retract(1),
    };
    let ends_there = other.join().expect("no panic");
    assert!(ends_here != ends_there);
}

/// Process 1 was killed after it had left the set, and had not looked at the rest.
fn killed() {
    let segment = held(&[1, 2]);
    assert!(!leave(&segment, 0));
    segment.holders(0, 1).sharers.remove(1);
    let other = beside(&segment, |segment| leave(segment, 1));
    let is_last = leave(&segment, 2);
    let found = other.join().expect("no panic");
    assert!(is_last || found);
    assert!(segment.holders(0, 1).is_closing());
}
