//! How a connection ends.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use bypass_shm::layout::{FIN, RST};
use bypass_stats::Counter;

use super::{of_socket, By, For, Stream};
use crate::peer::{self, Notice, Peer};
use crate::process;
use crate::sockets::{self, Event};

/// The last descriptor of a connection is closed: ends the stream as TCP does.
pub fn end(index: usize) {
    let Some(stream) = of_socket(index) else {
        return;
    };
    let socket = stream.socket;
    // No reader or writer is under way once both were ours; later ones see another generation.
    let reader = stream.lock(For::Bytes);
    let writer = stream.lock(For::Room);
    socket.generation.fetch_add(1, Ordering::AcqRel);
    let unread = stream.inbound().available(usize::MAX).unwrap_or(1) > 0;
    let is_abort = socket.has(sockets::LINGER) && socket.linger_s.load(Ordering::Relaxed) == 0;
    let ends = if unread || is_abort { RST | FIN } else { FIN };
    if ends & RST != 0 {
        process::count(Counter::Resets, 1);
    }
    stream.show_end(unread, ends);
    stream.peer.set_socket(stream.slot, None);
    drop((reader, writer));
    stream.peer.ring_ourselves(stream.slot);
    stream.peer.let_go(stream.slot, ends);
    process::count(Counter::Closes, 1);
    retire(socket.peer.take());
}

/// Keeps a segment mapped for those who may still look.
pub fn retire(peer: Option<Arc<Peer>>) {
    if let Some(peer) = peer {
        peer::retire(peer);
    }
}

impl Stream {
    /// For a capture: what the close of the last descriptor does.
    fn show_end(&self, has_unread: bool, ends: u32) {
        if !has_unread && self.inbound_ends() & FIN != 0 {
            self.show_ended(By::Peer);
        }
        match ends & RST {
            0 => self.show_ended(By::Us),
            _ => self.show_reset(By::Us),
        }
    }

    /// Ends directions, `how` as shutdown(2) names them.
    pub fn shut(&self, how: i32) {
        if how != libc::SHUT_WR {
            self.set_shut(Event::ShutRead);
        }
        if how != libc::SHUT_RD && !self.is_shut(sockets::SHUT_WRITE) {
            self.set_shut(Event::ShutWrite);
            let place = self.peer.segment.slot(self.slot);
            // Not before a writer has published what it is writing.
            let guard = self.lock(For::Room);
            self.show_ended(By::Us);
            place.producer[self.peer.side]
                .ends
                .fetch_or(FIN, Ordering::SeqCst);
            drop(guard);
            self.peer.ring(self.slot, Notice::Bytes);
        }
        self.peer.ring_ourselves(self.slot);
    }
}
