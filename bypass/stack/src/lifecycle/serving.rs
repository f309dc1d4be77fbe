//! Work of the service thread: it answers rendezvous sockets, passes segments on and notices deaths.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Mutex;

use bypass_shm::link::{self, Message};
use bypass_sys::descriptor::Owned;
use bypass_sys::kernel;
use bypass_sys::sandbox::is_confined;
use bypass_sys::thread::thread;

use super::{hearing, offers};
use crate::listener::{self, participants};
use crate::operations::{connect, release, signals};
use crate::packets::{self, Service};
use crate::peer::{self, trimming};
use crate::process::deadline::shorter;
use crate::process::deferral::inside;
use crate::process::{self, later, namespace, pool, wakers};
use crate::service::{self, Role, Work};
use crate::stream;

/// Links of peers that have not sent anything yet, oldest first.
static SILENT: Mutex<VecDeque<i32>> = Mutex::new(VecDeque::new());
/// How many of them are kept.
const SILENT_MAX: usize = 64;
/// How many callers are let in at a rendezvous socket in one turn.
const CALLERS_MAX: usize = 64;
/// How long the rendezvous sockets are ignored when descriptors for new links have run out.
const OVERLOAD: Duration = Duration::from_millis(10);
/// When clients are tried again that could not be reached.
const RETRY: Duration = Duration::from_millis(50);
/// Between cleanings while something rests.
const CLEANING: Duration = Duration::from_secs(5);

/// Says what the thread does, and what those below it need of those above. Before the first socket of a process.
pub fn provide() {
    service::set_work(Work { run, rejoin, leave });
    release::provide();
}

/// Locks its list across a fork.
pub fn hold() -> impl Sized {
    SILENT.lock().ok()
}

/// In a forked child: the links are the parent's.
pub fn forget() {
    if let Ok(mut silent) = SILENT.lock() {
        silent.clear();
    }
}

/// Ends the thread, before it would be confined together with the program's. No process is met any more:
/// new clients are handled by the kernel. Links stay open, because peers learn from them that we are alive.
pub fn stop() {
    if !service::is_running() {
        return;
    }
    service::end();
    for listener in listener::all() {
        service::close_rendezvous(listener.rendezvous, listener.inode, None);
    }
    later::finish();
}

/// At exit: connections that have not been accepted yet can be accepted and read afterwards, as in the kernel.
pub extern "C" fn leave() {
    // Not by this thread where its filter may allow no file and no socket.
    if is_confined() {
        return;
    }
    process::keep(true);
    // Nor where names are another namespace's.
    if !service::is_running() || namespace::has_left() {
        return;
    }
    // A handler may call exit, too.
    inside(|| {
        leave_as_client();
        leave_as_holder();
    });
}

fn leave_as_holder() {
    let listeners = listener::all();
    if listeners.iter().any(|one| one.has_waiting()) {
        // What is left at a rendezvous socket is for others.
        service::end();
        listeners.iter().for_each(|one| one.leave_waiting());
    }
    listener::settle();
}

/// The holder that has our segment may have ended, or be about to, and be the only one to know the segment: whoever
/// holds the listener now gets it, before it goes away with this process. Where no holder can be found, what waits is left
/// as it is: a holder that we are not to meet may accept it still.
fn leave_as_client() {
    let is_ours = |peer: &peer::Peer| peer.side == 0 && peer.inode != 0 && !peer.is_relay;
    let waits = |peer: &peer::Peer| is_ours(peer) && peer.segment.queue().waiting() > 0;
    if !peer::all().iter().any(|peer| waits(peer)) {
        return;
    }
    // It may be at this very work.
    service::end();
    let all = peer::all();
    for peer in all.iter().filter(|peer| waits(peer)) {
        let _ = participants::greet_holder(peer);
    }
}

/// After a fork: the inherited listeners are answered here too, and what clients the other
/// holders know becomes known here. The interfaces' rendezvous sockets are left to the thread: whoever starts it may hold
/// what a fork takes after the interfaces.
fn rejoin() {
    for (told, peer) in service::take_links() {
        service::add_told(told, peer);
    }
    for (number, listener) in listener::numbered() {
        listener.register();
        service::add(listener.rendezvous, Role::Rendezvous(number));
        listener.ask_for_clients();
    }
    service::wake();
}

/// Asks the other holders of a listener, which has come to us, for the segments of its clients.
pub fn ask_others(inode: u64) {
    let all = listener::all();
    if let Some(listener) = all.iter().find(|one| one.inode == inode) {
        listener.ask_for_clients();
    }
}

fn run(set: i32) {
    kernel::leave_real_time();
    thread().inside.store(1, Ordering::Relaxed);
    thread().is_librarys.store(1, Ordering::Relaxed);
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
    let (mut is_cleaning, mut has_met_cluster) = (false, false);
    let mut undecided = connect::Undecided::default();
    // After each turn, too: it may have taken the wake-up of whoever ends the thread.
    while !service::is_stopping() {
        let has_unsure =
            participants::retry_unsure() | listener::untold::retry() | listener::end_left();
        let has_grown = trimming::look();
        let wait = match (has_unsure, has_grown) {
            (true, _) => Some(RETRY),
            (false, true) => Some(trimming::TICK),
            (false, false) => is_cleaning.then_some(CLEANING),
        };
        let tick = signals::tick();
        let wait = shorter(tick.or(wait), process::keep(false));
        let wait = shorter(wait, undecided.look());
        later::set_working(false);
        let slept = sleep(set, &mut events, wait);
        later::set_working(true);
        let count = match slept {
            Ok(count) => count,
            Err(libc::EINTR) => 0,
            Err(_) => return,
        };
        if service::is_stopping() {
            return;
        }
        if !has_met_cluster && service::is_running() {
            has_met_cluster = true;
            packets::meet_cluster();
        }
        for event in &events[..count] {
            serve(event.u64 as i32);
        }
        if tick.is_some() {
            signals::look();
        }
        is_cleaning = peer::clean_resting() | offers::expire();
        service::remove_bystanders();
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

/// Result of looking at a descriptor.
enum Seen {
    /// Somebody connected, over this link.
    Caller(i32),
    /// Nobody could be let in at a rendezvous socket.
    NoCaller(i32),
    /// Work was left here.
    Deferred,
    /// A process has to be notified by a signal.
    Signals,
    /// A connection of the kernel's behind one of ours has failed.
    Shadows,
    /// Somebody in this role has said something.
    Word(Role, Message, Vec<Owned>),
    /// A link has ended; it is closed.
    End(Role),
    Nothing,
}

/// Looks at a descriptor as what it is now. Threads of the program close rendezvous sockets and links, whose numbers
/// may be reused for other rendezvous sockets and links at once. The closing thread removes the role first: as long
/// as the roles are locked, role and descriptor belong together.
fn look(fd: i32) -> Seen {
    let Some(mut roles) = service::roles() else {
        return Seen::Nothing;
    };
    let guest = match roles.get(&fd) {
        // Its role was taken away to close it.
        None if later::has_work() => return Seen::Deferred,
        None => return Seen::Nothing,
        Some(Role::Deferred) => {
            let _ = kernel::read(fd, &mut [0; 8]);
            return Seen::Deferred;
        }
        Some(Role::Signals) => return Seen::Signals,
        Some(Role::Shadows) => return Seen::Shadows,
        Some(Role::OwnRendezvous) => Role::Stranger,
        Some(Role::Rendezvous(number)) => Role::Caller(*number),
        Some(Role::Offer(inode)) => Role::Taker(*inode),
        Some(Role::Cluster(number)) => Role::Joiner(*number),
        Some(role) => {
            let is_broken = match link::receive(fd) {
                Ok((message, fds)) => return Seen::Word(role.clone(), message, fds),
                Err(libc::EAGAIN | libc::EINTR) => return Seen::Nothing,
                Err(error) => error == libc::EPROTO,
            };
            let role = roles.remove(&fd);
            drop(roles);
            service::close(fd);
            // A receiver that was given a connection has had its answer, whatever it says then.
            let counts = |role: &Role| !is_broken || matches!(role, Role::Given(_));
            return role.filter(counts).map_or(Seen::Nothing, Seen::End);
        }
    };
    let answered = match kernel::has_descriptors_left(wakers::LEFT_TO_PROGRAM) {
        true => link::answer(fd),
        false => Err(libc::EMFILE),
    };
    match answered {
        Ok(link) => {
            // With the roles locked still: a child of fork closes each link that has one.
            let link = link.into_raw();
            roles.insert(link, guest);
            service::watch(link);
            Seen::Caller(link)
        }
        Err(error) => Seen::NoCaller(error),
    }
}

fn serve(fd: i32) {
    // Anybody can connect all the time: the rest are met after the other descriptors had their turn.
    for _ in 0..CALLERS_MAX {
        match look(fd) {
            Seen::Caller(link) => {
                // Well-behaved peers have sent their message before they were accepted.
                serve(link);
                admit_silent(link);
            }
            Seen::NoCaller(libc::EINTR | libc::ECONNABORTED) => {}
            Seen::NoCaller(libc::EMFILE | libc::ENFILE) if pool::give_back() > 0 => {}
            Seen::NoCaller(libc::EAGAIN) | Seen::Nothing => return,
            // No descriptor for whoever connects: the rendezvous socket stays readable, and this must not spin.
            Seen::NoCaller(_) => {
                let _ = kernel::poll(&mut [], Some(OVERLOAD), None);
                return;
            }
            Seen::Deferred => {
                later::finish();
                return listener::settle();
            }
            Seen::Signals => return signals::look(),
            Seen::Shadows => return look_at_shadows(fd),
            Seen::Word(role, message, fds) => return hearing::hear(fd, &role, message, fds),
            Seen::End(role) => return ended(role),
        }
    }
}

/// Connections end with the kernel's behind them: they were reset, killed (`ss --kill`), or keepalive has found no one.
fn look_at_shadows(set: i32) {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
    let count = kernel::epoll_wait(set, &mut events, Some(Duration::ZERO), None);
    for event in &events[..count.unwrap_or(0)] {
        let (index, life) = ((event.u64 >> 32) as usize, event.u64 as u32);
        // The kernel handles one that no process has taken, with the bytes that came before its end.
        connect::give_up(index, life);
        stream::end_with_shadow(index, life);
    }
}

/// A link in this role has ended.
fn ended(role: Role) {
    match role {
        Role::Greeting(peer) => participants::holder_ended(&peer),
        Role::Adopted(peer, ..) => participants::other_side_ended(&peer),
        Role::Greeted(_, id) => {
            if let Some(peer) = peer::find(id, 1) {
                participants::other_side_ended(&peer);
            }
        }
        Role::Participant(peer, index, process) => {
            participants::link_ended(&peer, index, process);
        }
        Role::Given(inode) => offers::given(inode),
        _ => {}
    }
}

/// Anybody of the network namespace can connect and say nothing: a few may, the oldest of them goes.
fn admit_silent(fd: i32) {
    let Ok(mut silent) = SILENT.lock() else {
        return;
    };
    silent.retain(|fd| is_silent(*fd));
    if is_silent(fd) {
        silent.push_back(fd);
    }
    if silent.len() > SILENT_MAX {
        silent.pop_front().map(service::remove);
    }
}

fn is_silent(fd: i32) -> bool {
    service::roles().is_some_and(|roles| {
        let role = roles.get(&fd);
        matches!(
            role,
            Some(Role::Stranger | Role::Caller(_) | Role::Taker(_) | Role::Joiner(_))
        )
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bypass_shm::layout::{CLOSED, FIN};
    use bypass_shm::segment::Segment;
    use bypass_sys::waker::Name;

    use super::*;
    use crate::sockets;

    const PATIENCE: core::time::Duration = core::time::Duration::from_secs(20);

    #[test]
    fn a_process_whose_link_ends_is_reaped_only_when_its_rendezvous_socket_is_gone() {
        let segment = Segment::create(1, 64, 4096).expect("memory");
        let number = kernel::random() | 1;
        let index = segment.enter(1, number).expect("a place");
        let peer = peer::Peer::join(segment, 0, 1).expect("a place");
        let slot = peer.take_slot().expect("a slot");
        let place = peer.segment.slot(slot);
        place.meta.holders[0].store(peer.alone(), Ordering::SeqCst);
        place.meta.holders[1].store(1 << index, Ordering::SeqCst);
        let ends = || place.producer[1].ends.load(Ordering::SeqCst);
        let link_ended = || ended(Role::Participant(peer.clone(), index, number));

        // After exec: it has made another link, which we have not answered yet.
        let rendezvous = link::open_rendezvous(&Name::of_process(number)).expect("a socket");
        link_ended();
        assert_eq!((peer.segment.process(1, index), ends()), (number, 0));

        let watched = link::answer(rendezvous.0).expect("it is watched again");
        let word = link::receive(watched.0).expect("a word").0;
        assert!(matches!(word, Message::Adopted { side: 0, .. }), "{word:?}");
        assert!(service::is_linked(&peer, index, number));

        drop((watched, rendezvous));
        let is_watch =
            |role: &Role| matches!(role, Role::Participant(of, ..) if Arc::ptr_eq(of, &peer));
        let watch = || {
            service::roles().and_then(|roles| {
                let mut all = roles.iter();
                all.find(|(_, role)| is_watch(role)).map(|(fd, _)| *fd)
            })
        };
        let since = std::time::Instant::now();
        while peer.segment.process(1, index) != 0 && since.elapsed() < PATIENCE {
            // A program that another test starts has both descriptors, too, until it calls exec.
            watch().into_iter().for_each(serve);
            std::thread::sleep(core::time::Duration::from_millis(1));
        }
        assert_eq!((peer.segment.process(1, index), ends()), (0, FIN | CLOSED));
        peer::forget(&peer);
    }

    #[test]
    fn a_process_that_looks_at_a_message_and_talks_nonsense_takes_no_connection_from_its_receiver()
    {
        let inode = u64::MAX - 1;
        let _one_at_a_time = sockets::hold_in_test();
        let socket = sockets::allocate(libc::AF_INET, 0).expect("a socket");
        let name = Name::of_process(kernel::random());
        let rendezvous = link::open_rendezvous(&name).expect("a socket");
        let answer = || {
            let other = link::connect(&name).expect("open");
            let fd = link::answer(rendezvous.0).expect("a link").into_raw();
            service::add(fd, Role::Given(inode));
            (other, fd)
        };
        offers::lay(inode, socket, 3, 2);

        let (other, fd) = answer();
        link::send(other.0, Message::Welcome, &[]).expect("sent");
        serve(fd);
        assert_eq!(offers::counts(inode), Some((2, 1)));

        let (other, fd) = answer();
        kernel::write(other.0, b"nonsense").expect("sent");
        serve(fd);
        assert_eq!(offers::counts(inode), Some((1, 0)));
        offers::withdraw(inode);
        sockets::free(socket);
    }
}
