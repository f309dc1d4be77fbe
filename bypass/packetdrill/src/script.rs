//! The calls of a script, safe: blocking ones wait in virtual time.
//!
//! packetdrill makes blocking calls in a second thread, while its first thread advances time and
//! receives packets. So that every run is the same, the first thread waits, before time advances,
//! until every call that can end has ended and its caller has read the clock.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use crate::host::Host;

/// Longest wait for another thread, in real time: after that the script hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether a caller has read the clock after its call, and how long each time: while the machine
/// stands still, no time passes but one look's.
const RETURN_LOOKS: u32 = 20;
const RETURN_LOOK: Duration = Duration::from_millis(10);

/// A result, or an error number.
pub type Result<T> = std::result::Result<T, i32>;

/// One script's host. See the module.
#[derive(Debug)]
pub struct Script {
    state: Mutex<State>,
    changed: Condvar,
    first: ThreadId,
}

#[derive(Debug)]
pub struct State {
    /// Engine, sockets and clock.
    pub host: Host,
    /// Threads in waiting calls, and how many of them still have to check again.
    blocked: usize,
    looking: usize,
    /// Changes with every reason to check again.
    round: u64,
    /// Threads whose calls have ended, and which have not read the clock yet.
    returning: Vec<ThreadId>,
}

impl Script {
    /// Called by packetdrill's first thread.
    pub fn new(host: Host) -> Self {
        let state = State {
            host,
            blocked: 0,
            looking: 0,
            round: 0,
            returning: Vec::new(),
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            first: std::thread::current().id(),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        guard: MutexGuard<'a, State>,
        most: Duration,
        mut is_over: impl FnMut(&mut State) -> bool,
    ) -> MutexGuard<'a, State> {
        self.changed
            .wait_timeout_while(guard, most, |state| !is_over(state))
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    /// An event: waiting calls check again, and if they can end, they do so before time advances.
    pub fn settle<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if state.blocked > 0 {
            state.round += 1;
            state.looking = state.blocked;
            self.changed.notify_all();
            state = self.wait(state, PATIENCE, |state| state.looking == 0);
        }
        self.settle_returning(state)
    }

    fn is_first(&self) -> bool {
        std::thread::current().id() == self.first
    }

    /// Tries until the result is not EAGAIN, at most until `end_us`.
    pub fn block<T>(
        &self,
        may_wait: bool,
        end_us: Option<u64>,
        mut attempt: impl FnMut(&mut Host) -> Result<T>,
    ) -> Result<T> {
        let mut state = self.lock();
        let mut done = attempt(&mut state.host);
        if !may_wait || !matches!(done, Err(libc::EAGAIN)) {
            return done;
        }
        if self.is_first() {
            return self.pass_time(state, end_us, attempt);
        }
        state.blocked += 1;
        while matches!(done, Err(libc::EAGAIN)) {
            let round = state.round;
            state = self.wait(state, PATIENCE, |state| state.round != round);
            if state.round == round {
                break;
            }
            done = attempt(&mut state.host);
            state.looking -= 1;
            if end_us.is_some_and(|end| state.host.now_us() >= end) {
                break;
            }
            self.changed.notify_all();
        }
        state.blocked -= 1;
        state.returning.push(std::thread::current().id());
        self.changed.notify_all();
        done
    }

    /// The thread that advances time waits itself.
    fn pass_time<T>(
        &self,
        mut state: MutexGuard<'_, State>,
        end_us: Option<u64>,
        mut attempt: impl FnMut(&mut Host) -> Result<T>,
    ) -> Result<T> {
        loop {
            let next = state.host.next_timer();
            let until = match (next, end_us) {
                (Some(next), Some(end)) => next.min(end),
                (Some(one), None) | (None, Some(one)) => one,
                (None, None) => return Err(libc::EAGAIN),
            };
            state.host.advance(until);
            state = self.settle(state);
            match attempt(&mut state.host) {
                Err(libc::EAGAIN) if end_us.is_none_or(|end| until < end) => {}
                done => return done,
            }
        }
    }

    // Time and packets.

    /// The clock, which moves a little with each read, except when a call that has ended reads it:
    /// a thread that has yet to start its call waits for its time by reading.
    pub fn clock(&self) -> u64 {
        let me = std::thread::current().id();
        let mut state = self.lock();
        if state.returning.contains(&me) {
            state.returning.retain(|thread| *thread != me);
            self.changed.notify_all();
            return state.host.now_us();
        }
        state = self.settle_returning(state);
        let next = state.host.now_us() + 1;
        state.host.advance(next);
        state = self.settle(state);
        state.host.now_us()
    }

    fn settle_returning<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        for _ in 0..RETURN_LOOKS {
            if state.returning.is_empty() {
                break;
            }
            state = self.wait(state, RETURN_LOOK, |state| state.returning.is_empty());
        }
        state
    }

    /// usleep(3).
    pub fn sleep(&self, us: u64) {
        let mut state = self.lock();
        let end = state.host.now_us() + us;
        while let Some(next) = state.host.next_timer().filter(|next| *next <= end) {
            state.host.advance(next);
            state = self.settle(state);
        }
        state.host.advance(end);
        drop(self.settle(state));
    }

    /// An IP packet arrives from outside.
    pub fn arrive(&self, packet: &[u8]) -> Result<()> {
        let mut state = self.lock();
        if !state.host.arrive(packet) {
            return Err(libc::EINVAL);
        }
        drop(self.settle(state));
        Ok(())
    }

    /// The next IP packet that leaves, and when: time advances until there is one.
    pub fn leave(&self) -> Option<(u64, Vec<u8>)> {
        let mut state = self.lock();
        loop {
            if let Some(packet) = state.host.pop_packet() {
                return Some(packet);
            }
            let next = state.host.next_timer()?;
            state.host.advance(next);
            state = self.settle(state);
        }
    }
}
