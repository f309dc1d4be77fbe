//! The contract of devices on the simulated link, TAP and a device under a capture.

use std::time::{Duration, Instant};

use bypass_device::impaired::{Faults, Impaired};
use bypass_device::pcap::{Capture, Tee};
use bypass_device::sim::{Conditions, Link};
use bypass_device::tap::Tap;
use bypass_device::{Device, Error};
use bypass_testkit::contract::{self, Pair};
use bypass_testkit::{skip, Case, Namespace};

const CASES: &[Case] = &[
    ("the_simulated_link_keeps_the_contract", simulated),
    ("a_captured_device_keeps_the_contract", captured),
    (
        "a_device_with_no_faults_in_front_keeps_the_contract",
        impaired,
    ),
    ("tap_keeps_the_contract", tap),
    ("tap_queues_share_an_interface", queues),
];

fn main() {
    bypass_testkit::main(CASES)
}

const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

fn joined(link: Link, a: impl Device + 'static, b: impl Device + 'static) -> Pair {
    Pair {
        a: Box::new(a),
        b: Box::new(b),
        macs: MACS,
        tick: Box::new(move || link.advance(link.now_us() + 10)),
    }
}

fn simulated() {
    let conditions = Conditions {
        delay_us: 50,
        ..Conditions::default()
    };
    let (link, a, b) = Link::new(1, conditions);
    contract::run(&mut joined(link, a, b));
}

fn captured() {
    let (link, a, b) = Link::new(1, Conditions::default());
    let tee = |end| Tee::new(end, Capture::new(Vec::new()).expect("memory"), || 1);
    contract::run(&mut joined(link, tee(a), tee(b)));
}

fn impaired() {
    let (link, a, b) = Link::new(1, Conditions::default());
    let with = |end| Impaired::new(end, 1, Faults::default());
    contract::run(&mut joined(link, with(a), with(b)));
}

/// A TAP interface in the calling thread's namespace.
fn open(name: &str) -> Tap {
    match Tap::open(name) {
        Ok(tap) => tap,
        Err(Error::Kernel(error @ (libc::ENOENT | libc::EPERM))) => skip(format!(
            "/dev/net/tun cannot be opened (error {error}; needs CAP_NET_ADMIN)"
        )),
        Err(error) => panic!("{name}: {error}"),
    }
}

/// Two TAPs joined by a bridge.
fn tap() {
    let namespace = Namespace::new();
    namespace.enter();
    let (a, b) = (open("ta"), open("tb"));
    namespace.ip("link add name bridge0 type bridge forward_delay 0 stp_state 0");
    for name in ["ta", "tb", "bridge0"] {
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1").ok();
    }
    for name in ["ta", "tb"] {
        namespace.ip(&format!("link set {name} master bridge0 up"));
    }
    namespace.ip("link set bridge0 up");
    let (a, b): (Box<dyn Device>, Box<dyn Device>) = (Box::new(a), Box::new(b));
    contract::run(&mut Pair {
        a,
        b,
        macs: MACS,
        tick: Box::new(|| {}),
    });
}

/// Frames that the kernel sends arrive at one of the queues, each at one only.
fn queues() {
    let namespace = Namespace::new();
    namespace.enter();
    let mut queues = [open("tq"), open("tq"), open("tq")];
    namespace.ip("addr add 10.8.0.1/24 dev tq");
    namespace.ip("link set tq up");
    namespace.ip("neigh add 10.8.0.2 lladdr 02:00:00:00:00:02 dev tq");
    let sockets: Vec<_> = (0..32)
        .map(|_| std::net::UdpSocket::bind("10.8.0.1:0").expect("a port"))
        .collect();
    for (number, socket) in sockets.iter().enumerate() {
        socket.send_to(&[number as u8], "10.8.0.2:9").expect("sent");
    }
    let mut seen = [0; 32];
    let mut is_used = [false; 3];
    let begun = Instant::now();
    while seen.contains(&0) && begun.elapsed() < Duration::from_secs(60) {
        for (queue, is_used) in queues.iter_mut().zip(&mut is_used) {
            let mut note = |frame: bypass_device::Frame| {
                if frame.bytes.len() == 43 && frame.bytes[36..38] == [0, 9] {
                    seen[usize::from(frame.bytes[42]) % 32] += 1;
                    *is_used = true;
                }
            };
            queue.receive(1000, &mut note).expect("frames");
        }
    }
    assert_eq!(seen, [1; 32], "each once");
    let used = is_used.iter().filter(|is_used| **is_used).count();
    assert!(used >= 2, "32 flows all went to one of three queues");
}
