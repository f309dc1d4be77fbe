//! Passes frames that arrive at one shard's queue to the shard that has their connection.
//!
//! A shard without the connection of a frame gives it to the owner of a queue that was not asked yet: the one where
//! the flow was last found, else the next one. The shard that has it takes it. When all were asked, no shard has the
//! connection, and the last one then answers the frame as an engine that is alone does. So no frame is handed on more
//! often than there are queues, and what an owner that has ended does not take, its successor does.

use std::sync::Arc;

use bypass_sys::descriptor::Owned;
use bypass_sys::{kernel, numbers};
use bypass_tcp::{Engine, Handle, Rx, Sum};
use bypass_xdp::{Exchange, Handed};

/// Frames of others that are taken in one round at most.
const ROUND: usize = 64;

/// One shard's part.
#[derive(Debug)]
pub struct Crossing {
    exchange: Arc<Exchange>,
    /// Its first queue, which stands for the shard.
    home: u32,
    /// Its queues, a bit each, and all existing ones.
    own: u64,
    all: u64,
    /// By queue: what was looked at.
    seen: Vec<u64>,
    /// It has slept: a mailbox may have woken it whose count was not seen yet.
    has_slept: bool,
    /// Readable when a frame waits for one of its queues.
    set: Owned,
    buffer: Vec<u8>,
    incoming: Vec<u8>,
    counts: Counts,
}

/// Frames handed on, since the shard was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames given to the owners of other queues.
    pub given: u64,
    /// Frames taken that came by others' queues.
    pub taken: u64,
    /// Frames that were lost because others had no room.
    pub lost: u64,
}

impl Crossing {
    /// Of a shard whose first queue is `home`.
    pub fn new(exchange: Arc<Exchange>, home: u32) -> kernel::Result<Self> {
        let queues = exchange.queues();
        let mut crossing = Self {
            home,
            own: 0,
            all: u64::MAX >> (u64::BITS - queues.clamp(1, u64::BITS)),
            seen: vec![0; queues as usize],
            has_slept: true,
            set: numbers::high(|| kernel::epoll_create1(libc::EPOLL_CLOEXEC))?,
            buffer: Vec::new(),
            incoming: Vec::new(),
            counts: Counts::default(),
            exchange,
        };
        crossing.add(home)?;
        Ok(crossing)
    }

    /// Another queue is this shard's; whether it was another's before.
    pub fn add(&mut self, queue: u32) -> kernel::Result<bool> {
        let fd = self.exchange.poll_fd(queue).ok_or(libc::EINVAL)?;
        let events = libc::EPOLLIN as u32;
        kernel::epoll_control(self.set.0, libc::EPOLL_CTL_ADD, fd, events, 0)?;
        self.own |= 1 << queue;
        let had_owner = self.exchange.owner(queue).is_some();
        self.exchange.set_owner(queue, self.home);
        // Where a former owner listened.
        self.exchange.tell_listeners(queue, &[]);
        // Frames that wait there were for the former owner.
        self.has_slept = true;
        Ok(had_owner)
    }

    /// A queue belongs to another shard from now on, with what waits there.
    pub fn remove(&mut self, queue: u32) -> kernel::Result<()> {
        let fd = self.exchange.poll_fd(queue).ok_or(libc::EINVAL)?;
        kernel::epoll_control(self.set.0, libc::EPOLL_CTL_DEL, fd, 0, 0)?;
        self.own &= !(1 << queue);
        Ok(())
    }

    /// Notifies the other shards where this one listens, by inodes.
    pub fn tell_listeners(&self, inodes: &[u64]) {
        self.exchange.tell_listeners(self.home, inodes);
    }

    /// Listeners that other shards have reported; `is_alive`: whether the shard with this first queue still runs.
    pub fn others_listeners(&self, is_alive: impl Fn(u32) -> bool) -> Vec<u64> {
        let others = (0..self.exchange.queues()).filter(|queue| self.own & 1 << queue == 0);
        let alive = others.filter(|queue| is_alive(*queue));
        alive
            .flat_map(|queue| self.exchange.listeners(queue))
            .collect()
    }

    /// Polled for reading.
    pub fn poll_fd(&self) -> i32 {
        self.set.0
    }

    /// See [`Counts`].
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether other shards may have queues, so that a frame may be theirs.
    #[inline]
    pub fn has_others(&self) -> bool {
        self.own != self.all
    }

    fn own_queues(&self) -> impl Iterator<Item = u32> + use<> {
        let own = self.own;
        (0..u64::BITS).filter(move |queue| own & 1 << queue != 0)
    }

    fn is_waiting(&self, queue: u32) -> bool {
        self.exchange.sent(queue) != self.seen[queue as usize]
    }

    /// Before a sleep: true when frames wait already.
    pub fn arm(&mut self) -> bool {
        self.has_slept = true;
        self.own_queues().any(|queue| self.is_waiting(queue))
    }

    /// Remembers where the frames of a connection belong that was opened or accepted here: should they come by
    /// another's queue, they need not be handed from one to the next.
    pub fn expect(&self, engine: &Engine, handle: Handle) {
        if let Some(mark) = engine.mark_of(handle).filter(|_| self.has_others()) {
            self.exchange.remember(mark, self.home);
        }
    }

    /// Feeds the engine with those of arrived frames that are its own, in their order, and gives the others away.
    pub fn sort(
        &mut self,
        engine: &mut Engine,
        frames: &[Rx],
        mut feed: impl FnMut(&mut Engine, &[Rx]),
    ) {
        let mut from = 0;
        for (at, rx) in frames.iter().enumerate() {
            if engine.may_be_anothers(rx).is_none() {
                continue;
            }
            // Those in front of it may have made it ours.
            feed(engine, &frames[from..at]);
            from = at;
            let anothers = engine.may_be_anothers(rx);
            if anothers.is_some_and(|mark| self.give(mark, rx, 0)) {
                from = at + 1;
            }
        }
        feed(engine, &frames[from..]);
    }

    /// Gives a frame to another shard, when that may have it: true, then it is none of ours.
    fn give(&mut self, mark: u64, rx: &Rx<'_>, asked: u64) -> bool {
        let asked = asked | self.own;
        let left = self.all & !asked;
        if left == 0 {
            return false;
        }
        let known = self.exchange.remembered(mark);
        let known = known.filter(|queue| left & 1 << queue != 0);
        // The first behind ours, so that frames without an owner are not all the same one's work.
        let behind = left & u64::MAX.checked_shl(self.home + 1).unwrap_or(0);
        let next = if behind != 0 { behind } else { left }.trailing_zeros();
        let handed = Handed {
            bytes: rx.bytes,
            sum: rx.sum as u8,
            asked,
        };
        let queue = known.unwrap_or(next);
        match self.exchange.hand(queue, handed, &mut self.buffer) {
            true => self.counts.given += 1,
            false => self.counts.lost += 1,
        }
        true
    }

    /// Takes what others have handed to this shard's queues, and hands on what is not its own either. How many
    /// frames it was.
    pub fn take(&mut self, engine: &mut Engine, mut feed: impl FnMut(&mut Engine, &[Rx])) -> usize {
        let has_slept = std::mem::take(&mut self.has_slept);
        let mut taken = 0;
        for queue in self.own_queues() {
            if !has_slept && !self.is_waiting(queue) {
                continue;
            }
            let seen = self.exchange.sent(queue);
            if self.drain(queue, engine, &mut feed, &mut taken) {
                self.seen[queue as usize] = seen;
            }
        }
        taken
    }

    /// True when nothing is left.
    fn drain(
        &mut self,
        queue: u32,
        engine: &mut Engine,
        feed: &mut impl FnMut(&mut Engine, &[Rx]),
        taken: &mut usize,
    ) -> bool {
        let exchange = self.exchange.clone();
        let mut incoming = std::mem::take(&mut self.incoming);
        let mut is_empty = false;
        while *taken < ROUND {
            let Some(handed) = exchange.take(queue, &mut incoming) else {
                is_empty = true;
                break;
            };
            *taken += 1;
            let mut rx = Rx::new(handed.bytes);
            rx.sum = sum_of(handed.sum);
            let anothers = engine.may_be_anothers(&rx);
            if anothers.is_some_and(|mark| self.give(mark, &rx, handed.asked)) {
                continue;
            }
            if anothers.is_none() {
                self.note(engine, &rx);
                self.counts.taken += 1;
            }
            feed(engine, &[rx]);
        }
        self.incoming = incoming;
        is_empty
    }

    /// The next frames of this flow need not look for it.
    fn note(&self, engine: &Engine, rx: &Rx<'_>) {
        if let Some(mark) = engine.mark_of_frame(rx) {
            self.exchange.remember(mark, self.home);
        }
    }
}

/// Another shard's statement about a frame's checksum; for an unknown number the whole sum is verified.
fn sum_of(number: u8) -> Sum {
    let all = [Sum::MayBePartial, Sum::Verified];
    let known = all.into_iter().find(|one| *one as u8 == number);
    known.unwrap_or(Sum::Unknown)
}
