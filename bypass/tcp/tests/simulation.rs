//! Seeded runs over a bad link: the stream of bytes is the oracle, the invariants are checked after
//! every event. `cargo run --release -p bypass-tcp --example seeds -- COUNT` runs many more.

mod support;

#[test]
fn two_hundred_seeds_deliver_every_byte_and_leave_nothing() {
    let threads: Vec<_> = (0..2u64)
        .map(|half| {
            std::thread::spawn(move || {
                (0..100)
                    .map(|number| support::simulation::run(half * 100 + number))
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
    support::simulation::run(39_173);
}
