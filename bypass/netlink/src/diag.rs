//! Queries the kernel for the sockets at a port, and for the listeners to which it would give a
//! connection.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use bypass_sys::address::canonical;
use bypass_sys::descriptor::Owned;
use bypass_sys::kernel::{self, Result};
use bypass_sys::numbers;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NETLINK_SOCK_DIAG: i32 = 4;
const LISTEN_STATE: u32 = 1 << 10;
/// States in which the kernel answers segments of the peer (TCP_ESTABLISHED … of net/tcp_states.h):
/// all but CLOSE and LISTEN.
const CONNECTION_STATES: u32 =
    1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 8 | 1 << 9 | 1 << 11 | 1 << 12;
const ALL_STATES: u32 = u32::MAX;
const V6ONLY_ATTRIBUTE: u16 = 11;

/// A listening TCP socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Inode of its socket file.
    pub inode: u64,
    /// The user who created it.
    pub uid: u32,
    /// Bound address, not canonical.
    pub ip: IpAddr,
    /// Whether it accepts IPv6 only.
    pub v6_only: bool,
    /// Whether it is bound to one interface.
    pub is_bound_to_device: bool,
}

/// The listeners that share connections to `target`, best match first by the kernel's rules: the
/// exact address before the wildcard, IPv4 before a dual-stack wildcard.
pub fn listeners(target: SocketAddr) -> Result<Vec<Listener>> {
    let found = listening(target.port())?;
    Ok(sharing(&found, target.ip()).cloned().collect())
}

/// The listeners of a port that share connections to `target`.
pub fn sharing(all: &[Listener], target: IpAddr) -> impl Iterator<Item = &Listener> {
    let best = all.iter().map(|one| rank(one, target)).max();
    let best = best.filter(|best| *best > 0);
    all.iter()
        .filter(move |one| best == Some(rank(one, target)))
}

/// All listeners of a port.
pub fn listening(port: u16) -> Result<Vec<Listener>> {
    let mut found = Vec::new();
    let sockets = (libc::IPPROTO_TCP, LISTEN_STATE);
    ask(port, sockets, &mut |bytes| {
        found.extend(read_listener(bytes, port));
        true
    })?;
    Ok(found)
}

/// The ports of all listening TCP sockets.
pub fn listening_ports() -> Result<Vec<u16>> {
    let mut found = Vec::new();
    let sockets = (libc::IPPROTO_TCP, LISTEN_STATE);
    ask(0, sockets, &mut |bytes| {
        let port = bytes
            .get(4..6)
            .map(|two| u16::from_be_bytes([two[0], two[1]]));
        found.extend(port);
        true
    })?;
    Ok(found)
}

/// The inodes of all UDP sockets that are bound to a port, connected or not.
pub fn datagram_sockets(port: u16) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    let sockets = (libc::IPPROTO_UDP, ALL_STATES);
    ask(port, sockets, &mut |bytes| {
        found.extend(read_listener(bytes, port).map(|one| one.inode));
        true
    })?;
    Ok(found)
}

/// Whether the kernel has connections of a local port with other hosts, including connections that
/// are being opened or closed, and connections in TIME_WAIT.
pub fn has_connections(port: u16) -> Result<bool> {
    let mut is_found = false;
    let sockets = (libc::IPPROTO_TCP, CONNECTION_STATES);
    ask(port, sockets, &mut |bytes| {
        is_found |= is_far(bytes, port);
        !is_found
    })?;
    Ok(is_found)
}

/// Passes sockets to `found` until it returns false: there may be many.
fn ask(
    port: u16,
    (protocol, states): (i32, u32),
    found: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<()> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    let socket = numbers::high(|| kernel::socket(libc::AF_NETLINK, kind, NETLINK_SOCK_DIAG))?;
    for family in [libc::AF_INET, libc::AF_INET6] {
        if !query(&socket, (family, protocol, states), port, found)? {
            break;
        }
    }
    Ok(())
}

/// Whether it is a connection of `port` whose other end is on another host, by its addresses.
fn is_far(bytes: &[u8], port: u16) -> bool {
    let Some(fixed) = bytes.get(..72) else {
        return false;
    };
    let (own, other) = (&fixed[8..24], &fixed[24..40]);
    let is_loopback = match i32::from(fixed[0]) {
        libc::AF_INET => other[0] == 127,
        _ => own == other,
    };
    u16::from_be_bytes([fixed[4], fixed[5]]) == port && own != other && !is_loopback
}

/// 0: not for this target.
fn rank(one: &Listener, target: IpAddr) -> u32 {
    let own = match one.ip {
        IpAddr::V6(ip) => canonical(ip),
        v4 => v4,
    };
    if own == target {
        return 3;
    }
    match (one.ip, target) {
        (IpAddr::V4(ip), IpAddr::V4(_)) if ip.is_unspecified() => 2,
        (IpAddr::V6(ip), IpAddr::V6(_)) if ip.is_unspecified() => 2,
        (IpAddr::V6(ip), IpAddr::V4(_)) if ip.is_unspecified() && !one.v6_only => 1,
        _ => 0,
    }
}

/// Returns false if no more are needed.
fn query(
    socket: &Owned,
    (family, protocol, states): (i32, i32, u32),
    port: u16,
    found: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<bool> {
    let mut request = [0u8; 72];
    request[..4].copy_from_slice(&72u32.to_ne_bytes());
    request[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    request[6..8].copy_from_slice(&flags.to_ne_bytes());
    request[16] = family as u8;
    request[17] = protocol as u8;
    request[20..24].copy_from_slice(&states.to_ne_bytes());
    request[24..26].copy_from_slice(&port.to_be_bytes());
    kernel::write(socket.0, &request)?;
    let mut answer = vec![0u8; 32_768];
    loop {
        let count = kernel::read(socket.0, &mut answer)?;
        match read_messages(&answer[..count], found)? {
            Rest::Comes => {}
            rest => return Ok(rest == Rest::None),
        }
    }
}

/// Whether more messages follow.
#[derive(PartialEq)]
enum Rest {
    Comes,
    None,
    Unwanted,
}

fn read_messages(bytes: &[u8], found: &mut dyn FnMut(&[u8]) -> bool) -> Result<Rest> {
    let mut rest = bytes;
    while rest.len() >= 16 {
        let length = u32_at(rest, 0) as usize;
        let kind = i32::from(u16::from_ne_bytes([rest[4], rest[5]]));
        if length < 16 || length > rest.len() {
            return Err(libc::EPROTO);
        }
        match kind {
            libc::NLMSG_DONE => return Ok(Rest::None),
            libc::NLMSG_ERROR => return Err(-(u32_at(rest, 16) as i32)),
            _ if !found(&rest[16..length]) => return Ok(Rest::Unwanted),
            _ => {}
        }
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
    }
    Ok(Rest::Comes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
}

fn read_listener(bytes: &[u8], port: u16) -> Option<Listener> {
    let fixed = bytes.get(..72)?;
    if u16::from_be_bytes([fixed[4], fixed[5]]) != port {
        return None;
    }
    let octets: [u8; 16] = fixed[8..24].try_into().ok()?;
    let ip = match i32::from(fixed[0]) {
        libc::AF_INET => IpAddr::from([octets[0], octets[1], octets[2], octets[3]]),
        _ => IpAddr::V6(Ipv6Addr::from(octets)),
    };
    Some(Listener {
        inode: u64::from(u32_at(fixed, 68)),
        uid: u32_at(fixed, 64),
        ip,
        v6_only: attribute(&bytes[72..], V6ONLY_ATTRIBUTE).is_some_and(|value| value != 0),
        is_bound_to_device: u32_at(fixed, 40) != 0,
    })
}

fn attribute(bytes: &[u8], wanted: u16) -> Option<u8> {
    let mut rest = bytes;
    while rest.len() >= 4 {
        let length = usize::from(u16::from_ne_bytes([rest[0], rest[1]]));
        if length < 4 || length > rest.len() {
            return None;
        }
        if u16::from_ne_bytes([rest[2], rest[3]]) == wanted {
            return rest[4..length].first().copied();
        }
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};
    use std::os::fd::AsRawFd;

    fn inode(listener: &TcpListener) -> u64 {
        kernel::fstat(listener.as_raw_fd()).expect("open").st_ino
    }

    #[test]
    fn the_exact_address_beats_the_wildcard() {
        let wild = TcpListener::bind("0.0.0.0:0").expect("a port");
        let port = wild.local_addr().expect("bound").port();
        let found = listeners(SocketAddr::from(([127, 0, 0, 1], port))).expect("an answer");
        assert_eq!(
            found.iter().map(|one| one.inode).collect::<Vec<_>>(),
            [inode(&wild)]
        );
        assert_eq!(found[0].uid, kernel::geteuid().expect("a number") as u32);
        let exact = TcpListener::bind("127.0.0.2:0").expect("a port");
        let address = exact.local_addr().expect("bound");
        let found = listeners(address).expect("an answer");
        assert_eq!(
            found.iter().map(|one| one.inode).collect::<Vec<_>>(),
            [inode(&exact)]
        );
        let elsewhere = SocketAddr::from(([127, 0, 0, 3], address.port()));
        assert!(listeners(elsewhere).expect("an answer").is_empty());
    }

    #[test]
    fn every_socket_of_a_udp_port_is_found() {
        let own = |socket: &UdpSocket| kernel::fstat(socket.as_raw_fd()).expect("open").st_ino;
        let wild = UdpSocket::bind("0.0.0.0:0").expect("a port");
        let port = wild.local_addr().expect("bound").port();
        assert_eq!(datagram_sockets(port).expect("an answer"), [own(&wild)]);
        let one = UdpSocket::bind("127.0.0.2:0").expect("a port");
        let port = one.local_addr().expect("bound").port();
        let other = UdpSocket::bind(("127.0.0.3", port)).expect("the same port at another address");
        other.connect(("127.0.0.1", 9)).expect("connected");
        // Another program may have the port at an address of its own.
        let found = datagram_sockets(port).expect("an answer");
        assert!(found.contains(&own(&one)) && found.contains(&own(&other)));
    }

    #[test]
    fn a_dual_stack_wildcard_takes_ipv4() {
        let Ok(dual) = TcpListener::bind("[::]:0") else {
            return;
        };
        let port = dual.local_addr().expect("bound").port();
        let found = listeners(SocketAddr::from(([127, 0, 0, 1], port))).expect("an answer");
        assert_eq!(found.first().map(|one| one.inode), Some(inode(&dual)));
    }
}
