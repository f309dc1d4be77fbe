//! The library's only thread in a process, as the layers below see it: how to start it, wake it and add descriptors.
//!
//! It sleeps in the kernel unless a process connects or a link ends. It is started with the first listener
//! or the first link to a listener's holder, and again in a forked child when the child does something
//! accelerated. Its work is supplied through [`set_work`], because that code is in a layer above.

use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock};

use bypass_shm::link::{self, Message};
use bypass_sys::descriptor::Owned;
use bypass_sys::process::keeping_errno;
use bypass_sys::sandbox::is_confined;
use bypass_sys::waker::Name;
use bypass_sys::{kernel, numbers};

use crate::peer::{self, due, Peer};
use crate::process::{self, later, table};

pub use crate::process::later::{is_running, wake};

/// What a descriptor of the thread is.
#[derive(Debug, Clone)]
pub enum Role {
    /// This process's own rendezvous socket.
    OwnRendezvous,
    /// The rendezvous socket of a listener.
    Rendezvous(usize),
    /// Somebody at the own rendezvous socket who has not spoken.
    Stranger,
    /// Somebody at the rendezvous socket of a listener who has not spoken.
    Caller(usize),
    /// Our link to a listener's holder, which is alive as long as the link is open.
    Greeting(Arc<Peer>),
    /// A client that has greeted us at the rendezvous socket of the listener with this inode, and its segment.
    Greeted(u64, u64),
    /// Our word that we take part, to the other side's process at place `index` of this segment, and its number.
    Adopted(Arc<Peer>, usize, u64),
    /// The other side's process at place `index` of this segment, and its number.
    Participant(Arc<Peer>, usize, u64),
    /// A process that takes part in the segment with this number, which is none of ours any more, but in which we have a
    /// place still, on this side: it learns by this link when we have none.
    Bystander(u64, usize),
    /// The rendezvous socket where a connection that was sent away can be asked for: its shadow's inode.
    Offer(u64),
    /// Somebody at such a rendezvous socket.
    Taker(u64),
    /// A process that was given the connection; the end of the link means that it has taken it.
    Given(u64),
    /// The rendezvous socket of the programs that share the interface of this number.
    Cluster(u64),
    /// Somebody at such a rendezvous socket who has not spoken.
    Joiner(u64),
    /// Readable when threads of the program have left work here.
    Deferred,
    /// Readable when something has happened on a socket with O_ASYNC.
    Signals,
    /// Readable when the kernel's connection behind one between network namespaces has failed.
    Shadows,
}

/// A link over which the other side's process at place `index` was informed that we take part.
pub struct Told {
    /// Owned; it is closed when that process ends.
    pub link: Owned,
    /// Where that process stands among those of its side.
    pub index: usize,
    /// Its number.
    pub process: u64,
}

impl Told {
    /// Role of the link in the segment of `peer`.
    fn role(&self, peer: Arc<Peer>) -> Role {
        Role::Adopted(peer, self.index, self.process)
    }
}

/// Work of the thread.
pub struct Work {
    /// Serves what is watched by the kernel set with this number, until [`is_stopping`].
    pub run: fn(i32),
    /// The thread has started: what there is already is to be watched.
    pub rejoin: fn(),
    /// The process ends.
    pub leave: extern "C" fn(),
}

static WORK: OnceLock<Work> = OnceLock::new();
/// The own rendezvous socket, opened before exec by the former image, or before fork by the parent.
static PASSED_RENDEZVOUS: AtomicI32 = AtomicI32::new(-1);
static SET: AtomicI32 = AtomicI32::new(-1);
static IS_STOPPING: AtomicBool = AtomicBool::new(false);
/// Taken by the caller that ends the thread; in a forked child it is the handle of the parent's thread.
static THREAD: Mutex<Option<std::thread::JoinHandle<()>>> = Mutex::new(None);
static ROLES: OnceLock<Mutex<HashMap<i32, Role>>> = OnceLock::new();
/// Whether there may be links in the role of [`Role::Bystander`].
static HAS_BYSTANDERS: AtomicBool = AtomicBool::new(false);
static STARTING: Mutex<()> = Mutex::new(());
/// Links to the other sides, of a child whose thread does not run yet.
static LINKS: Mutex<Vec<(Told, Arc<Peer>)>> = Mutex::new(Vec::new());

/// All but libc's own two: with 33 it makes every thread take part in setuid and its relatives, and
/// waits until each has done so.
const PROGRAMS_SIGNALS: u64 = !(1 << (32 - 1) | 1 << (33 - 1));

/// Says what the thread does; before anything that could start it.
pub fn set_work(work: Work) {
    let _ = WORK.set(work);
}

/// Roles of the watched descriptors; None when a thread has died while holding the lock.
pub fn roles() -> Option<MutexGuard<'static, HashMap<i32, Role>>> {
    ROLES.get_or_init(Mutex::default).lock().ok()
}

/// Locks the thread's beginning and its roles across a fork.
pub fn hold() -> impl Sized {
    let starting = STARTING.lock().ok();
    let roles = roles();
    (starting, roles, later::hold(), LINKS.lock().ok())
}

/// Starts the thread unless it runs. EAGAIN when its work has not been set or no thread can be created.
pub fn start() -> Result<(), i32> {
    if is_confined() {
        return Err(libc::EPERM);
    }
    if is_running() {
        return Ok(());
    }
    let work = WORK.get().ok_or(libc::EAGAIN)?;
    let _one_at_a_time = STARTING.lock().map_err(|_| libc::EAGAIN)?;
    if is_running() {
        return Ok(());
    }
    let set = numbers::high(|| kernel::epoll_create1(libc::EPOLL_CLOEXEC))?;
    let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
    let deferred = numbers::high(|| kernel::eventfd(0, flags))?;
    let rendezvous = match PASSED_RENDEZVOUS.swap(-1, Ordering::AcqRel) {
        fd if fd >= 0 => Owned(fd),
        _ => link::open_rendezvous(&Name::of_process(process::number()))?,
    };
    // Its set is empty until there is a thread to serve it.
    let thread = match spawn(work, set.0) {
        Ok(thread) => thread,
        Err(error) => {
            take_rendezvous(rendezvous);
            return Err(error);
        }
    };
    table::hide(set.0);
    SET.store(set.into_raw(), Ordering::Release);
    add(rendezvous.into_raw(), Role::OwnRendezvous);
    let deferred = deferred.into_raw();
    later::begin(deferred);
    add(deferred, Role::Deferred);
    if let Ok(mut place) = THREAD.lock() {
        *place = Some(thread);
    }
    later::set_running(true);
    // Once: a forked child has its parent's handlers.
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(|| bypass_sys::process::at_exit(work.leave));
    bypass_shm::segment::when_grown(due::begin);
    (work.rejoin)();
    Ok(())
}

fn spawn(work: &'static Work, set: i32) -> Result<std::thread::JoinHandle<()>, i32> {
    let thread = without_signals(|| builder().spawn(move || (work.run)(set)));
    thread.map_err(|_| libc::EAGAIN)
}

fn builder() -> std::thread::Builder {
    let builder = std::thread::Builder::new();
    builder.name("bypass".to_owned()).stack_size(256 * 1024)
}

/// For a new thread, which takes over what this one blocks.
fn without_signals<T>(begin: impl FnOnce() -> T) -> T {
    let former = kernel::swap_signal_mask(PROGRAMS_SIGNALS);
    let begun = keeping_errno(begin);
    kernel::swap_signal_mask(former);
    begun
}

/// Does something in a thread of its own, for which the caller's stack may be too small, and waits for it.
pub fn with_stack(work: impl FnOnce() + Send) {
    let mut work = Some(work);
    std::thread::scope(|scope| {
        let waiting = &mut work;
        let run = move || {
            if let Some(work) = waiting.take() {
                work();
            }
        };
        let _ = without_signals(|| builder().spawn_scoped(scope, run).map(|_| ()));
    });
    if let Some(work) = work {
        work(); // no thread may be made
    }
}

/// Ends the thread and waits for its end.
pub fn end() {
    IS_STOPPING.store(true, Ordering::SeqCst);
    wake();
    let thread = THREAD.lock().ok().and_then(|mut place| place.take());
    if let Some(thread) = thread {
        let _ = thread.join();
    }
    later::set_running(false);
}

/// After [`end`]: the thread goes on, with what it watches.
pub fn resume() {
    let (set, _one_at_a_time) = (SET.load(Ordering::Acquire), STARTING.lock());
    let Some(work) = WORK.get().filter(|_| is_stopping() && set >= 0) else {
        return;
    };
    IS_STOPPING.store(false, Ordering::SeqCst);
    if let (Ok(thread), Ok(mut place)) = (spawn(work, set), THREAD.lock()) {
        *place = Some(thread);
        later::set_running(true);
    }
}

/// Whether the thread is to end.
pub fn is_stopping() -> bool {
    IS_STOPPING.load(Ordering::SeqCst)
}

/// Takes the rendezvous socket that was opened for this process before it began: others find it there
/// although it serves it later, or never.
pub fn take_rendezvous(rendezvous: Owned) {
    table::hide(rendezvous.0);
    PASSED_RENDEZVOUS.store(rendezvous.into_raw(), Ordering::Release);
}

/// In a forked child: the thread, its set, its links and where it is found are the parent's.
pub fn forget() {
    later::set_running(false);
    if let Ok(mut thread) = THREAD.lock() {
        // The parent's thread: there is nothing to wait for, and its memory must not be freed here.
        core::mem::forget(thread.take());
    }
    due::forget();
    later::finish();
    for (told, _) in take_links() {
        close(told.link.into_raw());
    }
    let passed = PASSED_RENDEZVOUS.swap(-1, Ordering::AcqRel);
    if passed >= 0 {
        close(passed);
    }
    SHADOWS.store(-1, Ordering::Release);
    let set = SET.swap(-1, Ordering::AcqRel);
    if set >= 0 {
        table::show(set);
        let _ = kernel::close(set);
    }
    let taken = roles()
        .map(|mut roles| std::mem::take(&mut *roles))
        .unwrap_or_default();
    for (fd, role) in taken {
        if !matches!(role, Role::Rendezvous(_) | Role::Cluster(_)) {
            table::show(fd);
            let _ = kernel::close(fd);
        }
    }
}

/// Watches a descriptor.
pub fn add(fd: i32, role: Role) {
    if let Some(mut roles) = roles() {
        roles.insert(fd, role);
    }
    watch(fd);
}

/// Watches a descriptor that has its role.
pub fn watch(fd: i32) {
    table::hide(fd);
    let events = libc::EPOLLIN as u32;
    let set = SET.load(Ordering::Acquire);
    let _ = kernel::epoll_control(set, libc::EPOLL_CTL_ADD, fd, events, fd as u64);
}

/// The set of the shadows that are watched.
static SHADOWS: AtomicI32 = AtomicI32::new(-1);

/// Watches the kernel's connection `fd` behind socket `index`, in its life `life`, for its failure. The kernel forgets it
/// with its last descriptor.
pub fn watch_shadow(fd: i32, index: usize, life: u32) {
    let Some(set) = shadows() else {
        return;
    };
    let (events, name) = (libc::EPOLLET as u32, (index as u64) << 32 | u64::from(life));
    let watch = |how| kernel::epoll_control(set, how, fd, events, name);
    // Connected once more, it is watched as what it was before.
    if watch(libc::EPOLL_CTL_ADD) == Err(libc::EEXIST) {
        let _ = watch(libc::EPOLL_CTL_MOD);
    }
}

fn shadows() -> Option<i32> {
    let known = SHADOWS.load(Ordering::Acquire);
    if known >= 0 {
        return Some(known);
    }
    start().ok()?;
    let made = numbers::high(|| kernel::epoll_create1(libc::EPOLL_CLOEXEC)).ok()?;
    match SHADOWS.compare_exchange(-1, made.0, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            let set = made.into_raw();
            add(set, Role::Shadows);
            Some(set)
        }
        Err(other) => Some(other),
    }
}

/// Watches a link and owns it.
pub fn add_link(link: Owned, role: Role) {
    add(link.into_raw(), role);
}

/// Watches the link to a process of the other side.
pub fn add_told(told: Told, peer: Arc<Peer>) {
    let role = told.role(peer);
    add_link(told.link, role);
}

/// Forgets a descriptor and closes it.
pub fn remove(fd: i32) -> Option<Role> {
    let role = roles()?.remove(&fd);
    if role.is_some() {
        close(fd);
    }
    role
}

/// As [`remove`], of a link that another thread may have closed: only if it is in such a role still.
pub fn dismiss(fd: i32, role: &Role) {
    let is_same = |now: &Role| core::mem::discriminant(now) == core::mem::discriminant(role);
    let Some(mut roles) = roles() else {
        return;
    };
    if roles.get(&fd).is_some_and(is_same) {
        roles.remove(&fd);
        drop(roles);
        close(fd);
    }
}

/// Closes the links of processes of the other side that take part in a segment which is none of ours any more.
pub fn remove_participants(peer: &Arc<Peer>) {
    remove_all(|role| matches!(role, Role::Participant(of, ..) if Arc::ptr_eq(of, peer)));
}

/// The link of a [bystander](Role::Bystander).
pub fn stand_by(fd: i32, segment: u64, side: usize) {
    HAS_BYSTANDERS.store(true, Ordering::Relaxed);
    set_role(fd, Role::Bystander(segment, side));
}

/// Closes the links of those where we have no place any more: each learns of it, although we may keep other places for
/// as long as we live.
pub fn remove_bystanders() {
    if !HAS_BYSTANDERS.swap(false, Ordering::Relaxed) {
        return;
    }
    let mut are_left = false;
    remove_all(|role| {
        let Role::Bystander(segment, side) = role else {
            return false;
        };
        let is_kept = peer::keeps_place(*segment, *side);
        are_left |= is_kept;
        !is_kept
    });
    if are_left {
        HAS_BYSTANDERS.store(true, Ordering::Relaxed);
    }
}

fn remove_all(mut is_over: impl FnMut(&Role) -> bool) {
    if let Some(mut roles) = roles() {
        roles.retain(|fd, role| {
            let is_kept = !is_over(role);
            if !is_kept {
                close(*fd);
            }
            is_kept
        });
    }
}

/// Says what a watched descriptor is from now on.
pub fn set_role(fd: i32, role: Role) {
    if let Some(mut roles) = roles() {
        roles.insert(fd, role);
    }
}

/// After its role was taken away.
pub fn close(fd: i32) {
    table::show(fd);
    let _ = kernel::close(fd);
}

/// Closes a listener here: its rendezvous socket, and the links of clients that use it, which makes
/// them look for another holder. No process is met there any more; the service closes the descriptors
/// when the program next sleeps or another process connects.
pub fn close_rendezvous(rendezvous: i32, inode: u64, value: Option<Arc<dyn Any + Send + Sync>>) {
    let (Some(mut roles), Some(mut queue)) = (roles(), later::queue()) else {
        return;
    };
    roles.remove(&rendezvous);
    queue.close(rendezvous);
    roles.retain(|fd, role| {
        let is_of = matches!(role, Role::Greeted(of, _) if *of == inode);
        if is_of {
            queue.close(*fd);
        }
        !is_of
    });
    if let Some(value) = value {
        queue.forget(value);
    }
}

/// Says something to every process of the other side, with a descriptor.
pub fn tell_other_side(peer: &Peer, message: Message, descriptor: i32) {
    let Some(roles) = roles() else {
        return;
    };
    for (link, role) in roles.iter() {
        let is_theirs = matches!(role, Role::Adopted(of, ..) if core::ptr::eq(&**of, peer));
        if is_theirs {
            let _ = link::send(*link, message, &[descriptor]);
        }
    }
}

/// Whether a link of this process of the other side is open still.
pub fn is_linked(peer: &Arc<Peer>, index: usize, process: u64) -> bool {
    let of = |role: &Role| match role {
        Role::Participant(of, at, number) => Some((Arc::as_ptr(of), *at, *number)),
        _ => None,
    };
    let wanted = Some((Arc::as_ptr(peer), index, process));
    roles().is_some_and(|roles| roles.values().any(|role| of(role) == wanted))
}

/// Whether a link of ours to this process of the other side is open still.
pub fn has_told(peer: &Arc<Peer>, process: u64) -> bool {
    let of = |role: &Role| match role {
        Role::Adopted(of, _, number) => Some((Arc::as_ptr(of), *number)),
        _ => None,
    };
    let wanted = Some((Arc::as_ptr(peer), process));
    roles().is_some_and(|roles| roles.values().any(|role| of(role) == wanted))
}

/// Whether a link to a process of the other side, or from one, is open still.
pub fn is_watched(peer: &Arc<Peer>) -> bool {
    let is_of = |role: &Role| match role {
        Role::Adopted(of, ..) | Role::Participant(of, ..) => Arc::ptr_eq(of, peer),
        _ => false,
    };
    roles().is_some_and(|roles| roles.values().any(is_of))
}

/// A link of a forked child, for its thread to watch when it starts.
pub fn keep_link(told: Told, peer: Arc<Peer>) {
    table::hide(told.link.0);
    if let Ok(mut links) = LINKS.lock() {
        links.push((told, peer));
    }
}

/// Whether a child's links wait for its service.
pub fn has_links() -> bool {
    LINKS.lock().is_ok_and(|links| !links.is_empty())
}

/// The links that were [kept](keep_link).
pub fn take_links() -> Vec<(Told, Arc<Peer>)> {
    LINKS
        .lock()
        .map(|mut links| std::mem::take(&mut *links))
        .unwrap_or_default()
}
