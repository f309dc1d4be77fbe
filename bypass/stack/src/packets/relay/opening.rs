//! Connections that the program opens.

use core::sync::atomic::Ordering;
use std::net::SocketAddr;
use std::sync::Arc;

use bypass_shard::tcp::{self, Handle};
use bypass_shm::layout::{CLOSED, RST};

use super::{mapped_again, new_segment, Relay};
use crate::packets::options::Wish;
use crate::peer::{Notice, Peer};
use crate::sockets::{self, Event, Socket};

impl Relay {
    /// Begins a connection of the program's to `target` with these options: its segment and slot there,
    /// and our address.
    pub fn open(
        &mut self,
        socket: (usize, &Socket),
        target: SocketAddr,
        wishes: &[Wish],
    ) -> Result<(Arc<Peer>, usize, SocketAddr), tcp::Error> {
        // The clock may be old: no thread has driven it yet.
        self.drive();
        if self.is_gone() {
            return Err(tcp::Error::NetworkUnreachable);
        }
        if self.is_at_limit() {
            return Err(tcp::Error::NoBuffers);
        }
        let handle = self.shard.connect(None, target)?;
        // Before the first segment leaves, which some of them are about.
        wishes.iter().for_each(|wish| self.obey(handle, *wish));
        match self.enter_outgoing(socket, handle, target) {
            Some(done) => {
                self.shard.finish();
                self.moved_us = self.shard.driven_us();
                self.hurry_service();
                Ok(done)
            }
            None => {
                let _ = self.shard.close(handle);
                Err(tcp::Error::NoBuffers)
            }
        }
    }

    fn enter_outgoing(
        &mut self,
        (index, socket): (usize, &Socket),
        handle: Handle,
        target: SocketAddr,
    ) -> Option<(Arc<Peer>, usize, SocketAddr)> {
        let local = self.shard.engine().local_addr(handle).ok()?;
        let (peer, at, slot) = self.outgoing_slot()?;
        if !socket.change(Event::Open) {
            peer.return_slot(slot);
            return None;
        }
        peer.segment.reset(slot);
        let place = peer.segment.slot(slot);
        place.names.of[0].store(local);
        place.names.of[1].store(target);
        place.meta.holders[0].store(peer.alone(), Ordering::SeqCst);
        socket.error.store(0, Ordering::Relaxed);
        self.enter(at, slot, handle, Some(index));
        Some((peer, slot, local))
    }

    fn outgoing_slot(&mut self) -> Option<(Arc<Peer>, usize, usize)> {
        let free = |(peer, at): &(Arc<Peer>, usize)| Some((peer.clone(), *at, peer.take_slot()?));
        if let Some(found) = self.outgoing.iter().find_map(free) {
            return Some(found);
        }
        let segment = new_segment()?;
        let mapped = mapped_again(&segment)?;
        let peer = Peer::join(segment, 0, 0)?;
        let at = self.add_place(mapped, 1, None)?;
        self.outgoing.push((peer, at));
        self.outgoing.last().and_then(free)
    }

    /// Whether a connection that was being opened stands now, or has failed.
    pub(super) fn look_at_opening(&mut self, at: usize, slot: usize, event: tcp::Event) {
        let conn = self.places[at].conns[slot].as_mut();
        let Some(index) = conn.as_ref().and_then(|conn| conn.opening) else {
            return;
        };
        let error = self.shard.engine().take_error(event.handle).ok().flatten();
        if error.is_none() && event.ready & tcp::WRITABLE == 0 {
            return;
        }
        if let Some(conn) = conn {
            conn.opening = None;
        }
        let socket = sockets::get(index);
        let peer = self.places[at].peer.clone();
        let mut opened = Event::Connect;
        if let Some(error) = error {
            // A reset is of a connection that stood: connect has worked.
            let ends = match error {
                tcp::Error::ConnectionReset => self.failed_with(error, &peer, slot),
                _ => {
                    socket.error.store(error.errno() as u32, Ordering::SeqCst);
                    opened = Event::Refuse;
                    RST | CLOSED
                }
            };
            let producer = &peer.segment.slot(slot).producer[peer.side];
            producer.ends.fetch_or(ends, Ordering::SeqCst);
            if let Some(conn) = self.places[at].conns[slot].as_mut() {
                conn.has_read_end = true;
            }
            self.give_up(at, slot);
        }
        socket.change(opened);
        peer.ring(slot, Notice::Bytes);
        peer.ring(slot, Notice::Room);
    }
}
