//! Connections that survive exec: the new image is another process of the same end, which is
//! entered, announced and given its rendezvous socket before the old one goes. Sockets that are not
//! connected yet survive it too, as servers hand a bound one to each of their workers.
//!
//! The facts that it needs travel in a memory file whose number is in the environment. A new image
//! that does not load us keeps the links and the rendezvous socket open until it ends; the other side then
//! learns of its end as of any other.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bypass_shm::holders;
use bypass_shm::layout::FIN;
use bypass_shm::link;
use bypass_shm::segment::Segment;
use bypass_sys::descriptor::Owned;
use bypass_sys::waker::Name;
use bypass_sys::{kernel, memory, numbers};

use super::{former, handover, sharing};
use crate::listener::participants;
use crate::operations::{connect, shadow};
use crate::packets;
use crate::peer::{self, Peer};
use crate::process;
use crate::process::table::{self, Entry, Kind};
use crate::service;
use crate::sockets::{self, Event, Socket};
use crate::stream;

/// Says to the new image what is passed to it.
pub const VARIABLE: &str = "WIRESPEED_PASSED";
const MAGIC: u64 = u64::from_le_bytes(*b"WSpass\x03\0");
/// How often a place is looked for in segments that have none left, all together, and how long between two looks.
const PLACE_LOOKS: u32 = 1500;
const PLACE_LOOK: Duration = Duration::from_millis(2);
/// Behind the last of the links' descriptors.
const NO_MORE: u64 = u64::MAX;
/// Words of one connection in the file, and which is which.
const WORDS: usize = 13;
const INODE: usize = 0;
const FAMILY: usize = 1;
const FLAGS: usize = 2;
const SLOT: usize = 3;
const SIDE: usize = 4;
const INDEX: usize = 5;
const MEMORY: usize = 6;
const LINGER: usize = 7;
const RECEIVE: usize = 8;
const SEND: usize = 9;
const LOW_WATER: usize = 10;
const RECEIVE_BUFFER: usize = 11;
const SEND_BUFFER: usize = 12;
/// In the place of a side: no connection yet.
const UNCONNECTED: u64 = 2;
/// Flags that the new image takes over.
const KEPT: u32 = sockets::HANDED_ON
    | sockets::NONBLOCK
    | sockets::BOUND
    | sockets::CORK
    | sockets::SHARED
    | sockets::KEEPS_SYNS
    | sockets::LOW_WATER;

/// The preparations for a new image; taken back when exec fails.
pub struct Prepared {
    /// None when all surviving sockets are handled by the kernel in the new image.
    file: Option<Owned>,
    /// The file that says which interfaces are open, for a new image that inherits a listener.
    interfaces: Option<Owned>,
    kept_open: Vec<Owned>,
    links: Vec<Owned>,
    /// Taken for the new image, once in each segment.
    places: Vec<(Arc<Peer>, usize)>,
    /// Slots in which the new image stands in our place already, and its place: as many hold these as can.
    replaced: Vec<(Arc<Peer>, usize, usize)>,
    uncovered: Vec<i32>,
    /// The new image runs in a child: this process goes on, and may start more of them.
    is_spawning: bool,
    /// How often it may still wait for a place.
    looks: u32,
}

impl Prepared {
    /// The value of the [variable](VARIABLE): the numbers of both files, and of the process that goes on in the new image,
    /// each empty where there is none.
    pub fn record(&self) -> Option<String> {
        let text = |file: &Option<Owned>| file.as_ref().map(|file| file.0.to_string());
        let process = (!self.is_spawning).then(|| former::number().to_string());
        let all = [text(&self.file), text(&self.interfaces), process];
        all.iter()
            .any(Option::is_some)
            .then(|| all.map(Option::unwrap_or_default).join(","))
    }

    /// Descriptors of ours that the new image needs.
    pub fn inherited(&self) -> Vec<i32> {
        let kept_open = self.kept_open.iter().chain(&self.links);
        let files = self.file.iter().chain(&self.interfaces);
        kept_open.chain(files).map(|owned| owned.0).collect()
    }

    /// Descriptors that the new image has by the program's will, and that are close-on-exec here.
    pub fn covered(&self) -> &[i32] {
        &self.uncovered
    }

    /// Nothing of the new image is close-on-exec from here on: whatever is started meanwhile has it, too.
    pub fn uncover(&self) {
        let inherited = self.inherited().into_iter();
        for fd in inherited.chain(self.uncovered.iter().copied()) {
            let _ = kernel::fcntl(fd, libc::F_SETFD, 0);
        }
    }
}

fn survives(fd: i32, socket: &Socket) -> bool {
    if !socket.has(sockets::DUPLICATED) {
        return !socket.has(sockets::CLOEXEC);
    }
    is_inherited(fd)
}

fn is_inherited(fd: i32) -> bool {
    kernel::fcntl(fd, libc::F_GETFD, 0).is_ok_and(|flags| flags as i32 & libc::FD_CLOEXEC == 0)
}

/// Whether the shadow of one that survives has close-on-exec set and must not have it: of duplicates each has
/// its own flag, which is what the program has said.
fn is_covered(fd: i32, socket: &Socket) -> bool {
    !socket.has(sockets::DUPLICATED) && survives(fd, socket)
}

/// Before exec; None when no accelerated socket survives it. Any other number `given` to the new image stays
/// close-on-exec under its own number. A process that goes on itself `waits` for nothing. Its descriptors are
/// close-on-exec until [`Prepared::uncover`], or is given to a child by its actions.
pub fn prepare(given: &[i32], waits: bool) -> Option<Prepared> {
    if !process::is_started() {
        return None;
    }
    if !waits {
        // What it starts may hold its listeners.
        peer::note_fork();
    }
    let goes_along = |fd: &i32| {
        let entry = table::get(*fd);
        let is_ours = matches!(entry.kind(), Kind::Connected | Kind::Unbound);
        is_ours && (survives(*fd, sockets::get(entry.index())) || given.contains(fd))
    };
    let opening = (0..table::used()).filter(|fd| connect::is_undecided(*fd));
    connect::settle(opening.filter(goes_along));
    let mut connected = Vec::new();
    let mut unconnected = Vec::new();
    let mut uncovered = Vec::new();
    let mut has_unconnected = false;
    for fd in 0..table::used() {
        let entry = table::get(fd);
        let socket = sockets::get(entry.index());
        match entry.kind() {
            Kind::Connected if goes_along(&fd) => {
                // The spawned process has the kernel's socket behind it too.
                socket.set(sockets::DIRTY, true);
                connected.push((fd, entry));
            }
            Kind::Unbound if goes_along(&fd) => {
                shadow::apply(fd, socket);
                uncovered.extend(is_covered(fd, socket).then_some(fd));
                has_unconnected = true;
                if !socket.has(sockets::KERNEL_ONLY) {
                    unconnected.push((fd, entry));
                }
            }
            Kind::Datagram if is_inherited(fd) || given.contains(&fd) => {
                packets::datagrams::leave(entry.index());
            }
            _ => {}
        }
    }
    let inherits_listener = inherits_listener(given);
    let left = inherits_listener.then(packets::leave).flatten();
    // The new image frees locks of its listeners.
    let frees = inherits_listener && waits;
    if connected.is_empty() && !has_unconnected && left.is_none() && !frees {
        return None;
    }
    let interfaces = left.map(|left| {
        uncovered.extend(left.descriptors);
        left.file
    });
    let mut prepared = Prepared {
        file: None,
        interfaces,
        kept_open: Vec::new(),
        links: Vec::new(),
        places: Vec::new(),
        replaced: Vec::new(),
        uncovered,
        is_spawning: !waits,
        looks: if waits { PLACE_LOOKS } else { 0 },
    };
    if !connected.is_empty() || !unconnected.is_empty() {
        let packed = pack(&connected, &unconnected, &mut prepared);
        if packed.is_err() && !connected.is_empty() {
            undo(prepared);
            return None;
        }
    }
    Some(prepared)
}

/// Whether the new image gets a listener, and with it connections over the interfaces that are open.
fn inherits_listener(given: &[i32]) -> bool {
    let is_inherited = |fd: i32| {
        let flags = kernel::fcntl(fd, libc::F_GETFD, 0);
        given.contains(&fd) || flags.is_ok_and(|flags| flags as i32 & libc::FD_CLOEXEC == 0)
    };
    (0..table::used()).any(|fd| table::get(fd).kind() == Kind::Listener && is_inherited(fd))
}

fn pack(
    connected: &[(i32, Entry)],
    unconnected: &[(i32, Entry)],
    prepared: &mut Prepared,
) -> Result<(), i32> {
    let number = kernel::random() | 1;
    let rendezvous = link::open_rendezvous(&Name::of_process(number))?;
    let mut words = vec![MAGIC, number, rendezvous.0 as u64];
    prepared.kept_open.push(rendezvous);
    let mut objects = HashSet::new();
    let mut places: HashMap<(u64, usize), Option<(usize, i32)>> = HashMap::new();
    for (fd, entry) in connected {
        let socket = sockets::get(entry.index());
        let Some(peer) = socket.share_peer() else {
            continue;
        };
        let key = (peer.segment.id(), peer.side);
        let place = *places
            .entry(key)
            .or_insert_with(|| enter(&peer, number, prepared));
        let Some((index, memory)) = place else {
            continue;
        };
        let slot = socket.slot.load(Ordering::Relaxed) as usize;
        if !enter_slot(&peer, slot, index, prepared) {
            continue;
        }
        sharing::share_flags(*fd);
        sharing::share(entry.index(), socket);
        let mut one = record(*fd, socket)?;
        one[SLOT] = slot as u64;
        one[SIDE] = peer.side as u64;
        one[INDEX] = index as u64;
        one[MEMORY] = memory as u64;
        if objects.insert(entry.index()) {
            words.extend(one);
        }
        prepared
            .uncovered
            .extend(is_covered(*fd, socket).then_some(*fd));
    }
    for (fd, entry) in unconnected {
        let mut one = record(*fd, sockets::get(entry.index()))?;
        one[SIDE] = UNCONNECTED;
        if objects.insert(entry.index()) {
            words.extend(one);
        }
    }
    let links = prepared.links.iter().map(|link| link.0 as u64);
    words.splice(3..3, links.chain([NO_MORE]));
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    prepared.file = Some(memory::file_of(c"wirespeed-passed", &bytes)?);
    Ok(())
}

/// The facts about any socket that the new image needs.
fn record(fd: i32, socket: &Socket) -> Result<[u64; WORDS], i32> {
    let mut one = [0u64; WORDS];
    one[INODE] = kernel::fstat(fd)?.st_ino;
    one[FAMILY] = socket.family.load(Ordering::Relaxed) as u64;
    one[FLAGS] = u64::from(socket.flags.load(Ordering::Relaxed) & KEPT);
    for (place, word) in numbers(socket) {
        one[place] = u64::from(word.load(Ordering::Relaxed));
    }
    one[RECEIVE] = socket.receive_timeout_ns.load(Ordering::Relaxed);
    one[SEND] = socket.send_timeout_ns.load(Ordering::Relaxed);
    Ok(one)
}

/// Values of options that go along as they are, by their places.
fn numbers(socket: &Socket) -> [(usize, &AtomicU32); 4] {
    [
        (LINGER, &socket.linger_s),
        (LOW_WATER, &socket.low_water),
        (RECEIVE_BUFFER, &socket.receive_buffer),
        (SEND_BUFFER, &socket.send_buffer),
    ]
}

/// A place for the new image among the end's processes, announced to the other side; with a duplicate of
/// the segment's memory.
fn enter(peer: &Arc<Peer>, number: u64, prepared: &mut Prepared) -> Option<(usize, i32)> {
    let memory = numbers::duplicate(peer.segment.fd()).ok()?;
    if prepared.is_spawning && peer.side == 1 {
        peer.note_forking();
    }
    let index = take_place(peer, number, &mut prepared.looks)?;
    match prepared.is_spawning {
        true => peer.note_child(index, number),
        false => peer.note_relative(index, number),
    }
    prepared.places.push((peer.clone(), index));
    let links = participants::connect_participants(peer, index);
    prepared
        .links
        .extend(links.into_iter().map(|told| told.link));
    let fd = memory.0;
    prepared.kept_open.push(memory);
    Some((index, fd))
}

/// Names the new image among the holders of a connection. Where no more fit, it takes the place of this
/// process, which ends as the new image begins.
fn enter_slot(peer: &Arc<Peer>, slot: usize, index: usize, prepared: &mut Prepared) -> bool {
    let word = &peer.segment.slot(slot).meta.holders[peer.side];
    if holders::enter(word, index, |now| !now.is_in_between()) {
        return true;
    }
    if prepared.is_spawning || !holders::replace(word, peer.process_index(), index) {
        return false;
    }
    prepared.replaced.push((peer.clone(), slot, index));
    true
}

/// As long as the other side has not noticed the end of a former image, that one has a place too: of many children that
/// call exec at once, each for its connection, some find all taken for a while.
fn take_place(peer: &Peer, number: u64, looks: &mut u32) -> Option<usize> {
    loop {
        let index = peer.segment.enter(peer.side, number);
        let has_ended = || peer.is_stale.load(Ordering::SeqCst) && peer.side == 1;
        if index.is_some() || *looks == 0 || has_ended() {
            return index;
        }
        *looks -= 1;
        let _ = kernel::poll(&mut [], Some(PLACE_LOOK), None);
    }
}

/// A new image runs in another process, which has what it needs: this one goes on as it was.
pub fn left(prepared: Prepared) {
    cover(&prepared);
}

fn cover(prepared: &Prepared) {
    for fd in &prepared.uncovered {
        let _ = kernel::fcntl(*fd, libc::F_SETFD, libc::FD_CLOEXEC as usize);
    }
}

/// exec has failed: the program goes on as it was.
pub fn undo(prepared: Prepared) {
    cover(&prepared);
    for (peer, slot, index) in &prepared.replaced {
        let word = &peer.segment.slot(*slot).meta.holders[peer.side];
        holders::replace(word, *index, peer.process_index());
        if peer.socket(*slot).is_none() {
            // Another thread has closed it meanwhile.
            peer.let_go(*slot, FIN);
        }
    }
    for (peer, index) in &prepared.places {
        peer.take_back(*index);
    }
}

/// In the new image, before anything else of ours exists: takes over what the old one had, as its
/// [record](Prepared::record) says.
pub fn adopt(record: &str) {
    let mut parts = record.split(',');
    let mut number = || parts.next()?.parse().ok();
    let (file, interfaces, process) = (number(), number(), number());
    former::note(process);
    if let Some(file) = file {
        adopt_sockets(file);
    }
    if let Some(file) = interfaces {
        packets::inherit(file);
    }
}

/// Which numbers mean a connection is found by the shadow's inode: spawning may have moved them.
fn adopt_sockets(file: i32) {
    let Some(words) = read(file) else { return };
    let (number, rendezvous) = (words[1], words[2] as i32);
    process::become_child(number);
    let _ = kernel::fcntl(rendezvous, libc::F_SETFD, libc::FD_CLOEXEC as usize);
    service::take_rendezvous(Owned(rendezvous));
    let found = handover::inherited_sockets();
    let mut peers: HashMap<u64, Option<Arc<Peer>>> = HashMap::new();
    let mut rest = words[3..].splitn(2, |word| *word == NO_MORE);
    let (links, connections) = (rest.next().unwrap_or(&[]), rest.next().unwrap_or(&[]));
    for one in connections.chunks_exact(WORDS) {
        let numbers = found.iter().filter(|(_, inode)| *inode == one[INODE]);
        let numbers: Vec<i32> = numbers.map(|(fd, _)| *fd).collect();
        if one[SIDE] == UNCONNECTED {
            take_over_unconnected(one, &numbers);
            continue;
        }
        let peer = peers
            .entry(one[MEMORY])
            .or_insert_with(|| join(one))
            .clone();
        let Some(peer) = peer else { continue };
        if revive(one, &peer, &numbers).is_none() {
            peer.let_go(peer.segment.clamp(one[SLOT] as usize), FIN);
        }
    }
    // The other side knows us by links of our own now; these would outlive us in what we start.
    for link in links {
        let _ = kernel::close(*link as i32);
    }
}

fn read(file: i32) -> Option<Vec<u64>> {
    let size = usize::try_from(kernel::fstat(file).ok()?.st_size).ok()?;
    if !(24..=8 * (4 + (WORDS + 1) * table::NUMBERS_MAX)).contains(&size) {
        return None;
    }
    let mut bytes = vec![0u8; size];
    let count = kernel::read_at(file, &mut bytes, 0).ok()?;
    let words: Vec<u64> = bytes[..count]
        .chunks_exact(8)
        .map(|eight| u64::from_ne_bytes(eight.try_into().unwrap_or_default()))
        .collect();
    if words.len() < 3 || words[0] != MAGIC {
        return None;
    }
    let _ = kernel::close(file);
    Some(words)
}

fn join(one: &[u64]) -> Option<Arc<Peer>> {
    let memory = one[MEMORY] as i32;
    let _ = kernel::fcntl(memory, libc::F_SETFD, libc::FD_CLOEXEC as usize);
    let segment = Segment::adopt(memory).ok()?;
    let index = one[INDEX] as usize;
    let peer = Peer::at_place(segment, one[SIDE] as usize & 1, index)?;
    participants::greet_others(&peer, index);
    Some(peer)
}

/// One that another process has made a listener meanwhile is taken over as such, later.
fn take_over_unconnected(one: &[u64], numbers: &[i32]) -> Option<()> {
    let first = *numbers.first()?;
    if process::settings().dont_accelerate || handover::is_listener(first) {
        return None;
    }
    let index = allocate(one, one[FLAGS] as u32 & KEPT & !sockets::BOUND)?;
    let socket = sockets::get(index);
    if one[FLAGS] as u32 & sockets::BOUND != 0 {
        socket.change(Event::Bind);
    }
    table::set(first, socket.entry(index));
    mean(index, &numbers[1..]);
    Some(())
}

fn revive(one: &[u64], peer: &Arc<Peer>, numbers: &[i32]) -> Option<()> {
    let (fd, others) = numbers.split_first()?;
    let index = allocate(one, one[FLAGS] as u32 & KEPT)?;
    let slot = peer.segment.slot(peer.segment.clamp(one[SLOT] as usize));
    // Another thread may have read or written as one called exec.
    for word in [&slot.locks[peer.side].read, &slot.locks[peer.side].write] {
        former::free_lock(word);
    }
    stream::revive(*fd, index, peer, one[SLOT] as usize);
    mean(index, others);
    Some(())
}

/// A socket object with the options of one that the former image had.
fn allocate(one: &[u64], flags: u32) -> Option<usize> {
    let flags = flags | sockets::DIRTY | sockets::DUPLICATED;
    let index = sockets::allocate(one[FAMILY] as i32, flags)?;
    let socket = sockets::get(index);
    for (place, word) in numbers(socket) {
        word.store(one[place] as u32, Ordering::Relaxed);
    }
    socket
        .receive_timeout_ns
        .store(one[RECEIVE], Ordering::Relaxed);
    socket.send_timeout_ns.store(one[SEND], Ordering::Relaxed);
    Some(index)
}

/// These descriptors mean socket `index` too.
fn mean(index: usize, numbers: &[i32]) {
    let socket = sockets::get(index);
    for fd in numbers {
        socket.descriptors.fetch_add(1, Ordering::AcqRel);
        table::set(*fd, socket.entry(index));
    }
}
