//! Models of the way from connect to accept: each connection is taken once, also when a holder
//! dies between winning it and saying so.

use std::sync::Arc;

use loom::thread;

use crate::accept_queue;
use crate::atomic::Ordering;
use crate::holders::Holders;
use crate::layout::QUEUED;
use crate::segment::Segment;
use crate::Model;

pub const MODELS: &[Model] = &[
    ("two_holders_take_each_connection_once", two_holders),
    ("a_holder_that_dies_leaves_the_rest_in_order", holder_dies),
];

fn offer(segment: &Segment, slot: usize) {
    segment.slot(slot).meta.holders[1].store(QUEUED, Ordering::SeqCst);
    assert!(segment.queue().push(slot));
}

fn take(segment: &Segment, process: usize) -> Option<usize> {
    accept_queue::take(segment, process).expect("an honest client")
}

fn two_holders() {
    let segment = Arc::new(Segment::new());
    offer(&segment, 0);
    let other = segment.clone();
    let thread = thread::spawn(move || take(&other, 1));
    offer(&segment, 1);
    let mut taken: Vec<_> = take(&segment, 0).into_iter().collect();
    taken.extend(thread.join().expect("no panic"));
    while let Some(slot) = take(&segment, 0) {
        taken.push(slot);
    }
    taken.sort_unstable();
    assert_eq!(taken, [0, 1]);
}

/// The dead one has turned the slot into its own and has not moved the head.
fn holder_dies() {
    let segment = Arc::new(Segment::new());
    offer(&segment, 2);
    offer(&segment, 1);
    let other = segment.clone();
    let thread = thread::spawn(move || {
        let holders = &other.slot(2).meta.holders[1];
        holders
            .compare_exchange(
                QUEUED,
                Holders::only(5).0,
                Ordering::SeqCst,
                Ordering::Relaxed,
            )
            .is_ok()
    });
    let first = take(&segment, 0);
    let is_dead_owner = thread.join().expect("no panic");
    let second = take(&segment, 0);
    let expected = if is_dead_owner {
        [Some(1), None]
    } else {
        [Some(2), Some(1)]
    };
    assert_eq!([first, second], expected);
}
