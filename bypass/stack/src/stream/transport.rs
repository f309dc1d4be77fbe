//! What a connection has to say to the engine that carries it to another host, and the answers.

use core::sync::atomic::Ordering;

use bypass_shm::layout::{ASKABLE, ASKS, INFO_WORDS, LATE, REASON, RST};

use super::{For, Stream};
use crate::peer::Notice;

impl Stream {
    /// Whether it leads to another host.
    pub fn is_over_packets(&self) -> bool {
        self.peer.segment.is_over_packets()
    }

    /// Gives option `code` a value, of which the engine hears with its next round.
    pub fn ask_for_option(&self, code: usize, value: u32) -> Result<(), i32> {
        let transport = self.peer.segment.transport(self.slot);
        transport.values[code % ASKABLE].store(value, Ordering::Relaxed);
        self.ask(code % ASKABLE)
    }

    /// Asks for the facts of [`info`](Self::info); the count of answers before.
    pub fn ask_for_info(&self) -> Result<u32, i32> {
        let before = self.answers();
        self.ask(ASKABLE).map(|()| before)
    }

    /// Counts answers to [`ask_for_info`](Self::ask_for_info).
    pub fn answers(&self) -> u32 {
        let transport = self.peer.segment.transport(self.slot);
        transport.answers.load(Ordering::Acquire)
    }

    /// The facts as the engine last reported them.
    pub fn info(&self) -> [u32; INFO_WORDS] {
        let words = &self.peer.segment.transport(self.slot).info;
        core::array::from_fn(|at| words[at].load(Ordering::Relaxed))
    }

    fn ask(&self, bit: usize) -> Result<(), i32> {
        // The slot is another connection's once this one is closed, which takes the same lock.
        let guard = self.lock(For::Room)?;
        let transport = self.peer.segment.transport(self.slot);
        transport.asked.fetch_or(1 << bit, Ordering::SeqCst);
        let place = self.peer.segment.slot(self.slot);
        place.producer[self.peer.side]
            .ends
            .fetch_or(ASKS, Ordering::SeqCst);
        drop(guard);
        self.peer.ring(self.slot, Notice::Bytes);
        Ok(())
    }

    /// The error with which a reset connection has failed, reported once where this process knows more.
    pub fn failure(&self) -> i32 {
        let told = (self.inbound_ends() & REASON != 0).then(|| {
            let error = &self.peer.segment.transport(self.slot).error;
            error.load(Ordering::Relaxed) as i32
        });
        let told = told.filter(|error| (1..4096).contains(error));
        let otherwise = match self.inbound_ends() & (RST | LATE) {
            RST => libc::ECONNRESET,
            // Behind the end of the stream.
            _ => libc::EPIPE,
        };
        self.socket.take_error().or(told).unwrap_or(otherwise)
    }
}
