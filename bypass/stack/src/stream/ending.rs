//! How a connection ends.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use bypass_shm::layout::{CLOSED, FIN, LINGERS, RST, SHUT};
use bypass_stats::Counter;
use bypass_sys::kernel;

use super::{of_socket, By, For, Stream};
use crate::peer::{self, Notice, Peer};
use crate::process::{self, table};
use crate::sockets::{self, Event};

/// A connection over packets whose close waits for the other host to have everything (SO_LINGER).
pub struct Lingering {
    peer: Arc<Peer>,
    slot: usize,
    /// How long.
    pub seconds: u32,
}

impl Lingering {
    /// Whether something is not acknowledged yet.
    pub fn is_waiting(&self) -> bool {
        self.word().load(Ordering::SeqCst) != 0
    }

    fn word(&self) -> &AtomicU32 {
        &self.peer.segment.transport(self.slot).lingering
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        self.word().store(0, Ordering::SeqCst);
    }
}

/// The last descriptor of a connection is closed: ends the stream as TCP does. Returns what the close is
/// to wait for.
pub fn end(index: usize) -> Option<Lingering> {
    let stream = of_socket(index)?;
    let socket = stream.socket;
    // No reader or writer is under way once both were ours; later ones see another generation.
    let reader = stream.lock(For::Bytes);
    let writer = stream.lock(For::Room);
    if !stream.is_alive() {
        return None; // the kernel has it
    }
    stream.withdraw();
    socket.generation.fetch_add(1, Ordering::AcqRel);
    let unread = stream.inbound().available(usize::MAX).unwrap_or(1) > 0;
    // Where both directions have ended the kernel has no connection to reset.
    let is_over = stream.is_over() && !stream.is_over_packets();
    let resets = (unread || socket.is_aborting()) && !is_over;
    let ends = if resets { RST | FIN } else { FIN };
    if ends & RST != 0 {
        process::count(Counter::Resets, 1);
    }
    stream.show_end(unread, ends);
    let lingering = stream.lingering().filter(|_| ends & RST == 0);
    let ends = ends | lingering.as_ref().map_or(0, |_| LINGERS);
    stream.peer.set_socket(stream.slot, None);
    drop((reader, writer));
    stream.peer.ring_ourselves(stream.slot);
    stream.peer.let_go(stream.slot, ends);
    process::count(Counter::Closes, 1);
    retire(socket.peer.take());
    lingering
}

/// Works on the connection of socket `index`, in its life `life`, while no other thread reads, writes or ends it, after which
/// its slot may be another's. None: that life is over.
pub fn alone_with<T>(index: usize, life: u32, work: impl FnOnce(&Stream) -> T) -> Option<T> {
    let stream = of_socket(index).filter(|stream| stream.life == life)?;
    let _reader = stream.lock(For::Bytes).ok()?;
    let _writer = stream.lock(For::Room).ok()?;
    Some(work(&stream))
}

/// The kernel's connection behind the one of socket `index`, in its life `life`, has failed: so has this one, for both
/// sides.
pub fn end_with_shadow(index: usize, life: u32) {
    alone_with(index, life, end_by_kernel);
}

fn end_by_kernel(stream: &Stream) {
    let place = stream.peer.segment.slot(stream.slot);
    let [ours, theirs] = [stream.peer.side, 1 - stream.peer.side].map(|side| &place.producer[side]);
    // A side that has closed closes its socket of the kernel, too.
    if theirs.ends.load(Ordering::SeqCst) & (CLOSED | RST) != 0 {
        return;
    }
    let fd = table::all(stream.socket.entry(stream.index)).next();
    let error = fd.map(|fd| kernel::option_int(fd, libc::SOL_SOCKET, libc::SO_ERROR));
    let Some(Ok(error @ 1..)) = error else {
        return;
    };
    stream.withdraw();
    stream.socket.error.store(error as u32, Ordering::SeqCst);
    theirs.ends.fetch_or(RST | CLOSED, Ordering::SeqCst);
    ours.ends.fetch_or(RST, Ordering::SeqCst);
    stream.peer.ring_ourselves(stream.slot);
    stream.peer.ring(stream.slot, Notice::Bytes);
}

/// Keeps a segment mapped for threads that may still look.
pub fn retire(peer: Option<Arc<Peer>>) {
    if let Some(peer) = peer {
        peer::retire(peer);
    }
}

impl Stream {
    /// No process takes the connection any more if it is offered to another network namespace still: it ends before. Not
    /// while another process of this side has it, too.
    fn withdraw(&self) {
        let is_offered = self.is_opening() && !self.is_over_packets() && self.is_ours_alone();
        if is_offered && self.peer.take_offer_back(self.slot) {
            process::count(Counter::ConnectsKernel, 1);
        }
    }

    /// The kernel has the connection, and nothing is left of it in memory. By a thread that is [alone](alone_with) with it, when
    /// no descriptor means it any more.
    pub fn leave(&self) {
        self.socket.generation.fetch_add(1, Ordering::AcqRel);
        self.peer.set_socket(self.slot, None);
        self.peer.ring_ourselves(self.slot);
        self.peer.let_go(self.slot, FIN);
        retire(self.socket.peer.take());
    }

    /// The wait of close, which only the last process that holds the connection does.
    fn lingering(&self) -> Option<Lingering> {
        let seconds = self.socket.linger_s.load(Ordering::Relaxed);
        let is_wanted = self.socket.has(sockets::LINGER) && seconds > 0 && self.is_over_packets();
        if !is_wanted || !self.is_ours_alone() {
            return None;
        }
        let (peer, slot) = (self.socket.share_peer()?, self.slot);
        let lingering = Lingering {
            peer,
            slot,
            seconds,
        };
        lingering.word().store(1, Ordering::SeqCst);
        Some(lingering)
    }

    /// Whether no other process of our side holds it.
    fn is_ours_alone(&self) -> bool {
        let holders = &self.peer.segment.slot(self.slot).meta.holders[self.peer.side];
        holders.load(Ordering::SeqCst) == self.peer.alone()
    }

    /// For a capture: what the close of the last descriptor does, unless another process has the connection still.
    fn show_end(&self, has_unread: bool, ends: u32) {
        if process::captured().is_none() || !self.is_ours_alone() {
            return;
        }
        if !has_unread && self.inbound_ends() & FIN != 0 {
            self.show_ended(By::Peer);
        }
        match ends & RST {
            0 => self.show_ended(By::Us),
            _ => self.show_reset(By::Us),
        }
    }

    /// Whether nothing of the connection is left, as in the kernel's state CLOSE.
    pub fn is_over(&self) -> bool {
        let ends = self.inbound_ends();
        let has_ended = ends & FIN != 0 && self.is_shut(sockets::SHUT_WRITE);
        has_ended || ends & RST != 0 || self.is_shut(sockets::WROTE_TO_CLOSED)
    }

    /// Ends directions, `how` as shutdown(2) names them.
    pub fn shut(&self, how: i32) {
        if how != libc::SHUT_WR {
            self.set_shut(Event::ShutRead);
        }
        let mut ends = 0;
        if how != libc::SHUT_RD && !self.is_shut(sockets::SHUT_WRITE) {
            self.set_shut(Event::ShutWrite);
            ends |= FIN;
        }
        if self.is_shut(sockets::SHUT_READ) && self.is_shut(sockets::SHUT_WRITE) {
            ends |= SHUT;
        }
        if ends != 0 {
            self.tell_ends(ends);
        }
        self.peer.ring_ourselves(self.slot);
    }

    fn tell_ends(&self, ends: u32) {
        let place = self.peer.segment.slot(self.slot);
        // Not before a writer has published what it is writing.
        let guard = self.lock(For::Room);
        if !self.is_alive() {
            return; // closed, or handed to the kernel, meanwhile
        }
        if ends & FIN != 0 {
            self.show_ended(By::Us);
        }
        place.producer[self.peer.side]
            .ends
            .fetch_or(ends, Ordering::SeqCst);
        drop(guard);
        self.peer.ring(self.slot, Notice::Bytes);
    }
}
