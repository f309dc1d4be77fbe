//! Messages that other processes send to our rendezvous sockets, and the replies.

use std::sync::Arc;

use bypass_shm::link::{self, Message, VERSION};
use bypass_shm::segment::Segment;
use bypass_stats::Reason;
use bypass_sys::descriptor::Owned;
use bypass_sys::kernel;

use super::offers::{self, Receipt};
use crate::listener::{self, adopt, participants, proves, Listener};
use crate::packets;
use crate::peer;
use crate::process;
use crate::service::{dismiss, remove, set_role, stand_by, Role};

/// Somebody in this role has said something.
pub(super) fn hear(fd: i32, role: &Role, message: Message, mut fds: Vec<Owned>) {
    match (role, message) {
        (Role::Caller(number), Message::Greet { version, .. }) => {
            hear_greeting(fd, *number, version, fds.pop());
        }
        (Role::Caller(number), Message::Join { inode, version }) => {
            let listener = listener::get(*number);
            if let Some(listener) = listener.filter(|l| l.inode == inode && version == VERSION) {
                listener::admit(&listener, fd, fds.pop());
            }
            remove(fd);
        }
        (Role::Joiner(interface), Message::JoinCluster { version }) => {
            if version == VERSION {
                packets::admit_to_cluster(*interface, fd);
            }
            remove(fd);
        }
        (Role::Taker(inode), Message::Take { version, .. }) if version == VERSION => {
            give(*inode, fd, fds.pop(), Receipt::Taken);
        }
        (Role::Taker(inode), Message::Look { version, .. }) if version == VERSION => {
            give(*inode, fd, fds.pop(), Receipt::LookedAt);
        }
        // Whatever it says: it has had its answer, and only another may get the next.
        (Role::Given(inode), _) => {
            offers::given(*inode);
            remove(fd);
        }
        (Role::Greeting(_), Message::Welcome) => {}
        (Role::Greeting(peer), Message::Refuse { reason }) => {
            remove(fd);
            participants::refused(peer, reason);
        }
        (
            Role::Stranger,
            Message::Adopted {
                segment,
                side,
                index,
                process,
            },
        ) => {
            let own_side = 1 - (side as usize & 1);
            match peer::find(segment, own_side) {
                Some(peer) => set_role(fd, Role::Participant(peer, index as usize, process)),
                // Our place is taken still: were the link to end, that process would look for us again at once, and so on.
                None if peer::keeps_place(segment, own_side) => stand_by(fd, segment, own_side),
                None => drop(remove(fd)),
            }
        }
        (Role::Participant(peer, ..), Message::Lend { number }) => {
            if let Some(memory) = fds.pop() {
                let number = u32::try_from(number).unwrap_or(u32::MAX);
                let index = peer.process_index();
                let _ = (peer.segment).borrow(peer.side, index, number, memory.into_raw());
            }
        }
        // We read nothing there any more.
        (Role::Bystander(..), Message::Lend { .. }) => {}
        (Role::Stranger, Message::Forward { inode }) if is_trusted(fd, inode, fds.get(1)) => {
            forwarded(inode, fds.into_iter().next());
            remove(fd);
        }
        // Only who holds the socket gets what its clients say.
        (Role::Stranger, Message::Share { inode, process })
            if fds.first().is_some_and(|proof| proves(proof.0, inode)) =>
        {
            share(inode, process);
            remove(fd);
        }
        _ => dismiss(fd, role),
    }
}

/// A process asks for a connection that was sent.
fn give(inode: u64, fd: i32, proof: Option<Owned>, receipt: Receipt) {
    match offers::give(inode, fd, proof, receipt) {
        Ok(()) => set_role(fd, Role::Given(inode)),
        Err(_) => drop(remove(fd)),
    }
}

/// A client has left its segment at the rendezvous socket of listener `number`.
fn hear_greeting(fd: i32, number: usize, version: u64, segment: Option<Owned>) {
    let listener = listener::get(number);
    let inode = listener.as_ref().map(|listener| listener.inode);
    match listener.map(|listener| greeted(&listener, fd, version, segment)) {
        Some(Ok((inode, id))) => {
            set_role(fd, Role::Greeted(inode, id));
            // Closed meanwhile, before its rendezvous socket could know of this link.
            if listener::get(number).is_none_or(|now| now.inode != inode) {
                dismiss(fd, &Role::Greeted(inode, id));
            }
        }
        // Closed meanwhile, its descriptor with it: another holder is greeted when this link ends.
        Some(Err(_)) if listener::get(number).is_none_or(|now| Some(now.inode) != inode) => {
            drop(remove(fd));
        }
        Some(Err(reason)) => {
            let reason = reason as u64;
            let _ = link::send(fd, Message::Refuse { reason }, &[]);
            remove(fd);
        }
        None => drop(remove(fd)),
    }
}

fn greeted(
    listener: &Arc<Listener>,
    link: i32,
    version: u64,
    fd: Option<Owned>,
) -> Result<(u64, u64), Reason> {
    if version != VERSION {
        return Err(Reason::Version);
    }
    let client = kernel::peer_credentials(link).map_err(|_| Reason::Sandbox)?;
    let is_owner = client.uid == listener.uid;
    if !process::may_share_with(client.uid) && (!is_owner || process::is_ambiguous(client.uid)) {
        return Err(Reason::OtherUser);
    }
    let segment = take_segment(fd).ok_or(Reason::PeerProtocol)?;
    let id = segment.id();
    // Not looked up again when it is new: a client that has died meanwhile is forgotten already.
    let mut peers = adopt(listener, segment).into_iter().chain(listener.peers());
    let known = peers.find(|one| one.segment.id() == id);
    let peer = known.ok_or(Reason::Limit)?;
    // Also a peer that is known already: a client introduces itself again when a holder has closed, because
    // that holder may have been the only one to know that a new holder had asked for the segment.
    listener.pass_to_attending(&peer);
    // Never the listening socket itself: who holds that can accept. A process of the same user need not be trusted so
    // far, as one in a container that has fewer capabilities.
    let proof = listener.proof().filter(|_| is_owner);
    link::send(link, Message::Welcome, proof.as_slice()).map_err(|_| Reason::NoAnswer)?;
    Ok((listener.inode, id))
}

fn take_segment(fd: Option<Owned>) -> Option<Segment> {
    Segment::adopt(fd?.into_raw()).ok()
}

/// Another holder gives us a client's segment. It comes from a process of the listener's owner or
/// of its children; one that is not sealed, or not ours to accept from, is of no use to anybody.
fn forwarded(inode: u64, fd: Option<Owned>) {
    let Some(segment) = take_segment(fd) else {
        return;
    };
    if let Some(listener) = listener::all()
        .iter()
        .find(|listener| listener.inode == inode)
    {
        adopt(listener, segment);
    }
}

/// Segments are passed among processes of the listener's owner, processes of our own user, and processes
/// that present the listening socket: a worker that has changed its user still holds it.
fn is_trusted(link: i32, inode: u64, proof: Option<&Owned>) -> bool {
    if proof.is_some_and(|proof| proves(proof.0, inode)) {
        return true;
    }
    let Ok(caller) = kernel::peer_credentials(link) else {
        return false;
    };
    let owns = |listener: &Arc<Listener>| listener.inode == inode && listener.uid == caller.uid;
    process::is_own(caller.uid) || listener::all().iter().any(owns)
}

fn share(inode: u64, asking: u64) {
    for listener in listener::all()
        .iter()
        .filter(|listener| listener.inode == inode)
    {
        for peer in listener.peers() {
            listener.pass_to(asking, &peer);
        }
    }
    packets::share(inode, asking);
}

#[cfg(test)]
mod tests {
    use bypass_sys::waker::Name;

    use super::*;
    use crate::service;

    #[test]
    fn a_participant_of_a_segment_where_we_have_a_place_keeps_its_link() {
        let segment = Segment::create(1, 64, 4096).expect("memory");
        let id = segment.id();
        let peer = peer::Peer::join(segment, 0, 1).expect("a place");
        let name = Name::of_process(kernel::random());
        let rendezvous = link::open_rendezvous(&name).expect("a socket");
        let is_kept = |segment: u64| {
            let _other = link::connect(&name).expect("open");
            let fd = link::answer(rendezvous.0).expect("a link").into_raw();
            service::add(fd, Role::Stranger);
            let word = Message::Adopted {
                segment,
                side: 1,
                index: 0,
                process: 7,
            };
            hear(fd, &Role::Stranger, word, Vec::new());
            service::remove(fd).is_some()
        };
        assert!(is_kept(id));
        peer::forget(&peer);
        assert!(is_kept(id));
        assert!(!is_kept(id.wrapping_add(1)));
        peer.give_place_up();
        assert!(!is_kept(id));
    }
}
