//! Addresses of TCP sockets in canonical form: an IPv4 address stays IPv4 even on an IPv6 socket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};

/// Reads an address as a program passes it: None unless it is complete IPv4 or IPv6.
pub fn from_bytes(bytes: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]));
    let port = u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]);
    match family {
        libc::AF_INET => {
            let octets: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            (bytes.len() >= 16).then(|| SocketAddr::new(IpAddr::V4(Ipv4Addr::from(octets)), port))
        }
        libc::AF_INET6 => {
            let octets: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            Some(SocketAddr::new(canonical(Ipv6Addr::from(octets)), port))
        }
        _ => None,
    }
}

/// v4-mapped addresses are IPv4.
pub fn canonical(ip: Ipv6Addr) -> IpAddr {
    ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4)
}

/// Writes an address as a socket of `family` shows it; returns the length.
pub fn to_bytes(address: SocketAddr, family: i32, out: &mut [u8; 28]) -> usize {
    *out = [0; 28];
    out[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    out[2..4].copy_from_slice(&address.port().to_be_bytes());
    match (address.ip(), family) {
        (IpAddr::V4(ip), libc::AF_INET) => {
            out[4..8].copy_from_slice(&ip.octets());
            16
        }
        (IpAddr::V4(ip), _) => {
            out[8..24].copy_from_slice(&ip.to_ipv6_mapped().octets());
            28
        }
        (IpAddr::V6(ip), _) => {
            out[8..24].copy_from_slice(&ip.octets());
            28
        }
    }
}

/// An address in shared memory.
#[repr(C)]
#[derive(Debug, Default)]
pub struct SharedAddress {
    kind_and_port: AtomicU64,
    high: AtomicU64,
    low: AtomicU64,
}

impl SharedAddress {
    /// 0.0.0.0:0.
    pub const fn new() -> Self {
        Self {
            kind_and_port: AtomicU64::new(0),
            high: AtomicU64::new(0),
            low: AtomicU64::new(0),
        }
    }

    /// Stores the address; a separate, ordered store must notify the reader.
    pub fn store(&self, address: SocketAddr) {
        let (kind, bits) = match address.ip() {
            IpAddr::V4(ip) => (4u64, u128::from(u32::from(ip))),
            IpAddr::V6(ip) => (6, u128::from(ip)),
        };
        self.kind_and_port
            .store(kind << 16 | u64::from(address.port()), Ordering::Relaxed);
        self.high.store((bits >> 64) as u64, Ordering::Relaxed);
        self.low.store(bits as u64, Ordering::Relaxed);
    }

    /// Loads an address; whatever the peer wrote, the result is valid.
    pub fn load(&self) -> SocketAddr {
        let kind = self.kind_and_port.load(Ordering::Relaxed);
        let low = self.low.load(Ordering::Relaxed);
        let bits = u128::from(self.high.load(Ordering::Relaxed)) << 64 | u128::from(low);
        let ip = match kind >> 16 {
            6 => IpAddr::V6(Ipv6Addr::from(bits)),
            _ => IpAddr::V4(Ipv4Addr::from(low as u32)),
        };
        SocketAddr::new(ip, kind as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_address_is_ipv4_inside_and_mapped_outside() {
        let address: SocketAddr = "127.0.0.1:80".parse().expect("an address");
        let mut bytes = [0u8; 28];
        assert_eq!(to_bytes(address, libc::AF_INET6, &mut bytes), 28);
        assert_eq!(from_bytes(&bytes), Some(address));
        assert_eq!(to_bytes(address, libc::AF_INET, &mut bytes), 16);
        assert_eq!(from_bytes(&bytes[..16]), Some(address));
        assert_eq!(from_bytes(&bytes[..15]), None);
    }

    #[test]
    fn shared_memory_gives_back_what_was_stored() {
        for text in ["[2001:db8::7]:65535", "10.1.2.3:1"] {
            let address: SocketAddr = text.parse().expect("an address");
            let shared = SharedAddress::default();
            shared.store(address);
            assert_eq!(shared.load(), address);
        }
    }
}
