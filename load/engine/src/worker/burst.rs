//! Connections that get their next requests together.

/// So many answers are read before their connections get the next requests. The code that reads and
/// the code that writes then stay in the caches for a while, and a wait finds more events: half of
/// the waits are saved where the server is the slower side.
const BURST_MAX: usize = 32;

/// A connection that shall get its next request.
#[derive(Clone, Copy)]
pub(super) struct Ready {
    pub index: u32,
    /// It is meant as it was when it had this generation.
    pub generation: u32,
    /// Since when it is free.
    pub since_ns: u64,
}

/// Connections that get their next request when the burst is read.
pub(super) struct Burst {
    ready: Vec<Ready>,
    /// How many of them make a burst.
    size: usize,
}

impl Burst {
    /// What is due in an open loop does not wait for others.
    pub fn new(is_open_loop: bool) -> Burst {
        Burst {
            ready: Vec::with_capacity(BURST_MAX),
            size: if is_open_loop { 1 } else { BURST_MAX },
        }
    }

    /// A connection is free since that time.
    #[inline]
    pub fn add(&mut self, index: usize, generation: u32, since_ns: u64) {
        self.ready.push(Ready {
            index: index as u32,
            generation,
            since_ns,
        });
    }

    /// Whether they shall be sent to before more is read.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.ready.len() >= self.size
    }

    /// Whether none waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    /// All count as free since `now`.
    pub fn restart(&mut self, now: u64) {
        self.ready.iter_mut().for_each(|ready| ready.since_ns = now);
    }

    /// Takes all.
    #[inline]
    pub fn take(&mut self) -> Vec<Ready> {
        std::mem::take(&mut self.ready)
    }

    /// Gives the memory of a burst that was taken back.
    #[inline]
    pub fn give_back(&mut self, mut taken: Vec<Ready>) {
        taken.clear();
        taken.append(&mut self.ready);
        self.ready = taken;
    }
}
