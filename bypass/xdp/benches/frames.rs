//! Nanoseconds that a thread spends on a frame: received, turned round, sent back. Each device over
//! a link of its own, in namespaces made here: `cargo bench -p bypass-xdp`.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bypass_device::sim::{Conditions, Link};
use bypass_device::tap::Tap;
use bypass_device::{Device, Offload};
use bypass_netlink::Tables;
use bypass_testkit::{veth, Namespace};
use bypass_xdp::{Mode, Opened, Settings, Steering, Transport, Xdp};

const ROUNDS: usize = 3;
const RUN: Duration = Duration::from_millis(700);
/// Frames under way: enough for batches, few enough for every ring.
const WINDOW: usize = 256;
const FRAME: usize = 64;
const PORT: u16 = 7000;

type Ends = (Box<dyn Device>, Box<dyn Device>);
/// Two joined devices, and what must live as long as they.
type Made = (Ends, Vec<Namespace>, Vec<Steering>);

fn main() {
    let kinds: [(&str, fn() -> Made); 5] = [
        ("simulated link", simulated),
        ("AF_XDP native", || xdp(Mode::Native, 0)),
        ("AF_XDP native, busy poll", || xdp(Mode::Native, 20)),
        ("AF_XDP generic", || xdp(Mode::Generic, 0)),
        ("TAP, bridged", tap),
    ];
    println!(
        "{:26} {:>12} {:>10} {:>14}",
        "device", "ns/frame", "kpps", "calls/frame"
    );
    for (name, make) in kinds {
        let mut figures: Vec<_> = (0..ROUNDS).map(|_| measure(make())).collect();
        figures.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (ns, kpps, calls) = figures[ROUNDS / 2];
        println!("{name:26} {ns:12.0} {kpps:10.0} {calls:14.2}");
    }
}

/// Thread time of the reflecting end for each frame, frames per millisecond, system calls per frame.
fn measure((ends, _namespaces, _steerings): Made) -> (f64, f64, f64) {
    let (mut sender, mut reflector) = ends;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut under_way = 0;
            let mut heard = Instant::now();
            while !is_over.load(Ordering::Relaxed) {
                while under_way < WINDOW
                    && sender
                        .send(FRAME, Offload::default(), &mut write_frame)
                        .is_ok()
                {
                    under_way += 1;
                }
                sender.flush().expect("a flush");
                let count = sender.receive(64, &mut |_| {}).expect("frames");
                under_way -= count.min(under_way);
                if count > 0 {
                    heard = Instant::now();
                } else if heard.elapsed() > Duration::from_millis(20) {
                    // Lost, as frames of a full ring are.
                    under_way = 0;
                }
            }
        });
        let (started, cpu, mut frames) = (Instant::now(), thread_ns(), 0);
        let calls = reflector.counters().kernel_calls;
        while started.elapsed() < RUN {
            frames += reflect(&mut *reflector);
        }
        is_over.store(true, Ordering::Relaxed);
        let frames = frames.max(1) as f64;
        let calls = (reflector.counters().kernel_calls - calls) as f64 / frames;
        let wall_ms = started.elapsed().as_secs_f64() * 1000.0;
        ((thread_ns() - cpu) as f64 / frames, frames / wall_ms, calls)
    })
}

fn reflect(device: &mut dyn Device) -> usize {
    let mut batch = [[0u8; FRAME]; 64];
    let mut count = 0;
    let mut keep = |frame: bypass_device::Frame| {
        if frame.bytes.len() >= FRAME && frame.bytes[36..38] == PORT.to_be_bytes() {
            batch[count].copy_from_slice(&frame.bytes[..FRAME]);
            count += 1;
        }
    };
    device.receive(64, &mut keep).expect("frames");
    for frame in &batch[..count] {
        let _ = device.send(FRAME, Offload::default(), &mut |place| {
            place.copy_from_slice(frame)
        });
    }
    device.flush().expect("a flush");
    count
}

/// A UDP datagram, the same both ways: both ends take its address.
fn write_frame(frame: &mut [u8]) {
    frame.fill(0);
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[17] = 50;
    (frame[22], frame[23]) = (64, 17);
    frame[26..34].copy_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
    frame[36..38].copy_from_slice(&PORT.to_be_bytes());
    frame[39] = 30;
}

/// Processor time of the calling thread, by the scheduler's own account.
fn thread_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace()
        .next()
        .and_then(|ns| ns.parse().ok())
        .unwrap_or(0)
}

fn simulated() -> Made {
    let (_, a, b) = Link::new(1, Conditions::default());
    ((Box::new(a), Box::new(b)), Vec::new(), Vec::new())
}

fn xdp(mode: Mode, busy_poll_us: u32) -> Made {
    let sides = [Namespace::new(), Namespace::new()];
    veth((&sides[0], "va"), (&sides[1], "vb"), 1);
    let [a, b] = [(&sides[0], "va"), (&sides[1], "vb")].map(|(side, name)| {
        side.run(|| {
            let link = Tables::new()
                .expect("tables")
                .link(name)
                .expect("the link")
                .clone();
            let steering = Steering::attach(link.index, link.mtu, mode, false).expect("allowed");
            let settings = Settings {
                busy_poll_us,
                ..Settings::default()
            };
            let opened = Opened::open(&link, 0, settings).expect("opened");
            steering.set_socket(0, opened.socket()).expect("room");
            steering.add_address(IpAddr::from([10, 77, 0, 2]));
            steering.claim(Transport::Udp, PORT);
            (Xdp::new(opened).expect("rings"), steering)
        })
    });
    ((Box::new(a.0), Box::new(b.0)), sides.into(), vec![a.1, b.1])
}

fn tap() -> Made {
    let side = Namespace::new();
    let (a, b) = side.run(|| {
        (
            Tap::open("ta").expect("allowed"),
            Tap::open("tb").expect("allowed"),
        )
    });
    side.ip("link add name bridge0 type bridge forward_delay 0 stp_state 0");
    for name in ["ta", "tb"] {
        side.ip(&format!("link set {name} master bridge0 up"));
    }
    side.ip("link set bridge0 up");
    // No learning: every frame has the same addresses, whichever way it goes.
    for name in ["ta", "tb"] {
        side.command("bridge", &format!("link set dev {name} learning off"));
    }
    ((Box::new(a), Box::new(b)), vec![side], Vec::new())
}
