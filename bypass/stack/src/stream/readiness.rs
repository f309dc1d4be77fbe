//! The events that an epoll set, or a poll, reports of a connection.

use bypass_shm::layout::{CLOSED, FIN, RST};

use super::{attaching, of_socket, Stream};
use crate::sockets::{self, Socket};

/// Bits of an event that are always reported.
pub const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

const IN: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
const OUT: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;

/// Which of the `wanted` events, and of the events that are always reported, a connection has now.
#[inline]
pub fn readiness(stream: &Stream, wanted: u32) -> u32 {
    let flags = stream.shut_flags();
    let has = |flag: u32| flags & flag != 0;
    let mut events = 0;
    let ends = stream.inbound_ends();
    let is_over = ends != 0 || has(sockets::SHUT_READ);
    if wanted & IN != 0 && (is_over || stream.has_enough()) {
        events |= IN;
    }
    if wanted & libc::EPOLLPRI as u32 != 0 && stream.was_urgent() && stream.has_urgent() {
        events |= libc::EPOLLPRI as u32;
    }
    // Events that no member asks for are not looked at: the writer's room least of all.
    if wanted & OUT != 0 && stream.is_writable() {
        events |= OUT;
    }
    let has_more = has(sockets::SHUT_READ | sockets::WROTE_TO_CLOSED | sockets::END_SEEN);
    if ends == 0 && !has_more {
        return events & (wanted | ALWAYS);
    }
    stream.see_end(ends);
    let reset = ends & RST != 0 || has(sockets::WROTE_TO_CLOSED);
    if ends & (FIN | CLOSED) != 0 || reset || has(sockets::SHUT_READ) {
        events |= libc::EPOLLRDHUP as u32;
    }
    if reset || (has(sockets::SHUT_WRITE) && is_over) {
        events |= libc::EPOLLHUP as u32;
    }
    if reset && !has(sockets::RESET_TOLD) {
        events |= libc::EPOLLERR as u32;
    }
    events & (wanted | ALWAYS)
}

impl Stream {
    /// A look has found how the other side's direction has ended, or that it has not: who forges an end can take it back.
    pub(super) fn see_end(&self, ends: u32) {
        let is_ended = ends != 0;
        if self.socket.has(sockets::END_SEEN) != is_ended {
            self.socket.set(sockets::END_SEEN, is_ended);
            let is_reset = if ends & RST != 0 {
                sockets::RESET_TOLD
            } else {
                0
            };
            attaching::describe_end(self.index, self.shut_flags() | is_reset);
        }
    }
}

fn unconnected(socket: &Socket) -> u32 {
    let error = match socket.has(sockets::DISSOLVED) {
        true => libc::EPOLLERR,
        false => 0,
    };
    (libc::EPOLLOUT | libc::EPOLLHUP | error) as u32
}

/// The same of a socket object.
pub fn readiness_of(index: usize, wanted: u32) -> u32 {
    match of_socket(index) {
        Some(stream) => readiness(&stream, wanted),
        None => unconnected(sockets::get(index)) & (wanted | ALWAYS),
    }
}
