//! The contract of all devices: each runs it on a pair with connected ends.

use std::time::{Duration, Instant};

use bypass_device::{Device, Error, Frame, Offload, Partial, Protocol, Segments};
use bypass_sys::kernel;

/// Two connected devices. Frames for UDP port [`PORT`] that one sends arrive at the other.
pub struct Pair {
    /// One end.
    pub a: Box<dyn Device>,
    /// The other.
    pub b: Box<dyn Device>,
    /// Link addresses of the two, for devices that use them.
    pub macs: [[u8; 6]; 2],
    /// Called before each access to a device: advances simulated time.
    pub tick: Box<dyn FnMut()>,
}

/// The UDP port of every frame of the suite.
pub const PORT: u16 = 7777;
/// Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 42;
const PATIENCE: Duration = Duration::from_secs(60);

/// The whole suite.
pub fn run(pair: &mut Pair) {
    every_length_arrives_in_order(pair);
    frames_that_do_not_fit_are_refused(pair);
    a_device_reuses_its_frames(pair);
    a_sleeper_is_woken(pair);
    a_gso_packet_arrives_whole_or_segmented(pair);
    frames_of_any_content_do_no_harm(pair);
    every_length_arrives_in_order(pair);
}

impl Pair {
    /// Swaps the ends.
    fn turn(&mut self) {
        std::mem::swap(&mut self.a, &mut self.b);
        self.macs.swap(0, 1);
    }

    /// Sends from `a`, waiting for space.
    fn send(&mut self, frame: &[u8], offload: Offload) {
        self.send_by(frame, |device| {
            device.send(frame.len(), offload, &mut |place| {
                place.copy_from_slice(frame)
            })
        });
    }

    /// The same with a separate payload, in two pieces.
    fn send_gathered(&mut self, frame: &[u8], headers: usize, offload: Offload) {
        let (first, payload) = frame.split_at(headers);
        let (second, third) = payload.split_at(payload.len() / 3);
        self.send_by(frame, |device| {
            device.send_gathered(headers, [second, third], offload, &mut |place| {
                place.copy_from_slice(first)
            })
        });
    }

    fn send_by(&mut self, frame: &[u8], send: impl Fn(&mut dyn Device) -> Result<(), Error>) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let sent = send(&mut *self.a);
            match sent {
                Ok(()) => return self.a.flush().expect("a flush"),
                Err(Error::Full) => self.a.flush().expect("a flush"),
                Err(error) => panic!("{} bytes: {error}", frame.len()),
            }
            assert!(Instant::now() < deadline, "no room for a frame");
        }
    }

    /// Frames that arrive at `b` before the deadline, until their payloads have `bytes` in all.
    fn receive(&mut self, bytes: usize) -> Vec<Vec<u8>> {
        let (deadline, mut found, mut have) = (Instant::now() + PATIENCE, Vec::new(), 0);
        while have < bytes && Instant::now() < deadline {
            (self.tick)();
            let mut take = |frames: &[Frame]| {
                assert!(!frames.is_empty(), "a burst has frames");
                for payload in frames.iter().filter_map(|frame| payload(frame.bytes)) {
                    have += payload.len();
                    found.push(payload.to_vec());
                }
            };
            self.b.receive_bursts(64, &mut take).expect("frames");
            self.b.flush().expect("a flush");
            self.a.flush().expect("a flush");
        }
        found
    }
}

/// A UDP datagram with this payload, without checksum (which IPv4 allows).
fn frame(macs: [[u8; 6]; 2], payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; HEADERS];
    frame[..6].copy_from_slice(&macs[1]);
    frame[6..12].copy_from_slice(&macs[0]);
    frame[12] = 8;
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&((28 + payload.len()) as u16).to_be_bytes());
    (frame[22], frame[23]) = (64, 17);
    frame[26..34].copy_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
    let sum = ones_complement(&frame[14..34]);
    frame[24..26].copy_from_slice(&(!sum).to_be_bytes());
    frame[34..36].copy_from_slice(&4000u16.to_be_bytes());
    frame[36..38].copy_from_slice(&PORT.to_be_bytes());
    frame[38..40].copy_from_slice(&((8 + payload.len()) as u16).to_be_bytes());
    frame.extend(payload);
    frame
}

/// The payload of a frame of the suite; None for other frames.
fn payload(bytes: &[u8]) -> Option<&[u8]> {
    let is_ours = bytes.len() > HEADERS
        && bytes[12..14] == [8, 0]
        && bytes[23] == 17
        && bytes[36..38] == PORT.to_be_bytes();
    // The IP header gives the length: Ethernet pads short frames.
    let end = 14
        + usize::from(u16::from_be_bytes([
            bytes[16..].first().copied()?,
            *bytes.get(17)?,
        ]));
    is_ours.then(|| bytes.get(HEADERS..end)).flatten()
}

fn ones_complement(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|two| u32::from(two[0]) << 8 | u32::from(*two.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn content(seed: usize, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at * 7 + seed * 13 + (at >> 8)) as u8)
        .collect()
}

fn every_length_arrives_in_order(pair: &mut Pair) {
    let most = pair.a.capabilities().mtu as usize - 28;
    let lengths: Vec<usize> = (1..most.min(200))
        .chain((200..most).step_by(131))
        .chain([most])
        .collect();
    for _ in 0..2 {
        // Few in flight at a time: no device has to hold more than a small ring.
        for group in lengths.chunks(16) {
            let expected: Vec<_> = group
                .iter()
                .map(|length| content(*length, *length))
                .collect();
            for payload in &expected {
                let frame = frame(pair.macs, payload);
                pair.send(&frame, Offload::default());
            }
            let found = pair.receive(group.iter().sum());
            assert!(
                found == expected,
                "lengths {group:?} arrived as {:?}",
                found.iter().map(Vec::len).collect::<Vec<_>>()
            );
        }
        pair.turn();
    }
}

fn frames_that_do_not_fit_are_refused(pair: &mut Pair) {
    let capabilities = pair.a.capabilities();
    let most = capabilities.mtu as usize + 14;
    let before = pair.a.counters().send_errors;
    let mut filled = 0;
    for length in [0, 1, 13, most + 1, most + 100, 1 << 20] {
        let sent = pair
            .a
            .send(length, Offload::default(), &mut |_| filled += 1);
        assert_eq!(sent, Err(Error::Refused), "{length} bytes");
    }
    let beyond = Some(Partial {
        start: 60,
        offset: 16,
    });
    let train = |size, header| {
        Some(Segments {
            size,
            header,
            protocol: Protocol::Udp,
        })
    };
    for offload in [
        Offload {
            checksum: beyond,
            ..Offload::default()
        },
        Offload {
            segments: train(10, 42),
            ..Offload::default()
        },
        Offload {
            checksum: Some(Partial {
                start: 34,
                offset: 6,
            }),
            segments: train(0, 42),
            ..Offload::default()
        },
        Offload {
            checksum: Some(Partial {
                start: 34,
                offset: 6,
            }),
            segments: train(10, 64),
            ..Offload::default()
        },
    ] {
        let sent = pair.a.send(64, offload, &mut |_| filled += 1);
        assert_eq!(sent, Err(Error::Refused), "{offload:?}");
    }
    assert_eq!(filled, 0, "a refused frame is not filled in");
    let counted = pair.a.counters().send_errors - before;
    assert_eq!(counted, 10, "refused frames are counted");
}

fn a_device_reuses_its_frames(pair: &mut Pair) {
    for round in 0..400 {
        let payload = content(round, 400);
        let frame = frame(pair.macs, &payload);
        for _ in 0..32 {
            pair.send(&frame, Offload::default());
        }
        let found = pair.receive(32 * 400);
        assert_eq!(found.len(), 32, "round {round}: {:?}", pair.b.counters());
        assert!(found.iter().all(|one| *one == payload), "round {round}");
    }
    assert!(pair.a.counters().sent >= 400 * 32 && pair.b.counters().received >= 400 * 32);
}

fn a_sleeper_is_woken(pair: &mut Pair) {
    let Some(fd) = pair.b.poll_fd() else {
        return;
    };
    let frame = frame(pair.macs, b"wake up");
    for _ in 0..20 {
        while pair.b.arm() {
            pair.b.receive(64, &mut |_| {}).expect("frames");
        }
        pair.send(&frame, Offload::default());
        let mut polled = [libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        }];
        assert_eq!(
            kernel::poll(&mut polled, Some(PATIENCE), None),
            Ok(1),
            "woken"
        );
        assert_eq!(pair.receive(7), [b"wake up"]);
    }
}

fn a_gso_packet_arrives_whole_or_segmented(pair: &mut Pair) {
    if pair.a.capabilities().segments_max == 0 {
        return;
    }
    let sent = content(3, 10_000);
    let mut frame = frame(pair.macs, &sent);
    // The sum over the pseudo header: addresses, protocol, length.
    let length = (8 + sent.len()) as u16;
    let mut pseudo = frame[26..34].to_vec();
    pseudo.extend([0, 17]);
    pseudo.extend(length.to_be_bytes());
    let sum = ones_complement(&pseudo);
    frame[40..42].copy_from_slice(&sum.to_be_bytes());
    let offload = Offload {
        checksum: Some(Partial {
            start: 34,
            offset: 6,
        }),
        segments: Some(Segments {
            size: 1000,
            header: 42,
            protocol: Protocol::Udp,
        }),
        in_order: false,
    };
    for is_gathered in [false, true] {
        match is_gathered {
            false => pair.send(&frame, offload),
            true => pair.send_gathered(&frame, 42, offload),
        }
        let found = pair.receive(sent.len());
        assert!(
            found.len() == 1 || found.len() == 10,
            "in {} parts",
            found.len()
        );
        assert!(found.concat() == sent, "gathered: {is_gathered}");
    }
}

fn frames_of_any_content_do_no_harm(pair: &mut Pair) {
    let (mut state, most) = (99u64, pair.a.capabilities().mtu as usize + 14);
    let mut random = move || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as usize
    };
    for round in 0..600 {
        let length = 14 + random() % (most - 13);
        let mut bytes: Vec<u8> = (0..length).map(|_| random() as u8).collect();
        if round % 2 == 0 {
            // Nearly valid: the header is right and the frame is cut somewhere.
            let right = frame(pair.macs, &content(round, 64));
            let kept = right.len().min(length);
            bytes[..kept].copy_from_slice(&right[..kept]);
            bytes[14 + random() % 28.min(length - 13).max(1) - usize::from(length == 14)] =
                random() as u8;
        }
        match pair.a.send(length, Offload::default(), &mut |place| {
            place.copy_from_slice(&bytes)
        }) {
            Ok(()) | Err(Error::Full) => {}
            Err(error) => panic!("{length} bytes: {error}"),
        }
        pair.a.flush().expect("a flush");
        (pair.tick)();
        pair.b
            .receive(64, &mut |frame| assert!(frame.bytes.len() <= 65_549))
            .expect("frames");
    }
    let quiet = Instant::now() + Duration::from_millis(100);
    while Instant::now() < quiet {
        (pair.tick)();
        pair.b.receive(64, &mut |_| {}).expect("frames");
        pair.b.flush().expect("a flush");
    }
}
