//! How processes come to share a listener and its clients: the proof is the listening socket itself.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use bypass_shm::link::{self, Message, VERSION};
use bypass_shm::segment::Segment;
use bypass_sys::descriptor::Owned;
use bypass_sys::kernel;
use bypass_sys::memory::Mapping;
use bypass_sys::waker::Name;

use super::{participants, Listener, HOLDER_TABLE_BYTES};
use crate::peer::{self, Peer};
use crate::process;

/// How long a holder may take to answer. A process that gives up is never offered the connections of accelerated
/// clients, so this is far more than a loaded machine takes; that the holder is gone is seen at once.
const ANSWER_MS: u64 = 5000;

/// Asks a holder of the listening socket `fd` to let this process in; the listener's number. The proof
/// is the socket itself.
pub fn join(fd: i32) -> Option<usize> {
    let stat = kernel::fstat(fd).ok()?;
    let ask = Message::Join {
        inode: stat.st_ino,
        version: VERSION,
    };
    let (_, answer, mut fds) = link::ask_any(|| call_holder(&stat), ask, &[fd], ANSWER_MS).ok()?;
    if answer != Message::Welcome {
        return None;
    }
    let holder_table = Mapping::adopt(fds.pop()?.into_raw()).ok()?;
    if holder_table.len() < HOLDER_TABLE_BYTES {
        return None;
    }
    let rendezvous = fds.pop()?;
    super::enter(
        fd,
        stat.st_ino,
        stat.st_uid,
        backlog_of(fd).unwrap_or(0),
        rendezvous,
        holder_table,
    )
    .ok()
}

/// A link to a holder. The holder table names the processes that get clients' memory: it must come from the socket's owner.
fn call_holder(stat: &libc::stat) -> Result<Owned, i32> {
    let link = link::connect(&Name::of_listener(stat.st_ino))?;
    let owner = kernel::peer_credentials(link.0)?.uid;
    if owner == stat.st_uid || owner == 0 || process::is_own(owner) {
        Ok(link)
    } else {
        Err(libc::EPERM)
    }
}

/// The backlog of a listening socket, as the kernel has bounded it (net.core.somaxconn).
pub fn backlog_of(fd: i32) -> Option<u32> {
    const OF_LISTENER: usize = 28;
    let mut info = [0u8; OF_LISTENER + 4];
    let length = kernel::option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info).ok()?;
    let bytes = info[OF_LISTENER..].try_into().ok()?;
    (length == info.len()).then(|| u32::from_ne_bytes(bytes))
}

/// Takes a client's segment; wakes the threads that accept here. The client is notified first of which process we are: a connection
/// that is accepted belongs to a process whose death the client notices.
pub fn adopt(listener: &Listener, segment: Segment) -> Option<Arc<Peer>> {
    let _making = peer::making();
    let id = segment.id();
    if listener.peers().iter().any(|peer| peer.segment.id() == id) {
        return None;
    }
    let peer = Peer::join(segment, 1, listener.inode)?;
    let links = participants::connect_participants(&peer, peer.process_index());
    listener.peers.lock().ok()?.push(peer.clone());
    listener.note_client();
    listener.tell_proven(&peer);
    listener.publish_credits_to(&peer);
    participants::watch(&peer, links);
    listener.generation.fetch_add(1, Ordering::SeqCst);
    listener.wake_waiters();
    Some(peer)
}

/// As [`adopt`], of a segment with connections from other hosts; the other holders take part too.
pub fn adopt_from_relay(listener: &Arc<Listener>, segment: Segment) -> Option<Arc<Peer>> {
    let peer = adopt(listener, segment)?;
    listener.pass_to_attending(&peer);
    Some(peer)
}

/// Whether `fd`, which came over `link`, names the socket with number `inode`: only a process that holds the socket can
/// open such a descriptor. Files of a file system may have that number too, sockets by name among them.
pub fn names(fd: i32, inode: u64, link: i32) -> bool {
    let (Ok(shown), Ok(socket)) = (kernel::fstat(fd), kernel::fstat(link)) else {
        return false;
    };
    let is_socket = shown.st_mode & libc::S_IFMT == libc::S_IFSOCK;
    is_socket && shown.st_dev == socket.st_dev && shown.st_ino == inode
}

/// Whether `fd`, which somebody passed, is a descriptor of the listening socket `inode`. The number
/// alone proves nothing: files of any kind can have it, and only a socket answers the second question.
pub fn proves(fd: i32, inode: u64) -> bool {
    kernel::fstat(fd).is_ok_and(|stat| stat.st_ino == inode)
        && kernel::option_int(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Ok(1)
}

/// Lets a process in that shows a descriptor of the same listening socket.
pub fn admit(listener: &Arc<Listener>, caller: i32, proof: Option<Owned>) {
    if !proof.is_some_and(|proof| proves(proof.0, listener.inode)) {
        return;
    }
    let _ = link::send(
        caller,
        Message::Welcome,
        &[listener.rendezvous, listener.holder_table_fd()],
    );
}
