//! What TCP did below the load: samples of connections while it goes on, and what they had sent when
//! it was over.

use crate::latency::Latency;
use crate::sys::tcp_info::TcpInfo;

/// Samples of one connection after the other.
#[derive(Clone, Debug, Default)]
pub struct TcpSamples {
    /// Smoothed round-trip times.
    pub rtt: Latency,
    /// Mean deviations of round-trip times.
    pub rtt_deviation: Latency,
    /// Smallest congestion window, segments; 0 without a sample.
    pub window_min: u32,
    /// Largest.
    pub window_max: u32,
    window_sum: u64,
    delivery_sum: u128,
}

impl TcpSamples {
    /// Enters a sample.
    pub fn record(&mut self, info: &TcpInfo) {
        let window = info.window_segments;
        let is_first = self.rtt.is_empty();
        self.window_min = if is_first {
            window
        } else {
            self.window_min.min(window)
        };
        self.window_max = self.window_max.max(window);
        self.window_sum += u64::from(window);
        self.delivery_sum += u128::from(info.delivery_bytes_per_second);
        self.rtt.record(u64::from(info.rtt_us) * 1000);
        self.rtt_deviation
            .record(u64::from(info.rtt_deviation_us) * 1000);
    }

    /// Number of samples.
    pub fn count(&self) -> u64 {
        self.rtt.count()
    }

    /// Mean congestion window, segments.
    pub fn window_mean(&self) -> f64 {
        self.window_sum as f64 / self.count().max(1) as f64
    }

    /// Mean rate of delivery of a connection, bytes per second.
    pub fn delivery_mean(&self) -> f64 {
        self.delivery_sum as f64 / self.count().max(1) as f64
    }

    /// Adds those of another interval.
    pub fn add(&mut self, other: &TcpSamples) {
        if other.count() == 0 {
            return;
        }
        let is_first = self.rtt.is_empty();
        let least = self.window_min.min(other.window_min);
        self.window_min = if is_first { other.window_min } else { least };
        self.window_max = self.window_max.max(other.window_max);
        self.window_sum += other.window_sum;
        self.delivery_sum += other.delivery_sum;
        self.rtt.add(&other.rtt);
        self.rtt_deviation.add(&other.rtt_deviation);
    }

    /// Forgets everything, and keeps the memory.
    pub fn clear(&mut self) {
        self.rtt.clear();
        self.rtt_deviation.clear();
        (self.window_min, self.window_max) = (0, 0);
        (self.window_sum, self.delivery_sum) = (0, 0);
    }
}

/// Segments sent by the connections that were open at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpSent {
    /// Connections that were asked.
    pub connections: u64,
    /// Segments sent.
    pub segments: u64,
    /// Retransmitted ones among them.
    pub retransmitted: u64,
}

impl TcpSent {
    /// Enters a connection.
    pub fn record(&mut self, info: &TcpInfo) {
        self.connections += 1;
        self.segments += u64::from(info.segments_out);
        self.retransmitted += u64::from(info.retransmitted);
    }

    /// Adds those of another thread.
    pub fn add(&mut self, other: TcpSent) {
        self.connections += other.connections;
        self.segments += other.segments;
        self.retransmitted += other.retransmitted;
    }

    /// The share of segments that were sent again.
    pub fn retransmitted_share(&self) -> f64 {
        self.retransmitted as f64 / self.segments.max(1) as f64
    }
}
