//! The one thread of ours in a process: answers doors, passes segments on, notices deaths.
//!
//! It sleeps in the kernel unless somebody knocks or a link ends. Started with the first listener
//! or the first greeting, and again in a forked child when that does something accelerated.

use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock};

use bypass_shm::link::{self, Message, Owned, VERSION};
use bypass_shm::segment::Segment;
use bypass_shm::stats::Reason;
use bypass_shm::sys as kernel;
use bypass_shm::waker::Name;

use crate::listener::{self, Listener};
use crate::peer::{self, Peer};
use crate::{passing, pool, process, table};

/// What a descriptor of the thread is.
#[derive(Debug, Clone)]
pub enum Role {
    /// This process's own door.
    OwnDoor,
    /// The door of a listener.
    Door(usize),
    /// Somebody at the own door who has not spoken.
    Stranger,
    /// Somebody at the door of a listener who has not spoken.
    Caller(usize),
    /// Our greeting of a listener's holder, who lives while it lasts.
    Greeting(Arc<Peer>),
    /// A client that has greeted us at the door of the listener with this inode, and its segment.
    Greeted(u64, u64),
    /// Our word to the other side's process that we take part.
    Adopted(Arc<Peer>),
    /// The other side's process at place `index` of this segment, and its number.
    Participant(Arc<Peer>, usize, u64),
    /// The door where a connection that was sent away can be asked for: its shadow's inode.
    Offer(u64),
    /// Somebody at such a door.
    Taker(u64),
    /// Somebody who was told; the end means that it has taken the connection.
    Given(u64),
    /// Readable when threads of the program have left work here.
    Errands,
}

/// The own door, opened before exec by the former image.
static PASSED_DOOR: AtomicI32 = AtomicI32::new(-1);
static ERRANDS: AtomicI32 = AtomicI32::new(-1);
static SET: AtomicI32 = AtomicI32::new(-1);
static IS_RUNNING: AtomicBool = AtomicBool::new(false);
static ROLES: OnceLock<Mutex<HashMap<i32, Role>>> = OnceLock::new();
static STARTING: Mutex<()> = Mutex::new(());
/// Links of those who have not spoken, oldest first.
static SILENT: Mutex<VecDeque<i32>> = Mutex::new(VecDeque::new());
/// How many of them are kept.
const SILENT_MAX: usize = 64;
/// How long the doors rest when there is no descriptor for whoever knocks.
const OVERLOAD: Duration = Duration::from_millis(10);
/// Segments of clients that could not be reached, and did not refuse either.
static UNSURE: Mutex<Vec<Arc<Peer>>> = Mutex::new(Vec::new());
/// When those are tried again.
const RETRY: Duration = Duration::from_millis(50);
/// Between cleanings while something rests in its grave.
const CLEANING: Duration = Duration::from_secs(5);

fn roles() -> &'static Mutex<HashMap<i32, Role>> {
    ROLES.get_or_init(Mutex::default)
}

/// Locks the roles across a fork.
pub fn hold() -> impl Sized {
    let lists = (SILENT.lock().ok(), UNSURE.lock().ok());
    (STARTING.lock().ok(), lists, roles().lock().ok())
}

/// Starts the thread unless it runs.
pub fn start() -> Result<(), i32> {
    if IS_RUNNING.load(Ordering::Acquire) {
        return Ok(());
    }
    let _one_at_a_time = STARTING.lock().map_err(|_| libc::EAGAIN)?;
    if IS_RUNNING.load(Ordering::Acquire) {
        return Ok(());
    }
    let set = kernel::move_high(kernel::epoll_create1(libc::EPOLL_CLOEXEC)? as i32)?;
    table::hide(set);
    SET.store(set, Ordering::Release);
    let door = match PASSED_DOOR.swap(-1, Ordering::AcqRel) {
        fd if fd >= 0 => Owned(fd),
        _ => link::open_door(&Name::of_process(process::number()))?,
    };
    table::hide(door.0);
    add(door.into_raw(), Role::OwnDoor);
    let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
    let errands = kernel::move_high(kernel::eventfd(0, flags)? as i32)?;
    ERRANDS.store(errands, Ordering::Release);
    add(errands, Role::Errands);
    let all_signals = u64::MAX;
    let former = kernel::swap_signal_mask(all_signals);
    let builder = std::thread::Builder::new()
        .name("bypass".to_owned())
        .stack_size(256 * 1024);
    let thread = builder.spawn(move || run(set));
    kernel::swap_signal_mask(former);
    thread.map_err(|_| libc::EAGAIN)?;
    IS_RUNNING.store(true, Ordering::Release);
    rejoin();
    Ok(())
}

/// After a fork: the inherited listeners are answered here too, and what clients the other
/// holders know becomes known here.
fn rejoin() {
    for (link, peer) in crate::fork::take_links() {
        add_link(link, Role::Adopted(peer));
    }
    for (number, listener) in listener::all().into_iter().enumerate() {
        listener.register();
        add(listener.door, Role::Door(number));
        let process = process::number();
        listener.tell_others(
            Message::Share {
                inode: listener.inode,
                process,
            },
            &[],
        );
    }
}

/// Starts the thread in a forked child that has listeners; cheap otherwise.
#[inline]
pub fn ensure() {
    if IS_RUNNING.load(Ordering::Relaxed) || !process::is_started() {
        return;
    }
    if !listener::all().is_empty() || crate::fork::has_links() {
        let _ = start();
    }
}

/// Takes the door that the former image has opened for this one.
pub fn take_door(door: Owned) {
    PASSED_DOOR.store(door.into_raw(), Ordering::Release);
}

/// Makes the thread do what was left for it; false when it does not run.
pub fn wake() -> bool {
    IS_RUNNING.load(Ordering::Acquire)
        && kernel::write(ERRANDS.load(Ordering::Acquire), &1u64.to_ne_bytes()).is_ok()
}

/// In a forked child: the thread, its set and its links are the parent's.
pub fn forget() {
    IS_RUNNING.store(false, Ordering::Release);
    if let (Ok(mut silent), Ok(mut unsure)) = (SILENT.lock(), UNSURE.lock()) {
        silent.clear();
        unsure.clear();
    }
    let set = SET.swap(-1, Ordering::AcqRel);
    if set >= 0 {
        table::show(set);
        let _ = kernel::close(set);
    }
    let taken = roles()
        .lock()
        .map(|mut roles| std::mem::take(&mut *roles))
        .unwrap_or_default();
    for (fd, role) in taken {
        if !matches!(role, Role::Door(_)) {
            table::show(fd);
            let _ = kernel::close(fd);
        }
    }
}

/// Watches a descriptor.
pub fn add(fd: i32, role: Role) {
    table::hide(fd);
    if let Ok(mut roles) = roles().lock() {
        roles.insert(fd, role);
    }
    let events = libc::EPOLLIN as u32;
    let set = SET.load(Ordering::Acquire);
    let _ = kernel::epoll_control(set, libc::EPOLL_CTL_ADD, fd, events, fd as u64);
}

/// Watches a link and owns it.
pub fn add_link(link: Owned, role: Role) {
    add(link.into_raw(), role);
}

/// Forgets a descriptor and closes it.
fn remove(fd: i32) -> Option<Role> {
    let role = roles().lock().ok()?.remove(&fd);
    if role.is_some() {
        close(fd);
    }
    role
}

/// As [`remove`], of a link that another thread may have closed: only if it is in such a role still.
fn dismiss(fd: i32, role: &Role) {
    let is_same = |now: &Role| core::mem::discriminant(now) == core::mem::discriminant(role);
    let Ok(mut roles) = roles().lock() else {
        return;
    };
    if roles.get(&fd).is_some_and(is_same) {
        roles.remove(&fd);
        drop(roles);
        close(fd);
    }
}

/// After its role was taken away.
fn close(fd: i32) {
    table::show(fd);
    let _ = kernel::close(fd);
}

/// A listener is closed here: its door, and the links of those who greeted us at it, which makes
/// them look for another holder.
pub fn close_door(door: i32, inode: u64) {
    let mut closing = vec![door];
    if let Ok(mut roles) = roles().lock() {
        roles.remove(&door);
        roles.retain(|fd, role| {
            let is_of = matches!(role, Role::Greeted(of, _) if *of == inode);
            if is_of {
                closing.push(*fd);
            }
            !is_of
        });
    }
    closing.into_iter().for_each(close);
}

fn run(set: i32) {
    crate::thread().inside.store(1, Ordering::Relaxed);
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
    let mut is_cleaning = false;
    loop {
        let has_unsure = retry_unsure();
        let wait = match (has_unsure, is_cleaning) {
            (true, _) => Some(RETRY),
            (false, is_cleaning) => is_cleaning.then_some(CLEANING),
        };
        let count = match kernel::epoll_wait(set, &mut events, wait, None) {
            Ok(count) => count,
            Err(libc::EINTR) => 0,
            Err(_) => return,
        };
        for event in &events[..count] {
            serve(event.u64 as i32);
        }
        is_cleaning = peer::clean_graves() | passing::expire();
    }
}

/// What came of looking at a descriptor.
enum Seen {
    /// Somebody knocked, and is to be met in this role.
    Knock(Owned, Role),
    /// Nobody could be let in at a door.
    NoKnock(i32),
    /// Work was left here.
    Errands,
    /// Somebody in this role has said something.
    Word(Role, Message, Vec<Owned>),
    /// A link has ended; it is closed.
    End(Role),
    Nothing,
}

/// Looks at a descriptor as what it is now. Threads of the program close doors and links, whose numbers
/// may be other doors and links at once. Who closes takes the role away first: as long as the roles are
/// locked, role and descriptor belong together.
fn look(fd: i32) -> Seen {
    let Ok(mut roles) = roles().lock() else {
        return Seen::Nothing;
    };
    let guest = match roles.get(&fd) {
        None => return Seen::Nothing,
        Some(Role::Errands) => {
            let _ = kernel::read(fd, &mut [0; 8]);
            return Seen::Errands;
        }
        Some(Role::OwnDoor) => Role::Stranger,
        Some(Role::Door(number)) => Role::Caller(*number),
        Some(Role::Offer(inode)) => Role::Taker(*inode),
        Some(role) => {
            let is_broken = match link::receive(fd) {
                Ok((message, fds)) => return Seen::Word(role.clone(), message, fds),
                Err(libc::EAGAIN | libc::EINTR) => return Seen::Nothing,
                Err(error) => error == libc::EPROTO,
            };
            let role = roles.remove(&fd);
            drop(roles);
            close(fd);
            return role.filter(|_| !is_broken).map_or(Seen::Nothing, Seen::End);
        }
    };
    match link::answer(fd) {
        Ok(link) => Seen::Knock(link, guest),
        Err(error) => Seen::NoKnock(error),
    }
}

fn serve(fd: i32) {
    loop {
        match look(fd) {
            Seen::Knock(link, role) => {
                let link_fd = link.0;
                add_link(link, role);
                // Those who mean well have spoken before they were let in.
                serve(link_fd);
                admit_silent(link_fd);
            }
            Seen::NoKnock(libc::EINTR | libc::ECONNABORTED) => {}
            Seen::NoKnock(libc::EMFILE | libc::ENFILE) if pool::empty() > 0 => {}
            Seen::NoKnock(libc::EAGAIN) | Seen::Nothing => return,
            // No descriptor for whoever knocks: the door stays readable, and this must not spin.
            Seen::NoKnock(_) => {
                let _ = kernel::poll(&mut [], Some(OVERLOAD), None);
                return;
            }
            Seen::Errands => return listener::settle(),
            Seen::Word(role, message, fds) => return hear(fd, &role, message, fds),
            Seen::End(role) => return ended(role),
        }
    }
}

/// Anybody of the network namespace can knock and say nothing: a few may, the oldest of them goes.
fn admit_silent(fd: i32) {
    let Ok(mut silent) = SILENT.lock() else {
        return;
    };
    silent.retain(|fd| is_silent(*fd));
    if is_silent(fd) {
        silent.push_back(fd);
    }
    if silent.len() > SILENT_MAX {
        silent.pop_front().map(remove);
    }
}

fn is_silent(fd: i32) -> bool {
    roles().lock().is_ok_and(|roles| {
        let role = roles.get(&fd);
        matches!(
            role,
            Some(Role::Stranger | Role::Caller(_) | Role::Taker(_))
        )
    })
}

fn hear(fd: i32, role: &Role, message: Message, mut fds: Vec<Owned>) {
    match (role, message) {
        (Role::Caller(number), Message::Greet { version, .. }) => {
            let answer = listener::get(*number).map(|l| greeted(&l, fd, version, fds.pop()));
            match answer {
                Some(Ok((inode, id))) => {
                    set_role(fd, Role::Greeted(inode, id));
                    // Closed meanwhile, before its door could know of this link.
                    if listener::get(*number).is_none_or(|now| now.inode != inode) {
                        dismiss(fd, &Role::Greeted(inode, id));
                    }
                }
                Some(Err(reason)) => {
                    let _ = link::send(
                        fd,
                        Message::Refuse {
                            reason: reason as u64,
                        },
                        &[],
                    );
                    remove(fd);
                }
                None => drop(remove(fd)),
            }
        }
        (Role::Caller(number), Message::Join { inode, version }) => {
            let listener = listener::get(*number);
            if let Some(listener) = listener.filter(|l| l.inode == inode && version == VERSION) {
                crate::handover::admit(&listener, fd, fds.pop());
            }
            remove(fd);
        }
        (Role::Taker(inode), Message::Take { version, .. }) if version == VERSION => {
            match passing::give(*inode, fd, fds.pop()) {
                Ok(()) => set_role(fd, Role::Given(*inode)),
                Err(_) => drop(remove(fd)),
            }
        }
        (Role::Greeting(_), Message::Welcome { .. }) => {}
        (Role::Greeting(peer), Message::Refuse { .. }) => {
            abandoned(peer);
            remove(fd);
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
        (Role::Stranger, Message::Forward { inode }) if is_trusted(fd, inode) => {
            forwarded(inode, fds.pop());
            remove(fd);
        }
        (Role::Stranger, Message::Share { inode, process }) if is_trusted(fd, inode) => {
            share(inode, process);
            remove(fd);
        }
        _ => dismiss(fd, role),
    }
}

fn set_role(fd: i32, role: Role) {
    if let Ok(mut roles) = roles().lock() {
        roles.insert(fd, role);
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
    if !is_owner && !process::may_share_with(client.uid) {
        return Err(Reason::OtherUser);
    }
    let segment = take_segment(fd).ok_or(Reason::PeerProtocol)?;
    let id = segment.id();
    if let Some(peer) = listener.adopt(segment) {
        listener.tell_others(
            Message::Forward {
                inode: listener.inode,
            },
            &[peer.segment.fd()],
        );
    } else if listener.peers().iter().all(|peer| peer.segment.id() != id) {
        return Err(Reason::Limit);
    }
    let backlog = u64::from(listener.backlog.load(Ordering::Relaxed));
    let welcome = Message::Welcome {
        process: process::number(),
        backlog,
    };
    // The listening socket itself is for its owner's processes only: who holds it can accept.
    let proof = [listener.fd.load(Ordering::Relaxed)];
    let proof = if is_owner { &proof[..] } else { &[] };
    link::send(link, welcome, proof).map_err(|_| Reason::NoAnswer)?;
    Ok((listener.inode, id))
}

fn take_segment(fd: Option<Owned>) -> Option<Segment> {
    let high = kernel::move_high(fd?.into_raw()).ok()?;
    Segment::adopt(high).ok()
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
        listener.adopt(segment);
    }
}

/// Segments are passed among processes of the listener's owner and of our own user only.
fn is_trusted(link: i32, inode: u64) -> bool {
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
            if let Ok(link) = listener.knock(asking) {
                let _ = link::send(link.0, Message::Forward { inode }, &[peer.segment.fd()]);
            }
        }
    }
}

/// Tells the other side's processes who takes part at place `index` of our side; the link is kept,
/// because its end is how they learn of our death.
pub fn say_adopted(peer: &Arc<Peer>, index: usize) {
    let links = knock_participants(peer, index);
    // It ended before we could watch it.
    if links.is_empty() && peer.side == 1 {
        client_ended(peer);
    }
    for link in links {
        add_link(link, Role::Adopted(peer.clone()));
    }
}

/// Says something to every process of the other side, with a descriptor.
pub fn tell_other_side(peer: &Peer, message: Message, descriptor: i32) {
    let Ok(roles) = roles().lock() else {
        return;
    };
    for (link, role) in roles.iter() {
        let is_theirs = matches!(role, Role::Adopted(of) if core::ptr::eq(&**of, peer));
        if is_theirs {
            let _ = link::send(*link, message, &[descriptor]);
        }
    }
}

/// Links to all processes of the other side.
pub fn knock_participants(peer: &Peer, index: usize) -> Vec<Owned> {
    let segment = &peer.segment;
    let message = Message::Adopted {
        segment: segment.id(),
        side: peer.side as u64,
        index: index as u64,
        process: segment.process(peer.side, index),
    };
    let mut links = Vec::new();
    for other in 0..bypass_shm::layout::PROCESSES {
        let number = segment.process(1 - peer.side, other);
        if number == 0 {
            continue;
        }
        let Ok(link) = link::knock(&Name::of_process(number)) else {
            continue;
        };
        if link::send(link.0, message, &[]).is_ok() {
            links.push(link);
        }
    }
    links
}

/// Tries clients again that could not be reached; true when some still cannot.
fn retry_unsure() -> bool {
    let take = |unsure: &mut Vec<_>| std::mem::take(unsure);
    let unsure = UNSURE
        .lock()
        .map_or_else(|_| Vec::new(), |mut list| take(&mut list));
    unsure.iter().for_each(client_ended);
    UNSURE.lock().is_ok_and(|list| !list.is_empty())
}

fn ended(role: Role) {
    match role {
        Role::Greeting(peer) => holder_ended(&peer),
        Role::Adopted(peer) if peer.side == 1 => client_ended(&peer),
        Role::Greeted(_, id) => {
            if let Some(peer) = peer::find(id, 1) {
                client_ended(&peer);
            }
        }
        Role::Participant(peer, index, process) => peer.bury(index, process),
        Role::Given(inode) => passing::given(inode),
        _ => {}
    }
}

/// The holder that we greeted is gone. Another one gets the segment, with what waits in it, as the
/// kernel's queue belongs to all who hold the socket; if nobody has the door, nobody will accept.
fn holder_ended(peer: &Arc<Peer>) {
    let hello = Message::Greet {
        version: VERSION,
        client: process::number(),
    };
    let again = link::knock(&Name::of_listener(peer.inode)).and_then(|link| {
        link::send(link.0, hello, &[peer.segment.fd()])?;
        Ok(link)
    });
    match again {
        Ok(link) => add_link(link, Role::Greeting(peer.clone())),
        Err(_) => abandoned(peer),
    }
}

fn abandoned(peer: &Arc<Peer>) {
    peer.is_stale.store(true, Ordering::SeqCst);
    peer.reset_unaccepted();
    if peer.occupied().next().is_none() {
        peer::forget(peer);
    }
}

fn client_ended(peer: &Arc<Peer>) {
    peer.is_stale.store(true, Ordering::SeqCst);
    for index in 0..bypass_shm::layout::PROCESSES {
        let number = peer.segment.process(0, index);
        if number == 0 {
            continue;
        }
        // Forked children of the client may live on; they are found at their own doors. A process
        // that is ending closes its link before its door: whoever answers is watched again.
        match link::knock(&Name::of_process(number)) {
            Ok(link) => add_link(link, Role::Adopted(peer.clone())),
            Err(libc::ECONNREFUSED) => peer.bury(index, number),
            // Its door is crowded or we lack descriptors: it may live.
            Err(_) => {
                if let Ok(mut unsure) = UNSURE.lock() {
                    unsure.push(peer.clone());
                }
                return;
            }
        }
    }
    let is_alone = (0..bypass_shm::layout::PROCESSES).all(|i| peer.segment.process(0, i) == 0);
    if !is_alone {
        return;
    }
    peer.bury_rest();
    for listener in listener::all()
        .iter()
        .filter(|listener| listener.inode == peer.inode)
    {
        // What it left in the queue can still be accepted and read, as in the kernel.
        if peer.segment.queue().waiting() == 0 {
            listener.forget(peer);
        }
    }
    peer::forget(peer);
}

/// Whether this process has an io_uring: what it submits there cannot be seen.
pub fn uses_io_uring() -> bool {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return false;
    };
    entries.flatten().any(|entry| {
        std::fs::read_link(entry.path()).is_ok_and(|to| to.as_os_str() == "anon_inode:[io_uring]")
    })
}
