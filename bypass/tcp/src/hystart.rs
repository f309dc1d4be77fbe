//! The end of slow start before a loss: HyStart (Ha and Rhee, 2011), as Linux's CUBIC has it.

use crate::seq::after;

/// Least window, in segments, at which slow start is looked at.
const WINDOW_MIN: u32 = 16;
/// Acknowledgments within this time of each other belong to one burst of acknowledgments.
const TRAIN_US: u64 = 2_000;
/// Round-trip times of a round before its least counts.
const SAMPLES: u8 = 8;
/// Least and most that the round-trip time may grow, where it may by an eighth.
const GROWTH_US: (u32, u32) = (4_000, 16_000);

/// An acknowledgment as slow start sees it.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// First number not acknowledged.
    pub snd_una: u32,
    /// Next number to be sent.
    pub snd_nxt: u32,
    /// The round-trip time just measured.
    pub rtt_us: u32,
    /// What a device may hold back at the connection's pace.
    pub burst_us: u32,
    /// The clock.
    pub now_us: u64,
}

/// See the module.
#[derive(Clone, Copy, Default)]
pub struct HyStart {
    end_seq: u32,
    is_begun: bool,
    is_found: bool,
    samples: u8,
    least_us: u32,
    path_us: u32,
    begun_us: u64,
    heard_us: u64,
}

impl HyStart {
    /// A new slow start.
    pub fn restart(&mut self) {
        self.is_begun = false;
        self.is_found = false;
    }

    /// Whether the path is full: acknowledgments arrive for longer than half of its delay, or the delay
    /// grows.
    pub fn is_filled(&mut self, window: u32, round: &Round) -> bool {
        let rtt_us = round.rtt_us.max(1);
        if self.path_us == 0 || rtt_us < self.path_us {
            self.path_us = rtt_us;
        }
        if self.is_found || window < WINDOW_MIN {
            return false;
        }
        if !self.is_begun || after(round.snd_una, self.end_seq) {
            self.begin(round);
        }
        self.is_found = self.is_train_long(round) | self.has_delay_grown(rtt_us);
        self.is_found
    }

    fn begin(&mut self, round: &Round) {
        self.is_begun = true;
        self.end_seq = round.snd_nxt;
        self.samples = 0;
        self.least_us = u32::MAX;
        self.begun_us = round.now_us;
        self.heard_us = round.now_us;
    }

    fn is_train_long(&mut self, round: &Round) -> bool {
        if round.now_us - self.heard_us > TRAIN_US {
            return false;
        }
        self.heard_us = round.now_us;
        let half_us = u64::from(self.path_us + round.burst_us) / 2;
        round.now_us - self.begun_us > half_us
    }

    fn has_delay_grown(&mut self, rtt_us: u32) -> bool {
        self.least_us = self.least_us.min(rtt_us);
        if self.samples < SAMPLES {
            self.samples += 1;
            return false;
        }
        let growth_us = (self.path_us / 8).clamp(GROWTH_US.0, GROWTH_US.1);
        self.least_us > self.path_us + growth_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn round(at: u32, rtt_us: u32, now_us: u64) -> Round {
        Round {
            snd_una: at,
            snd_nxt: at + 100,
            rtt_us,
            burst_us: 0,
            now_us,
        }
    }

    #[test]
    fn slow_start_ends_when_the_ninth_time_of_a_round_is_an_eighth_longer() {
        let mut hystart = HyStart::default();
        assert!(!hystart.is_filled(10, &round(1, 100_000, 1_000_000)));
        for sample in 0..8 {
            let later = round(200 + sample, 120_000, 1_200_000 + u64::from(sample) * 5_000);
            assert!(!hystart.is_filled(20, &later), "{sample}");
        }
        assert!(hystart.is_filled(20, &round(208, 120_000, 1_240_000)));
        assert!(
            !hystart.is_filled(20, &round(209, 120_000, 1_241_000)),
            "reported once"
        );
    }

    #[test]
    fn slow_start_ends_when_acknowledgments_arrive_for_half_of_the_delay() {
        let mut hystart = HyStart::default();
        let mut filled = Vec::new();
        for step in 0..12 {
            let next = round(1 + step, 20_000, 1_000_000 + u64::from(step) * 1_000);
            filled.push(hystart.is_filled(20, &next));
        }
        assert_eq!(filled.iter().position(|filled| *filled), Some(11));
    }
}
