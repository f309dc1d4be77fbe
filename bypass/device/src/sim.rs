//! A link between two devices in memory, with seeded faults, in virtual time.
//!
//! The same seed and the same sends at the same times give the same arrivals, so a failed run can
//! be repeated. Only [`Link::advance`] moves time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::frame::{Capabilities, Checksum, Counters, Device, Error, Frame, Offload, ETHERNET};

/// Conditions of one direction. Shares are between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Conditions {
    /// Share of lost frames.
    pub loss: f64,
    /// Share of frames that arrive twice.
    pub duplication: f64,
    /// Share of frames that are delayed by up to `reordering_us`.
    pub reordering: f64,
    /// See above.
    pub reordering_us: u64,
    /// Share of frames with one wrong bit.
    pub corruption: f64,
    /// Delay of one direction.
    pub delay_us: u64,
    /// Bits per second; 0 for no limit.
    pub rate_bps: u64,
    /// Most frames that wait for the rate; further ones are lost.
    pub queue: usize,
    /// Largest IP packet.
    pub mtu: u32,
}

impl Default for Conditions {
    /// A link without faults, delay or limit.
    fn default() -> Self {
        Self {
            loss: 0.0,
            duplication: 0.0,
            reordering: 0.0,
            reordering_us: 0,
            corruption: 0.0,
            delay_us: 0,
            rate_bps: 0,
            queue: 1_000,
            mtu: 1500,
        }
    }
}

/// The fate of the frames of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fate {
    /// Sent.
    pub sent: u64,
    /// Lost at random.
    pub lost: u64,
    /// Lost because the queue was full.
    pub overflowed: u64,
    /// Duplicated.
    pub duplicated: u64,
    /// Delayed.
    pub reordered: u64,
    /// Damaged.
    pub corrupted: u64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Arrival {
    at_us: u64,
    order: u64,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Direction {
    conditions: Conditions,
    waiting: BinaryHeap<Reverse<Arrival>>,
    /// When the last frame has left, in nanoseconds, at the rate.
    busy_until_ns: u64,
    /// Times at which queued frames leave.
    leaving_ns: std::collections::VecDeque<u64>,
    fate: Fate,
}

#[derive(Debug)]
struct Wire {
    now_us: u64,
    random: u64,
    order: u64,
    directions: [Direction; 2],
}

/// The link.
#[derive(Debug, Clone)]
pub struct Link(Arc<Mutex<Wire>>);

/// One of its two ends.
#[derive(Debug)]
pub struct End {
    wire: Arc<Mutex<Wire>>,
    side: usize,
    frame: Vec<u8>,
    counters: Counters,
}

impl Link {
    /// A link with the same conditions in both directions.
    pub fn new(seed: u64, conditions: Conditions) -> (Self, End, End) {
        let direction = || Direction {
            conditions,
            waiting: BinaryHeap::new(),
            busy_until_ns: 0,
            leaving_ns: Default::default(),
            fate: Fate::default(),
        };
        let wire = Arc::new(Mutex::new(Wire {
            now_us: 0,
            // Not 0, and seeds that differ by one start far apart.
            random: (seed ^ 0x9e37_79b9_7f4a_7c15).max(1),
            order: 0,
            directions: [direction(), direction()],
        }));
        let end = |side| End {
            wire: wire.clone(),
            side,
            frame: Vec::new(),
            counters: Counters::default(),
        };
        let ends = (end(0), end(1));
        (Self(wire), ends.0, ends.1)
    }

    fn wire(&self) -> MutexGuard<'_, Wire> {
        lock(&self.0)
    }

    /// Changes the conditions of frames that `side` (0 or 1) sends from now on.
    pub fn set_conditions(&self, side: usize, conditions: Conditions) {
        self.wire().directions[side].conditions = conditions;
    }

    /// Virtual time.
    pub fn now_us(&self) -> u64 {
        self.wire().now_us
    }

    /// Advances time, never backwards.
    pub fn advance(&self, now_us: u64) {
        let mut wire = self.wire();
        wire.now_us = wire.now_us.max(now_us);
    }

    /// When the next frame arrives at either end; None if none is in flight.
    pub fn next_arrival_us(&self) -> Option<u64> {
        let wire = self.wire();
        let first = |direction: &Direction| direction.waiting.peek().map(|one| one.0.at_us);
        wire.directions.iter().filter_map(first).min()
    }

    /// The fate of the frames that `side` sent.
    pub fn fate(&self, side: usize) -> Fate {
        self.wire().directions[side].fate
    }
}

fn lock(wire: &Mutex<Wire>) -> MutexGuard<'_, Wire> {
    wire.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Wire {
    /// xorshift64*, good enough for faults.
    fn random(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn happens(&mut self, share: f64) -> bool {
        // One draw per question, so that the others do not depend on a share that is 0.
        (self.random() >> 11) as f64 / (1u64 << 53) as f64 * 1.0 < share
    }

    fn transmit(&mut self, side: usize, bytes: &[u8]) {
        let conditions = self.directions[side].conditions;
        self.directions[side].fate.sent += 1;
        let Some(left_us) = self.leave(side, bytes.len()) else {
            self.directions[side].fate.overflowed += 1;
            return;
        };
        if self.happens(conditions.loss) {
            self.directions[side].fate.lost += 1;
            return;
        }
        let is_double = self.happens(conditions.duplication);
        self.directions[side].fate.duplicated += u64::from(is_double);
        for _ in 0..=usize::from(is_double) {
            let mut at_us = left_us + conditions.delay_us;
            if self.happens(conditions.reordering) {
                at_us += self.random() % conditions.reordering_us.max(1);
                self.directions[side].fate.reordered += 1;
            }
            let mut bytes = bytes.to_vec();
            if self.happens(conditions.corruption) {
                let bit = self.random() as usize % (bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
                self.directions[side].fate.corrupted += 1;
            }
            self.order += 1;
            let order = self.order;
            let arrival = Arrival {
                at_us,
                order,
                bytes,
            };
            self.directions[side].waiting.push(Reverse(arrival));
        }
    }

    /// When a frame that is sent now leaves, at the rate; None if the queue is full.
    fn leave(&mut self, side: usize, length: usize) -> Option<u64> {
        let (now_us, direction) = (self.now_us, &mut self.directions[side]);
        let rate = direction.conditions.rate_bps;
        if rate == 0 {
            return Some(now_us);
        }
        while direction
            .leaving_ns
            .front()
            .is_some_and(|at| *at <= now_us * 1000)
        {
            direction.leaving_ns.pop_front();
        }
        if direction.leaving_ns.len() >= direction.conditions.queue {
            return None;
        }
        let takes_ns = (length as u64 * 8).saturating_mul(1_000_000_000) / rate;
        direction.busy_until_ns = direction.busy_until_ns.max(now_us * 1000) + takes_ns;
        direction.leaving_ns.push_back(direction.busy_until_ns);
        Some(direction.busy_until_ns.div_ceil(1000))
    }
}

impl Device for End {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            mtu: lock(&self.wire).directions[self.side].conditions.mtu,
            segments_max: 0,
            checksum: false,
            batch: 64,
        }
    }

    fn receive(&mut self, most: usize, take: &mut dyn FnMut(Frame)) -> Result<usize, Error> {
        let mut taken = 0;
        while taken < most {
            let mut wire = lock(&self.wire);
            let now_us = wire.now_us;
            let waiting = &mut wire.directions[1 - self.side].waiting;
            if waiting.peek().is_none_or(|one| one.0.at_us > now_us) {
                break;
            }
            let Some(Reverse(arrival)) = waiting.pop() else {
                break;
            };
            // Not under the lock: the receiver may respond through the other end.
            drop(wire);
            take(Frame {
                bytes: &arrival.bytes,
                checksum: Checksum::Unknown,
                segment_size: 0,
            });
            taken += 1;
        }
        self.counters.received += taken as u64;
        Ok(taken)
    }

    fn send(
        &mut self,
        length: usize,
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), Error> {
        if !self.capabilities().admits(length, offload) {
            self.counters.send_errors += 1;
            return Err(Error::Refused);
        }
        self.frame.resize(length.max(ETHERNET), 0);
        fill(&mut self.frame[..length]);
        lock(&self.wire).transmit(self.side, &self.frame[..length]);
        self.counters.sent += 1;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn arm(&mut self) -> bool {
        let wire = lock(&self.wire);
        let first = wire.directions[1 - self.side].waiting.peek();
        first.is_some_and(|one| one.0.at_us <= wire.now_us)
    }

    fn poll_fd(&self) -> Option<i32> {
        None
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAMES: u64 = 20_000;

    fn send(end: &mut End, number: u64) {
        let fill = &mut |frame: &mut [u8]| {
            frame.fill(0);
            frame[14..22].copy_from_slice(&number.to_le_bytes());
        };
        end.send(64, Offload::default(), fill).expect("room");
    }

    /// Numbers of the arriving frames until none is in flight, with the times.
    fn arrivals(link: &Link, end: &mut End) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        while let Some(at_us) = link.next_arrival_us() {
            link.advance(at_us);
            let mut note = |frame: Frame| {
                let number = frame.bytes[14..22].try_into().map_or(0, u64::from_le_bytes);
                found.push((at_us, number));
            };
            end.receive(usize::MAX, &mut note).expect("memory");
        }
        found
    }

    fn run(seed: u64, conditions: Conditions) -> (Vec<(u64, u64)>, Fate) {
        let (link, mut a, mut b) = Link::new(seed, conditions);
        (0..FRAMES).for_each(|number| send(&mut a, number));
        (arrivals(&link, &mut b), link.fate(0))
    }

    fn is_about(count: u64, share: f64) -> bool {
        let expected = FRAMES as f64 * share;
        (count as f64 - expected).abs() < 5.0 * expected.sqrt()
    }

    #[test]
    fn faults_have_the_requested_shares_and_repeat_with_the_seed() {
        let conditions = Conditions {
            loss: 0.02,
            duplication: 0.03,
            reordering: 0.05,
            reordering_us: 500,
            corruption: 0.01,
            delay_us: 100,
            ..Conditions::default()
        };
        let (found, fate) = run(7, conditions);
        assert!(
            is_about(fate.lost, 0.02) && is_about(fate.duplicated, 0.03),
            "{fate:?}"
        );
        assert!(
            is_about(fate.reordered, 0.05) && is_about(fate.corrupted, 0.01),
            "{fate:?}"
        );
        assert_eq!(found.len() as u64, FRAMES - fate.lost + fate.duplicated);
        assert!(
            found.windows(2).any(|pair| pair[0].1 > pair[1].1),
            "some overtake others"
        );
        assert_eq!(run(7, conditions), (found.clone(), fate));
        assert_ne!(run(8, conditions).0, found);
    }

    #[test]
    fn a_link_without_faults_keeps_order_and_delay() {
        let conditions = Conditions {
            delay_us: 250,
            ..Conditions::default()
        };
        let (found, fate) = run(1, conditions);
        let expected: Vec<_> = (0..FRAMES).map(|number| (250, number)).collect();
        assert_eq!(found, expected);
        assert_eq!(
            fate,
            Fate {
                sent: FRAMES,
                ..Fate::default()
            }
        );
    }

    #[test]
    fn a_rate_spaces_frames_and_its_queue_overflows() {
        // 64 bytes at 512 kbit/s: one per millisecond.
        let conditions = Conditions {
            rate_bps: 512_000,
            queue: 10,
            ..Conditions::default()
        };
        let (found, fate) = run(1, conditions);
        let expected: Vec<_> = (0..10)
            .map(|number| ((number + 1) * 1000, number))
            .collect();
        assert_eq!((found, fate.overflowed), (expected, FRAMES - 10));
    }
}
