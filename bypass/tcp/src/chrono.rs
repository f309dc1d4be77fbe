//! What a connection with bytes to deliver waited for: the times of TCP_INFO.

/// The limit that keeps bytes from leaving.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Limit {
    /// Nothing, or the network.
    #[default]
    None,
    /// The peer's window.
    Window,
    /// The application finds no room in the send buffer, and all that was in it is sent.
    Buffer,
}

/// Sums of times, and since when the current one runs.
#[derive(Clone, Copy, Default)]
pub struct Chrono {
    limit: Limit,
    is_busy: bool,
    busy_since_us: u64,
    limit_since_us: u64,
    busy_us: u64,
    window_us: u64,
    buffer_us: u64,
}

impl Chrono {
    /// The send buffer holds bytes.
    #[inline]
    pub fn begin_busy(&mut self, now_us: u64) {
        if !self.is_busy {
            self.is_busy = true;
            self.busy_since_us = now_us;
        }
    }

    /// Everything is acknowledged.
    #[inline]
    pub fn end_busy(&mut self, now_us: u64) {
        if self.is_busy {
            self.limited_by(Limit::None, now_us);
            self.busy_us += now_us - self.busy_since_us;
            self.is_busy = false;
        }
    }

    /// The limit from now on.
    #[inline]
    pub fn limited_by(&mut self, limit: Limit, now_us: u64) {
        if limit == self.limit {
            return;
        }
        let passed_us = now_us - self.limit_since_us;
        match self.limit {
            Limit::None => {}
            Limit::Window => self.window_us += passed_us,
            Limit::Buffer => self.buffer_us += passed_us,
        }
        self.limit = limit;
        self.limit_since_us = now_us;
    }

    /// The limit is no longer this one.
    #[inline]
    pub fn end_limit(&mut self, limit: Limit, now_us: u64) {
        if self.limit == limit {
            self.limited_by(Limit::None, now_us);
        }
    }

    /// Times with bytes to deliver, of these limited by the peer's window, and by the send buffer, up to now.
    pub fn times_us(mut self, now_us: u64) -> (u64, u64, u64) {
        self.end_busy(now_us);
        (self.busy_us, self.window_us, self.buffer_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_counted_within_the_busy_time() {
        let mut chrono = Chrono::default();
        chrono.begin_busy(100);
        chrono.limited_by(Limit::Window, 150);
        chrono.end_limit(Limit::Buffer, 160);
        assert_eq!(chrono.times_us(170), (70, 20, 0));
        chrono.limited_by(Limit::Buffer, 180);
        chrono.end_busy(200);
        chrono.begin_busy(300);
        assert_eq!(chrono.times_us(310), (110, 30, 20));
    }
}
