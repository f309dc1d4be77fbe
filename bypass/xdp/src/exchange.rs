//! Shared by the owners of an interface's queues: frames that came by one queue and are for the owner of another,
//! and a memory of which flows those were.
//!
//! Made with the sockets and inherited with them. Each queue has a mailbox, which its owner reads and all others
//! write: a pair of Unix sockets, whose bound is that of the first one's buffer. A frame that has no room there is
//! lost, as on a link.

use bypass_sys::descriptor::Owned;
use bypass_sys::numbers;
use bypass_sys::{kernel, network};

use crate::sys::table::Table;

/// Queues at most: each is a bit of a word.
pub const QUEUES_MAX: u32 = 64;
/// Bytes of frames that may wait at a queue, with what the kernel counts for each.
const MAILBOX_BYTES: i32 = 1 << 20;
/// As its neighbour, whatever net.core.wmem_max says.
const SO_SNDBUFFORCE: i32 = 32;
/// In front of a frame: the queues whose owners do not have it, and what is known of its checksum.
const HEADER: usize = 16;
/// An IP packet, with its Ethernet header.
const FRAME_MAX: usize = 65_549;
/// Listening sockets that an owner reports to the others at most.
const LISTENERS_MAX: usize = 32;
/// Flows that are remembered at most.
const HINTS: usize = 16_384;

// Words of the memory.
const FORKS: usize = 0;
const OWNERS: usize = 1;
const SOUGHT: usize = OWNERS + QUEUES_MAX as usize;
const SENT: usize = SOUGHT + 1;
const LISTENERS: usize = SENT + QUEUES_MAX as usize;
const FLOWS: usize = LISTENERS + QUEUES_MAX as usize * LISTENERS_MAX;
const WORDS: usize = FLOWS + HINTS;
/// Of a remembered flow: the queue plus one; the other bits are its mark's.
const QUEUE_BITS: u64 = 0xff;

/// See the module.
#[derive(Debug)]
pub struct Exchange {
    words: Table,
    memory: Owned,
    /// Of each queue, to write into and to read from.
    mailboxes: Vec<[Owned; 2]>,
}

/// A frame that was handed on.
#[derive(Debug, Clone, Copy)]
pub struct Handed<'a> {
    /// As it came.
    pub bytes: &'a [u8],
    /// What is known of its checksum, as a number of the one that hands it on.
    pub sum: u8,
    /// Queues whose owners do not have its connection, a bit each.
    pub asked: u64,
}

impl Exchange {
    /// For so many queues. EINVAL: more than there may be.
    pub fn open(queues: u32) -> kernel::Result<Self> {
        if queues > QUEUES_MAX {
            return Err(libc::EINVAL);
        }
        if WORDS * 8 > kernel::file_size_limit() {
            return Err(libc::EFBIG);
        }
        let memory = numbers::high(|| kernel::memfd_create(c"wirespeed-queues"))?;
        kernel::ftruncate(memory.0, WORDS * 8)?;
        let mailboxes: kernel::Result<_> = (0..queues).map(|_| mailbox()).collect();
        Ok(Self {
            words: Table::map(memory.0, WORDS)?,
            memory,
            mailboxes: mailboxes?,
        })
    }

    /// One that somebody else has opened and passed on, by its [descriptors](Self::descriptors).
    pub fn of(fds: Vec<Owned>) -> kernel::Result<Self> {
        let mut fds = fds.into_iter();
        let memory = fds.next_back().ok_or(libc::EINVAL)?;
        if kernel::fstat(memory.0)?.st_size as usize != WORDS * 8 || fds.len() % 2 != 0 {
            return Err(libc::EINVAL);
        }
        let mut mailboxes = Vec::new();
        while let (Some(write), Some(read)) = (fds.next(), fds.next()) {
            mailboxes.push([write, read]);
        }
        Ok(Self {
            words: Table::map(memory.0, WORDS)?,
            memory,
            mailboxes,
        })
    }

    /// What is held open.
    pub fn descriptors(&self) -> impl Iterator<Item = i32> + use<'_> {
        let ends = self.mailboxes.iter().flatten();
        ends.chain([&self.memory]).map(|fd| fd.0)
    }

    /// Queues.
    pub fn queues(&self) -> u32 {
        self.mailboxes.len() as u32
    }

    /// A process has come that may become an owner.
    pub fn note_fork(&self) {
        self.words.update(FORKS, |count| Some(count + 1));
    }

    /// Whether any has.
    pub fn has_forked(&self) -> bool {
        self.words.get(FORKS) != 0
    }

    /// Says who has a queue: the owner's first one.
    pub fn set_owner(&self, queue: u32, owner: u32) {
        self.words
            .set(OWNERS + queue as usize, u64::from(owner) + 1);
    }

    /// The last owner of a queue; None: it had none yet.
    pub fn owner(&self, queue: u32) -> Option<u32> {
        let word = self.words.get(OWNERS + queue as usize);
        word.checked_sub(1).map(|owner| owner as u32)
    }

    /// A process has no queue and needs one, at this moment by [`bypass_sys::clock`].
    pub fn seek(&self, now_ns: u64) {
        self.words.set(SOUGHT, now_ns);
    }

    /// The process that sought a queue has one. Others that seek say so again.
    pub fn found(&self) {
        self.words.set(SOUGHT, 0);
    }

    /// When a process last did.
    pub fn sought_ns(&self) -> u64 {
        self.words.get(SOUGHT)
    }

    /// Publishes where the owner listens whose first queue is `owner`, by inodes; those beyond 32 are left out.
    pub fn tell_listeners(&self, owner: u32, inodes: &[u64]) {
        for (at, word) in listeners_of(owner).enumerate() {
            let inode = inodes.get(at).copied().unwrap_or_default();
            if self.words.get(word) != inode {
                self.words.set(word, inode);
            }
        }
    }

    /// Listeners that this owner has [published](Self::tell_listeners).
    pub fn listeners(&self, owner: u32) -> impl Iterator<Item = u64> + use<'_> {
        let inodes = listeners_of(owner).map(|word| self.words.get(word));
        inodes.filter(|inode| *inode != 0)
    }

    /// Remembers whose a flow is, by its mark; an earlier one at the same place is forgotten.
    pub fn remember(&self, mark: u64, queue: u32) {
        let word = mark & !QUEUE_BITS | u64::from(queue + 1);
        if self.words.get(place_of(mark)) != word {
            self.words.set(place_of(mark), word);
        }
    }

    /// Whose a flow may be.
    pub fn remembered(&self, mark: u64) -> Option<u32> {
        let word = self.words.get(place_of(mark));
        let queue = (word & QUEUE_BITS).checked_sub(1)? as u32;
        (word & !QUEUE_BITS == mark & !QUEUE_BITS && queue < self.queues()).then_some(queue)
    }

    /// Polled for reading: a frame was handed to the owner of a queue.
    pub fn poll_fd(&self, queue: u32) -> Option<i32> {
        let mailbox = self.mailboxes.get(queue as usize)?;
        Some(mailbox[1].0)
    }

    /// A number that is another one after a frame was handed to the owner of a queue.
    pub fn sent(&self, queue: u32) -> u64 {
        self.words.get(SENT + queue as usize)
    }

    /// Hands a frame to the owner of a queue; false: its mailbox is full.
    pub fn hand(&self, queue: u32, handed: Handed<'_>, buffer: &mut Vec<u8>) -> bool {
        let Some(mailbox) = self.mailboxes.get(queue as usize) else {
            return false;
        };
        buffer.clear();
        buffer.extend_from_slice(&handed.asked.to_ne_bytes());
        buffer.extend_from_slice(&u64::from(handed.sum).to_ne_bytes());
        buffer.extend_from_slice(handed.bytes);
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let is_sent = kernel::send_to(mailbox[0].0, buffer, flags, &[]).is_ok();
        if is_sent {
            let at = SENT + queue as usize;
            self.words.update(at, |count| Some(count.wrapping_add(1)));
        }
        is_sent
    }

    /// Takes a frame that was handed to the owner of a queue.
    pub fn take<'a>(&self, queue: u32, buffer: &'a mut Vec<u8>) -> Option<Handed<'a>> {
        let mailbox = self.mailboxes.get(queue as usize)?;
        buffer.resize(HEADER + FRAME_MAX, 0);
        let count = kernel::receive(mailbox[1].0, buffer, libc::MSG_DONTWAIT).ok()?;
        let (header, bytes) = buffer.get(..count)?.split_first_chunk::<HEADER>()?;
        let [asked, sum] = [&header[..8], &header[8..]]
            .map(|eight| u64::from_ne_bytes(eight.try_into().unwrap_or_default()));
        Some(Handed {
            bytes,
            sum: sum as u8,
            asked,
        })
    }
}

fn mailbox() -> kernel::Result<[Owned; 2]> {
    let [write, read] = network::datagram_pair()?;
    let size = |name| kernel::set_option_int(write.0, libc::SOL_SOCKET, name, MAILBOX_BYTES);
    let _ = size(SO_SNDBUFFORCE).or_else(|_| size(libc::SO_SNDBUF));
    Ok([write, read])
}

fn listeners_of(owner: u32) -> core::ops::Range<usize> {
    let first = LISTENERS + owner as usize * LISTENERS_MAX;
    first..first + LISTENERS_MAX
}

fn place_of(mark: u64) -> usize {
    FLOWS + (mark >> 8) as usize % HINTS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(bytes: &[u8]) -> Handed<'_> {
        Handed {
            bytes,
            sum: 2,
            asked: 5,
        }
    }

    #[test]
    fn frames_come_out_whole_and_in_order() {
        let exchange = Exchange::open(2).expect("opened");
        let mut buffer = Vec::new();
        let long = vec![7; FRAME_MAX];
        let before = exchange.sent(1);
        for bytes in [&[1; 60][..], &long, &[2; 1514]] {
            assert!(exchange.hand(1, frame(bytes), &mut buffer));
        }
        assert_eq!(exchange.sent(1), before + 3);
        for bytes in [&[1; 60][..], &long, &[2; 1514]] {
            let taken = exchange.take(1, &mut buffer).expect("a frame");
            assert!(taken.bytes == bytes && taken.sum == 2 && taken.asked == 5);
        }
        assert!(exchange.take(1, &mut buffer).is_none() && exchange.take(0, &mut buffer).is_none());
    }

    #[test]
    fn waiting_frames_are_bounded() {
        let exchange = Exchange::open(1).expect("opened");
        let mut buffer = Vec::new();
        let handed = (0..100_000).take_while(|_| exchange.hand(0, frame(&[0; 1514]), &mut buffer));
        let count = handed.count();
        assert!((100..5000).contains(&count), "{count}");
        while exchange.take(0, &mut buffer).is_some() {}
        assert!(exchange.hand(0, frame(&[0; 60]), &mut buffer), "room again");
    }

    #[test]
    fn a_flow_is_remembered_until_another_takes_its_place() {
        let exchange = Exchange::open(3).expect("opened");
        let mark = 0x1234_5678_9abc_def0;
        assert_eq!(exchange.remembered(mark), None);
        exchange.remember(mark, 2);
        assert_eq!(exchange.remembered(mark), Some(2));
        let other = mark + ((HINTS as u64) << 8);
        assert_eq!(exchange.remembered(other), None);
        exchange.remember(other, 0);
        assert_eq!(
            (exchange.remembered(mark), exchange.remembered(other)),
            (None, Some(0))
        );
    }

    #[test]
    fn each_owner_reports_where_it_listens_now() {
        let exchange = Exchange::open(3).expect("opened");
        let many: Vec<u64> = (1..100).collect();
        exchange.tell_listeners(0, &many);
        exchange.tell_listeners(2, &[7, 8]);
        let told = |owner| exchange.listeners(owner).collect::<Vec<u64>>();
        assert_eq!(told(0), many[..LISTENERS_MAX]);
        assert_eq!((told(1), told(2)), (vec![], vec![7, 8]));
        exchange.tell_listeners(0, &[5]);
        assert_eq!((told(0), told(2)), (vec![5], vec![7, 8]));
    }

    #[test]
    fn a_queue_has_no_owner_until_one_is_set() {
        let exchange = Exchange::open(2).expect("opened");
        assert_eq!((exchange.owner(1), exchange.has_forked()), (None, false));
        exchange.set_owner(1, 0);
        exchange.note_fork();
        assert_eq!((exchange.owner(1), exchange.has_forked()), (Some(0), true));
        assert_eq!(Exchange::open(QUEUES_MAX + 1).err(), Some(libc::EINVAL));
    }
}
