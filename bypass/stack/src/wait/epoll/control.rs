//! epoll_ctl, and what becomes of members whose sockets change.

use core::cell::{OnceCell, RefCell};

use super::*;

/// epoll_ctl(2).
pub fn control(epoll: i32, command: i32, fd: i32, event: Option<Event>) -> Outcome {
    let entry = table::get(epoll);
    if entry.kind() != Kind::Epoll {
        return match entry.kind() {
            Kind::Pooled | Kind::Internal => Outcome::Error(libc::EBADF),
            // There were too many sets for this one to be known: the shadow would show an end that has not come.
            Kind::Kernel if is_refused(command, fd) => {
                process::fall_back(Reason::Limit);
                Outcome::Error(libc::ENOSPC)
            }
            // The shadow gives the right error.
            _ => Outcome::Kernel,
        };
    }
    let set = &SETS[entry.index()];
    let target = table::get(fd);
    match target.kind() {
        Kind::Kernel | Kind::Epoll | Kind::Datagram => {
            return control_kernel(set, epoll, command, fd, target, event)
        }
        Kind::Pooled | Kind::Internal => return Outcome::Error(libc::EBADF),
        _ => {}
    }
    let mut guard = set.lock();
    if table::get(fd) != target {
        // The kernel has just got a connection whose members have moved to its sets.
        drop(guard);
        return control(epoll, command, fd, event);
    }
    let Some(inner) = guard.as_mut() else {
        return Outcome::Error(libc::EBADF);
    };
    let known = inner.find(fd, target.index());
    let result = match (command, known, event) {
        (_, _, Some(event)) if is_wrongly_exclusive(command, event) => Err(libc::EINVAL),
        (libc::EPOLL_CTL_ADD, Some(_), _) => Err(libc::EEXIST),
        (libc::EPOLL_CTL_ADD, None, Some(event)) => {
            add(set, entry.index(), inner, fd, target, event)
        }
        (libc::EPOLL_CTL_MOD, Some(member), Some(event)) => modify(set, inner, member, event),
        (libc::EPOLL_CTL_DEL, Some(member), _) => {
            leave_kernel(set, inner, member);
            remove(set, entry.index(), inner, member);
            Ok(())
        }
        (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, None, _) => Err(libc::ENOENT),
        (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, _, None) => Err(libc::EFAULT),
        _ => Err(libc::EINVAL),
    };
    result.map(|()| 0).into()
}

/// EPOLLEXCLUSIVE is for EPOLL_CTL_ADD, and goes with few events; the kernel looks at that first.
fn is_wrongly_exclusive(command: i32, event: Event) -> bool {
    let with_exclusive = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLWAKEUP) as u32;
    let allowed = with_exclusive | ALWAYS | EDGE | EXCLUSIVE;
    let is_wrong = match command {
        libc::EPOLL_CTL_ADD => event.events & !allowed != 0,
        _ => command == libc::EPOLL_CTL_MOD,
    };
    event.events & EXCLUSIVE != 0 && is_wrong
}

/// Whether an accelerated connection is added to a set that only the kernel knows, because there were too many sets.
fn is_refused(command: i32, fd: i32) -> bool {
    let is_full = used() == SETS_MAX && process::settings().ul_epoll != 0;
    is_full && command == libc::EPOLL_CTL_ADD && table::get(fd).kind() == Kind::Connected
}

fn control_kernel(
    set: &Set,
    epoll: i32,
    command: i32,
    fd: i32,
    target: Entry,
    event: Option<Event>,
) -> Outcome {
    let (events, data) = event.map_or((0, 0), |event| (event.events, event.data));
    if event.is_none() && command != libc::EPOLL_CTL_DEL {
        return Outcome::Error(libc::EFAULT);
    }
    let own = || datagrams::control(set, epoll, command, (fd, target), event);
    let result = if target.kind() == Kind::Epoll {
        control_nested(set, epoll, command, (fd, target.index()), (events, data))
    } else if let Some(done) = crate::datagrams::are_used().then(own).flatten() {
        done
    } else {
        kernel::epoll_control(epoll, command, fd, events, data)
    };
    match command {
        libc::EPOLL_CTL_ADD if result.is_ok() => set.kernel_members.fetch_add(1, Ordering::Relaxed),
        libc::EPOLL_CTL_DEL if result.is_ok() => set.kernel_members.fetch_sub(1, Ordering::Relaxed),
        _ => 0,
    };
    result.into()
}

/// A set as a member: the kernel has it, and what it says of it is checked against set `number`.
fn control_nested(
    set: &Set,
    epoll: i32,
    command: i32,
    (fd, number): (i32, usize),
    (events, data): (u32, u64),
) -> Result<usize, i32> {
    if command == libc::EPOLL_CTL_ADD {
        watch(number);
    }
    // Under the lock, in which a one-shot may be armed again with what was asked before.
    let mut guard = set.lock();
    let mut nested = guard.iter().flat_map(|inner| &inner.nested);
    let known = nested.find(|nested| (nested.fd, nested.number) == (fd, number));
    let member = known.map_or_else(|| kernel::random() as u32, |nested| nested.member);
    let kernel_data = Nested::kernel_data(member);
    let done = kernel::epoll_control(epoll, command, fd, events, kernel_data)?;
    if let Some(inner) = guard.as_mut() {
        let former = inner.nested.extract_if(.., |one| one.member == member);
        former.for_each(|one| one.leave(Some(epoll)));
        if command != libc::EPOLL_CTL_DEL {
            set.has_nested.store(true, Ordering::SeqCst);
            let _ = inner.need_waker(set);
            inner.nested.push(Nested {
                member,
                number,
                fd,
                events,
                data,
                again: None,
            });
        }
    }
    Ok(done)
}

/// From now on the kernel set behind set `number` shows that something is ready.
pub fn watch(number: usize) {
    let set = &SETS[number % SETS_MAX];
    let mut guard = set.lock();
    if let Some(inner) = guard.as_mut() {
        set.is_watched.store(true, Ordering::SeqCst);
        let _ = inner.need_waker(set);
        inner.rearm(set);
    }
}

/// As [`Inner::need_waker`]; the kernel's sets need no descriptor for a member, so where there is
/// none to be had we sleep by the millisecond until a later member finds one.
fn need_waker_or_look(set: &Set, inner: &mut Inner) -> Result<(), i32> {
    let was_without = inner.waker.is_none();
    // For want of a descriptor, or because no Unix socket may be made here.
    if inner.need_waker(set).is_err() {
        return Ok(());
    }
    if was_without {
        // Their segments are entered again: no peer can have rung here before.
        inner
            .listeners
            .iter_mut()
            .for_each(|(_, _, seen)| *seen = 0);
    }
    Ok(())
}

fn add(
    set: &Set,
    number: usize,
    inner: &mut Inner,
    fd: i32,
    target: Entry,
    event: Event,
) -> Result<(), i32> {
    need_waker_or_look(set, inner)?;
    let socket = sockets::get(target.index());
    let member = Member {
        fd,
        socket: target.index(),
        life: target.generation(),
        events: event.events,
        data: event.data,
        is_queued: false,
        is_scanned: false,
        is_in_kernel: false,
        kernel_fd: fd,
        name: 0,
    };
    let index = inner.insert(member);
    let word = watch_word(number, index);
    let is_first = socket
        .watch
        .compare_exchange(0, word, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok();
    if !is_first || set.is_orphan.load(Ordering::Relaxed) {
        if is_first {
            socket.watch.store(0, Ordering::Relaxed);
        }
        inner.scan(index);
    }
    set.members.fetch_add(1, Ordering::SeqCst);
    if target.kind() == Kind::Listener {
        add_listener(set, inner, index)?;
    } else {
        inner.settle(index);
    }
    inner.queue(index);
    set.kick();
    Ok(())
}

fn add_listener(set: &Set, inner: &mut Inner, index: usize) -> Result<(), i32> {
    let Some(member) = inner.members[index].as_mut() else {
        return Ok(());
    };
    member.name = kernel::random() as u32;
    member.kernel_fd = number_of(member).ok_or(libc::EBADF)?;
    kernel::epoll_control(
        set.fd.load(Ordering::Relaxed),
        libc::EPOLL_CTL_ADD,
        member.kernel_fd,
        member.events,
        member.kernel_data(),
    )?;
    member.is_in_kernel = true;
    if let Some(listener) = listener::of(sockets::get(member.socket)) {
        listener.attend();
        listener.expect_proof();
        inner.listeners.push((index as u32, listener, 0));
        listener::set_wake_sets(kick_listening);
        set.has_listeners.store(true, Ordering::SeqCst);
        inner.follow_listeners();
    }
    Ok(())
}

/// A number that means the member's socket: the one that it was added by may be closed, or mean something else.
fn number_of(member: &Member) -> Option<i32> {
    let entry = sockets::get(member.socket).entry(member.socket);
    if table::get(member.fd) == entry {
        return Some(member.fd);
    }
    table::all(entry).next()
}

fn modify(set: &Set, inner: &mut Inner, index: usize, event: Event) -> Result<(), i32> {
    let Some(member) = inner.members[index].as_mut() else {
        return Err(libc::ENOENT);
    };
    if member.events & EXCLUSIVE != 0 {
        return Err(libc::EINVAL);
    }
    member.events = event.events;
    member.data = event.data;
    if member.is_in_kernel {
        let (fd, data) = (member.kernel_fd, member.kernel_data());
        let epoll = set.fd.load(Ordering::Relaxed);
        kernel::epoll_control(epoll, libc::EPOLL_CTL_MOD, fd, event.events, data)?;
    }
    inner.queue(index);
    // A later event rings. Threads that share a set ask again for each event, mostly before the next one has come.
    if set.is_awaited() && inner.has_event(index) {
        set.kick();
    }
    Ok(())
}

/// A listener leaves the kernel's set.
fn leave_kernel(set: &Set, inner: &Inner, index: usize) {
    let member = inner.members[index].as_ref();
    if let Some(member) = member.filter(|member| member.is_in_kernel) {
        let epoll = set.fd.load(Ordering::Relaxed);
        let _ = kernel::epoll_control(epoll, libc::EPOLL_CTL_DEL, member.kernel_fd, 0, 0);
    }
}

/// A member leaves, but for what the kernel's set has of it.
fn remove(set: &Set, number: usize, inner: &mut Inner, index: usize) {
    let Some(member) = inner.members[index].take() else {
        return;
    };
    inner.detach(number, &member);
    if let Some(word) = inner.by_fd.get_mut(member.fd as usize) {
        if *word == index as u32 + 1 {
            *word = 0;
        }
    }
    if member.is_in_kernel {
        inner.listeners.retain(|(of, ..)| *of != index as u32);
        inner.unfollow_listener();
        inner.reported.remove(&(index as u32));
        set.has_listeners
            .store(!inner.listeners.is_empty(), Ordering::SeqCst);
    }
    if member.is_scanned {
        inner.scanned.retain(|of| *of != index as u32);
    }
    // A queued number must leave the queue before somebody else gets it.
    if member.is_queued {
        inner.ready.retain(|of| *of != index as u32);
    }
    inner.free.push(index as u32);
    set.members.fetch_sub(1, Ordering::SeqCst);
}

fn with_watch(index: usize, work: impl FnOnce(&Set, usize, &mut Inner, usize)) {
    let word = sockets::get(index).watch.load(Ordering::Acquire);
    let Some(number) = ((word >> 32) as usize).checked_sub(1) else {
        return;
    };
    let set = &SETS[number % SETS_MAX];
    let mut guard = set.lock();
    let member = word as u32 as usize;
    if let Some(inner) = guard.as_mut() {
        let is_it = inner.members.get(member).and_then(Option::as_ref);
        if is_it.is_some_and(|member| member.socket == index) {
            work(set, number, inner, member);
        }
    }
}

/// A connection was found ready by another way than its set, perhaps before the peer has rung: from now on the set finds it too,
/// as the kernel's does. An edge is left to the ring, which would report it once more.
#[inline]
pub fn note_found(index: usize) {
    if sockets::get(index).watch.load(Ordering::Relaxed) != 0 {
        queue_found(index);
    }
}

#[cold]
fn queue_found(index: usize) {
    with_watch(index, |_, _, inner, member| {
        let found = inner.members[member].as_ref();
        if found.is_some_and(|found| found.events & EDGE == 0) {
            inner.queue(member);
        }
    });
}

/// A member has become a connection.
pub fn connected(index: usize) {
    with_watch(index, |set, _, inner, member| {
        inner.settle(member);
        inner.queue(member);
        set.kick();
    });
}

/// A member has become a listener.
pub fn add_to_kernel(index: usize) {
    with_watch(index, |set, _, inner, member| {
        let _ = add_listener(set, inner, member);
        inner.queue(member);
        set.kick();
    });
}

/// A socket is left to the kernel: its members move into the kernel's sets as they are. `leave` says so in the table of
/// descriptors, when the kernel has them.
pub fn move_to_kernel(index: usize, leave: impl Fn()) {
    let entry = sockets::get(index).entry(index);
    let numbers = OnceCell::new();
    let move_one = |set: &Set, number, inner: &mut Inner, member: usize| {
        // Looked at before `leave`. The member's own number may be closed, and something else's.
        let own: &Vec<i32> = numbers.get_or_init(|| table::all(entry).collect());
        let Some(found) = inner.members[member].as_ref() else {
            return;
        };
        let (events, data) = (found.events, found.data);
        let fd = match own.first() {
            Some(first) if !own.contains(&found.fd) => *first,
            _ => found.fd,
        };
        let epoll = set.fd.load(Ordering::Relaxed);
        let put = |how| kernel::epoll_control(epoll, how, fd, events, data);
        // The process that this one was forked from has both, and does so when it leaves the connection.
        let is_parents =
            set.is_orphan.load(Ordering::Relaxed) && sockets::get(index).has(sockets::SHARED);
        let put = || match put(libc::EPOLL_CTL_ADD) {
            Err(_) if own.contains(&fd) => put(libc::EPOLL_CTL_MOD),
            other => other,
        };
        if is_parents || put().is_ok() {
            set.kernel_members.fetch_add(1, Ordering::Relaxed);
        }
        leave();
        remove(set, number, inner, member);
    };
    each_watch(index, move_one);
    leave();
    // Members that another thread has added before that.
    each_watch(index, move_one);
}

/// A socket's last descriptor here is closed: it leaves all sets. The entries that another process has of a
/// set and of a listener after a fork stay as they are: the kernel lets go with the last of their descriptors.
pub fn forget(index: usize) {
    each_watch(index, |set, number, inner, member| {
        if !set.is_shared.load(Ordering::Relaxed) {
            leave_kernel(set, inner, member);
        }
        remove(set, number, inner, member)
    });
}

/// A member that is taken out of its set for a moment.
pub struct Taken {
    set: usize,
    /// The set's life: its number may be another one's later.
    ends: u32,
    fd: i32,
    event: Event,
}

/// A connection is about to be dissolved. Its socket stays in its sets, but not as a connection: see [`put_back`].
pub fn take(index: usize) -> Vec<Taken> {
    let taken = RefCell::new(Vec::new());
    each_watch(index, |set, number, inner, member| {
        let found = inner.members[member].as_ref();
        taken.borrow_mut().extend(found.map(|found| Taken {
            set: number,
            ends: set.ends.load(Ordering::SeqCst),
            fd: found.fd,
            event: Event {
                events: found.events,
                data: found.data,
            },
        }));
        remove(set, number, inner, member);
    });
    taken.into_inner()
}

/// Members that were [taken](take) are back in their sets, as the unconnected socket `fresh`.
pub fn put_back(taken: Vec<Taken>, fresh: Entry) {
    for one in taken {
        let set = &SETS[one.set % SETS_MAX];
        let mut guard = set.lock();
        let is_same = set.ends.load(Ordering::SeqCst) == one.ends;
        if let (Some(inner), true) = (guard.as_mut(), is_same) {
            // The member was there before: there is room for it.
            let _ = add(set, one.set, inner, one.fd, fresh, one.event);
        }
    }
}

/// A listener is none any more, and the kernel's: its members stay in the kernel's sets, which report its end.
pub fn leave_to_kernel(index: usize) {
    each_watch(index, |set, number, inner, member| {
        let oneshot = inner.members[member].as_ref();
        if let Some(one) = oneshot.filter(|one| one.events & ONESHOT != 0) {
            let epoll = set.fd.load(Ordering::Relaxed);
            let (command, fd) = (libc::EPOLL_CTL_MOD, one.kernel_fd);
            let _ = kernel::epoll_control(epoll, command, fd, one.events, one.data);
        }
        remove(set, number, inner, member);
        set.kernel_members.fetch_add(1, Ordering::Relaxed);
    });
}

/// Every member that is socket `index`: the one that is rung for it, and the ones that are looked at.
fn each_watch(index: usize, work: impl Fn(&Set, usize, &mut Inner, usize)) {
    with_watch(index, &work);
    if sockets::get(index).other_watches.load(Ordering::Relaxed) == 0 {
        return;
    }
    for (number, set) in SETS.iter().enumerate().take(used()) {
        let mut guard = set.lock();
        let Some(inner) = guard.as_mut() else {
            continue;
        };
        let is_it = |of: &u32| {
            let member = inner.members[*of as usize].as_ref();
            member.is_some_and(|member| member.socket == index)
        };
        let found: Vec<u32> = inner
            .scanned
            .iter()
            .copied()
            .filter(|of| is_it(of))
            .collect();
        for member in found {
            work(set, number, inner, member as usize);
        }
    }
}
