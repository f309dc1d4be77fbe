//! Both ends of a segment in one mapping, each a thread: connections are offered, accepted, written,
//! answered with zero-copy contents, ended, and their slots used again. A thread sanitizer sees all of it
//! here; of two processes, or two mappings, it sees one side each.

use std::sync::atomic::Ordering;
use std::thread::{self, Thread};

use bypass_shm::accept_queue;
use bypass_shm::doorbell::{ring_ready_list, Seen, Sleeper};
use bypass_shm::layout::{FIN, QUEUED};
use bypass_shm::ring::Ring;
use bypass_shm::segment::Segment;
use bypass_sys::iovec::Pieces;
use bypass_sys::memory::Mapping;
use bypass_sys::{barrier, kernel};

const SLOTS: usize = 64;
const RING_BYTES: usize = 4096;
/// One end after another takes each slot many times.
const CONNECTIONS: usize = 300;
const REQUEST_BYTES: usize = 10_000;
const CONTENT_BYTES: usize = 6000;
const CLIENT: Sleeper = Sleeper {
    process: 0,
    waker: 1,
};

fn byte(connection: usize, at: usize) -> u8 {
    (connection * 7 + at * 31) as u8
}

/// Up to `limit` bytes of a ring.
fn pop(ring: Ring, limit: usize) -> Vec<u8> {
    let mut bytes = vec![0u8; limit];
    let piece = [libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: limit,
    }];
    // SAFETY: the vector is writable.
    let mut pieces = unsafe { Pieces::new(&piece) }.expect("fits");
    let count = ring.pop(&mut pieces).expect("an honest writer");
    bytes.truncate(count);
    bytes
}

/// `Peer::ring` of the stack, with a thread instead of a waker.
fn announce(segment: &Segment, slot: usize, side: usize, reader: &Thread) {
    let ring = segment.ring(slot, side);
    let meta = &segment.slot(slot).meta;
    ring_ready_list(&meta.ready_list[1 - side], |index| {
        let ready_list = segment.ready_list(1 - side, index);
        let news = ring.announcement(index, || ready_list.latest(slot));
        if ready_list.announce(slot, news, segment.is_fenced(1 - side)) {
            reader.unpark();
        }
    });
    if Sleeper::take(&meta.sleeper_read[1 - side]).is_some() {
        reader.unpark();
    }
}

/// Sleeps as `sleep_on` of the stack does, unless there is something.
fn sleep_unless(segment: &Segment, slot: usize, is_ready: impl Fn() -> bool) {
    let place = &segment.slot(slot).meta.sleeper_read[0];
    assert!(CLIENT.register(place));
    barrier::heavy();
    if !is_ready() {
        thread::park();
    }
    CLIENT.withdraw(place);
}

fn request(segment: &Segment, connection: usize, server: &Thread) {
    let slot = connection % SLOTS;
    let place = segment.slot(slot);
    while place.meta.holders[1].load(Ordering::SeqCst) != 0 {
        thread::yield_now();
    }
    segment.reset(slot);
    place.meta.holders[0].store(1, Ordering::SeqCst);
    place.meta.holders[1].store(QUEUED, Ordering::SeqCst);
    assert!(segment.queue().push(slot));
    core::sync::atomic::fence(Ordering::SeqCst);
    let ready_list = segment.ready_list(1, 0);
    if ready_list.listening.load(Ordering::SeqCst) != 0 && ready_list.take_sleeper() {
        server.unpark();
    }
    let mut sent = 0;
    while sent < REQUEST_BYTES {
        let end = (sent + 1 + (sent * 13 + connection) % 900).min(REQUEST_BYTES);
        let bytes: Vec<u8> = (sent..end).map(|at| byte(connection, at)).collect();
        let count = segment.ring(slot, 0).push_slice(&bytes).expect("honest");
        if count == 0 {
            thread::yield_now();
            continue;
        }
        sent += count;
        announce(segment, slot, 0, server);
    }
    place.producer[0].ends.fetch_or(FIN, Ordering::SeqCst);
    announce(segment, slot, 0, server);
}

fn read_answer(segment: &Segment, connection: usize) {
    let slot = connection % SLOTS;
    let ring = segment.ring(slot, 1);
    let mut received = Vec::new();
    while received.len() < 4 + CONTENT_BYTES {
        let bytes = pop(ring, 1 + received.len() % 2000);
        if bytes.is_empty() {
            sleep_unless(segment, slot, || ring.available(1) != Ok(0));
        }
        received.extend(bytes);
    }
    assert_eq!(&received[..4], b"head");
    assert!(received[4..].iter().all(|byte| *byte == 5), "{connection}");
    segment.slot(slot).meta.holders[0].store(0, Ordering::SeqCst);
    segment.slot(slot).meta.holders[1].store(0, Ordering::SeqCst);
}

/// The server's state of the connection in a slot.
#[derive(Default, Clone, Copy)]
struct Open {
    connection: usize,
    received: usize,
}

/// Reads what there is; true when the request is complete and was answered.
fn serve(segment: &Segment, slot: usize, open: &mut Open, number: u32, client: &Thread) -> bool {
    let ring = segment.ring(slot, 0);
    loop {
        let bytes = pop(ring, 700);
        if bytes.is_empty() {
            break;
        }
        for (at, got) in bytes.iter().enumerate() {
            assert_eq!(*got, byte(open.connection, open.received + at));
        }
        open.received += bytes.len();
    }
    let line = &segment.slot(slot).producer[0];
    let is_over = line.ends.load(Ordering::Acquire) & FIN != 0;
    if open.received < REQUEST_BYTES || !is_over {
        return false;
    }
    let answer = segment.ring(slot, 1);
    assert_eq!(answer.push_slice(b"head"), Ok(4));
    assert!(segment.is_borrowed(slot, 1, number), "the client has it");
    assert!(answer.lend(number, 0, CONTENT_BYTES as u32));
    open.received = 0;
    announce(segment, slot, 1, client);
    true
}

fn run_server(segment: &Segment, number: u32, client: &Thread) {
    let ready_list = segment.ready_list(
        1,
        segment
            .claim_ready_list(1, (7, 0), 3)
            .expect("a ready list"),
    );
    ready_list.listening.store(1, Ordering::SeqCst);
    let mut seen = Seen::of(SLOTS);
    let mut open = vec![Open::default(); SLOTS];
    let (mut accepted, mut answered) = (0, 0);
    while answered < CONNECTIONS {
        let mut ready = Vec::new();
        ready_list.drain(SLOTS, &mut seen, |slot| ready.push(slot));
        while let Some(slot) = accept_queue::take(segment, 0).expect("an honest client") {
            segment.slot(slot).meta.ready_list[1].store(1, Ordering::SeqCst);
            barrier::heavy();
            open[slot].connection = accepted;
            accepted += 1;
            ready.push(slot);
        }
        for slot in &ready {
            let is_done = serve(segment, *slot, &mut open[*slot], number, client);
            answered += usize::from(is_done);
        }
        ready_list.sleep();
        barrier::heavy();
        let has_news = ready_list.is_ringing(SLOTS, &seen) || segment.queue().waiting() > 0;
        if ready.is_empty() && !has_news && answered < CONNECTIONS {
            thread::park();
        }
        ready_list.awake();
    }
}

fn exchange(sleeps_often: bool) {
    barrier::choose(sleeps_often);
    let segment = Segment::create(7, SLOTS, RING_BYTES).expect("memory");
    for side in 0..2 {
        let asks = u32::from(barrier::asks_for_fences());
        segment.header().fenced[side].store(asks, Ordering::SeqCst);
    }
    let number = segment.number_for_loan(1).expect("a number");
    let content = Mapping::of_bytes(c"lent", &[5; CONTENT_BYTES]).expect("memory");
    let passed = kernel::dup(content.fd()).expect("a descriptor") as i32;
    segment.borrow(0, 0, number, passed).expect("sealed memory");
    let segment = &segment;
    let client = thread::current();
    thread::scope(|scope| {
        let server = scope.spawn(move || run_server(segment, number, &client));
        for connection in 0..CONNECTIONS {
            request(segment, connection, server.thread());
            read_answer(segment, connection);
        }
    });
}

#[test]
fn connections_come_and_go_between_two_threads() {
    // Publishers fence; then sleepers make them.
    exchange(true);
    exchange(false);
}

#[test]
fn bytes_after_unannounced_ones_are_noticed() {
    const SLOT: usize = 3;
    let segment = Segment::create(1, SLOTS, RING_BYTES).expect("memory");
    let (reader, mut seen) = (thread::current(), Seen::of(SLOTS));
    let ready_list = &segment.slot(SLOT).meta.ready_list[1];
    // Around the turn of the count.
    for untold in 250..260 {
        for times in [1, untold, 1] {
            ready_list.store(u32::from(times == 1), Ordering::SeqCst);
            (0..times).for_each(|_| announce(&segment, SLOT, 0, &reader));
            let mut heard = 0;
            let place = segment.ready_list(1, 0);
            place.drain(SLOTS, &mut seen, |_| heard += 1);
            assert_eq!(heard, usize::from(times == 1), "{untold}");
        }
    }
}
