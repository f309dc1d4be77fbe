//! Whether a connect goes through shared memory: the processes that hold the listener publish how many connections may
//! wait for them, and the client decides from that alone.
//!
//! A process publishes from its first accept, or wait for a connection, on: until then it may be one that leaves
//! accepting to others, whom the library may not even know. It publishes 0 when it cannot take connections of segments
//! any more, because it is confined or uses sockets where the library does not see it.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::net::SocketAddr;

use bypass_shm::layout::QUEUED;
use bypass_stats::Reason;
use bypass_sys::kernel;

use super::Peer;

/// Between looks whether a process accepts meanwhile.
const LOOK_MS: u64 = 1;
/// How long a client process waits so at most, once for each listener: a server that has just started, or a worker
/// whose parent has answered the client's first message, is there within milliseconds.
const AWAIT_MS: u64 = 50;

/// How many connections may wait at the listener.
pub struct Admission {
    credits: u32,
    /// By what the listener's processes have published.
    is_published: bool,
}

impl Admission {
    /// At a listener of this process, which no other process holds.
    pub fn ours(credits: u32) -> Self {
        Self {
            credits,
            is_published: false,
        }
    }
}

impl Peer {
    /// If no process accepts yet, waits up to `patience_ms` for one; failing that, returns why the kernel is used.
    pub fn admit(&self, patience_ms: u64) -> Result<Admission, Reason> {
        loop {
            let credits = self.segment.credits().ok_or(Reason::Limit)?;
            if credits > 0 {
                return Ok(Admission {
                    credits,
                    is_published: true,
                });
            }
            let patience_ms = patience_ms.min(AWAIT_MS);
            if self.has_awaited_ms.fetch_add(LOOK_MS, Ordering::Relaxed) >= patience_ms {
                return Err(Reason::NotAccepting);
            }
            let look = Duration::from_millis(LOOK_MS);
            let _ = kernel::poll(&mut [], Some(look), None);
        }
    }

    /// Fills in a free slot for a connection between `local` and `target`. Nobody can accept it yet, although an offer of
    /// the same slot that was taken back may stand in the queue still.
    pub fn prepare(&self, slot: usize, local: SocketAddr, target: SocketAddr) {
        let place = self.segment.slot(slot);
        place.names.of[0].store(local);
        place.names.of[1].store(target);
        place.meta.holders[0].store(self.alone(), Ordering::SeqCst);
    }

    /// Offers a prepared slot to the listener's processes. A process that stops accepting publishes that before its last look
    /// at the queue, and here the queue is filled before the last look at what is published: one of the two sees the
    /// other, and no connection is left in a queue without an acceptor.
    pub fn offer_within(&self, slot: usize, admission: &Admission) -> Result<(), Reason> {
        {
            let _one_at_a_time = self.slots.lock().map_err(|_| Reason::Limit)?;
            let queue = self.segment.queue();
            if queue.waiting() as u64 >= u64::from(admission.credits) {
                return Err(Reason::BacklogFull);
            }
            // From here on it can be accepted.
            self.segment.slot(slot).meta.holders[1].store(QUEUED, Ordering::SeqCst);
            if !queue.push(slot) && self.take_offer_back(slot) {
                return Err(Reason::BacklogFull);
            }
        }
        if admission.is_published && self.is_accepted_by_none() && self.take_offer_back(slot) {
            return Err(Reason::NotAccepting);
        }
        Ok(())
    }

    /// Whether no process of the listener accepts from here, by what they have published.
    pub fn is_accepted_by_none(&self) -> bool {
        self.segment.credits() == Some(0)
    }

    /// False when a process has accepted it.
    pub fn take_offer_back(&self, slot: usize) -> bool {
        let holders = &self.segment.slot(slot).meta.holders[1];
        let taken = holders.compare_exchange(QUEUED, 0, Ordering::SeqCst, Ordering::Relaxed);
        taken.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use bypass_shm::accept_queue;
    use bypass_shm::segment::Segment;

    use super::*;

    #[test]
    fn an_offer_that_was_taken_back_is_accepted_only_when_it_is_made_again() {
        let segment = Segment::create(1, 64, 4096).expect("memory");
        let shared = kernel::dup(segment.fd()).expect("a descriptor") as i32;
        let server = Segment::adopt(shared).expect("memory");
        assert_eq!(server.enter(1, 77), Some(0));
        let client = Peer::join(segment, 0, 1).expect("a place");
        let published = Admission {
            credits: 4,
            is_published: true,
        };
        let slot = client.take_slot().expect("a slot");
        let any = SocketAddr::from(([127, 0, 0, 1], 5));
        client.prepare(slot, any, any);
        let refused = client.offer_within(slot, &published);
        assert_eq!(refused, Err(Reason::NotAccepting));

        client.segment.reset(slot);
        client.prepare(slot, any, any);
        assert_eq!(accept_queue::take(&server, 0), Ok(None));

        server.set_credits(0, 4);
        assert_eq!(client.offer_within(slot, &published), Ok(()));
        assert_eq!(accept_queue::take(&server, 0), Ok(Some(slot)));
        assert_eq!(accept_queue::take(&server, 0), Ok(None));
    }
}
