//! The filter of a capture, applied before frames are copied.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const ETHERNET: usize = 14;
const ADDRESSES_4: usize = ETHERNET + 12;
const ADDRESSES_6: usize = ETHERNET + 8;
const HEADER_6: usize = 40;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Only frames with this port, with this host; if both are set, frames with both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Filter {
    /// Of either end.
    pub port: Option<u16>,
    /// Address of either end.
    pub host: Option<IpAddr>,
}

impl Filter {
    /// Whether a segment between these passes.
    pub fn admits(&self, from: SocketAddr, to: SocketAddr) -> bool {
        let is_port = |port| from.port() == port || to.port() == port;
        let is_host = |host| from.ip() == host || to.ip() == host;
        self.port.is_none_or(is_port) && self.host.is_none_or(is_host)
    }

    /// Whether a frame passes; a frame without ports has no port, and one that is not IP has no
    /// host.
    pub fn admits_frame(&self, frame: &[u8]) -> bool {
        if *self == Self::default() {
            return true;
        }
        let Some((from, to, ports)) = ends(frame) else {
            return false;
        };
        let (from_port, to_port) = ports.unwrap_or((0, 0));
        let is_without_port = ports.is_none() && self.port.is_some();
        let ends = [
            SocketAddr::new(from, from_port),
            SocketAddr::new(to, to_port),
        ];
        !is_without_port && self.admits(ends[0], ends[1])
    }
}

/// Addresses and, where the frame has them, ports.
fn ends(frame: &[u8]) -> Option<(IpAddr, IpAddr, Option<(u16, u16)>)> {
    let (from, to, protocol, ports_at) = match frame.get(12..ETHERNET)? {
        [0x08, 0x00] => {
            let four = |at: usize| -> Option<IpAddr> {
                let bytes: [u8; 4] = frame.get(at..at + 4)?.try_into().ok()?;
                Some(Ipv4Addr::from(bytes).into())
            };
            let header = usize::from(frame.get(ETHERNET)? & 15) * 4;
            let protocol = *frame.get(ETHERNET + 9)?;
            (
                four(ADDRESSES_4)?,
                four(ADDRESSES_4 + 4)?,
                protocol,
                ETHERNET + header,
            )
        }
        [0x86, 0xdd] => {
            let sixteen = |at: usize| -> Option<IpAddr> {
                let bytes: [u8; 16] = frame.get(at..at + 16)?.try_into().ok()?;
                Some(Ipv6Addr::from(bytes).into())
            };
            let protocol = *frame.get(ETHERNET + 6)?;
            let to = sixteen(ADDRESSES_6 + 16)?;
            (sixteen(ADDRESSES_6)?, to, protocol, ETHERNET + HEADER_6)
        }
        _ => return None,
    };
    let port = |at: usize| -> Option<u16> {
        let bytes: [u8; 2] = frame.get(at..at + 2)?.try_into().ok()?;
        Some(u16::from_be_bytes(bytes))
    };
    let ports = match protocol {
        TCP | UDP => port(ports_at).zip(port(ports_at + 2)),
        _ => None,
    };
    Some((from, to, ports))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame_4(protocol: u8) -> Vec<u8> {
        let mut frame = vec![0; ETHERNET + 40];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[ETHERNET] = 0x45;
        frame[ETHERNET + 9] = protocol;
        frame[26..30].copy_from_slice(&[10, 0, 0, 1]);
        frame[30..34].copy_from_slice(&[10, 0, 0, 2]);
        frame[34..38].copy_from_slice(&[0, 80, 0x9c, 0x40]);
        frame
    }

    fn filter(port: Option<u16>, host: Option<&str>) -> Filter {
        let host = host.map(|text| text.parse().expect("an address"));
        Filter { port, host }
    }

    #[test]
    fn a_frame_passes_by_the_port_and_host_of_either_end() {
        let frame = frame_4(TCP);
        for (port, host, is_wanted) in [
            (None, None, true),
            (Some(80), None, true),
            (Some(40_000), Some("10.0.0.2"), true),
            (Some(81), None, false),
            (Some(80), Some("10.0.0.3"), false),
            (None, Some("::1"), false),
        ] {
            let filter = filter(port, host);
            assert_eq!(filter.admits_frame(&frame), is_wanted, "{filter:?}");
        }
    }

    #[test]
    fn a_packet_without_ports_matches_no_port() {
        let frame = frame_4(1);
        assert!(!filter(Some(80), None).admits_frame(&frame));
        assert!(filter(None, Some("10.0.0.1")).admits_frame(&frame));
        assert!(!filter(None, Some("10.0.0.1")).admits_frame(&frame[..20]));
        assert!(filter(None, None).admits_frame(&[]));
    }

    #[test]
    fn ipv6_is_looked_at_too() {
        let mut frame = vec![0; ETHERNET + 60];
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[ETHERNET + 6] = TCP;
        frame[37] = 1;
        frame[54..58].copy_from_slice(&[0, 80, 0, 81]);
        assert!(filter(Some(81), Some("::1")).admits_frame(&frame));
        assert!(!filter(Some(82), Some("::1")).admits_frame(&frame));
    }
}
