//! How two processes meet: rendezvous sockets with [names](Name), and short messages with descriptors.
//!
//! A link is a connected pair of sequenced-packet sockets, one in each process. It carries a few
//! messages and is then kept open for what its end means: the other process is gone.

use bypass_sys::clock::now_ns;
use bypass_sys::descriptor::Owned;
use bypass_sys::directory;
use bypass_sys::kernel::{self, Result};
use bypass_sys::numbers;
use bypass_sys::waker::Name;

/// Version of the conversation; others are refused, and the connection goes to the kernel.
pub const VERSION: u64 = 12;
/// Descriptors in one message.
pub const FDS_MAX: usize = 64;
const WORDS: usize = 6;
const CONTROL: usize = 16 + 4 * FDS_MAX;

/// A message: numbers only, descriptors travel with them.
#[allow(missing_docs, reason = "the variants say what their numbers are")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// Client to a listener's rendezvous socket, with a segment.
    Greet { version: u64, client: u64 },
    /// The answer, with a descriptor that names the listening socket as proof.
    Welcome,
    /// The answer when it cannot be.
    Refuse { reason: u64 },
    /// A holder that has taken a segment, to the client's rendezvous socket.
    Adopted {
        segment: u64,
        side: u64,
        index: u64,
        process: u64,
    },
    /// One holder to another's rendezvous socket, with a segment of the listener `inode`.
    Forward { inode: u64 },
    /// A new holder asks the others for the segments of listener `inode`.
    Share { inode: u64, process: u64 },
    /// A content that may be shared without copying on connections of a segment, under this number; with its memory.
    Lend { number: u64 },
    /// A process that was sent a connection's shadow asks its sender for the connection.
    Take { inode: u64, version: u64 },
    /// The same of a process that has only looked at the message (MSG_PEEK): it is to be received still.
    Look { inode: u64, version: u64 },
    /// The answer, with the segment.
    Give {
        slot: u64,
        side: u64,
        family: u64,
        flags: u64,
        linger_s: u64,
    },
    /// The receiver holds it now. The sender ends the link when it has let go of what it kept.
    Taken,
    /// A process that holds the listener but not its rendezvous socket asks for the rendezvous socket and the holder table.
    Join { inode: u64, version: u64 },
    /// A program asks another of its cluster for the interface that they share.
    JoinCluster { version: u64 },
    /// The answer, several times: with what it was opened with, of which so many descriptors are still to come.
    Interface { left: u64 },
}

impl Message {
    fn words(self) -> [u64; WORDS] {
        match self {
            Self::Greet { version, client } => [1, version, client, 0, 0, 0],
            Self::Welcome => [2, 0, 0, 0, 0, 0],
            Self::Refuse { reason } => [3, reason, 0, 0, 0, 0],
            Self::Adopted {
                segment,
                side,
                index,
                process,
            } => [4, segment, side, index, process, 0],
            Self::Forward { inode } => [5, inode, 0, 0, 0, 0],
            Self::Share { inode, process } => [6, inode, process, 0, 0, 0],
            Self::Lend { number } => [8, number, 0, 0, 0, 0],
            Self::Take { inode, version } => [9, inode, version, 0, 0, 0],
            Self::Give {
                slot,
                side,
                family,
                flags,
                linger_s,
            } => [10, slot, side, family, flags, linger_s],
            Self::Taken => [11, 0, 0, 0, 0, 0],
            Self::Join { inode, version } => [7, inode, version, 0, 0, 0],
            Self::JoinCluster { version } => [12, version, 0, 0, 0, 0],
            Self::Interface { left } => [13, left, 0, 0, 0, 0],
            Self::Look { inode, version } => [14, inode, version, 0, 0, 0],
        }
    }

    fn from_words(words: [u64; WORDS]) -> Option<Self> {
        let [kind, a, b, c, d, e] = words;
        Some(match kind {
            1 => Self::Greet {
                version: a,
                client: b,
            },
            2 => Self::Welcome,
            3 => Self::Refuse { reason: a },
            4 => Self::Adopted {
                segment: a,
                side: b,
                index: c,
                process: d,
            },
            5 => Self::Forward { inode: a },
            6 => Self::Share {
                inode: a,
                process: b,
            },
            7 => Self::Join {
                inode: a,
                version: b,
            },
            8 => Self::Lend { number: a },
            9 => Self::Take {
                inode: a,
                version: b,
            },
            10 => Self::Give {
                slot: a,
                side: b,
                family: c,
                flags: d,
                linger_s: e,
            },
            11 => Self::Taken,
            12 => Self::JoinCluster { version: a },
            13 => Self::Interface { left: a },
            14 => Self::Look {
                inode: a,
                version: b,
            },
            _ => return None,
        })
    }
}

const KIND: i32 = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;

/// Opens a rendezvous socket under `name`.
pub fn open_rendezvous(name: &Name) -> Result<Owned> {
    let rendezvous = numbers::high(|| kernel::socket(libc::AF_UNIX, KIND, 0))?;
    match name.bind(rendezvous.0) {
        // A file outlives its process.
        Err(libc::EADDRINUSE) if name.file().is_some_and(directory::remove_stale) => {
            name.bind(rendezvous.0)?;
        }
        bound => bound?,
    }
    kernel::listen(rendezvous.0, 1024)?;
    Ok(rendezvous)
}

/// Connects; the queue of a rendezvous socket that no process serves fills up, then this fails with EAGAIN. ECONNREFUSED:
/// there is none of this name, or its directory is out of reach, and whoever asks must do without it for ever.
pub fn connect(name: &Name) -> Result<Owned> {
    let link = numbers::high(|| kernel::socket(libc::AF_UNIX, KIND, 0))?;
    match kernel::connect(link.0, name.bytes()) {
        Err(libc::ENOENT) => Err(libc::ECONNREFUSED),
        Err(libc::EACCES) if name.file().is_some() => Err(libc::ECONNREFUSED),
        other => other.map(|_| link),
    }
}

/// Takes whoever connects; the rendezvous socket does not block.
pub fn answer(rendezvous: i32) -> Result<Owned> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    numbers::high(|| kernel::accept(rendezvous, flags))
}

#[repr(C, align(8))]
struct Control([u8; CONTROL]);

/// Sends a message with descriptors.
pub fn send(link: i32, message: Message, fds: &[i32]) -> Result<()> {
    let words = message.words();
    let mut piece = libc::iovec {
        iov_base: words.as_ptr().cast_mut().cast(),
        iov_len: size_of_val(&words),
    };
    let mut control = Control([0; CONTROL]);
    // SAFETY: all zero is a valid header without anything.
    let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = &mut piece;
    header.msg_iovlen = 1;
    if !fds.is_empty() && fds.len() <= FDS_MAX {
        let length = 16 + 4 * fds.len();
        control.0[..8].copy_from_slice(&length.to_ne_bytes());
        control.0[8..12].copy_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
        control.0[12..16].copy_from_slice(&libc::SCM_RIGHTS.to_ne_bytes());
        for (index, fd) in fds.iter().enumerate() {
            control.0[16 + 4 * index..][..4].copy_from_slice(&fd.to_ne_bytes());
        }
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = length.next_multiple_of(8);
    }
    let flags = (libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) as usize;
    let arguments = [link as usize, &header as *const _ as usize, flags, 0, 0, 0];
    // SAFETY: the header points at words and control, which live on this frame.
    kernel::check(unsafe { kernel::raw(libc::SYS_sendmsg, arguments) })?;
    Ok(())
}

/// Receives one message with its descriptors; EAGAIN when there is none, EPIPE at the end.
pub fn receive(link: i32) -> Result<(Message, Vec<Owned>)> {
    let mut words = [0u64; WORDS];
    let mut piece = libc::iovec {
        iov_base: words.as_mut_ptr().cast(),
        iov_len: size_of_val(&words),
    };
    let mut control = Control([0; CONTROL]);
    // SAFETY: all zero is a valid header without anything.
    let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = &mut piece;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len();
    let flags = (libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) as usize;
    let arguments = [
        link as usize,
        &mut header as *mut _ as usize,
        flags,
        0,
        0,
        0,
    ];
    let count = numbers::low(|| {
        // SAFETY: the header points at words and control, which live on this frame.
        let count = kernel::check(unsafe { kernel::raw(libc::SYS_recvmsg, arguments) });
        let received = &mut control.0[..header.msg_controllen.min(CONTROL)];
        change_received(received, |fd| {
            numbers::move_high(fd).map_or(-1, Owned::into_raw)
        });
        count
    })?;
    let mut fds = Vec::new();
    change_received(&mut control.0[..header.msg_controllen.min(CONTROL)], |fd| {
        fds.extend((fd >= 0).then_some(Owned(fd)));
        fd
    });
    if count == 0 {
        return Err(libc::EPIPE);
    }
    let message = (count == size_of_val(&words))
        .then(|| Message::from_words(words))
        .flatten();
    message.map(|message| (message, fds)).ok_or(libc::EPROTO)
}

/// Changes the numbers of the descriptors that have come.
fn change_received(control: &mut [u8], mut change: impl FnMut(i32) -> i32) {
    let mut rest = control;
    while rest.len() >= 16 {
        let length = usize::from_ne_bytes(rest[..8].try_into().unwrap_or_default());
        let is_rights = rest[8..12] == libc::SOL_SOCKET.to_ne_bytes()
            && rest[12..16] == libc::SCM_RIGHTS.to_ne_bytes();
        if length < 16 || length > rest.len() {
            break;
        }
        if is_rights {
            for place in rest[16..length].chunks_exact_mut(4) {
                let number = i32::from_ne_bytes(place.try_into().unwrap_or([255; 4]));
                place.copy_from_slice(&change(number).to_ne_bytes());
            }
        }
        let next = length.next_multiple_of(8).min(rest.len());
        rest = &mut rest[next..];
    }
}

/// One look at a link lasts so long. Many short ones and not a long one: when the whole machine stands
/// still for a while, the other side has not had that time either, and only one look is over by it.
const LOOK_MS: u64 = 50;

/// Receives, waiting up to `wait_ms`.
pub fn receive_within(link: i32, wait_ms: u64) -> Result<(Message, Vec<Owned>)> {
    let mut fds = [libc::pollfd {
        fd: link,
        events: libc::POLLIN,
        revents: 0,
    }];
    let look = core::time::Duration::from_millis(LOOK_MS);
    for _ in 0..wait_ms.div_ceil(LOOK_MS) {
        if kernel::poll(&mut fds, Some(look), None)? > 0 {
            return receive(link);
        }
    }
    Err(libc::ETIMEDOUT)
}

/// Says something and waits up to `wait_ms` for the answer, whatever signals come.
pub fn ask(
    link: i32,
    message: Message,
    fds: &[i32],
    wait_ms: u64,
) -> Result<(Message, Vec<Owned>)> {
    send(link, message, fds)?;
    loop {
        match receive_within(link, wait_ms) {
            Err(libc::EINTR) => {}
            other => return other,
        }
    }
}

/// So many who serve a rendezvous socket are asked in a row.
const CALLS_MAX: u32 = 4;

/// As [`ask`], over a link that `call` makes; once more where whoever has taken the call ends before it answers, as
/// another process may serve the same rendezvous socket, all within `wait_ms`. With the link over which the answer came.
pub fn ask_any(
    call: impl Fn() -> Result<Owned>,
    message: Message,
    fds: &[i32],
    wait_ms: u64,
) -> Result<(Owned, Message, Vec<Owned>)> {
    let (since, mut calls) = (now_ns(), 0);
    loop {
        let link = call()?;
        calls += 1;
        let left_ms = || wait_ms.saturating_sub((now_ns() - since) / 1_000_000);
        match ask(link.0, message, fds, left_ms()) {
            Err(libc::EPIPE | libc::ECONNRESET) if calls < CALLS_MAX && left_ms() > 0 => {}
            other => return other.map(|(answer, fds)| (link, answer, fds)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_carry_descriptors_and_the_end_is_seen() {
        let name = Name::of_process(kernel::random());
        let rendezvous = open_rendezvous(&name).expect("a rendezvous socket");
        let link = connect(&name).expect("open");
        let other = answer(rendezvous.0).expect("somebody called");
        let message = Message::Greet {
            version: VERSION,
            client: 9,
        };
        send(link.0, message, &[rendezvous.0, link.0]).expect("sent");
        let (got, fds) = receive(other.0).expect("received");
        assert_eq!((got, fds.len()), (message, 2));
        let inode = |fd| kernel::fstat(fd).expect("open").st_ino;
        assert_eq!(inode(fds[0].0), inode(rendezvous.0));
        assert_eq!(receive(other.0).err(), Some(libc::EAGAIN));
        drop((fds, link));
        assert_eq!(receive(other.0).err(), Some(libc::EPIPE));
    }

    #[test]
    fn a_message_of_another_shape_is_refused() {
        let name = Name::of_process(kernel::random());
        let rendezvous = open_rendezvous(&name).expect("a rendezvous socket");
        let link = connect(&name).expect("open");
        let other = answer(rendezvous.0).expect("somebody called");
        for bytes in [&[1u8; 3][..], &[255; 48], &[0; 48], &[7; 200]] {
            kernel::write(link.0, bytes).expect("sent");
            assert_eq!(receive(other.0).err(), Some(libc::EPROTO));
        }
    }

    #[test]
    fn another_one_is_asked_where_the_first_ends_before_it_answers() {
        const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
        let name = Name::of_process(kernel::random());
        let rendezvous = open_rendezvous(&name).expect("a rendezvous socket");
        let caller = || {
            let since = std::time::Instant::now();
            loop {
                match answer(rendezvous.0) {
                    Err(libc::EAGAIN) if since.elapsed() < PATIENCE => std::thread::yield_now(),
                    other => return other.expect("somebody calls"),
                }
            }
        };
        let ask = || ask_any(|| connect(&name), Message::Taken, &[], 60_000);
        std::thread::scope(|scope| {
            let asking = scope.spawn(ask);
            drop(caller());
            let second = caller();
            send(second.0, Message::Welcome, &[]).expect("sent");
            let (_, word, _) = asking.join().expect("no panic").expect("an answer");
            assert_eq!(word, Message::Welcome);
        });
    }
}
