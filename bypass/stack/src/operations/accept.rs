//! accept: whose turn it is, segments or the kernel, and what the new descriptor becomes.

use core::sync::atomic::Ordering;
use std::net::SocketAddr;

use bypass_shm::layout::RST;
use bypass_stats::{About, Call, Counter, Reason};
use bypass_sys::sandbox::is_confined;
use bypass_sys::{address, directory, kernel};

use crate::listener::{self, Listener};
use crate::packets;
use crate::peer::{marks, Mark, Peer};
use crate::process::deadline::timeout;
use crate::process::table::{self, Entry, Kind};
use crate::process::{self, pool, Outcome};
use crate::service;
use crate::sockets::{self, Event, Socket};
use crate::stream::{attach, show_opened};
use crate::wait::blocking::{block_on_listener, Slept};

/// The kernel's own queue is looked at before ours once in so many accepts.
const KERNEL_TURN: u32 = 16;
/// How many connections of segments a confined process looks at in one call.
const LOOKS_MAX: u32 = 64;

/// The address of an accepted client, as accept(2) gives it: a connection that is over already says
/// it no more.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    /// The bytes; `length` of them count.
    pub bytes: [u8; 28],
    /// How many count.
    pub length: usize,
}

impl Client {
    /// Nobody's.
    pub const NOBODY: Self = Self {
        bytes: [0; 28],
        length: 0,
    };

    fn set(&mut self, name: &kernel::NameBytes) {
        self.length = (name.length as usize).min(self.bytes.len());
        self.bytes[..self.length].copy_from_slice(&name.bytes[..self.length]);
    }

    fn address(&self) -> Option<SocketAddr> {
        address::from_bytes(&self.bytes[..self.length])
    }
}

/// accept4(2).
pub fn accept(fd: i32, flags: i32, client: &mut Client) -> Outcome {
    let entry = table::get(fd);
    match entry.kind() {
        Kind::Listener => {}
        Kind::Unbound | Kind::Connected => return Outcome::Error(libc::EINVAL),
        Kind::Pooled | Kind::Internal => return Outcome::Error(libc::EBADF),
        _ => return Outcome::Kernel,
    }
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return Outcome::Error(libc::EINVAL);
    }
    let socket = sockets::get(entry.index());
    let Some(listener) = listener::of(socket) else {
        return Outcome::Error(libc::EBADF);
    };
    if is_confined() {
        return accept_confined(&listener, socket, flags, client);
    }
    let timeout_ns = socket.receive_timeout_ns.load(Ordering::Relaxed);
    let deadline = timeout(timeout_ns);
    let mut turn = Turn(&listener, Slept::default());
    loop {
        // In each round: a handler may have made a child that goes on with this call.
        listener.attend();
        match attempt(&listener, fd, socket, flags, client) {
            Outcome::Error(libc::EAGAIN) if !is_nonblocking(fd, socket) => {}
            Outcome::Error(libc::EAGAIN) => {
                // In a forked child that looks again and again: only so it learns of clients.
                listener::ensure_service();
                return Outcome::Error(libc::EAGAIN);
            }
            other => return other,
        }
        if table::get(fd) != entry {
            return Outcome::Error(libc::EINVAL);
        }
        if let Err(error) = block_on_listener(&listener, fd, deadline, &mut turn.1) {
            return Outcome::Error(error);
        }
    }
}

/// See [`Listener::pass_turn`].
struct Turn<'a>(&'a Listener, Slept);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.1.in_turn {
            self.0.pass_turn();
        }
    }
}

/// No client comes through segments any more. Connections that waited before are accepted as far as there are
/// descriptors; for those of the kernel the program's own call is made, which its filter allows.
#[cold]
fn accept_confined(
    listener: &Listener,
    socket: &Socket,
    flags: i32,
    client: &mut Client,
) -> Outcome {
    for _ in 0..LOOKS_MAX {
        if !listener.has_acceptable() {
            break;
        }
        if !pool::has_kept(socket.family.load(Ordering::Relaxed)) {
            refuse(listener);
        } else if let Ok(Some(new)) = accept_shm(listener, socket, flags, client) {
            return Outcome::Done(new as isize);
        }
    }
    Outcome::Kernel
}

/// The kernel's copy of the file flag counts once other processes hold the file too, as they may have changed it.
fn is_nonblocking(fd: i32, socket: &Socket) -> bool {
    if socket.has(sockets::SHARED) {
        let flags = kernel::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0) as i32;
        return flags & libc::O_NONBLOCK != 0;
    }
    socket.has(sockets::NONBLOCK)
}

fn attempt(
    listener: &Listener,
    fd: i32,
    socket: &Socket,
    flags: i32,
    client: &mut Client,
) -> Outcome {
    if listener.is_kernel_first() {
        let done = accept_kernel(listener, fd, socket, flags, client);
        if matches!(done, Outcome::Done(_)) {
            return done;
        }
        listener.set_kernel_first(false);
    }
    let turn = listener.next_turn();
    if turn % KERNEL_TURN == KERNEL_TURN - 1 {
        if let done @ Outcome::Done(_) = accept_kernel(listener, fd, socket, flags, client) {
            return done;
        }
    }
    if listener.has_acceptable() {
        match accept_shm(listener, socket, flags, client) {
            Ok(Some(new)) => return Outcome::Done(new as isize),
            Ok(None) => {}
            Err(error) => return Outcome::Error(error),
        }
    }
    accept_kernel(listener, fd, socket, flags, client)
}

fn accept_kernel(
    listener: &Listener,
    fd: i32,
    socket: &Socket,
    flags: i32,
    client: &mut Client,
) -> Outcome {
    let mut take = || take_from_kernel((listener, socket), fd, flags, client);
    if is_nonblocking(fd, socket) {
        return take();
    }
    // The shadow may block and must not: others, who know nothing of us, may hold it too. Nor must
    // one of ours who finds that another was faster: connections of segments could not wake it.
    let taken = listener.with_kernels_queue(|| {
        let mut one = [libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        }];
        match kernel::poll(&mut one, Some(core::time::Duration::ZERO), None) {
            // A look at which a signal came has seen nothing.
            Ok(0) | Err(libc::EINTR) => Outcome::Error(libc::EAGAIN),
            _ => take(),
        }
    });
    taken.unwrap_or(Outcome::Error(libc::EAGAIN))
}

fn take_from_kernel(of: (&Listener, &Socket), fd: i32, flags: i32, client: &mut Client) -> Outcome {
    let accepted = pool::for_program(|| kernel::accept_from(fd, flags));
    if let Ok((new, name)) = &accepted {
        client.set(name);
        let new = *new;
        table::set(new, Entry::KERNEL);
        if directory::is_set() && enter_marked(of, new, flags, client.address()) {
            return Outcome::Done(new as isize);
        }
        process::count(Counter::AcceptsKernel, 1);
        let about = || About {
            call: Call::Accept,
            fd: new,
            address: client.address(),
            has_failed: false,
        };
        if let Some(reason) = packets::why_left() {
            process::leave_to_kernel(reason, about());
        } else if packets::is_of_others(|| client.address()) {
            process::leave_to_kernel(Reason::Interface, about());
        }
    }
    accepted.map(|(new, _)| new as usize).into()
}

/// Room is lacking for a connection that waits, because more have come at once than were kept room for:
/// its client does not wait for ever.
#[cold]
fn refuse(listener: &Listener) {
    process::fall_back(Reason::Limit);
    if let Some((peer, slot)) = listener.take(|_, _| true) {
        peer.let_go(slot, RST);
    }
}

fn accept_shm(
    listener: &Listener,
    from: &Socket,
    flags: i32,
    client: &mut Client,
) -> Result<Option<i32>, i32> {
    let family = from.family.load(Ordering::Relaxed);
    let fd = pool::take(family)?;
    let own = flags_of_new(from, flags);
    let room = (fd as usize) < table::NUMBERS_MAX;
    let Some(index) = room.then(|| sockets::allocate(family, own)).flatten() else {
        pool::give(fd, family, false);
        refuse(listener);
        return Ok(None);
    };
    let _making = crate::peer::making();
    let enters = |peer: &Peer, slot| peer.enter(slot, index, sockets::waiting);
    let Some((peer, slot)) = listener.take(enters) else {
        sockets::get(index).descriptors.store(0, Ordering::Release);
        sockets::free(index);
        table::set(fd, Entry::new(Kind::Pooled, 0, 0));
        pool::give(fd, family, true);
        return Ok(None);
    };
    let socket = sockets::get(index);
    inherit(socket, from);
    let names = &peer.segment.slot(slot).names;
    socket.local.store(names.of[1].load());
    let remote = names.of[0].load();
    socket.remote.store(remote);
    client.length = address::to_bytes(remote, family, &mut client.bytes);
    socket.change(Event::Connect);
    attach(fd, index, &peer, slot);
    if !peer.segment.is_proven() && peer.shows_no_children(false) {
        listener.prove();
    }
    peer.reap_in(slot, sockets::waiting);
    show_opened(index);
    process::count(counter(&peer), 1);
    Ok(Some(fd))
}

/// Flags of a socket that is accepted from another one.
fn flags_of_new(from: &Socket, flags: i32) -> u32 {
    let inherited = sockets::NODELAY
        | sockets::KEEPALIVE
        | sockets::LINGER
        | sockets::CORK
        | sockets::URGENT_IN_LINE
        | sockets::LOW_WATER;
    let given = |flag, own| if flags & flag != 0 { own } else { 0 };
    from.flags.load(Ordering::Relaxed) & inherited
        | sockets::ACCEPTED
        | given(libc::SOCK_NONBLOCK, sockets::NONBLOCK)
        | given(libc::SOCK_CLOEXEC, sockets::CLOEXEC)
}

/// Gives a socket that is accepted what else it has from the listener.
fn inherit(socket: &Socket, from: &Socket) {
    socket
        .linger_s
        .store(from.linger_s.load(Ordering::Relaxed), Ordering::Relaxed);
    for (own, of) in [
        (&socket.receive_timeout_ns, &from.receive_timeout_ns),
        (&socket.send_timeout_ns, &from.send_timeout_ns),
    ] {
        own.store(of.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    for (own, of) in [
        (&socket.listener, &from.listener),
        (&socket.low_water, &from.low_water),
        (&socket.send_buffer, &from.send_buffer),
        (&socket.receive_buffer, &from.receive_buffer),
    ] {
        own.store(of.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// The kernel's connection `new` becomes one in memory, if it carries the [mark](marks) of a client in another network
/// namespace.
#[cold]
fn enter_marked(
    (listener, from): (&Listener, &Socket),
    new: i32,
    flags: i32,
    client: Option<SocketAddr>,
) -> bool {
    let Some(mark) = client.and_then(|client| Mark::of(new, client, listener.keeps_syns())) else {
        return false;
    };
    // Over IPv4 the answers carry it, too.
    if let Some(client) = client.filter(SocketAddr::is_ipv4) {
        marks::clear(new, client);
    }
    let Some(peer) = listener.peer(mark.segment) else {
        return false;
    };
    let family = from.family.load(Ordering::Relaxed);
    let room = (new as usize) < table::NUMBERS_MAX;
    // The kernel's socket is not one to be kept for others.
    let own = flags_of_new(from, flags) | sockets::DIRTY;
    let Some(index) = room.then(|| sockets::allocate(family, own)).flatten() else {
        return false;
    };
    let socket = sockets::get(index);
    let _making = crate::peer::making();
    let enters = |slot: &usize| peer.enter(*slot, index, sockets::waiting);
    let Some(slot) = peer.take_marked(&mark).filter(enters) else {
        socket.descriptors.store(0, Ordering::Release);
        sockets::free(index);
        return false;
    };
    inherit(socket, from);
    let names = [sockets::kernel_name(new), client];
    for (own, name) in [&socket.local, &socket.remote].into_iter().zip(names) {
        if let Some(name) = name {
            own.store(name);
        }
    }
    socket.change(Event::Connect);
    attach(new, index, &peer, slot);
    service::watch_shadow(new, index, socket.life());
    peer.reap_in(slot, sockets::waiting);
    show_opened(index);
    process::count(Counter::AcceptsShm, 1);
    true
}

fn counter(peer: &Peer) -> Counter {
    match peer.segment.is_over_packets() {
        false => Counter::AcceptsShm,
        true => Counter::AcceptsPackets,
    }
}
