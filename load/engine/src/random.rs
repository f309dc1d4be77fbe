//! Seeded random numbers, so that a Poisson schedule can be repeated.

/// SplitMix64: a full period over 64 bits, and every seed is a good one.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A sequence that depends on nothing but `seed`.
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Exponentially distributed with mean 1: the gaps of a Poisson process.
    pub fn exponential(&mut self) -> f64 {
        // 53 bits in (0, 1]: zero would be an infinite gap
        let uniform = ((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        -uniform.ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_have_mean_and_deviation_one_and_follow_the_seed() {
        let mut random = Random::new(7);
        let gaps: Vec<f64> = (0..100_000).map(|_| random.exponential()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!(
            (mean - 1.0).abs() < 0.02 && (variance - 1.0).abs() < 0.05,
            "{mean} {variance}"
        );
        let mut again = Random::new(7);
        assert_eq!(again.exponential(), gaps[0]);
    }
}
