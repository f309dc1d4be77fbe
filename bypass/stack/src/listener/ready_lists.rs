//! How a thread waits for a connection: it is rung from every segment.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use super::Listener;
use crate::peer::Peer;
use crate::process;

/// How a thread is rung for connections: [`bypass_shm::layout::ReadyList::listening`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    /// For each.
    Always = 1,
    /// As one of several processes that wait for the same: another is rung for the next.
    InTurn = 2,
}

/// Waking places of one thread at all segments of a listener, and the process that has taken them: a child that a handler
/// makes meanwhile must not give them back, as its parent may sleep there again.
pub struct ReadyLists(Vec<(Arc<Peer>, usize)>, u64);

impl ReadyLists {
    /// Nowhere.
    pub fn none() -> Self {
        Self(Vec::new(), process::number())
    }

    /// Takes a ready list in each segment; with it false when one had none left, or a connection waits for
    /// what no process reports.
    pub fn take(listener: &Listener, waker: u32, rung: Rung) -> (Self, bool) {
        let mut ready_lists = Vec::new();
        let mut is_complete = !listener.has_delayed();
        for peer in listener.peers() {
            match peer.claim_ready_list_to_sleep(waker) {
                Some(index) => {
                    let ready_list = peer.segment.ready_list(1, index);
                    ready_list.listening.store(rung as u32, Ordering::SeqCst);
                    ready_list.sleep();
                    ready_lists.push((peer, index));
                }
                None => is_complete = false,
            }
        }
        (Self(ready_lists, process::number()), is_complete)
    }
}

impl Drop for ReadyLists {
    fn drop(&mut self) {
        let is_ours = self.1 == process::number();
        for (peer, index) in self.0.iter().filter(|_| is_ours) {
            peer.segment.ready_list(1, *index).free();
        }
    }
}

/// Registers a blocked thread for as long as it lives.
pub struct Blocked<'a>(&'a Listener, u32);

impl<'a> Blocked<'a> {
    /// From now on the thread is woken for new segments.
    pub fn register(listener: &'a Listener, waker: u32) -> Self {
        if let Ok(mut blocked) = listener.blocked.lock() {
            blocked.push(waker);
        }
        Self(listener, waker)
    }
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        if let Ok(mut blocked) = self.0.blocked.lock() {
            blocked.retain(|waker| *waker != self.1);
        }
    }
}
