//! Seeded runs over a bad link: the stream of bytes is the oracle, the invariants are checked after
//! every event. `cargo run --release -p bypass-tcp --example seeds -- --twice COUNT` runs many more.

mod support;

use support::{simulation, Sent};

#[test]
fn two_hundred_seeds_deliver_every_byte_leave_nothing_and_repeat() {
    let threads: Vec<_> = (0..2u64)
        .map(|half| {
            std::thread::spawn(move || {
                (0..100)
                    .map(|number| simulation::run_twice(half * 100 + number))
                    .sum::<usize>()
            })
        })
        .collect();
    let bytes: usize = threads
        .into_iter()
        .map(|thread| thread.join().expect("see above"))
        .sum();
    assert!(bytes > 5_000_000, "only {bytes} bytes were carried");
}

/// The link loses the answers to six SYN/ACKs: the server gives up, as it should, and the client tries again.
#[test]
fn a_handshake_that_the_link_defeats_is_tried_again() {
    simulation::run(39_173);
}

#[test]
fn runs_that_differ_are_found_by_their_first_different_frame() {
    let [first, later, other] = [(1, 7), (2, 7), (1, 8)].map(|(at_us, hash)| Sent { at_us, hash });
    let differ = |one: &[Sent], two: &[Sent]| simulation::divergence(one, two);
    assert_eq!(differ(&[first, later], &[first, later]), None);
    for (one, two) in [(later, first), (first, other)] {
        assert_eq!(
            differ(&[first, one], &[first, two]),
            Some((1, Some(one), Some(two)))
        );
    }
    assert_eq!(
        differ(&[first, later], &[first]),
        Some((1, Some(later), None))
    );
    assert_eq!(differ(&[], &[first]), Some((0, None, Some(first))));
}
