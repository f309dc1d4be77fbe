//! Bytes and ends on their way between a segment and the engine.

use core::sync::atomic::Ordering;

use bypass_shard::tcp::{self, Handle, Shutdown};
use bypass_shard::Shard;
use bypass_shm::layout::{ASKS, CLOSED, FIN, LINGERS, REASON, RST, SHUT};

use super::{program_socket, Relay, PIECE};
use crate::peer::{Notice, Peer};
use crate::sockets;
use crate::sys::{fill_hole, show};

impl Relay {
    /// From the engine into the segment.
    pub(super) fn bring_in(&mut self, at: usize, slot: usize) {
        let place = &mut self.places[at];
        let Some(conn) = place.conns.get_mut(slot).and_then(Option::as_mut) else {
            return;
        };
        let (Some(handle), false) = (conn.handle, conn.has_read_end) else {
            return;
        };
        let peer = place.peer.clone();
        let ring = peer.segment.ring(slot, peer.side);
        let (mut count, mut ends) = (0, 0);
        let mut has_asked = false;
        while ends == 0 {
            if ring.unread() >= PIECE {
                if std::mem::replace(&mut has_asked, true) {
                    break;
                }
                ring.want_space();
                continue;
            }
            let shard = &mut self.shard;
            // Room for more than there is would take a larger ring, of which a segment has a few.
            let unread = shard
                .engine()
                .queued(handle)
                .map_or(0, |(unread, _)| unread);
            let room = unread.clamp(1, PIECE);
            // More than may lie here: asked in front of these bytes, for which no fence is paid.
            if ring.unread() + unread > PIECE {
                ring.announce_want();
            }
            match fill_hole(&ring, room, |into| shard.receive(handle, into)) {
                None if std::mem::replace(&mut has_asked, true) => break,
                None => ring.want_space(),
                Some(Ok(0)) => ends = FIN,
                Some(Ok(more)) => count += more,
                Some(Err(tcp::Error::WouldBlock | tcp::Error::NotConnected)) => break,
                Some(Err(error)) => ends = self.failed_with(error, &peer, slot),
            }
        }
        if count == 0 && ends == 0 {
            return;
        }
        if ends != 0 {
            if let Some(conn) = self.places[at].conns[slot].as_mut() {
                conn.has_read_end = true;
            }
            let producer = &peer.segment.slot(slot).producer[peer.side];
            producer.ends.fetch_or(ends, Ordering::SeqCst);
        }
        peer.ring(slot, Notice::News);
        if ends & CLOSED != 0 {
            peer.ring(slot, Notice::Room);
            self.give_up(at, slot);
        }
    }

    /// Whether the connection has failed, whatever the program has not read yet.
    pub(super) fn look_at_error(&mut self, at: usize, slot: usize, event: tcp::Event) {
        if event.ready & tcp::ERROR == 0 {
            return;
        }
        let error = self.shard.engine().take_error(event.handle).ok().flatten();
        if let Some(error) = error {
            self.fail(at, slot, event.handle, error);
            // A program that has closed does not look after the rest.
            self.bring_out(at, slot);
        }
    }

    /// Reports a failure to the program, behind the bytes that have come before. All that the segment has room
    /// for are moved, since the engine forgets the connection.
    fn fail(&mut self, at: usize, slot: usize, handle: Handle, error: tcp::Error) {
        let Some(conn) = self.places[at].conns[slot].as_mut() else {
            return;
        };
        conn.has_read_end = true;
        let peer = self.places[at].peer.clone();
        let ring = peer.segment.ring(slot, peer.side);
        let shard = &mut self.shard;
        let unread = |shard: &mut Shard| {
            shard
                .engine()
                .queued(handle)
                .map_or(0, |(unread, _)| unread)
        };
        let mut left = unread(shard);
        while left > 0 {
            match fill_hole(&ring, left.min(PIECE), |into| shard.receive(handle, into)) {
                Some(Ok(1..)) => left = unread(shard),
                _ => break,
            }
        }
        let ends = self.failed_with(error, &peer, slot);
        let producer = &peer.segment.slot(slot).producer[peer.side];
        producer.ends.fetch_or(ends, Ordering::SeqCst);
        peer.ring(slot, Notice::Bytes);
        peer.ring(slot, Notice::Room);
        self.give_up(at, slot);
    }

    /// How a connection that has failed ends for the program, which receives the error. A write to a peer that
    /// had closed fails with a broken pipe, not with a reset.
    pub(super) fn failed_with(&self, error: tcp::Error, peer: &Peer, slot: usize) -> u32 {
        let Some(socket) = program_socket(peer, slot) else {
            // The socket is another process's, which has no mark for a broken pipe.
            let error = match error {
                tcp::Error::BrokenPipe => tcp::Error::ConnectionReset,
                other => other,
            };
            let told = &peer.segment.transport(slot).error;
            told.store(error.errno() as u32, Ordering::SeqCst);
            return RST | CLOSED | REASON;
        };
        if error == tcp::Error::BrokenPipe {
            socket.set(sockets::WROTE_TO_CLOSED, true);
            return CLOSED;
        }
        socket.error.store(error.errno() as u32, Ordering::SeqCst);
        RST | CLOSED
    }

    /// From the segment into the engine.
    pub(super) fn bring_out(&mut self, at: usize, slot: usize) {
        let place = &self.places[at];
        if place.conns.get(slot).is_none_or(Option::is_none) {
            return;
        }
        let peer = place.peer.clone();
        let other = 1 - peer.side;
        // Before the bytes: what is written is there before its end.
        let ends = peer.segment.slot(slot).producer[other]
            .ends
            .load(Ordering::Acquire);
        if ends & ASKS != 0 {
            self.answer(at, slot);
        }
        let Some(conn) = self.places[at].conns[slot] else {
            return;
        };
        let Some(handle) = conn.handle else {
            if ends & CLOSED != 0 && !conn.lingers {
                self.leave(at, slot);
            }
            return;
        };
        if ends & (RST | CLOSED) == RST | CLOSED {
            // Data that was written before goes out before the reset, as far as it may.
            let _ = self.send_all(&peer, slot, handle);
            self.shard.finish();
            let _ = self.abort(handle);
            return self.leave(at, slot);
        }
        match self.send_all(&peer, slot, handle) {
            Ok(true) => {}
            Ok(false) if ends & CLOSED != 0 => return self.shard.engine().abandon(handle),
            Ok(false) => return,
            Err(_) if ends & CLOSED != 0 => {
                let _ = self.abort(handle);
                return self.leave(at, slot);
            }
            // Behind our own end nothing can go, but still something come.
            Err(tcp::Error::BrokenPipe) if conn.has_sent_end => return self.bring_in(at, slot),
            Err(error) => return self.fail(at, slot, handle, error),
        }
        if ends & CLOSED != 0 {
            let _ = self.shard.close(handle);
            if ends & LINGERS != 0 {
                self.linger(at, slot, handle);
            } else {
                self.leave(at, slot);
            }
        } else if ends & FIN != 0 {
            self.pass_end_on(at, slot, handle, ends);
        }
    }

    /// The program writes no more, or has ended both directions and keeps the socket.
    fn pass_end_on(&mut self, at: usize, slot: usize, handle: Handle, ends: u32) {
        let Some(conn) = self.places[at].conns[slot].as_mut() else {
            return;
        };
        let how = match ends & SHUT {
            0 if !conn.has_sent_end => Shutdown::Write,
            SHUT if !conn.is_shut => Shutdown::Both,
            _ => return,
        };
        let done = self.shard.shutdown(handle, how) != Err(tcp::Error::NotConnected);
        conn.has_sent_end = done;
        conn.is_shut = done && how == Shutdown::Both;
    }

    /// True when everything has gone; an error, reported only once, when nothing can go any more.
    pub(super) fn send_all(
        &mut self,
        peer: &Peer,
        slot: usize,
        handle: Handle,
    ) -> Result<bool, tcp::Error> {
        let ring = peer.segment.ring(slot, 1 - peer.side);
        loop {
            let (shard, mut refused) = (&mut self.shard, None);
            let shown = show(&ring, PIECE, |bytes| {
                let sent = shard.send(handle, bytes, false);
                sent.map_err(|error| refused = Some(error)).unwrap_or(0)
            });
            let Ok((count, taken)) = shown else {
                let _ = self.abort(handle);
                return Err(tcp::Error::ConnectionReset);
            };
            match refused {
                None | Some(tcp::Error::WouldBlock | tcp::Error::NoBuffers) => {}
                Some(error) => return Err(error),
            }
            if count == 0 {
                return Ok(true);
            }
            if taken == 0 {
                return Ok(false);
            }
            ring.discard(taken);
            let fenced = peer.segment.is_fenced(1 - peer.side);
            if ring.is_space_wanted(taken, fenced) {
                peer.ring(slot, Notice::Room);
            }
            if taken < count {
                return Ok(false);
            }
        }
    }
}
