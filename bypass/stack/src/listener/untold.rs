//! Messages that could not be sent to another holder, because the queue of its rendezvous socket was full or we
//! had no descriptor: the service sends them again until they are received or the holder is gone.

use std::sync::{Arc, Mutex};

use bypass_shm::link::{self, Message};

use super::Listener;
use crate::peer::{self, Peer};
use crate::process;
use crate::service;

/// What is to be said.
#[derive(Clone)]
pub(super) enum Word {
    /// Here is a client's segment; whether the listening socket goes with it, as proof that we hold it.
    Forward(Arc<Peer>, bool),
    /// We want the segments of its clients.
    Share,
}

impl Word {
    /// Whether the message is obsolete: the client has ended, and none of its connections waits to be accepted.
    fn is_moot(&self) -> bool {
        match self {
            Self::Forward(peer, _) => {
                peer::is_forgotten(peer) && peer.segment.queue().waiting() == 0
            }
            Self::Share => false,
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Forward(one, proves), Self::Forward(two, also)) => {
                Arc::ptr_eq(one, two) && proves == also
            }
            (Self::Share, Self::Share) => true,
            _ => false,
        }
    }
}

struct Untold {
    listener: Arc<Listener>,
    /// The number of the process.
    to: u64,
    word: Word,
}

impl Untold {
    /// Tries once more. Of a listener that was closed meanwhile nothing is shown as proof: its number may be
    /// another file's.
    fn is_said(&self) -> bool {
        let is_open = super::all()
            .iter()
            .any(|one| Arc::ptr_eq(one, &self.listener));
        match &self.word {
            Word::Forward(peer, true) if !is_open => {
                let word = Word::Forward(peer.clone(), false);
                self.listener.say(self.to, &word)
            }
            Word::Share if !is_open => true,
            word => self.listener.say(self.to, word),
        }
    }
}

static UNTOLD: Mutex<Vec<Untold>> = Mutex::new(Vec::new());

/// Locks them across a fork.
pub(super) fn hold() -> impl Sized {
    UNTOLD.lock().ok()
}

/// In a forked child: the parent says it.
pub fn forget() {
    drop(take());
}

fn take() -> Vec<Untold> {
    UNTOLD
        .lock()
        .map_or_else(|_| Vec::new(), |mut all| std::mem::take(&mut *all))
}

/// Sends the message to process `to` later.
pub(super) fn later(listener: Arc<Listener>, to: u64, word: Word) {
    if let Ok(mut all) = UNTOLD.lock() {
        let is_it = |one: &Untold| {
            one.to == to && Arc::ptr_eq(&one.listener, &listener) && one.word.is_same(&word)
        };
        if !all.iter().any(is_it) {
            all.push(Untold { listener, to, word });
        }
    }
    service::wake();
}

/// Sends the messages again; true when a process still cannot be reached.
pub fn retry() -> bool {
    let mut left = take();
    // A process that does not take one message will not take further ones.
    let mut deaf = Vec::new();
    left.retain(|one| {
        // What is over keeps no client's memory, however long a process does not listen.
        if one.word.is_moot() || !deaf.contains(&one.to) && one.is_said() {
            return false;
        }
        deaf.push(one.to);
        true
    });
    let Ok(mut all) = UNTOLD.lock() else {
        return false;
    };
    left.append(&mut all);
    *all = left;
    !all.is_empty()
}

impl Listener {
    /// Sends the message to process `to`; false when it has to be sent again later.
    pub(super) fn say(&self, to: u64, word: &Word) -> bool {
        if word.is_moot() {
            return true;
        }
        match self.connect(to) {
            Ok(link) => link::send(link.0, self.message(word), &self.descriptors(word)).is_ok(),
            Err(libc::ECONNREFUSED) => {
                self.strike(to);
                true
            }
            // The name is somebody else's by now.
            Err(libc::EPERM) => true,
            Err(_) => false,
        }
    }

    fn message(&self, word: &Word) -> Message {
        let (inode, process) = (self.inode, process::number());
        match word {
            Word::Forward(..) => Message::Forward { inode },
            Word::Share => Message::Share { inode, process },
        }
    }

    fn descriptors(&self, word: &Word) -> Vec<i32> {
        match word {
            Word::Forward(peer, true) => vec![peer.segment.fd(), self.any_fd()],
            Word::Forward(peer, false) => vec![peer.segment.fd()],
            Word::Share => vec![self.any_fd()],
        }
    }
}
