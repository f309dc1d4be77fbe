//! The one thread of ours in a process: answers doors, passes segments on, notices deaths.
//!
//! It sleeps in the kernel unless somebody knocks or a link ends. Started with the first listener
//! or the first greeting, and again in a forked child when that does something accelerated.

use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock};

use bypass_shm::link::{self, Message};
use bypass_sys::descriptor::Owned;
use bypass_sys::kernel;
use bypass_sys::sandbox::is_confined;
use bypass_sys::waker::Name;

use crate::listener::{self, Listener};
use crate::packets::{self, Service};
use crate::peer::{self, Peer};
use crate::wait::shorter;
use crate::{passing, pool, process, table, trimming};

mod deaths;
mod hearing;

pub use deaths::{knock_participants, say_adopted, tell_other_side};

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
static IS_STOPPING: AtomicBool = AtomicBool::new(false);
/// Taken by whoever ends it; of a forked child's parent it is another's.
static THREAD: Mutex<Option<std::thread::JoinHandle<()>>> = Mutex::new(None);
static ROLES: OnceLock<Mutex<HashMap<i32, Role>>> = OnceLock::new();
static STARTING: Mutex<()> = Mutex::new(());
/// Links of those who have not spoken, oldest first.
static SILENT: Mutex<VecDeque<i32>> = Mutex::new(VecDeque::new());
/// How many of them are kept.
const SILENT_MAX: usize = 64;
/// How many callers are let in at a door in one turn.
const KNOCKS_MAX: usize = 64;
/// How long the doors rest when there is no descriptor for whoever knocks.
const OVERLOAD: Duration = Duration::from_millis(10);
/// When clients are tried again that could not be reached.
const RETRY: Duration = Duration::from_millis(50);
/// Between cleanings while something rests in its grave.
const CLEANING: Duration = Duration::from_secs(5);

/// All but libc's own two: with 33 it makes every thread take part in setuid and its relatives, and
/// waits until each has done so.
const PROGRAMS_SIGNALS: u64 = !(1 << (32 - 1) | 1 << (33 - 1));

fn roles() -> &'static Mutex<HashMap<i32, Role>> {
    ROLES.get_or_init(Mutex::default)
}

/// Locks the roles across a fork.
pub fn hold() -> impl Sized {
    let lists = (SILENT.lock().ok(), deaths::hold());
    let starting = STARTING.lock().ok();
    (starting, lists, roles().lock().ok(), CLOSING.lock().ok())
}

/// Starts the thread unless it runs.
pub fn start() -> Result<(), i32> {
    if is_confined() {
        return Err(libc::EPERM);
    }
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
    let former = kernel::swap_signal_mask(PROGRAMS_SIGNALS);
    let builder = std::thread::Builder::new()
        .name("bypass".to_owned())
        .stack_size(256 * 1024);
    let thread = builder.spawn(move || run(set));
    kernel::swap_signal_mask(former);
    let thread = thread.map_err(|_| libc::EAGAIN)?;
    if let Ok(mut place) = THREAD.lock() {
        *place = Some(thread);
    }
    IS_RUNNING.store(true, Ordering::Release);
    bypass_shm::segment::when_grown(trimming::begin);
    rejoin();
    Ok(())
}

/// Ends the thread, before it would be confined together with the program's. Nobody is met any more:
/// new clients are the kernel's. Links stay open, as our life is known by them.
pub fn stop() {
    if !is_running() {
        return;
    }
    IS_STOPPING.store(true, Ordering::SeqCst);
    wake();
    let thread = THREAD.lock().ok().and_then(|mut place| place.take());
    if let Some(thread) = thread {
        let _ = thread.join();
    }
    IS_RUNNING.store(false, Ordering::SeqCst);
    for listener in listener::all() {
        close_door(listener.door, listener.inode, None);
    }
    finish_closing();
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
        ask_for_clients(&listener);
    }
}

fn ask_for_clients(listener: &Listener) {
    let inode = listener.inode;
    let process = process::number();
    // As proof that we hold it, whatever user we have become.
    listener.tell_others(Message::Share { inode, process }, &[listener.any_fd()]);
}

/// Asks the other holders of a listener, which has come to us, for the segments of its clients.
pub fn ask_others(inode: u64) {
    let all = listener::all();
    if let Some(listener) = all.iter().find(|one| one.inode == inode) {
        ask_for_clients(listener);
    }
}

/// Whether the thread runs.
pub fn is_running() -> bool {
    IS_RUNNING.load(Ordering::Acquire)
}

/// Starts the thread in a forked child that has listeners; cheap otherwise.
#[inline]
pub fn ensure() {
    if IS_RUNNING.load(Ordering::Relaxed) || !process::is_started() || is_confined() {
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
    if let Ok(mut thread) = THREAD.lock() {
        // The parent's: there is nothing to wait for, and nothing of it may be freed here.
        core::mem::forget(thread.take());
    }
    trimming::forget();
    if let Ok(mut silent) = SILENT.lock() {
        silent.clear();
    }
    deaths::forget();
    finish_closing();
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
/// them look for another holder. Nobody is met there any more; the descriptors are closed by the
/// service when the program next sleeps or somebody comes.
pub fn close_door(door: i32, inode: u64, listener: Option<Arc<Listener>>) {
    let (Ok(mut roles), Ok(mut closing)) = (roles().lock(), CLOSING.lock()) else {
        return;
    };
    roles.remove(&door);
    closing.descriptors.push(door);
    roles.retain(|fd, role| {
        let is_of = matches!(role, Role::Greeted(of, _) if *of == inode);
        if is_of {
            closing.descriptors.push(*fd);
        }
        !is_of
    });
    closing.listeners.extend(listener);
    IS_CLOSING.store(true, Ordering::Release);
}

/// What is to be closed; pushed while the roles are locked too.
static CLOSING: Mutex<Closing> = Mutex::new(Closing {
    descriptors: Vec::new(),
    listeners: Vec::new(),
});
static IS_CLOSING: AtomicBool = AtomicBool::new(false);

struct Closing {
    descriptors: Vec<i32>,
    listeners: Vec<Arc<Listener>>,
}

/// The program is about to sleep: time for what it was not to wait for.
#[inline]
pub fn leave_time() {
    if IS_CLOSING.load(Ordering::Relaxed) && !wake() {
        finish_closing();
    }
}

fn finish_closing() {
    if !IS_CLOSING.swap(false, Ordering::AcqRel) {
        return;
    }
    let (descriptors, listeners) = CLOSING.lock().map_or_else(
        |_| (Vec::new(), Vec::new()),
        |mut closing| {
            let descriptors = std::mem::take(&mut closing.descriptors);
            (descriptors, std::mem::take(&mut closing.listeners))
        },
    );
    descriptors.into_iter().for_each(close);
    drop(listeners);
}

fn run(set: i32) {
    crate::thread().inside.store(1, Ordering::Relaxed);
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
    let mut is_cleaning = false;
    loop {
        let has_unsure = deaths::retry_unsure();
        let has_grown = trimming::look();
        let wait = match (has_unsure, has_grown) {
            (true, _) => Some(RETRY),
            (false, true) => Some(trimming::TICK),
            (false, false) => is_cleaning.then_some(CLEANING),
        };
        let count = match sleep(set, &mut events, wait) {
            Ok(count) => count,
            Err(libc::EINTR) => 0,
            Err(_) => return,
        };
        if IS_STOPPING.load(Ordering::SeqCst) {
            return;
        }
        for event in &events[..count] {
            serve(event.u64 as i32);
        }
        is_cleaning = peer::clean_graves() | passing::expire();
    }
}

/// Sleeps; engines of packets are looked after meanwhile.
fn sleep(set: i32, events: &mut [libc::epoll_event], wait: Option<Duration>) -> Result<usize, i32> {
    match packets::serve() {
        Service::None => kernel::epoll_wait(set, events, wait, None),
        Service::Tick(tick) => kernel::epoll_wait(set, events, shorter(wait, Some(tick)), None),
        Service::Watch(watch) => {
            let mut own = [libc::pollfd {
                fd: set,
                events: libc::POLLIN,
                revents: 0,
            }];
            watch.poll(&mut own, wait, None)?;
            kernel::epoll_wait(set, events, Some(Duration::ZERO), None)
        }
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
        // Its role was taken away to close it.
        None if IS_CLOSING.load(Ordering::Acquire) => return Seen::Errands,
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
    // Anybody can knock all the time: the rest are met after the other descriptors had their turn.
    for _ in 0..KNOCKS_MAX {
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
            Seen::Errands => {
                finish_closing();
                return listener::settle();
            }
            Seen::Word(role, message, fds) => return hearing::hear(fd, &role, message, fds),
            Seen::End(role) => return deaths::ended(role),
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

fn set_role(fd: i32, role: Role) {
    if let Ok(mut roles) = roles().lock() {
        roles.insert(fd, role);
    }
}
