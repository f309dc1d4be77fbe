//! The contract of devices on a link in shared memory, within this process and with another one.

use std::process::{Child, Command};
use std::time::Duration;

use bypass_device::{Device, Error, Offload};
use bypass_sys::descriptor::Owned;
use bypass_sys::kernel;
use bypass_testkit::contract::{self, Pair};
use bypass_testkit::Case;
use bypass_xdp::memory::{pair, Descriptors, End, Shape};

const CASES: &[Case] = &[
    ("a_link_in_memory_keeps_the_contract", || {
        keeps_contract(PLAIN)
    }),
    ("one_with_large_packets_keeps_the_contract", || {
        keeps_contract(LARGE)
    }),
    ("one_with_gso_packets_keeps_the_contract", || {
        keeps_contract(SEGMENTS)
    }),
    ("a_full_link_has_room_after_a_look", full),
    ("another_process_sends_every_frame_back", other_process),
    ("a_link_of_another_shape_is_refused", other_shape),
];

const PLAIN: Shape = Shape {
    mtu: 1500,
    segments_max: 0,
};
const LARGE: Shape = Shape { mtu: 9000, ..PLAIN };
const SEGMENTS: Shape = Shape {
    segments_max: 16_000,
    ..PLAIN
};
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const PATIENCE: Duration = Duration::from_secs(60);
/// Before the descriptors of a link: this process is the other end's.
const REFLECT: &str = "--reflect";
/// The frame after which it ends.
const LAST: usize = 14;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if let [_, flag, descriptors @ ..] = &words[..] {
        if flag == REFLECT {
            return reflect(descriptors);
        }
    }
    bypass_testkit::main(CASES)
}

fn keeps_contract(shape: Shape) {
    let (a, b) = pair(shape).expect("memory");
    contract::run(&mut Pair {
        a: Box::new(a),
        b: Box::new(b),
        macs: MACS,
        tick: Box::new(|| {}),
    });
}

fn full() {
    let (mut a, mut b) = pair(PLAIN).expect("memory");
    let send = |end: &mut End| end.send(60, Offload::default(), &mut |frame| frame.fill(7));
    let mut sent = 0;
    while send(&mut a).is_ok() {
        sent += 1;
    }
    assert_eq!(send(&mut a), Err(Error::Full));
    assert_eq!(b.receive(1, &mut |_| {}), Ok(0), "not before a flush");
    a.flush().expect("memory");
    assert_eq!(b.receive(1, &mut |_| {}), Ok(1));
    assert_eq!(send(&mut a), Ok(()));
    a.flush().expect("memory");
    assert_eq!(b.receive(usize::MAX, &mut |_| {}), Ok(sent));
    let counters = a.counters();
    assert_eq!((counters.sent, counters.send_full), (sent as u64 + 1, 2));
    assert_eq!(counters.kernel_calls, 0, "nothing sleeps");
}

fn other_shape() {
    let link = Descriptors::create(PLAIN).expect("memory");
    let refused = End::of(link, 0, LARGE);
    assert_eq!(refused.err(), Some(libc::EPROTO));
}

/// Ends the process when a test fails.
struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn other_process() {
    let link = Descriptors::create(SEGMENTS).expect("memory");
    // Without close-on-exec, unlike the link's own.
    let passed = [&link.file, &link.wakers[0], &link.wakers[1]]
        .map(|fd| Owned(kernel::dup(fd.0).expect("a descriptor") as i32));
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.arg(REFLECT);
    command.args(passed.each_ref().map(|fd| fd.0.to_string()));
    let mut peer = Peer(command.spawn().expect("a process"));
    drop(passed);
    let mut end = End::of(link, 0, SEGMENTS).expect("memory");
    for round in 0..5_000 {
        let length = 60 + (round * 37) % 1450;
        let sent: Vec<u8> = (0..length).map(|at| (at * 7 + round) as u8).collect();
        let fill = &mut |frame: &mut [u8]| frame.copy_from_slice(&sent);
        end.send(length, Offload::default(), fill).expect("room");
        end.flush().expect("memory");
        assert_eq!(next(&mut end), sent, "round {round}");
    }
    end.send(LAST, Offload::default(), &mut |frame| frame.fill(0))
        .expect("room");
    end.flush().expect("memory");
    assert!(peer.0.wait().expect("its end").success());
}

/// The next frame, slept for.
fn next(end: &mut End) -> Vec<u8> {
    let mut found = Vec::new();
    while !end.arm() {
        let mut polled = [libc::pollfd {
            fd: end.poll_fd().expect("a waker"),
            events: libc::POLLIN,
            revents: 0,
        }];
        let woken = kernel::poll(&mut polled, Some(PATIENCE), None);
        assert_eq!(woken, Ok(1), "a frame comes");
    }
    let count = end.receive(1, &mut |frame| found = frame.bytes.to_vec());
    assert_eq!(count, Ok(1));
    found
}

/// The other process.
fn reflect(descriptors: &[String]) {
    let numbers: Vec<i32> = descriptors.iter().flat_map(|one| one.parse()).collect();
    let [file, first, second] = numbers[..] else {
        panic!("{REFLECT} FILE WAKER WAKER, not {descriptors:?}");
    };
    let link = Descriptors {
        file: Owned(file),
        wakers: [Owned(first), Owned(second)],
    };
    let mut end = End::of(link, 1, SEGMENTS).expect("memory");
    loop {
        let frame = next(&mut end);
        if frame.len() == LAST {
            return;
        }
        let fill = &mut |place: &mut [u8]| place.copy_from_slice(&frame);
        end.send(frame.len(), Offload::default(), fill)
            .expect("room");
        end.flush().expect("memory");
    }
}
