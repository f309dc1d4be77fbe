//! seccomp: what must be done before a program confines itself, because it cannot be done afterwards.
//!
//! A filter of one's own (sshd's child before a login) lets through what the program calls: read,
//! write, poll. So a confined process makes no sockets, starts no thread and wakes no other process: it
//! records this in its segments, and threads that sleep there poll every millisecond instead.
//!
//! So does a process that is about to lose the shared directory, by another user or another root directory: it finds no process
//! by its name any more, and none finds it.

use bypass_sys::sandbox::{is_confined, set_confined};
use bypass_sys::thread::thread;
use bypass_sys::{barrier, directory, kernel};

use super::serving;
use crate::listener::{self, Listener};
use crate::operations::connect;
use crate::packets;
use crate::peer::{self, Notice};
use crate::process::table::{self, Kind};
use crate::process::{self, pool, sole, wakers};
use crate::service;
use crate::sockets;
use crate::stream;

/// Of the connections that wait at a listener, so many can be accepted afterwards; the others are reset.
const WAITING_MAX: usize = 64;

/// Before the filter. `all_threads`: it will hold for every thread of the process, ours too.
pub fn prepare(all_threads: bool) {
    if !process::is_started() || is_confined() {
        return;
    }
    stream::announce_held_back();
    sole::end_unless_ours();
    connect::settle(0..table::used());
    note_flags();
    listener::withdraw_credits();
    packets::leave_listeners();
    for listener in listener::all() {
        provide_descriptors(&listener);
    }
    // A filter lets the program's own calls through, not what we ask besides.
    packets::datagrams::leave_all();
    if all_threads {
        serving::stop();
    }
    // One of each that calls of a confined process need and cannot make.
    wakers::provide_wakers();
    thread().tid();
    barrier::choose_fences();
    for peer in peer::all() {
        peer.segment.set_silent(peer.side, peer.process_index());
        // A thread that sleeps there without a timeout looks again, and finds that it has to poll from now on.
        for slot in peer.occupied() {
            peer.ring(slot, Notice::Bytes);
            peer.ring(slot, Notice::Room);
        }
    }
    set_confined(true);
    // Another thread may have begun to accept meanwhile.
    listener::withdraw_credits();
}

/// O_NONBLOCK of connections that other processes hold too cannot be asked for afterwards.
fn note_flags() {
    for fd in 0..table::used() {
        let entry = table::get(fd);
        let socket = sockets::get(entry.index());
        if entry.kind() == Kind::Connected && socket.has(sockets::SHARED) {
            let is_set = stream::is_file_nonblocking(entry.index(), fd);
            socket.set(sockets::NONBLOCK, is_set);
        }
    }
}

/// A connection that waits already can be accepted afterwards: it needs a descriptor, which cannot be made then.
fn provide_descriptors(listener: &Listener) {
    let fd = listener.any_fd();
    let waiting = listener.waiting().min(WAITING_MAX);
    if let Ok(family) = kernel::option_int(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) {
        pool::provide(family, waiting);
    }
}

/// The filter was refused, or the change: the process may wake others again, though they need not rely on it.
pub fn undo() {
    if is_confined() && kernel::seccomp_mode() == 0 && directory::is_reachable() {
        set_confined(false);
        service::resume();
        let all = listener::all();
        all.iter().for_each(|listener| listener.publish_credits());
        listener::changed();
    }
}
