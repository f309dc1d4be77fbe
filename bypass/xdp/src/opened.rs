//! An AF_XDP socket of one queue with its memory: made with privilege, then passed to other processes.

use std::sync::Arc;

use bypass_device::packet::Sender;
use bypass_sys::descriptor::Owned;
use bypass_sys::kernel::{self, Result};
use bypass_sys::network;
use bypass_sys::numbers;

use crate::rings::{RingMemory, Sizes};
use crate::sys::frames::Frames;

/// Room that the kernel keeps in front of a received frame (XDP_PACKET_HEADROOM).
const HEADROOM: u32 = 256;
const ETHERNET: u32 = 14;
/// Longest IP packet that a device takes at once.
const IP_MAX: u32 = 65_535;
const CHUNKS: [u32; 2] = [2048, 4096];
/// A bind just after the former owner's death is refused for a moment: a thread of the kernel's lets go of the queue, which
/// on a busy machine gets its turn late.
const BINDS_MAX: u32 = 500;
const BIND_PAUSE: core::time::Duration = core::time::Duration::from_millis(2);
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;

/// How a socket is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Frames that wait for the program at most; a power of two.
    pub receive: u32,
    /// Frames on their way out at most; a power of two.
    pub send: u32,
    /// Ask the driver to work while we look, for up to so many microseconds; 0 for not.
    pub busy_poll_us: u32,
    /// Demand zero-copy; else the driver does it when it can.
    pub zero_copy: bool,
    /// Demand copies, also of a driver that could do without.
    pub copies: bool,
    /// Checksums may have been left to a device: see [`Layout`].
    pub partial_checksums: bool,
    /// Open a way to send by AF_PACKET too, for GSO segments.
    pub packet_sender: bool,
    /// Take frames above the MTU: in generic mode a sender on this host (veth) leaves GSO segments of
    /// segments uncut. The program must take fragments.
    pub takes_gso: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            receive: RECEIVE_ALL,
            send: 2048,
            busy_poll_us: 0,
            zero_copy: false,
            copies: false,
            partial_checksums: true,
            packet_sender: false,
            takes_gso: false,
        }
    }
}

/// Frames that wait at all queues of an interface together, and at each at least.
const RECEIVE_ALL: u32 = 8192;
const RECEIVE_MIN: u32 = 256;
/// Frames that wait at each queue at most where little memory may be locked.
const RECEIVE_FRUGAL: u32 = 2048;
/// Frames on their way out of a queue that sends nothing.
const SEND_NONE: u32 = 64;
/// Those of all queues but the first together, where each has an owner of its own, and of each at least.
const SEND_ALL: u32 = 4096;
const SEND_MIN: u32 = 256;

impl Settings {
    /// Of queue `queue`, where one process uses `queues` of them: all is sent through the first, and fewer
    /// frames wait at each of many.
    pub fn for_queue(self, queue: u32, queues: u32) -> Self {
        let share = RECEIVE_ALL / queues.clamp(1, RECEIVE_ALL).next_power_of_two();
        let most = self.receive.max(RECEIVE_MIN);
        Self {
            receive: share.clamp(RECEIVE_MIN, most),
            send: if queue == 0 { self.send } else { SEND_NONE },
            packet_sender: self.packet_sender && queue == 0,
            ..self
        }
    }
}

impl Settings {
    /// Of queue `queue`, where each of `queues` may have a process of its own, which sends through it too.
    pub fn for_owner(self, queue: u32, queues: u32) -> Self {
        let share = SEND_ALL / queues.clamp(1, SEND_ALL).next_power_of_two();
        let send = share.clamp(SEND_MIN, self.send.max(SEND_MIN));
        Self {
            send: if queue == 0 { self.send } else { send },
            packet_sender: self.packet_sender,
            ..self.for_queue(queue, queues)
        }
    }

    /// With places for no more received frames than are needed: a burst loses more, and less memory is locked.
    pub fn frugal(self) -> Self {
        Self {
            receive: self.receive.min(RECEIVE_FRUGAL),
            ..self
        }
    }
}

/// What a process needs to know to use a socket that another has opened; plain numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Interface index.
    pub link: u32,
    /// Its queue.
    pub queue: u32,
    /// Its MTU.
    pub mtu: u32,
    /// Bytes of a frame's place.
    pub chunk: u32,
    /// Entries of the rings for receiving.
    pub receive: u32,
    /// Entries of the rings for sending.
    pub send: u32,
    /// See [`Settings`].
    pub busy_poll_us: u32,
    /// A frame may lie in several chunks.
    pub has_fragments: bool,
    /// Frames of a sender on this host may come with checksums that are not complete.
    pub has_partial_checksums: bool,
}

impl Layout {
    /// Words of the [`encode`](Self::encode)d form.
    const WORDS: usize = 9;

    /// Bytes, for the process that it is passed to.
    pub fn encode(&self) -> [u8; 4 * Self::WORDS] {
        let words = [
            self.link,
            self.queue,
            self.mtu,
            self.chunk,
            self.receive,
            self.send,
            self.busy_poll_us,
            u32::from(self.has_fragments),
            u32::from(self.has_partial_checksums),
        ];
        let mut bytes = [0; 4 * Self::WORDS];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Reads [`encode`](Self::encode)d bytes; None for what no interface has.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 4 * Self::WORDS] = bytes.try_into().ok()?;
        let word = |at: usize| {
            let four = [
                bytes[at * 4],
                bytes[at * 4 + 1],
                bytes[at * 4 + 2],
                bytes[at * 4 + 3],
            ];
            u32::from_ne_bytes(four)
        };
        let layout = Self {
            link: word(0),
            queue: word(1),
            mtu: word(2),
            chunk: word(3),
            receive: word(4),
            send: word(5),
            busy_poll_us: word(6),
            has_fragments: word(7) != 0,
            has_partial_checksums: word(8) != 0,
        };
        let rings = [layout.receive, layout.send];
        let is_sane = CHUNKS.contains(&layout.chunk)
            && rings
                .iter()
                .all(|size| size.is_power_of_two() && *size <= 1 << 20);
        is_sane.then_some(layout)
    }

    /// Frames in all.
    pub fn frames(&self) -> u32 {
        self.receive + self.send
    }

    pub(crate) fn sizes(&self) -> Sizes {
        Sizes {
            receive: self.receive,
            send: self.send,
        }
    }

    /// Memory that the kernel locks.
    pub fn bytes(&self) -> usize {
        self.frames() as usize * self.chunk as usize
    }

    /// Largest IP packet whose frame has room in its places, whatever the interface carries later.
    pub fn mtu_max(&self) -> u32 {
        match self.has_fragments {
            true => IP_MAX,
            false => self.chunk - HEADROOM - ETHERNET,
        }
    }

    /// Of a socket on a queue of `link`; None for settings that none can have.
    pub fn of(link: &bypass_netlink::Link, queue: u32, settings: Settings) -> Option<Self> {
        let needs = link.mtu + ETHERNET + HEADROOM;
        let chunk = CHUNKS.into_iter().find(|chunk| needs <= *chunk);
        let layout = Self {
            link: link.index,
            queue,
            mtu: link.mtu,
            chunk: chunk.unwrap_or(CHUNKS[1]),
            receive: settings.receive,
            send: settings.send,
            busy_poll_us: settings.busy_poll_us,
            has_fragments: chunk.is_none() || settings.takes_gso,
            has_partial_checksums: settings.partial_checksums,
        };
        Self::decode(&layout.encode())
    }
}

/// See the module.
#[derive(Debug)]
pub struct Opened {
    pub(crate) layout: Layout,
    pub(crate) socket: Owned,
    pub(crate) memory: Owned,
    pub(crate) packet: Option<Sender>,
    /// Mapped before the socket was bound, which Linux demands before 6.4; None in a process that was passed it.
    pub(crate) rings: Option<Arc<RingMemory>>,
}

impl Opened {
    /// Opens a socket on a queue of an interface. Needs CAP_NET_RAW, and CAP_IPC_LOCK or a memlock
    /// limit of the memory's size.
    pub fn open(link: &bypass_netlink::Link, queue: u32, settings: Settings) -> Result<Self> {
        let layout = Layout::of(link, queue, settings).ok_or(libc::EINVAL)?;
        let bytes = layout.bytes();
        if bytes > kernel::file_size_limit() {
            // Beyond it ftruncate(2) would end the process by SIGXFSZ.
            return Err(libc::EFBIG);
        }
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        let socket = numbers::high(|| kernel::socket(libc::AF_XDP, kind, 0))?;
        let memory = numbers::high(|| kernel::memfd_create(c"wirespeed-frames"))?;
        kernel::ftruncate(memory.0, bytes)?;
        register(socket.0, memory.0, &layout)?;
        set_busy_poll(socket.0, settings.busy_poll_us)?;
        let rings = RingMemory::map(socket.0, layout.sizes())?;
        // Drivers with zero-copy ask once for frames to receive into, as the socket is bound.
        fill(&rings, &layout)?;
        bind(socket.0, &layout, settings)?;
        let packet = match settings.packet_sender {
            true => Some(Sender::open(link.index, link.mtu).map_err(|_| libc::EPERM)?),
            false => None,
        };
        Ok(Self {
            layout,
            socket,
            memory,
            packet,
            rings: Some(Arc::new(rings)),
        })
    }

    /// One that somebody else has opened: socket, memory and, if there is one, the packet socket.
    pub fn of(layout: Layout, fds: Vec<Owned>) -> Result<Self> {
        let mut fds = fds.into_iter();
        let (Some(socket), Some(memory)) = (fds.next(), fds.next()) else {
            return Err(libc::EINVAL);
        };
        let size = kernel::fstat(memory.0)?.st_size as u64;
        if size != u64::from(layout.frames()) * u64::from(layout.chunk) {
            return Err(libc::EINVAL);
        }
        let packet = fds.next().map(|fd| Sender::of(fd, layout.mtu));
        Ok(Self {
            layout,
            socket,
            memory,
            packet,
            rings: None,
        })
    }

    /// The descriptors, for passing on: [`of`](Self::of) takes them in this order.
    pub fn descriptors(&self) -> Vec<i32> {
        let packet = self.packet.as_ref().map(Sender::fd);
        [self.socket.0, self.memory.0]
            .into_iter()
            .chain(packet)
            .collect()
    }

    /// The same with descriptors of its own.
    pub fn again(&self) -> Result<Self> {
        let fds: Result<Vec<Owned>> = self
            .descriptors()
            .into_iter()
            .map(numbers::duplicate)
            .collect();
        Ok(Self {
            rings: self.rings.clone(),
            ..Self::of(self.layout, fds?)?
        })
    }

    /// See [`Layout`].
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The socket, for [`Steering::set_socket`](crate::Steering::set_socket).
    pub fn socket(&self) -> i32 {
        self.socket.0
    }

    /// The memory's, which is closed once a device has it mapped.
    pub fn memory(&self) -> i32 {
        self.memory.0
    }

    /// Whether frames pass without a copy.
    pub fn is_zero_copy(&self) -> bool {
        let mut flags = [0; 4];
        network::option(self.socket.0, libc::SOL_XDP, libc::XDP_OPTIONS, &mut flags)
            .is_ok_and(|_| u32::from_ne_bytes(flags) & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }
}

fn register(socket: i32, memory: i32, layout: &Layout) -> Result<()> {
    // Mapped for the registration only: the kernel keeps the pages.
    let frames = Frames::map(memory, layout.frames(), layout.chunk)?;
    let (base, length) = frames.place();
    let mut request = [0u8; 32];
    request[..8].copy_from_slice(&(base as u64).to_ne_bytes());
    request[8..16].copy_from_slice(&(length as u64).to_ne_bytes());
    request[16..20].copy_from_slice(&layout.chunk.to_ne_bytes());
    kernel::set_option(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &request)?;
    for (ring, size) in [
        (libc::XDP_UMEM_FILL_RING, layout.receive),
        (libc::XDP_UMEM_COMPLETION_RING, layout.send),
        (libc::XDP_RX_RING, layout.receive),
        (libc::XDP_TX_RING, layout.send),
    ] {
        kernel::set_option_int(socket, libc::SOL_XDP, ring, size as i32)?;
    }
    Ok(())
}

fn set_busy_poll(socket: i32, us: u32) -> Result<()> {
    if us == 0 {
        return Ok(());
    }
    for (option, value) in [
        (SO_PREFER_BUSY_POLL, 1),
        (libc::SO_BUSY_POLL, us as i32),
        (SO_BUSY_POLL_BUDGET, 64),
    ] {
        kernel::set_option_int(socket, libc::SOL_SOCKET, option, value)?;
    }
    Ok(())
}

/// Whether the kernel's sockets take frames that lie in several buffers (Linux 6.6). Of an interface that cannot be, it
/// says so only once it has understood the flags.
pub(crate) fn takes_scattered_frames() -> bool {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    let Ok(socket) = numbers::high(|| kernel::socket(libc::AF_XDP, kind, 0)) else {
        // Without the right to have one: what this kernel is like is not known, and the next one has it.
        return true;
    };
    let name = name_of(libc::XDP_USE_SG, i32::MAX as u32, 0);
    kernel::bind(socket.0, &name) == Err(libc::ENODEV)
}

/// `struct sockaddr_xdp`.
fn name_of(flags: u16, link: u32, queue: u32) -> [u8; 16] {
    let mut name = [0u8; 16];
    name[..2].copy_from_slice(&(libc::AF_XDP as u16).to_ne_bytes());
    name[2..4].copy_from_slice(&flags.to_ne_bytes());
    name[4..8].copy_from_slice(&link.to_ne_bytes());
    name[8..12].copy_from_slice(&queue.to_ne_bytes());
    name
}

fn bind(socket: i32, layout: &Layout, settings: Settings) -> Result<()> {
    let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
    let flags = libc::XDP_USE_NEED_WAKEUP
        | flag(settings.zero_copy, libc::XDP_ZEROCOPY)
        | flag(settings.copies, libc::XDP_COPY)
        | flag(layout.has_fragments, libc::XDP_USE_SG);
    let name = name_of(flags, layout.link, layout.queue);
    for _ in 1..BINDS_MAX {
        match kernel::bind(socket, &name) {
            Err(libc::EBUSY) => std::thread::sleep(BIND_PAUSE),
            other => return other.map(|_| ()),
        }
    }
    kernel::bind(socket, &name).map(|_| ())
}

/// Gives the kernel the first frames to receive into.
fn fill(rings: &RingMemory, layout: &Layout) -> Result<()> {
    let mut fill = rings.fill(layout.sizes())?;
    for index in 0..layout.receive {
        fill.push(u64::from(index) * u64::from(layout.chunk));
    }
    fill.publish();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(settings: Settings, queues: u32) -> u32 {
        let each = (0..queues).map(|queue| settings.for_queue(queue, queues).receive);
        each.sum()
    }

    /// Thousands of connections that open at once are as many frames, however few queues they come on.
    #[test]
    fn as_many_frames_wait_at_one_queue_as_at_several() {
        let usual = Settings::default();
        assert_eq!(
            [1, 2, 4, 8].map(|queues| received(usual, queues)),
            [8192; 4]
        );
        assert_eq!(received(usual, 64), 64 * 256);
        let frugal = [1, 2, 4, 8].map(|queues| received(usual.frugal(), queues));
        assert_eq!(frugal, [2048, 4096, 8192, 8192]);
    }
}
