//! What a hostile peer may do, as bytes: the fuzz targets and the ordinary tests play the same
//! scripts.

use core::sync::atomic::Ordering;

use bypass_shm::accept_queue;
use bypass_shm::doorbell::{ring_ready_list, Seen, Sleeper};
use bypass_shm::holders::{self, Holders};
use bypass_shm::layout::{
    rings_at, ReadyList, MASKED, OWNERS_AT, PROCESSES, QUEUE_AT, READY_LISTS, READY_LISTS_AT,
    SLOTS_AT, UNREAD_MAX,
};
use bypass_shm::link;
use bypass_shm::ring::Ring;
use bypass_shm::segment::Segment;
use bypass_sys::descriptor::Owned;
use bypass_sys::iovec::Pieces;
use bypass_sys::kernel;
use bypass_sys::memory::Mapping;
use bypass_sys::waker::Name;

/// Small, so that a script reaches all of it.
const SLOTS: usize = 4;
const RING_BYTES: usize = 4096;
/// Bytes of one step of a script.
const STEP: usize = 12;

/// A segment with the view that its other side has.
pub struct Shared {
    pub victim: Segment,
    peer: Mapping,
}

impl Shared {
    pub fn new() -> Self {
        let victim = Segment::create(7, SLOTS, RING_BYTES).expect("memory");
        let passed = kernel::dup(victim.fd()).expect("a descriptor") as i32;
        let peer = Mapping::adopt(passed).expect("sealed memory");
        let content = Mapping::of_bytes(c"lent", &[5; 3000]).expect("memory");
        let content = kernel::dup(content.fd()).expect("a descriptor") as i32;
        victim.borrow(0, 0, 1, content).expect("sealed memory");
        Self { victim, peer }
    }

    /// The peer writes a word anywhere in the memory, most often where the cursors are.
    pub fn scribble(&self, region: u8, place: u32, value: u64) {
        let (start, length) = match region % 8 {
            // What is often looked at first; the places of processes are behind it.
            0 if place % 2 == 0 => (0, 512),
            0 => (0, QUEUE_AT),
            1 => (QUEUE_AT, 512),
            2 => (READY_LISTS_AT, 512),
            3 => (0, rings_at(SLOTS)),
            5 => (OWNERS_AT, 512),
            4 => (
                READY_LISTS_AT + core::mem::offset_of!(ReadyList, held_back),
                512,
            ),
            _ => (SLOTS_AT, rings_at(SLOTS) - SLOTS_AT),
        };
        let at = (start + place as usize % length) & !7;
        let word = self.peer.bytes_at(at, 8).cast::<u64>();
        // SAFETY: the word lies in the mapping; no code relies on what the peer has written.
        unsafe { word.write_volatile(value) };
    }
}

/// A count of bytes that a call of the victim may say it has moved.
fn check(result: Result<usize, bypass_shm::ring::Broken>, most: usize) {
    assert!(result.is_err() || result.is_ok_and(|count| count <= most));
}

/// One thing that a victim does with connection `slot`.
pub fn act(segment: &Segment, what: u8, slot: usize, size: usize) {
    let mut buffer = vec![0u8; size.min(10_000)];
    let most = buffer.len();
    let piece = [libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: most,
    }];
    // SAFETY: the buffer is readable and writable.
    let mut pieces = unsafe { Pieces::new(&piece) }.expect("fits");
    let ring: Ring = segment.ring(slot, 1);
    match what % 15 {
        0 => check(segment.ring(slot, 0).push(&mut pieces), most),
        1 => check(ring.pop(&mut pieces), most),
        2 => check(ring.peek(&mut pieces, size % 5000), most),
        3 => {
            let hole = segment.ring(slot, 0).hole(size);
            assert!(hole.is_err() || hole.is_ok_and(|(_, length)| length <= UNREAD_MAX));
        }
        4 => ring.discard(size),
        5 => {
            let _ = (ring.available(size), ring.lent_bytes());
        }
        6 => {
            let _ = ring.is_space_wanted(size, size % 2 == 0);
        }
        7 => act_on_ready_lists(segment, slot),
        8 => {
            if let Ok(Some(taken)) = accept_queue::take(segment, size % PROCESSES) {
                assert!(taken < SLOTS);
            }
        }
        9 => {
            let names = &segment.slot(slot).names;
            let _ = (names.of[0].load(), names.of[1].load());
        }
        10 => act_on_places(segment, size),
        14 => act_on_holders(segment, slot, size % (PROCESSES + 1)),
        12 => act_on_extents(segment, slot),
        13 => {
            let own = segment.ring(slot, 0);
            own.want_space();
            let _ = (own.is_roomy(), own.unread(), own.make_room(size * 500));
        }
        _ => {
            let _ = segment
                .ring(slot, 0)
                .lend(size as u32, size as u32, size as u32);
        }
    }
}

fn act_on_ready_lists(segment: &Segment, slot: usize) {
    let mut seen = 0;
    let slots = segment.slots_used();
    let mut news = Seen::of(segment.slots());
    segment
        .ready_list(0, 0)
        .drain(slots, &mut news, |_| seen += 1);
    assert!(
        seen <= segment
            .slots()
            .next_multiple_of(bypass_shm::layout::FLAG_GROUP)
    );
    ring_ready_list(&segment.slot(slot).meta.ready_list[1], |index| {
        let _ = segment.ready_list(1, index).ring(slot, false);
        let own = segment.ring(slot, 0);
        let ready_list = segment.ready_list(1, index);
        let next = own.announcement(index, || ready_list.latest(slot));
        let _ = ready_list.announce(slot, next, false);
    });
    let own_ready_list = segment.ready_list(0, 0);
    let _ = own_ready_list.is_ringing(slots, &news);
    // A number of the peer's, whatever it is: a connection's place is found for each.
    own_ready_list.drain_held_back(|named| segment.prefetch(named, 0));
    let _ = own_ready_list.is_held_back();
    let _ = segment.ready_list(1, slot).hold_back(slot, slot, false);
    segment.ready_list(1, slot).hold_no_more(slot + 1);
    let _ = Sleeper::take(&segment.slot(slot).meta.sleeper_read[1])
        .map(|sleeper| segment.process(1, sleeper.process as usize));
}

/// As the service does from time to time, and as whoever ends a connection.
fn act_on_extents(segment: &Segment, slot: usize) {
    segment.grown(0, |grown| assert!(grown < SLOTS));
    let _ = segment.ring(slot, 0).is_idle();
    if let Some(place) = segment.ring(slot, 0).leave_idle_extent() {
        segment.empty_extent(place);
    }
    segment.clean_extents();
    let _ = segment.give_back_extents(slot);
    segment.set_buffers(slot, 0, slot as u32, slot as u32);
}

/// Holders come and go, whatever the word of them says.
fn act_on_holders(segment: &Segment, slot: usize, process: usize) {
    let word = &segment.slot(slot).meta.holders[slot % 2];
    let holders = Holders(word.load(Ordering::SeqCst));
    assert!(holders.processes().count() <= MASKED);
    assert!(holders.processes().all(|one| one < PROCESSES));
    let _ = holders::enter(word, process, |now| !now.is_in_between());
    if holders::leave(word, process) {
        holders::forget(word, process);
    }
}

fn act_on_places(segment: &Segment, size: usize) {
    if let Some(ready_list) = segment.claim_ready_list(0, (7, size), 3) {
        segment.ready_list(0, ready_list).free();
    }
    if let Some(index) = segment.enter(0, 9) {
        segment.leave(0, index);
    }
    segment.leave(1, size);
    segment.set_silent(1, size);
    segment.set_credits(size, size as u32);
    let _ = (segment.has_silent(0), segment.credits());
    assert!(segment.places_left(1) <= PROCESSES);
    assert!(segment.processes(1).all(|(index, _)| index < PROCESSES));
    assert!(segment.ready_lists(1).len() <= READY_LISTS);
    segment.release(size);
    let _ = segment.is_borrowed(size, 0, size as u32);
    let _ = segment.number_for_loan(0);
}

/// Steps of victim and peer in turn, as the bytes say.
pub fn play(bytes: &[u8]) {
    let shared = Shared::new();
    for step in bytes.chunks_exact(STEP) {
        let [who, what, ..] = *step else { return };
        let place = u32::from_le_bytes([step[2], step[3], 0, 0]);
        let value = u64::from_le_bytes(step[4..12].try_into().unwrap_or_default());
        if who & 1 == 0 {
            shared.scribble(what, place, value);
        } else {
            act(&shared.victim, what, place as usize, value as usize % 9000);
        }
    }
}

/// Input at a rendezvous socket: any bytes, any descriptors. The first byte selects the descriptor and the kind of
/// the bytes, the second the number of descriptors and how the caller continues.
pub fn greet(bytes: &[u8]) {
    let Some((kind, words)) = bytes.split_first() else {
        return;
    };
    let name = Name::of_process(kernel::random());
    let rendezvous = link::open_rendezvous(&name).expect("a rendezvous socket");
    let caller = link::connect(&name).expect("an open rendezvous socket");
    let inside = link::answer(rendezvous.0).expect("somebody called");
    let count = words.first().map_or(1, |byte| usize::from(byte % 20));
    let passed: Vec<i32> = descriptor(*kind, words)
        .iter()
        .flat_map(|fd| core::iter::repeat_n(fd.0, count))
        .collect();
    let text = if kind & 1 == 0 || words.is_empty() {
        let greet: [u64; 6] = [1, link::VERSION, 2, 0, 0, 0];
        greet.iter().flat_map(|word| word.to_ne_bytes()).collect()
    } else {
        words[..words.len().min(4000)].to_vec()
    };
    send(caller.0, &text, &passed);
    let goes_on = words.first().map_or(0, |byte| byte / 20 % 4);
    match goes_on {
        1 => send(caller.0, &text[..text.len() / 2], &passed),
        2 => drop(caller),
        _ => {}
    }
    // A few looks: the second message, then nothing or the end.
    for _ in 0..3 {
        let Ok((_, fds)) = link::receive(inside.0) else {
            continue;
        };
        for fd in fds {
            let _ = Segment::adopt(fd.into_raw());
        }
    }
}

/// Sends any bytes with any number of descriptors, as no honest process would.
fn send(link: i32, bytes: &[u8], fds: &[i32]) {
    const FDS_MAX: usize = 20;
    let mut piece = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut control = [0u64; 2 + FDS_MAX / 2];
    // SAFETY: all zero is a valid header without anything.
    let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = &mut piece;
    header.msg_iovlen = 1;
    let fds = &fds[..fds.len().min(FDS_MAX)];
    if !fds.is_empty() {
        control[0] = 16 + 4 * fds.len() as u64;
        control[1] = (libc::SCM_RIGHTS as u64) << 32 | libc::SOL_SOCKET as u64;
        for (pair, word) in fds.chunks(2).zip(&mut control[2..]) {
            let second = pair.get(1).copied().unwrap_or(0);
            *word = (second as u32 as u64) << 32 | pair[0] as u32 as u64;
        }
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = 16 + 8 * fds.len().div_ceil(2);
    }
    let flags = (libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) as usize;
    let arguments = [link as usize, &raw const header as usize, flags, 0, 0, 0];
    // SAFETY: the header points at bytes and control, which live on this frame and the caller's.
    let _ = unsafe { kernel::raw(libc::SYS_sendmsg, arguments) };
}

/// Something that is not, or only nearly, a segment; the words are its first bytes.
fn descriptor(kind: u8, words: &[u8]) -> Option<Owned> {
    let file = || -> Option<Owned> {
        let fd = Owned(kernel::memfd_create(c"hostile").ok()?);
        kernel::write(fd.0, words).ok()?;
        Some(fd)
    };
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    match kind >> 1 & 7 {
        0 => None,
        1 => Some(Owned(kernel::open(c"/dev/null", libc::O_RDWR).ok()?)),
        2 => Some(Owned(kernel::open(c"/proc/self", libc::O_RDONLY).ok()?)),
        3 => file(),
        4 => {
            let fd = file()?;
            let _ = kernel::fcntl(fd.0, libc::F_ADD_SEALS, seals as usize);
            Some(fd)
        }
        5 => {
            // Sealed against every write as well: it cannot be mapped writable.
            let fd = file()?;
            let all = (seals | libc::F_SEAL_WRITE) as usize;
            let _ = kernel::fcntl(fd.0, libc::F_ADD_SEALS, all);
            Some(fd)
        }
        6 => Some(Owned(kernel::eventfd(0, libc::EFD_CLOEXEC).ok()? as i32)),
        _ => {
            // A true one, whose header is then overwritten.
            let segment = Segment::create(1, SLOTS, RING_BYTES).ok()?;
            let fd = Owned(kernel::dup(segment.fd()).ok()? as i32);
            kernel::write(fd.0, &words[..words.len().min(256)]).ok()?;
            Some(fd)
        }
    }
}
