//! Marks by which a server recognises the kernel's connection that belongs to a slot.
//!
//! A client in another network namespace puts the mark into its SYN. Over IPv4 it is a record route (IP option 7) that is
//! full, which routers leave as it is and the server's kernel keeps with the connection it accepts. Over IPv6 it is a
//! destination option, which takes CAP_NET_RAW and is read in the SYN that the server's kernel saves. The process that
//! accepts it takes the slot, unless another process has taken it or the client has withdrawn it. It writes back a
//! number that only the SYN contains: a process that sees the segment's memory alone cannot take a slot in its place.

use core::sync::atomic::{AtomicU32, Ordering};
use std::net::{Ipv4Addr, SocketAddr};

use bypass_shm::layout::{QUEUED, RST};
use bypass_sys::kernel;

use super::{Notice, Peer};

/// See ip(7); not in the C library's constants.
const IP_OPTIONS: i32 = 4;
const RECORD_ROUTE: u8 = 7;
/// Kind, length, pointer, the mark, and an end.
const OPTION_BYTES: usize = 24;
const LENGTH: u8 = 23;
/// The mark itself.
const MARK_BYTES: usize = 20;
/// A destination option for experiments (RFC 4727), which a host that does not know it skips.
const EXPERIMENT: u8 = 0x1e;
/// Next header, length, kind, length, the mark; its length beyond 8 bytes, by 8.
const DESTINATION_BYTES: usize = 24;
const DESTINATION_LENGTH: u8 = 2;
/// The header of IPv6, and where it says what follows.
const IPV6_BYTES: usize = 40;
const NEXT_HEADER: usize = 6;

/// Words of a slot that are unused otherwise in segments of one host. The use, by the client:
const USE: usize = 0;
/// The number, by the process that has taken the slot. The second part is never 0.
const NUMBER: [usize; 2] = [1, 2];
/// There instead of the second part: the client has refused the process that has taken it.
const REFUSED: u32 = u32::MAX;

/// Names a slot of a segment, and one use of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Number of the segment.
    pub segment: u64,
    slot: u16,
    /// Random; in the slot too, so that a late server does not take a later use.
    of_use: u32,
    /// 48 random bits, in the SYN alone.
    number: u64,
}

impl Mark {
    /// Puts it into the packets of a socket to `target`; see [`clear`].
    pub fn put(&self, fd: i32, target: SocketAddr) -> Result<(), i32> {
        let (level, name) = place(target);
        let option = match target.is_ipv4() {
            true => self.option(),
            false => self.destination_option(),
        };
        kernel::set_option(fd, level, name, &option).map(drop)
    }

    /// The mark of `client`'s connection that was accepted as `fd`. `has_syn`: the kernel has its SYN because of
    /// [`keep_syns`]. It is gone afterwards, whatever it says.
    pub fn of(fd: i32, client: SocketAddr, has_syn: bool) -> Option<Self> {
        let mut bytes = [0; 256];
        let syn = has_syn.then(|| value(fd, (libc::SOL_TCP, libc::TCP_SAVED_SYN), &mut bytes));
        match client.is_ipv4() {
            true => Self::read(value(fd, place(client), &mut bytes)?),
            false => Self::read_syn(syn??),
        }
    }

    fn option(&self) -> [u8; OPTION_BYTES] {
        let mut option = [0; OPTION_BYTES];
        // A pointer behind the end: it is full.
        option[..3].copy_from_slice(&[RECORD_ROUTE, LENGTH, LENGTH + 1]);
        option[3..23].copy_from_slice(&self.bytes());
        option
    }

    fn destination_option(&self) -> [u8; DESTINATION_BYTES] {
        let mut option = [0; DESTINATION_BYTES];
        option[1..4].copy_from_slice(&[DESTINATION_LENGTH, EXPERIMENT, MARK_BYTES as u8]);
        option[4..].copy_from_slice(&self.bytes());
        option
    }

    fn read(option: &[u8]) -> Option<Self> {
        let option = option.first_chunk::<OPTION_BYTES>()?;
        let is_mark = option[..3] == [RECORD_ROUTE, LENGTH, LENGTH + 1];
        is_mark.then(|| Self::of_bytes(option[3..].first_chunk()?))?
    }

    /// In a SYN of IPv6, from its header on.
    fn read_syn(syn: &[u8]) -> Option<Self> {
        let option = syn.get(IPV6_BYTES..)?.first_chunk::<DESTINATION_BYTES>()?;
        let is_mark = i32::from(syn[NEXT_HEADER]) == libc::IPPROTO_DSTOPTS
            && option[1..4] == [DESTINATION_LENGTH, EXPERIMENT, MARK_BYTES as u8];
        is_mark.then(|| Self::of_bytes(option[4..].first_chunk()?))?
    }

    fn bytes(&self) -> [u8; MARK_BYTES] {
        let mut bytes = [0; MARK_BYTES];
        bytes[..8].copy_from_slice(&self.segment.to_ne_bytes());
        bytes[8..10].copy_from_slice(&self.slot.to_ne_bytes());
        bytes[10..14].copy_from_slice(&self.of_use.to_ne_bytes());
        bytes[14..].copy_from_slice(&self.number.to_le_bytes()[..6]);
        bytes
    }

    fn of_bytes(bytes: &[u8; MARK_BYTES]) -> Option<Self> {
        let number = bytes[14..].iter().rev();
        Some(Self {
            segment: u64::from_ne_bytes(*bytes.first_chunk()?),
            slot: u16::from_ne_bytes(*bytes[8..].first_chunk()?),
            of_use: u32::from_ne_bytes(*bytes[10..].first_chunk()?),
            number: number.fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        })
    }

    /// The slot.
    pub fn slot(&self) -> usize {
        usize::from(self.slot)
    }

    /// For the client, to compare with what the slot has later.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// The value of an option of a socket, which `bytes` have room for.
fn value(fd: i32, (level, name): (i32, i32), bytes: &mut [u8]) -> Option<&[u8]> {
    let length = kernel::option(fd, level, name, bytes).ok()?;
    bytes.get(..length)
}

/// A number as the slot has it.
fn words(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32 | 1 << 16]
}

/// The option of a socket that puts a mark into packets from or to an address: its level and name.
fn place(address: SocketAddr) -> (i32, i32) {
    match address.is_ipv4() {
        true => (libc::SOL_IP, IP_OPTIONS),
        false => (libc::SOL_IPV6, libc::IPV6_DSTOPTS),
    }
}

/// Headers that come before the one with the mark, or are it.
const HEADERS: [i32; 3] = [libc::IPV6_DSTOPTS, libc::IPV6_HOPOPTS, libc::IPV6_RTHDR];

/// Whether a program has set options of IP where the mark is to be, or before it, or the library a mark.
pub fn has_options(fd: i32, target: SocketAddr) -> bool {
    let (level, name) = place(target);
    let names = match target.is_ipv4() {
        true => &[name][..],
        false => &HEADERS,
    };
    let is_set = |name: &i32| kernel::option(fd, level, *name, &mut [0; 256]) != Ok(0);
    names.iter().any(is_set)
}

/// Packets of a socket from or to `address` carry no mark any more.
pub fn clear(fd: i32, address: SocketAddr) {
    let (level, name) = place(address);
    let _ = kernel::set_option(fd, level, name, &[]);
}

/// A listener's kernel keeps the SYNs of clients, each until a process reads it, or the connection ends.
pub fn keep_syns(listener: i32) -> bool {
    kernel::set_option_int(listener, libc::SOL_TCP, libc::TCP_SAVE_SYN, 1).is_ok()
}

impl Peer {
    /// Offers a free slot, for a connection to `target`, to the process that accepts the connection with the mark.
    pub fn offer_marked(&self, slot: usize, target: SocketAddr) -> Mark {
        let nobody = (Ipv4Addr::UNSPECIFIED, 0).into();
        self.segment.reset(slot);
        self.prepare(slot, nobody, target);
        let mark = Mark {
            segment: self.segment.id(),
            slot: slot as u16,
            of_use: kernel::random() as u32,
            number: kernel::random() & ((1 << 48) - 1),
        };
        self.word(slot, USE).store(mark.of_use, Ordering::SeqCst);
        for at in NUMBER {
            self.word(slot, at).store(0, Ordering::SeqCst);
        }
        let holders = &self.segment.slot(slot).meta.holders[1];
        holders.store(QUEUED, Ordering::SeqCst);
        mark
    }

    /// Takes the slot that a mark names: None when it is not offered, or not under this mark.
    pub fn take_marked(&self, mark: &Mark) -> Option<usize> {
        let slot = mark.slot();
        if slot >= self.segment.slots() || !self.is_marked(slot, mark) {
            return None;
        }
        let holders = &self.segment.slot(slot).meta.holders[1];
        let taken =
            holders.compare_exchange(QUEUED, self.alone(), Ordering::SeqCst, Ordering::Relaxed);
        taken.ok()?;
        // It may have been withdrawn, and offered under another mark, in between. Its client may have seen that it was
        // taken: it finds a reset.
        if !self.is_marked(slot, mark) || !self.write_back(slot, mark.number) {
            self.let_go(slot, RST);
            return None;
        }
        self.ring(slot, Notice::Room);
        Some(slot)
    }

    /// Whether a process that has read `number` in the SYN has taken a slot that was offered under a mark. One that was
    /// withdrawn has neither a holder nor an end on the server's side.
    pub fn is_taken(&self, slot: usize, number: u64) -> bool {
        let place = self.segment.slot(slot);
        let has_taker = match place.meta.holders[1].load(Ordering::SeqCst) {
            QUEUED => false,
            0 => place.producer[1].ends.load(Ordering::SeqCst) != 0,
            _ => true,
        };
        let mut words = NUMBER.iter().zip(words(number));
        has_taker && words.all(|(at, value)| self.word(slot, *at).load(Ordering::SeqCst) == value)
    }

    /// Refuses the process that has taken a slot, unless it has written `number` back: that is decided from then on.
    pub fn refuse_taker(&self, slot: usize, number: u64) -> bool {
        let last = self.word(slot, NUMBER[1]);
        let _ = last.compare_exchange(0, REFUSED, Ordering::SeqCst, Ordering::SeqCst);
        !self.is_taken(slot, number)
    }

    /// False where the client has refused.
    fn write_back(&self, slot: usize, number: u64) -> bool {
        let [first, second] = words(number);
        self.word(slot, NUMBER[0]).store(first, Ordering::SeqCst);
        let last = self.word(slot, NUMBER[1]);
        let written = last.compare_exchange(0, second, Ordering::SeqCst, Ordering::SeqCst);
        written.is_ok()
    }

    fn is_marked(&self, slot: usize, mark: &Mark) -> bool {
        self.word(slot, USE).load(Ordering::SeqCst) == mark.of_use
    }

    fn word(&self, slot: usize, at: usize) -> &AtomicU32 {
        &self.segment.transport(slot).values[at]
    }
}

#[cfg(test)]
mod tests {
    use bypass_shm::segment::Segment;

    use super::*;

    #[test]
    fn an_option_says_the_mark_and_others_say_none() {
        let mark = Mark {
            segment: 0x0123_4567_89ab_cdef,
            slot: 513,
            of_use: 7,
            number: 0xfedc_ba98_7654,
        };
        assert_eq!(Mark::read(&mark.option()), Some(mark));
        for other in [&[][..], &[7; 24], &mark.option()[..23]] {
            assert_eq!(Mark::read(other), None);
        }
        let mut syn = [&[0; IPV6_BYTES][..], &mark.destination_option()].concat();
        assert_eq!(Mark::read_syn(&syn), None);
        syn[NEXT_HEADER] = 60;
        assert_eq!(Mark::read_syn(&syn), Some(mark));
        assert_eq!(Mark::read_syn(&syn[..63]), None);
        syn[IPV6_BYTES + 2] = 1;
        assert_eq!(Mark::read_syn(&syn), None);
    }

    #[test]
    fn options_of_ipv6_before_the_mark_are_seen() {
        let target: SocketAddr = "[::1]:80".parse().expect("an address");
        // The first takes CAP_NET_RAW, and the second a kernel with segment routing.
        let padding = (libc::IPV6_HOPOPTS, vec![0, 0, 1, 4, 0, 0, 0, 0]);
        let mut segments = vec![0; 24];
        segments[1..3].copy_from_slice(&[2, 4]);
        segments[23] = 1;
        let is_seen = |(name, header): &(i32, Vec<u8>)| {
            let fd = kernel::socket(libc::AF_INET6, libc::SOCK_STREAM, 0).expect("a socket") as i32;
            assert!(!has_options(fd, target));
            let set = kernel::set_option(fd, libc::SOL_IPV6, *name, header);
            assert_eq!(has_options(fd, target), set.is_ok());
            let _ = kernel::close(fd);
            set.is_ok()
        };
        let seen = [padding, (libc::IPV6_RTHDR, segments)]
            .iter()
            .filter(|one| is_seen(one))
            .count();
        assert!(seen > 0, "neither can be set here");
    }

    #[test]
    fn a_slot_is_taken_once_and_only_by_its_last_mark() {
        let segment = Segment::create(1, 64, 4096).expect("memory");
        let shared = kernel::dup(segment.fd()).expect("a descriptor") as i32;
        let server = Segment::adopt(shared).expect("memory");
        let client = Peer::join(segment, 0, 1).expect("a place");
        let server = Peer::join(server, 1, 1).expect("a place");
        let slot = client.take_slot().expect("a slot");
        let any = SocketAddr::from(([10, 0, 0, 1], 5));
        let withdrawn = client.offer_marked(slot, any);
        assert!(client.take_offer_back(slot));
        assert_eq!(server.take_marked(&withdrawn), None);
        assert!(!client.is_taken(slot, withdrawn.number()));

        let mark = client.offer_marked(slot, any);
        assert_ne!(mark, withdrawn);
        assert_eq!(server.take_marked(&withdrawn), None);
        assert!(!client.is_taken(slot, mark.number()));
        assert_eq!(server.take_marked(&mark), Some(slot));
        assert_eq!(server.take_marked(&mark), None);
        assert!(!client.take_offer_back(slot) && client.is_taken(slot, mark.number()));
        assert!(!client.refuse_taker(slot, mark.number()));
        server.let_go(slot, RST);
        assert!(client.is_taken(slot, mark.number()));
    }

    /// Both decide at once, again and again: the server has a connection where the client has it in memory, and only there.
    #[test]
    fn client_and_server_agree_who_has_a_connection() {
        let segment = Segment::create(1, 64, 4096).expect("memory");
        let shared = kernel::dup(segment.fd()).expect("a descriptor") as i32;
        let server = Segment::adopt(shared).expect("memory");
        let client = Peer::join(segment, 0, 1).expect("a place");
        let server = Peer::join(server, 1, 1).expect("a place");
        let any = SocketAddr::from(([10, 0, 0, 1], 5));
        let (offer, offered) = std::sync::mpsc::sync_channel::<Mark>(0);
        let (say, said) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let (server, client) = (&server, &client);
            scope.spawn(move || {
                let mut former = None;
                for mark in offered {
                    // A late look at the former use of the slot must take none.
                    let late: Option<Mark> = former.replace(mark);
                    let taken = late.and_then(|late| server.take_marked(&late));
                    assert_eq!(taken, None);
                    let taken = server.take_marked(&mark);
                    taken.iter().for_each(|slot| server.let_go(*slot, RST));
                    say.send(taken.is_some()).expect("heard");
                }
            });
            for round in 0..20_000 {
                let slot = client.take_slot().expect("a slot");
                let mark = client.offer_marked(slot, any);
                offer.send(mark).expect("heard");
                (0..round % 64).for_each(|_| core::hint::spin_loop());
                let number = mark.number();
                let is_given_up = client.take_offer_back(slot) || client.refuse_taker(slot, number);
                assert_eq!(is_given_up, !client.is_taken(slot, number));
                let is_shared = said.recv().expect("said");
                assert_eq!(is_given_up, !is_shared, "round {round}");
                client.let_go(slot, RST);
            }
            drop(offer);
        });
    }

    #[test]
    fn a_process_that_sees_a_slot_in_memory_alone_does_not_take_it() {
        let segment = Segment::create(1, 64, 4096).expect("memory");
        let shared = kernel::dup(segment.fd()).expect("a descriptor") as i32;
        let server = Segment::adopt(shared).expect("memory");
        let client = Peer::join(segment, 0, 1).expect("a place");
        let server = Peer::join(server, 1, 1).expect("a place");
        let any = SocketAddr::from(([10, 0, 0, 1], 5));
        let slot = client.take_slot().expect("a slot");
        let mark = client.offer_marked(slot, any);
        let guessed = Mark {
            number: mark.number ^ 1,
            ..mark
        };
        assert_eq!(server.take_marked(&guessed), Some(slot));
        assert!(!client.take_offer_back(slot) && !client.is_taken(slot, mark.number()));
        assert!(client.refuse_taker(slot, mark.number()));

        // One that is refused before it has written the number back finds that.
        let slot = client.take_slot().expect("a slot");
        let mark = client.offer_marked(slot, any);
        assert!(client.refuse_taker(slot, mark.number()));
        assert_eq!(server.take_marked(&mark), None);
    }
}
