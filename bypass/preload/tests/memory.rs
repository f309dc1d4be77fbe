//! Memory of connections that held more than their first rings: it goes back when they end, when they
//! are idle, and when a dead process held them.

#[path = "hostile/program.rs"]
#[allow(dead_code)]
mod program;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use bypass_stack::{peer, Outcome};
use bypass_sys::kernel;

use program::{accept_within, close, dial, is_accelerated, read, write, Listening};

/// Far more than anything here takes, also on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
const MIB: usize = 1 << 20;
/// What a few connections with first rings may keep.
const LITTLE: usize = 256 << 10;

/// All segments of the process are looked at, so one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Memory of all segments that this process has mapped, by what their files say.
fn held_bytes() -> usize {
    let blocks = |one: &std::sync::Arc<peer::Peer>| {
        kernel::fstat(one.segment.fd()).map_or(0, |stat| stat.st_blocks as usize)
    };
    let mut files: Vec<_> = peer::mapped();
    files.retain(|one| one.side == 0);
    files.iter().map(blocks).sum::<usize>() * 512
}

/// Returns when no more than `most` bytes are held.
fn await_held(most: usize) {
    let since = Instant::now();
    while held_bytes() > most {
        assert!(
            since.elapsed() < PATIENCE,
            "{} bytes are held",
            held_bytes()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("back after {:?}", since.elapsed());
}

fn connect(listening: &Listening) -> (i32, i32) {
    let near = dial(listening.port);
    assert!(is_accelerated(near));
    let far = accept_within(listening.fd, PATIENCE).expect("a connection");
    (near, far)
}

fn write_before_reading(from: i32, to: i32, bytes: &[u8]) {
    assert_eq!(write(from, bytes), Outcome::Done(bytes.len() as isize));
    read_back(to, bytes);
}

fn read_back(to: i32, bytes: &[u8]) {
    let mut got = Vec::new();
    while got.len() < bytes.len() {
        got.extend(read(to, MIB).expect("bytes"));
    }
    assert!(got == bytes);
}

fn a_mebibyte() -> Vec<u8> {
    (0..MIB).map(|at| ((at * 31) >> 4) as u8).collect()
}

#[test]
fn connections_in_turn_that_held_a_mebibyte_leave_nothing() {
    let _alone = ALONE.lock();
    let count: usize =
        std::env::var("CONNECTIONS").map_or(300, |text| text.parse().expect("a number"));
    let listening = Listening::open();
    let (near, far) = connect(&listening);
    write_before_reading(near, far, b"the lists of a segment are in use from now on");
    let before = held_bytes();
    let bytes = a_mebibyte();
    for _ in 0..count {
        let (near, far) = connect(&listening);
        write_before_reading(near, far, &bytes);
        write_before_reading(far, near, &bytes);
        close(near);
        close(far);
    }
    await_held(before + LITTLE);
    close(near);
    close(far);
    listening.close();
}

#[test]
fn an_idle_connection_gives_back_what_it_held_and_goes_on() {
    let _alone = ALONE.lock();
    let listening = Listening::open();
    let (near, far) = connect(&listening);
    write_before_reading(near, far, b"x");
    let before = held_bytes();
    let bytes = a_mebibyte();
    for _ in 0..2 {
        assert_eq!(write(near, &bytes), Outcome::Done(MIB as isize));
        // Before they are read: on a machine that stalls, a moment later may be a second later.
        assert!(held_bytes() >= before + MIB / 2);
        read_back(far, &bytes);
        await_held(before + LITTLE);
        write_before_reading(near, far, b"a few bytes");
        write_before_reading(far, near, &bytes);
    }
    close(near);
    close(far);
    await_held(before + LITTLE); // the next test counts what is held
    listening.close();
}

#[test]
fn unread_bytes_stay_and_go_with_the_connection() {
    let _alone = ALONE.lock();
    let listening = Listening::open();
    let (near, far) = connect(&listening);
    let before = held_bytes();
    let bytes = a_mebibyte();
    assert_eq!(write(near, &bytes), Outcome::Done(MIB as isize));
    std::thread::sleep(Duration::from_millis(2500));
    assert!(held_bytes() >= before + MIB / 2, "unread bytes are kept");
    let mut got = Vec::new();
    while got.len() < MIB / 2 {
        got.extend(read(far, 10_000).expect("bytes"));
    }
    assert!(got == bytes[..got.len()]);
    close(far);
    close(near);
    await_held(before + LITTLE);
    listening.close();
}
