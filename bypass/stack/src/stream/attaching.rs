//! How a socket becomes a connection: it lives in a slot of a segment from then on.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use bypass_stats::Row;
use bypass_sys::directory;

use crate::peer::Peer;
use crate::process;
use crate::process::table;
use crate::sockets::{self, Event, Socket};
use crate::stream::{urgent, Stream};

/// Makes `fd` a connection: socket object `index` lives in `slot` from now on.
pub fn attach(fd: i32, index: usize, peer: &Arc<Peer>, slot: usize) {
    let socket = sockets::get(index);
    socket.side.store(peer.side as u32, Ordering::Relaxed);
    socket.slot.store(slot as u32, Ordering::Relaxed);
    socket.peer.put(peer.clone());
    peer.set_socket(slot, Some(index));
    share_buffers(socket, peer, slot);
    share_linger(socket, peer, slot);
    if socket.has(sockets::OWNED) {
        urgent::share_owner(fd, socket);
    }
    if let Some(row) = process::stats().and_then(|stats| stats.row(index)) {
        describe(row, socket, peer);
        row.fd.store(fd as u32 + 1, Ordering::Release);
    }
    table::set(fd, socket.entry(index));
}

/// A connection that this process has from its parent is used for the first time: from now on its page of statistics
/// has it, too. At its end no number means it any more: it is described for a capture alone.
#[cold]
pub(super) fn take_over_row(stream: &Stream) {
    let Some(row) = process::stats().and_then(|stats| stats.row(stream.index)) else {
        return;
    };
    let entry = stream.socket.entry(stream.index);
    let fd = table::all(entry).next();
    if fd.is_some() || row.path.load(Ordering::Relaxed) == 0 {
        describe(row, stream.socket, stream.peer);
    }
    if let Some(fd) = fd {
        row.fd.store(fd as u32 + 1, Ordering::Release);
    }
}

/// How far a connection has ended, as a row says it, by the flags of its socket.
fn state_of(flags: u32) -> u32 {
    if flags & (sockets::RESET_TOLD | sockets::WROTE_TO_CLOSED) != 0 {
        return 4;
    }
    match (
        flags & sockets::SHUT_WRITE != 0,
        flags & sockets::END_SEEN != 0,
    ) {
        (false, false) => 1,
        (true, false) => 2,
        (false, true) => 3,
        (true, true) => 5,
    }
}

/// The program has shut the connection down, or has found that it has ended.
#[cold]
pub(super) fn describe_end(index: usize, flags: u32) {
    if let Some(row) = process::stats().and_then(|stats| stats.row_quick(index)) {
        row.state.store(state_of(flags), Ordering::Relaxed);
    }
}

/// Says in the page of statistics what the connection is; no byte of it was counted yet.
pub(super) fn describe(row: &Row, socket: &Socket, peer: &Peer) {
    row.local.store(socket.local.load());
    row.peer.store(socket.remote.load());
    let role = peer.side as u32 + 1;
    let path = if peer.segment.is_over_packets() { 3 } else { 1 };
    // Differs from the last one's between the same addresses.
    let first_number = socket.life().wrapping_mul(0x9e37_79b1);
    for (word, value) in [
        (&row.role, role),
        (&row.path, path),
        (&row.state, state_of(socket.flags.load(Ordering::Relaxed))),
        (&row.first_number, first_number),
        (&row.shown, 0),
    ] {
        word.store(value, Ordering::Relaxed);
    }
    row.bytes_in.store(0, Ordering::Relaxed);
    row.bytes_out.store(0, Ordering::Relaxed);
}

/// [`attach`] for a connection that another process had before: its names are in the slot. Between network namespaces those
/// are the client's, and may be there too late: the kernel has them, too.
pub fn revive(fd: i32, index: usize, peer: &Arc<Peer>, slot: usize) {
    let slot = peer.segment.clamp(slot);
    let names = &peer.segment.slot(slot).names;
    let socket = sockets::get(index);
    let of_kernel = || Some((sockets::kernel_name(fd)?, sockets::kernel_peer(fd)?));
    let of_kernel = directory::is_set().then(of_kernel).flatten();
    let of_slot = || (names.of[peer.side].load(), names.of[1 - peer.side].load());
    let (local, remote) = of_kernel.unwrap_or_else(of_slot);
    socket.local.store(local);
    socket.remote.store(remote);
    socket.change(Event::Connect);
    attach(fd, index, peer, slot);
}

/// Says in the segment whether the end of the last process that holds this side resets the connection, as its close does.
pub fn share_linger(socket: &Socket, peer: &Peer, slot: usize) {
    let aborts = &peer.segment.slot(slot).producer[peer.side].aborts;
    aborts.store(socket.is_aborting().into(), Ordering::Relaxed);
}

/// Says in the segment how large the program wants its buffers, if it has said so.
pub fn share_buffers(socket: &Socket, peer: &Peer, slot: usize) {
    let send = socket.send_buffer.load(Ordering::Relaxed);
    let receive = socket.receive_buffer.load(Ordering::Relaxed);
    if send | receive != 0 {
        peer.segment.set_buffers(slot, peer.side, send, receive);
    }
}
