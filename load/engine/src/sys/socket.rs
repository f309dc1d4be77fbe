//! Sockets: TCP and UDP over IPv4 and IPv6, and Unix domain.

use super::{check, direct, length};
use std::io;
use std::mem::{size_of, MaybeUninit};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// A descriptor.
pub type Fd = libc::c_int;

/// Where a connection goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP.
    Inet(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl std::fmt::Display for Address {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            // wrk prints IPv6 addresses without brackets, and scripts see this text
            Address::Inet(address) => write!(out, "{}:{}", address.ip(), address.port()),
            Address::Unix(path) => write!(out, "{}", path.display()),
        }
    }
}

/// An address in the form that the kernel takes, made once before the run.
#[derive(Clone, Copy)]
pub struct RawAddress {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl RawAddress {
    /// Whether it is one of IPv6.
    pub fn is_ipv6(&self) -> bool {
        libc::c_int::from(self.storage.ss_family) == libc::AF_INET6
    }

    /// Address and port, if it is one of IP.
    pub fn inet(&self) -> Option<SocketAddr> {
        let family = libc::c_int::from(self.storage.ss_family);
        let pointer: *const libc::sockaddr_storage = &self.storage;
        if family == libc::AF_INET {
            // SAFETY: the family says that this is what is in it; the storage is aligned for it.
            let v4 = unsafe { &*pointer.cast::<libc::sockaddr_in>() };
            let ip = std::net::Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            return Some(SocketAddr::from((ip, u16::from_be(v4.sin_port))));
        }
        if family == libc::AF_INET6 {
            // SAFETY: as above.
            let v6 = unsafe { &*pointer.cast::<libc::sockaddr_in6>() };
            let ip = std::net::Ipv6Addr::from(v6.sin6_addr.s6_addr);
            return Some(SocketAddr::from((ip, u16::from_be(v6.sin6_port))));
        }
        None
    }
}

impl Address {
    /// The form that the kernel takes.
    pub fn raw(&self) -> io::Result<RawAddress> {
        match self {
            Address::Inet(SocketAddr::V4(v4)) => Ok(pack(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            })),
            Address::Inet(SocketAddr::V6(v6)) => Ok(pack(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            })),
            Address::Unix(path) => raw_unix(path),
        }
    }
}

fn raw_unix(path: &std::path::Path) -> io::Result<RawAddress> {
    use std::os::unix::ffi::OsStrExt;
    let mut address = libc::sockaddr_un {
        sun_family: libc::AF_UNIX as libc::sa_family_t,
        sun_path: [0; 108],
    };
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (slot, byte) in address.sun_path.iter_mut().zip(bytes) {
        *slot = *byte as libc::c_char;
    }
    Ok(pack(address))
}

/// Copies an address of one family into the storage for all.
fn pack<A: Copy>(address: A) -> RawAddress {
    assert!(size_of::<A>() <= size_of::<libc::sockaddr_storage>());
    // SAFETY: all zeros is a valid storage.
    let mut storage: libc::sockaddr_storage = unsafe { MaybeUninit::zeroed().assume_init() };
    let target: *mut libc::sockaddr_storage = &mut storage;
    // SAFETY: the storage is large enough (checked above) and aligned for every family.
    unsafe { target.cast::<A>().write(address) };
    RawAddress {
        storage,
        len: size_of::<A>() as libc::socklen_t,
    }
}

/// How far an attempt to connect came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connect {
    /// Connected at once.
    Connected,
    /// Under way; the socket becomes writable when it has ended.
    Pending,
}

/// What a socket carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A stream of bytes: TCP, or a Unix socket.
    Stream,
    /// Datagrams: UDP.
    Datagram,
}

/// A non-blocking socket for `address`.
pub fn open(address: &RawAddress, kind: Kind) -> io::Result<Fd> {
    let kind = match kind {
        Kind::Stream => libc::SOCK_STREAM,
        Kind::Datagram => libc::SOCK_DGRAM,
    };
    let kind = kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers are passed.
    check(unsafe { libc::socket(libc::c_int::from(address.storage.ss_family), kind, 0) })
}

/// Starts to connect.
#[inline]
pub fn connect(fd: Fd, address: &RawAddress) -> io::Result<Connect> {
    let pointer: *const libc::sockaddr_storage = &address.storage;
    // SAFETY: the address is valid for `len` bytes.
    match check(unsafe { libc::connect(fd, pointer.cast(), address.len) }) {
        Ok(_) => Ok(Connect::Connected),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(Connect::Pending),
        Err(error) => Err(error),
    }
}

/// Ends a connection and makes its socket as new, if nothing of the connection is left: both sides
/// have ended it and know of each other's end. False if not, or where a stack cannot do it; then
/// the socket is to be closed.
pub fn end_and_renew(fd: Fd) -> bool {
    // SAFETY: no pointers are passed.
    if unsafe { libc::shutdown(fd, libc::SHUT_WR) } < 0 || !is_over(fd) {
        return false;
    }
    let nowhere = libc::sockaddr {
        sa_family: libc::AF_UNSPEC as libc::sa_family_t,
        sa_data: [0; 14],
    };
    let size = size_of::<libc::sockaddr>() as libc::socklen_t;
    // SAFETY: the address is valid for its size.
    unsafe { libc::connect(fd, &nowhere, size) == 0 }
}

/// Whether the state of a TCP socket is CLOSED.
fn is_over(fd: Fd) -> bool {
    // the first byte of tcp_info is the state, and more is not asked for
    const CLOSED: u8 = 7;
    let mut state: u8 = 0;
    let mut size = size_of::<u8>() as libc::socklen_t;
    let pointer: *mut u8 = &mut state;
    // SAFETY: at most `size` bytes are written to the state.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            pointer.cast(),
            &mut size,
        )
    };
    result == 0 && size == 1 && state == CLOSED
}

/// Sets the source address; the port is chosen when connecting, so that all of them can be used.
pub fn bind_source(fd: Fd, source: IpAddr) -> io::Result<()> {
    set_option(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)?;
    let address = Address::Inet(SocketAddr::new(source, 0)).raw()?;
    let pointer: *const libc::sockaddr_storage = &address.storage;
    // SAFETY: the address is valid for `len` bytes.
    check(unsafe { libc::bind(fd, pointer.cast(), address.len) }).map(drop)
}

/// The addresses of both ends of a TCP connection: ours and the other side's.
pub fn ends(fd: Fd) -> io::Result<(SocketAddr, SocketAddr)> {
    Ok((end(fd, libc::getsockname)?, end(fd, libc::getpeername)?))
}

/// A call that writes the address of an end of a socket.
type EndCall =
    unsafe extern "C" fn(libc::c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> libc::c_int;

fn end(fd: Fd, call: EndCall) -> io::Result<SocketAddr> {
    // SAFETY: all zeros is a valid storage.
    let mut storage: libc::sockaddr_storage = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut size = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    let pointer: *mut libc::sockaddr_storage = &mut storage;
    // SAFETY: at most `size` bytes are written to the storage.
    check(unsafe { call(fd, pointer.cast(), &mut size) })?;
    let inet = RawAddress { storage, len: size }.inet();
    inet.ok_or_else(|| io::Error::other("not a TCP socket"))
}

/// Whether a socket that connects to `address` has met itself: nothing listens there, and the kernel has
/// chosen that very port for this side (RFC 9293, 3.5: both sides open at once).
pub fn meets_itself(fd: Fd, address: &RawAddress) -> bool {
    let (Ok(own), Some(other)) = (end(fd, libc::getsockname), address.inet()) else {
        return false;
    };
    // connects to "any" address go to this machine
    let is_here = own.ip() == other.ip() || other.ip().is_unspecified();
    is_here && own.port() == other.port()
}

/// The same of a connection that is there. It will leave nothing behind: a server that is started again shall
/// find its port free.
pub fn has_met_itself(stream: &TcpStream) -> bool {
    let ends = (stream.local_addr(), stream.peer_addr());
    let is_own = matches!(ends, (Ok(own), Ok(other)) if own == other);
    is_own && set_abort(stream.as_raw_fd()).is_ok()
}

/// Sends each write at once.
#[inline]
pub fn set_no_delay(fd: Fd) -> io::Result<()> {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)
}

fn set_option(fd: Fd, level: i32, name: i32, value: libc::c_int) -> io::Result<()> {
    let pointer: *const libc::c_int = &value;
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option is an int and the pointer is valid for it.
    check(unsafe { libc::setsockopt(fd, level, name, pointer.cast(), size) }).map(drop)
}

/// Makes the next close send RST instead of FIN and keep nothing in TIME_WAIT.
pub fn set_abort(fd: Fd) -> io::Result<()> {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    let pointer: *const libc::linger = &linger;
    let size = size_of::<libc::linger>() as libc::socklen_t;
    // SAFETY: SO_LINGER takes a linger and the pointer is valid for it.
    check(unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, pointer.cast(), size) })
        .map(drop)
}

/// The error that ended a connect, if one did.
pub fn take_error(fd: Fd) -> Option<io::Error> {
    let mut value: libc::c_int = 0;
    let mut size = size_of::<libc::c_int>() as libc::socklen_t;
    let pointer: *mut libc::c_int = &mut value;
    // SAFETY: SO_ERROR writes an int; the pointer is valid for it.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            pointer.cast(),
            &mut size,
        )
    };
    if result < 0 {
        return Some(io::Error::last_os_error());
    }
    (value != 0).then(|| io::Error::from_raw_os_error(value))
}

/// Reads into `buffer`. `recv` and `send` skip what `read` and `write` do for files.
#[inline]
pub fn read(fd: Fd, buffer: &mut [u8]) -> io::Result<usize> {
    if direct::is_usable() {
        return length(direct::receive(fd, buffer));
    }
    // SAFETY: the buffer is writable for its length.
    let n = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    if n < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(n as usize)
}

/// Whether unread bytes have come, also where the other side is gone since.
pub fn has_unread(fd: Fd) -> bool {
    let mut byte = 0_u8;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: the buffer is writable for its one byte.
    let n = unsafe { libc::recv(fd, (&raw mut byte).cast(), 1, flags) };
    n > 0
}

/// Takes up to `bytes` from a TCP socket without copying them anywhere (tcp(7), MSG_TRUNC).
pub fn discard(fd: Fd, bytes: usize) -> io::Result<usize> {
    // SAFETY: with this flag a TCP socket writes nothing; any other kind would find no memory at this
    // address and say so.
    let n = unsafe { libc::recv(fd, std::ptr::null_mut(), bytes, libc::MSG_TRUNC) };
    if n < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(n as usize)
}

/// Lets so many connections wait to be accepted; the standard library's 128 drop a burst, and each
/// drop costs its connection a second.
pub fn set_backlog(listener: Fd, connections: libc::c_int) -> io::Result<()> {
    // SAFETY: no pointers are passed; listening again only changes the length of the queue.
    check(unsafe { libc::listen(listener, connections) }).map(drop)
}

/// Asks the kernel for the time at which it received what is read.
pub fn set_receive_timestamps(fd: Fd) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

/// Room for one control message besides the bytes of a read or a write, aligned as these are.
#[repr(align(8))]
struct Control([u8; 64]);

/// As [`read`], with the time since 1970 at which the kernel received the last of the bytes.
pub fn read_stamped(fd: Fd, buffer: &mut [u8]) -> io::Result<(usize, Option<u64>)> {
    let kind = (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS);
    let (length, time) = read_with::<libc::timespec>(fd, buffer, kind)?;
    let in_ns = |time: libc::timespec| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    Ok((length, time.map(in_ns)))
}

/// As [`read`], with the control message of this level and type, if the kernel gives one; its data is a
/// `T`, which the kernel fills with any bits.
fn read_with<T: Copy>(
    fd: Fd,
    buffer: &mut [u8],
    kind: (libc::c_int, libc::c_int),
) -> io::Result<(usize, Option<T>)> {
    let mut control = Control([0; 64]);
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: all zeros is an empty message head.
    let mut head: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    head.msg_iov = &mut part;
    head.msg_iovlen = 1;
    head.msg_control = control.0.as_mut_ptr().cast();
    head.msg_controllen = control.0.len();
    // SAFETY: the head names one writable buffer and one writable control area, both alive.
    let n = unsafe { libc::recvmsg(fd, &mut head, 0) };
    if n < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has filled the control area and its length.
    let first = unsafe { libc::CMSG_FIRSTHDR(&head) };
    // SAFETY: a first message, if any, lies whole in the control area, which is aligned for it.
    let message = unsafe { first.as_ref() };
    let own = message.filter(|message| (message.cmsg_level, message.cmsg_type) == kind);
    let data = own.map(|_| {
        // SAFETY: a message has its data behind its head; that of this kind is a `T`, which may not be
        // aligned.
        unsafe { libc::CMSG_DATA(first).cast::<T>().read_unaligned() }
    });
    Ok((n as usize, data))
}

/// UDP_SEGMENT and UDP_GRO of linux/udp.h.
const UDP_SEGMENT: libc::c_int = 103;
const UDP_GRO: libc::c_int = 104;

/// Prepares a socket of UDP for QUIC, as far as the kernel can: nothing is fragmented (RFC 9000, 14), and
/// datagrams that follow each other are read together (Linux 5.0).
pub fn set_batches(fd: Fd) {
    let options = [
        (
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_PROBE,
        ),
        // a socket of IPv4 does not know this one
        (
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_PROBE,
        ),
        (libc::SOL_UDP, UDP_GRO, 1),
    ];
    for (level, name, value) in options {
        // without them datagrams come and go one by one, and may be fragmented
        let _ = set_option(fd, level, name, value);
    }
}

/// Reads datagrams that came together: their bytes, and how many each of them has where there are
/// several (the last may have fewer).
pub fn read_batch(fd: Fd, buffer: &mut [u8]) -> io::Result<(usize, Option<usize>)> {
    let (length, each) = read_with::<libc::c_int>(fd, buffer, (libc::SOL_UDP, UDP_GRO))?;
    Ok((length, each.map(|each| each as usize)))
}

/// Writes datagrams of `each` bytes, of which the last may have fewer, by one call.
pub fn write_batch(fd: Fd, bytes: &[u8], each: u16) -> io::Result<()> {
    const SIZE: u32 = size_of::<u16>() as u32;
    let mut control = Control([0; 64]);
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: all zeros is an empty message head.
    let mut head: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    head.msg_iov = &mut part;
    head.msg_iovlen = 1;
    head.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: it computes a size.
    head.msg_controllen = unsafe { libc::CMSG_SPACE(SIZE) } as usize;
    // SAFETY: the control area has room for a message of this size, and is aligned for it.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(&head);
        (*message).cmsg_level = libc::SOL_UDP;
        (*message).cmsg_type = UDP_SEGMENT;
        (*message).cmsg_len = libc::CMSG_LEN(SIZE) as usize;
        libc::CMSG_DATA(message).cast::<u16>().write_unaligned(each);
    }
    // SAFETY: the head names one readable buffer, which is not written to, and one control area, both alive.
    let n = unsafe { libc::sendmsg(fd, &head, libc::MSG_NOSIGNAL) };
    if n < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Writes `bytes`, or the part of them that there is room for.
#[inline]
pub fn write(fd: Fd, bytes: &[u8]) -> io::Result<usize> {
    if direct::is_usable() {
        return length(direct::send(fd, bytes));
    }
    // SAFETY: the bytes are readable for their length.
    let n = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
    if n < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(n as usize)
}

/// Closes a descriptor of ours.
#[inline]
pub fn close(fd: Fd) {
    // SAFETY: callers own the descriptor and forget it.
    unsafe { libc::close(fd) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    fn connected(fd: Fd, listener: &TcpListener) -> (TcpStream, SocketAddr) {
        let own = listener.local_addr().expect("bound");
        let address = Address::Inet(own).raw().expect("an address");
        connect(fd, &address).expect("under way");
        listener.accept().expect("a connection")
    }

    /// A fresh connection that carries one message and is ended by the other side, then by ours;
    /// whether its socket is as new, and the port that it had.
    fn ended(fd: Fd, listener: &TcpListener) -> (bool, SocketAddr) {
        let (mut peer, from) = connected(fd, listener);
        assert_eq!(write(fd, b"one").expect("room"), 3);
        let mut seen = [0; 3];
        peer.read_exact(&mut seen).expect("three bytes");
        peer.shutdown(Shutdown::Write).expect("open");
        let renewed = end_and_renew(fd);
        if !renewed {
            close(fd);
        }
        let end = peer.read(&mut seen).expect("a good end, not a reset");
        assert_eq!(end, 0);
        (renewed, from)
    }

    #[test]
    fn an_ended_connection_leaves_its_socket_for_the_next() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let own = listener.local_addr().expect("bound");
        let address = Address::Inet(own).raw().expect("an address");
        // on a busy machine the last packets may be late, and then the socket is not as new
        let renewed = (0..1000).find_map(|_| {
            let fd = open(&address, Kind::Stream).expect("a socket");
            let (renewed, from) = ended(fd, &listener);
            renewed.then_some((fd, from))
        });
        let (fd, first) = renewed.expect("once in a thousand");
        let (renewed, second) = ended(fd, &listener);
        assert_ne!(first, second, "another connection");
        if renewed {
            close(fd);
        }
    }

    #[test]
    fn what_is_discarded_is_gone_and_the_rest_stays() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let own = listener.local_addr().expect("bound");
        let mut stream = TcpStream::connect(own).expect("it listens");
        let (mut peer, _) = listener.accept().expect("a connection");
        peer.write_all(b"bodyrest").expect("room");
        drop(peer);
        let mut left = 4;
        while left > 0 {
            left -= discard(stream.as_raw_fd(), left).expect("bytes");
        }
        let mut rest = String::new();
        stream.read_to_string(&mut rest).expect("the end");
        assert_eq!(rest, "rest");
        assert_eq!(discard(stream.as_raw_fd(), 9).expect("the end"), 0);
    }

    #[test]
    fn bytes_before_a_reset_are_unread_behind_it() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let own = listener.local_addr().expect("bound");
        let mut stream = TcpStream::connect(own).expect("it listens");
        let (mut peer, _) = listener.accept().expect("a connection");
        assert!(!has_unread(stream.as_raw_fd()));
        peer.write_all(b"refused").expect("room");
        set_abort(peer.as_raw_fd()).expect("an option of every kernel");
        drop(peer);
        while stream.write(b"more").is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(has_unread(stream.as_raw_fd()));
        let mut told = [0; 7];
        stream.read_exact(&mut told).expect("all of it");
        assert_eq!(&told, b"refused");
        assert!(!has_unread(stream.as_raw_fd()));
    }

    #[test]
    fn a_connection_that_the_other_side_has_not_ended_is_not_over() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let own = listener.local_addr().expect("bound");
        let address = Address::Inet(own).raw().expect("an address");
        let fd = open(&address, Kind::Stream).expect("a socket");
        let (mut peer, _) = connected(fd, &listener);
        assert!(!end_and_renew(fd));
        close(fd);
        let patience = Duration::from_secs(30);
        peer.set_read_timeout(Some(patience)).expect("a time");
        assert_eq!(peer.read(&mut [0; 1]).expect("a good end"), 0);
    }

    #[test]
    fn datagrams_that_are_written_together_arrive_one_by_one_and_are_read_together() {
        let peer = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let own = peer.local_addr().expect("bound");
        let address = Address::Inet(own).raw().expect("an address");
        let fd = open(&address, Kind::Datagram).expect("a socket");
        set_batches(fd);
        connect(fd, &address).expect("UDP connects at once");
        write_batch(fd, b"onetwofo", 3).expect("a kernel since 4.18");
        let mut seen = [0; 8];
        let mut from = own;
        for expected in [&b"one"[..], b"two", b"fo"] {
            let (length, sender) = peer.recv_from(&mut seen).expect("a datagram");
            assert_eq!(&seen[..length], expected);
            from = sender;
        }
        // what one call sends arrives as one
        let address = Address::Inet(from).raw().expect("an address");
        connect(peer.as_raw_fd(), &address).expect("UDP connects at once");
        write_batch(peer.as_raw_fd(), b"onetwofo", 3).expect("as above");
        let mut batch = [0; 64];
        let (length, each) = read_batch(fd, &mut batch).expect("there at once on loopback");
        assert_eq!((&batch[..length], each), (&b"onetwofo"[..], Some(3)));
        peer.send(b"x").expect("room");
        assert_eq!(read_batch(fd, &mut batch).expect("as above").0, 1);
        close(fd);
    }

    #[test]
    fn a_socket_that_connects_to_its_own_port_meets_itself() {
        let [one, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a port"));
        let address = |socket: &UdpSocket| socket.local_addr().expect("bound");
        let raw = |address| Address::Inet(address).raw().expect("an address");
        one.connect(address(&one)).expect("UDP connects at once");
        assert!(meets_itself(one.as_raw_fd(), &raw(address(&one))));
        // "any" address is this machine's
        let any = SocketAddr::from(([0, 0, 0, 0], address(&one).port()));
        assert!(meets_itself(one.as_raw_fd(), &raw(any)));
        assert!(!meets_itself(one.as_raw_fd(), &raw(address(&other))));
    }
}
