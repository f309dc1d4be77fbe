//! A client that forges single words of the shared memory on which a loop, a wait or a decision of the server could rest.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bypass_shm::doorbell::Sleeper;
use bypass_shm::layout::{Slot, CLOSED, FIN, QUEUED};
use bypass_shm::link::{self, Message};
use bypass_shm::segment::Segment;
use bypass_stack::lifecycle::fork;
use bypass_stack::operations::options;
use bypass_stack::{peer, service, Outcome};
use bypass_stats::View;
use bypass_sys::descriptor::Owned;
use bypass_sys::waker::Name;
use bypass_sys::{kernel, numbers};

use super::program::{self, accept_within, close, read, write, Listening};
use super::{greet, serve_honestly, wait_until_forgotten, PATIENCE};

/// A client process as the server knows it; this test writes what it likes into its segment.
struct Client {
    segment: Segment,
    index: usize,
    _rendezvous: Owned,
    _link: Owned,
}

impl Client {
    fn of(listening: &Listening) -> Self {
        let segment = Segment::create(1, 64, 4096).expect("memory");
        let number = kernel::random();
        let rendezvous = link::open_rendezvous(&Name::of_process(number)).expect("a free name");
        let index = segment.enter(0, number).expect("a place");
        let link = greet(listening, &segment);
        Self {
            segment,
            index,
            _rendezvous: rendezvous,
            _link: link,
        }
    }

    /// Connects; the server's end.
    fn connect(&self, listening: &Listening, slot: usize) -> i32 {
        self.offer(slot);
        accept_within(listening.fd, PATIENCE).expect("a connection")
    }

    fn offer(&self, slot: usize) {
        let meta = &self.segment.slot(slot).meta;
        meta.holders[0].store(1 << self.index, Ordering::SeqCst);
        meta.holders[1].store(QUEUED, Ordering::SeqCst);
        assert!(self.segment.queue().push(slot));
    }
}

/// Runs a call of the server in a thread; None when it does not return.
fn returns<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(call()));
    receiver.recv_timeout(PATIENCE).ok()
}

#[test]
fn the_number_of_slots_in_use_bounds_no_loop() {
    let listening = Listening::open();
    let client = Client::of(&listening);
    let header = client.segment.header();
    header.slots_used.store(u32::MAX, Ordering::SeqCst);
    assert_eq!(client.segment.slots_used(), client.segment.slots());
    // Each would take seconds of the processor.
    let accepted: Vec<i32> = (0..20)
        .map(|slot| {
            header.slots_used.store(u32::MAX, Ordering::SeqCst);
            client.connect(&listening, slot)
        })
        .collect();
    accepted.into_iter().for_each(close);
    serve_honestly(&listening);
    listening.close();
}

/// A server that forks, as redis does to save, shares its connections with the child from then on.
#[test]
fn the_flags_of_a_shared_connection_are_not_the_peers() {
    let listening = Listening::open();
    let client = Client::of(&listening);
    let server = client.connect(&listening, 3);
    let nonblocking = (libc::O_RDWR | libc::O_NONBLOCK) as usize;
    let set = options::fcntl(server, libc::F_SETFL, nonblocking);
    assert_eq!(set, Outcome::Done(0));
    if let Some(prepared) = fork::prepare() {
        fork::undo(fork::parent(prepared));
    }
    let locks = &client.segment.slot(3).locks[1];
    locks.shut.store(0, Ordering::SeqCst);
    locks.owner.store(0, Ordering::SeqCst);
    let read_once = returns(move || read(server, 10));
    assert_eq!(read_once, Some(Err(libc::EAGAIN)), "an event loop waits");
    let flags = options::fcntl(server, libc::F_GETFL, 0);
    assert_eq!(flags, Outcome::Done(nonblocking as isize));
    close(server);
    listening.close();
}

/// A server that has forked, as redis does to save, leaves new sockets to the kernel when its child confines itself.
#[test]
fn a_client_that_says_a_child_is_confined_leaves_no_new_socket_to_the_kernel() {
    let listening = Listening::open();
    let client = Client::of(&listening);
    let server = client.connect(&listening, 19);
    if let Some(prepared) = fork::prepare() {
        fork::undo(fork::parent(prepared));
    }
    for index in 0..32 {
        client.segment.set_silent(1, index);
    }
    serve_honestly(&listening);
    Listening::open().close();
    close(server);
    listening.close();
}

/// What a peer says of itself may cost looks; an administrator sees them.
#[test]
fn sleeps_that_look_again_are_counted() {
    let polling = || {
        let view = View::open(std::process::id())
            .expect("readable")
            .expect("a page");
        let counters = view.counters();
        let found = counters.iter().find(|(name, _)| *name == "polling_sleeps");
        found.expect("a counter").1
    };
    let listening = Listening::open();
    let client = Client::of(&listening);
    let server = client.connect(&listening, 7);
    client.segment.set_silent(0, client.index);
    let mut a_while = [0u8; 16];
    a_while[8..].copy_from_slice(&200_000i64.to_ne_bytes());
    let set = options::set(server, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &a_while);
    assert_eq!(set, Outcome::Done(0));
    let before = polling();
    assert_eq!(read(server, 10), Err(libc::EAGAIN));
    assert!(polling() > before);
    close(server);
    listening.close();
}

/// A client whose first 64 slots may be connections.
fn client_with_slots(listening: &Listening) -> Client {
    let client = Client::of(listening);
    let used = &client.segment.header().slots_used;
    used.store(64, Ordering::SeqCst);
    client
}

/// A peer that is killed after it has taken the word of a sleeping thread, and before it wakes it.
#[test]
fn a_thread_that_a_dying_peer_was_about_to_wake_wakes() {
    let listening = Listening::open();
    let client = client_with_slots(&listening);
    let server = client.connect(&listening, 9);
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(read(server, 10)));
    let place = &client.segment.slot(9).meta.sleeper_read[1];
    let since = Instant::now();
    while Sleeper::take(place).is_none() {
        assert!(since.elapsed() < PATIENCE, "it does not sleep");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(client);
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok(Ok(Vec::new())));
    close(server);
    listening.close();
}

/// The writer is preempted between its bytes and their announcement.
#[test]
fn a_set_finds_what_poll_has_found_before_it_is_announced() {
    let listening = Listening::open();
    let client = client_with_slots(&listening);
    let server = client.connect(&listening, 11);
    let set = program::readable_set(server);
    assert_eq!(program::in_set(set), 0);
    program::push(&client.segment.ring(11, 0), b"unannounced");
    assert_eq!(program::polled(server), libc::POLLIN);
    assert_eq!(program::in_set(set), 1);
    assert_eq!(read(server, 20), Ok(b"unannounced".to_vec()));
    assert_eq!(program::in_set(set), 0);
    program::close_any(set);
    close(server);
    listening.close();
}

#[test]
fn a_lock_in_the_segment_blocks_no_process() {
    let listening = Listening::open();
    let client = Client::of(&listening);
    let server = client.connect(&listening, 5);
    let thread = kernel::gettid().expect("a number") as u32;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let locks = &client.segment.slot(5).locks[1];
            while !is_over.load(Ordering::Relaxed) {
                locks.read.store(thread, Ordering::SeqCst);
                locks.write.store(thread, Ordering::SeqCst);
            }
        });
        // A minute and more, where the word in the segment counts.
        let sent = returns(move || write(server, b"answer"));
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(sent, Some(Outcome::Done(6)));
    });
    close(server);
    listening.close();
}

/// A connection of a client that has forged words of it and ends: what read and a set find then.
fn after_the_end(forge: impl FnOnce(&Slot)) -> (Result<Vec<u8>, i32>, usize) {
    after_the_end_of(|client| forge(client.segment.slot(13)))
}

/// The same of a client that has forged words of its segment.
fn after_the_end_of(forge: impl FnOnce(&Client)) -> (Result<Vec<u8>, i32>, usize) {
    let listening = Listening::open();
    let client = client_with_slots(&listening);
    let server = client.connect(&listening, 13);
    let set = program::readable_set(server);
    assert_eq!(program::in_set(set), 0);
    forge(&client);
    drop(client);
    let waited = returns(move || program::ready_in_set(set, PATIENCE / 3).len());
    let found = read_now(server);
    program::close_any(set);
    close(server);
    listening.close();
    (found, waited.unwrap_or(0))
}

fn read_now(fd: i32) -> Result<Vec<u8>, i32> {
    program::never_wait(true);
    let found = read(fd, 10);
    program::never_wait(false);
    found
}

#[test]
fn a_connection_that_its_client_denies_to_hold_ends_with_the_client() {
    let ended = after_the_end(|slot| slot.meta.holders[0].store(0, Ordering::SeqCst));
    assert_eq!(ended, (Ok(Vec::new()), 1));
}

/// The server does not take part on the client's side, and finds itself at its own rendezvous socket.
#[test]
fn a_client_that_left_the_servers_number_in_its_place_has_ended() {
    let ended = after_the_end_of(|client| {
        let place = &client.segment.header().processes[0][client.index];
        place.store(bypass_stack::process::number(), Ordering::SeqCst);
    });
    assert_eq!(ended, (Ok(Vec::new()), 1));
}

/// A client that has called the server, and closed the server's own links to it, before it writes a number that is not in use.
#[test]
fn a_client_whose_place_has_another_number_when_its_last_link_ends_has_ended() {
    let listening = Listening::open();
    let client = client_with_slots(&listening);
    let server = client.connect(&listening, 13);
    let Client {
        segment,
        index,
        _rendezvous: rendezvous,
        _link: greeting,
    } = client;
    let peer = peer::find(segment.id(), 1).expect("it is known");
    let number = segment.process(0, index);
    let own = Name::of_process(bypass_stack::process::number());
    let link = link::connect(&own).expect("an open rendezvous socket");
    let message = Message::Adopted {
        segment: segment.id(),
        side: 0,
        index: index as u64,
        process: number,
    };
    link::send(link.0, message, &[]).expect("sent");
    until(|| service::is_linked(&peer, index, number));
    drop((greeting, rendezvous));
    until(|| !service::has_told(&peer, number));
    segment.header().processes[0][index].store(kernel::random(), Ordering::SeqCst);
    drop(link);
    wait_until_forgotten(&segment);
    assert_eq!(read_now(server), Ok(Vec::new()));
    close(server);
    listening.close();
}

fn until(is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_set_whose_place_a_client_has_forged_is_notified_of_its_end() {
    let (_, events) = after_the_end(|slot| slot.meta.ready_list[1].store(0, Ordering::SeqCst));
    assert_eq!(events, 1);
}

#[test]
fn a_set_is_notified_of_an_end_that_the_client_wrote_without_a_ring() {
    let (_, events) = after_the_end(|slot| {
        slot.meta.holders[0].store(0, Ordering::SeqCst);
        let ends = &slot.producer[0].ends;
        ends.store(FIN | CLOSED, Ordering::SeqCst);
    });
    assert_eq!(events, 1);
}

/// A process that maps the memory can write it after the end of the last process that has a place there.
#[test]
fn an_end_that_is_taken_back_in_the_memory_is_one_still() {
    let listening = Listening::open();
    let client = client_with_slots(&listening);
    let server = client.connect(&listening, 15);
    let fd = numbers::duplicate(client.segment.fd()).expect("a descriptor");
    let kept = Segment::adopt(fd.into_raw()).expect("memory");
    let set = program::readable_set(server);
    drop(client);
    wait_until_forgotten(&kept);
    kept.slot(15).producer[0].ends.store(0, Ordering::SeqCst);
    assert_eq!(program::ready_in_set(set, Duration::ZERO), [server]);
    assert_eq!(read_now(server), Ok(Vec::new()));
    program::close_any(set);
    close(server);
    listening.close();
}

/// The server would know only the second connection by the slot: no set would be notified of the first any more.
#[test]
fn a_slot_that_is_offered_while_it_is_a_connection_becomes_no_other() {
    let listening = Listening::open();
    let client = client_with_slots(&listening);
    let server = client.connect(&listening, 17);
    let set = program::readable_set(server);
    assert_eq!(program::in_set(set), 0);
    // As a client does that begins in a free slot.
    client.segment.reset(17);
    client.offer(17);
    assert_eq!(accept_within(listening.fd, Duration::ZERO), None);
    assert_eq!(program::ready_in_set(set, Duration::ZERO), [server]);
    assert_eq!(read_now(server), Err(libc::ECONNRESET));
    close(server);
    assert_eq!(program::in_set(set), 0);
    // The slot is free again.
    close(client.connect(&listening, 17));
    program::close_any(set);
    listening.close();
}
