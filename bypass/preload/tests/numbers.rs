//! Numbers of descriptors: what walks all that were ever the library's does not walk all that there could be.

#[path = "hostile/program.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod program;

use std::time::Duration;

use bypass_stack::operations::descriptors;
use bypass_stack::process::table;

use program::{accept_within, close, dial, is_accelerated, Listening};

const PATIENCE: Duration = Duration::from_secs(60);
/// Below this are the library's own numbers, however many a process may have.
const HIGH: i32 = 8192;

/// The soft limit becomes the hard one, which is a million on many hosts.
fn raise_limit() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limit lives on this frame.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = limit.rlim_max;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
}

#[test]
fn close_range_walks_the_numbers_that_were_ours() {
    raise_limit();
    let listening = Listening::open();
    let client = dial(listening.port);
    assert!(is_accelerated(client));
    let server = accept_within(listening.fd, PATIENCE).expect("a connection");
    assert!(table::used() <= HIGH, "{}", table::used());
    // What is beyond is closed by one call of the kernel's, in ranges between ours.
    let mut ranges = Vec::new();
    descriptors::close_range(HIGH as u32, u32::MAX, |first, last| {
        ranges.push((first, last))
    });
    assert_eq!(ranges, [(HIGH as u32, u32::MAX)]);
    close(client);
    close(server);
    listening.close();
}
