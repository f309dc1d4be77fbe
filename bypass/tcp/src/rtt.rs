//! Round-trip time and retransmission timeout (RFC 6298), with Linux's least timeout.

/// How long the minimum of the round-trip time is remembered.
const MIN_WINDOW_US: u64 = 300_000_000;

/// The estimator of a connection.
#[derive(Clone, Copy)]
pub struct Rtt {
    /// Smoothed round-trip time; zero before the first measurement.
    pub srtt_us: u32,
    /// Its mean deviation.
    pub rttvar_us: u32,
    /// The least seen in the last minutes.
    pub min_us: u32,
    /// The last one measured.
    pub latest_us: u32,
    min_at_us: u64,
}

impl Default for Rtt {
    fn default() -> Rtt {
        Rtt {
            srtt_us: 0,
            rttvar_us: 0,
            min_us: u32::MAX,
            latest_us: 0,
            min_at_us: 0,
        }
    }
}

impl Rtt {
    /// Takes a measurement in.
    #[inline]
    pub fn sample(&mut self, rtt_us: u64, now_us: u64) {
        let rtt = rtt_us.clamp(1, u64::from(u32::MAX / 8)) as u32;
        self.latest_us = rtt;
        if rtt <= self.min_us || now_us.wrapping_sub(self.min_at_us) > MIN_WINDOW_US {
            self.min_us = rtt;
            self.min_at_us = now_us;
        }
        if self.srtt_us == 0 {
            self.srtt_us = rtt;
            self.rttvar_us = rtt / 2;
            return;
        }
        let error = self.srtt_us.abs_diff(rtt);
        self.rttvar_us = self.rttvar_us - self.rttvar_us / 4 + error / 4;
        self.srtt_us = (self.srtt_us - self.srtt_us / 8 + rtt / 8).max(1);
    }

    /// The retransmission timeout without backoff, once something was measured. The deviation counts with at least `rto_min_us`.
    #[inline]
    pub fn rto_us(&self, rto_min_us: u64, rto_max_us: u64) -> u64 {
        let deviation = (u64::from(self.rttvar_us) * 4).max(rto_min_us);
        (u64::from(self.srtt_us) + deviation).min(rto_max_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6298, 2.2 and 2.3.
    #[test]
    fn the_first_sample_sets_and_later_ones_smooth() {
        let mut rtt = Rtt::default();
        rtt.sample(100_000, 1);
        assert_eq!((rtt.srtt_us, rtt.rttvar_us), (100_000, 50_000));
        assert_eq!(rtt.rto_us(200_000, 120_000_000), 300_000);
        rtt.sample(180_000, 2);
        assert_eq!((rtt.srtt_us, rtt.rttvar_us), (110_000, 57_500));
        assert_eq!(rtt.min_us, 100_000);
    }
}
