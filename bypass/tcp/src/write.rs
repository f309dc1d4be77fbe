//! Writes of the application: how much the send buffer takes, and where records end.

use crate::config::Config;
use crate::conn::{Conn, Context, State};
use crate::engine::{Engine, Handle};
use crate::error::Error;
use crate::seq::{after, distance, earlier, later};

impl Engine {
    /// Writes bytes; answers how many were taken, at least one. With `more` a small last segment
    /// waits for more (MSG_MORE), or for the next acknowledgment. [`Error::NoBuffers`]: there is no
    /// memory, and an event reports when there is some.
    pub fn send(
        &mut self,
        now_us: u64,
        handle: Handle,
        bytes: &[u8],
        more: bool,
    ) -> Result<usize, Error> {
        let index = self.conn_index(handle)?;
        self.cx.now_us = self.cx.now_us.max(now_us);
        let cx = &mut self.cx;
        let conn = &mut self.conns[index];
        conn.check_writable()?;
        if bytes.is_empty() {
            return Ok(0);
        }
        let count = conn.room(cx).min(bytes.len());
        if count == 0 {
            conn.wants_room = true;
            return Err(Error::WouldBlock);
        }
        let count = match conn.reserve(cx, count) {
            0 if conn.is_starved => return Err(Error::NoBuffers),
            0 => return Err(Error::WouldBlock),
            count => count,
        };
        conn.tx.push(&bytes[..count]);
        conn.chrono.begin_busy(cx.now_us);
        conn.mark_long_write(&cx.config);
        conn.wants_room = count < bytes.len();
        conn.more_follows = more && count == bytes.len();
        if !conn.more_follows {
            conn.push_seq = conn.tx_end();
        }
        conn.queue_output(cx);
        Ok(count)
    }

    /// Writes bytes of which the last is urgent (MSG_OOB).
    pub fn send_urgent(
        &mut self,
        now_us: u64,
        handle: Handle,
        bytes: &[u8],
    ) -> Result<usize, Error> {
        let count = self.send(now_us, handle, bytes, false)?;
        let conn = self.conn(handle)?;
        conn.snd_up = Some(conn.tx_end());
        Ok(count)
    }

    /// The bytes written so far are a record: no segment holds its end and bytes behind it (MSG_EOR).
    pub fn end_record(&mut self, handle: Handle) -> Result<(), Error> {
        let conn = self.conn(handle)?;
        let end = conn.tx_end();
        if conn.unsent() > 0 && conn.records.back() != Some(&end) {
            conn.records.push_back(end);
            conn.unit_from = end;
        }
        Ok(())
    }
}

impl Conn {
    /// Behind the last byte written.
    #[inline]
    pub fn tx_end(&self) -> u32 {
        self.tx_seq.wrapping_add(self.tx.len() as u32)
    }

    fn check_writable(&mut self) -> Result<(), Error> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        match self.state {
            State::SynSent | State::SynReceived if !self.fin_queued => {
                self.wants_room = true;
                Err(Error::WouldBlock)
            }
            State::Established | State::CloseWait if !self.fin_queued => Ok(()),
            _ => Err(Error::BrokenPipe),
        }
    }

    /// Makes room in the ring for `count` more bytes, or for as many as there is memory for. Without any the
    /// connection waits for an acknowledgment of what it has written, or else for memory.
    fn reserve(&mut self, cx: &mut Context, count: usize) -> usize {
        let used = self.tx.len();
        if cx.pool.reserve(&mut self.tx, used + count, used) {
            return count;
        }
        self.wants_room = true;
        let has_some = used > 0 || cx.pool.reserve(&mut self.tx, 1, 0);
        if !has_some && !self.is_starved {
            self.is_starved = true;
            cx.starved.push_back(self.index);
        }
        count.min(self.tx.capacity() - used)
    }

    /// Bytes that the send buffer still takes. As on Linux it is filled by units, each a GSO segment of
    /// segments: one is begun while the limits of bytes and of unsent bytes are not reached, and may
    /// then be filled beyond them.
    fn room(&mut self, cx: &Context) -> usize {
        if self.tx.len() as u32 >= self.snd_limit {
            self.tune_send_buffer(cx);
        }
        let (end, unit) = (self.tx_end(), self.unit_bytes(&cx.config));
        let leaves = self.snd_nxt.wrapping_add(self.leaves_at_once());
        let from = later(self.unit_from, earlier(leaves, end));
        let mut at = end;
        match distance(from, end) {
            0 => self.unit_from = end,
            begun => at = end.wrapping_add((unit - begun % unit) % unit),
        }
        self.units_from = later(at, leaves);
        if self.bytes_below_limits(at, leaves) > 0 {
            // Bytes that leave at once make room for as many in their unit.
            at = self.units_from.wrapping_add(unit);
        }
        let units = self.bytes_below_limits(at, leaves).div_ceil(unit);
        distance(end, at.wrapping_add(units * unit)) as usize
    }

    /// PSH within a long write too: at the end of each unit with which more than half of the peer's largest window has been
    /// written since the last one, so that the peer's program is woken before its buffer is full (Linux's forced_push).
    fn mark_long_write(&mut self, config: &Config) {
        let (end, half) = (self.tx_end(), self.snd_wnd_max / 2);
        let mut marked = self
            .pushes
            .back()
            .map_or(self.push_seq, |mark| later(*mark, self.push_seq));
        while distance(marked, end) > half {
            let unit = self.unit_bytes(config);
            let missing = distance(self.units_from, marked.wrapping_add(half + 1));
            let mark = self
                .units_from
                .wrapping_add(missing.div_ceil(unit).max(1) * unit);
            if after(mark, end) {
                return;
            }
            self.pushes.push_back(mark);
            marked = mark;
        }
    }

    /// Whether a segment of new bytes ends with a write or a record, or reaches a mark within a write.
    #[inline]
    pub fn is_pushed(&self, end: u32) -> bool {
        let reaches_mark = self.pushes.front().is_some_and(|mark| !after(*mark, end));
        reaches_mark || end == self.push_seq || self.records.front() == Some(&end)
    }

    /// Bytes up to `end` have left. The last mark among them is where the next one is counted from.
    #[inline]
    pub fn forget_pushes(&mut self, end: u32) {
        while let Some(mark) = self.pushes.front().filter(|mark| !after(**mark, end)) {
            self.push_seq = later(self.push_seq, *mark);
            self.pushes.pop_front();
        }
    }

    /// What is missing to the limits of bytes, and of unsent bytes, when the buffer is filled up to `at`.
    fn bytes_below_limits(&self, at: u32, leaves: u32) -> u32 {
        let used = distance(self.tx_seq, at);
        let unsent = distance(later(self.snd_nxt, leaves), at);
        let bytes = self.snd_limit.saturating_sub(used);
        bytes.min(self.unsent_low.saturating_sub(unsent))
    }

    /// Bytes of a GSO segment of full segments, and no more than half of the peer's window.
    fn unit_bytes(&self, config: &Config) -> u32 {
        let mss = self.mss.max(1);
        let most = config.segmentation_max.min(self.snd_wnd_max / 2);
        if most < 2 * mss {
            return mss;
        }
        most / mss * mss
    }

    /// Bytes of full segments that congestion window and the peer's window allow now.
    fn leaves_at_once(&self) -> u32 {
        let segments = self.cwnd.saturating_sub(self.in_flight());
        let bytes = segments.saturating_mul(self.mss);
        let window = self.window_left();
        if bytes <= window {
            return bytes;
        }
        window / self.mss.max(1) * self.mss
    }

    /// Takes the mark of the socket, or of the engine, as its own (TCP_NOTSENT_LOWAT).
    pub fn set_unsent_low(&mut self, config: &Config) {
        let wanted = [self.settings.unsent_low, config.unsent_low];
        let low = wanted.into_iter().find(|low| *low > 0);
        self.unsent_low = low.unwrap_or(u32::MAX);
    }

    /// Whether the application should write: a third of the buffer free, and fewer unsent bytes than half
    /// of TCP_NOTSENT_LOWAT (as Linux has it).
    pub fn has_room(&self) -> bool {
        let open = matches!(self.state, State::Established | State::CloseWait);
        let is_free = self.tx.len() as u32 <= self.snd_limit / 3 * 2;
        open && !self.fin_queued && is_free && self.unsent() < self.unsent_low.div_ceil(2)
    }
}
