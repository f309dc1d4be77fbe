//! The header in which a proxy names the client of a connection (the PROXY protocol, versions 1 and 2, as
//! HAProxy documents it): here the addresses of the connection itself.

use std::net::{IpAddr, SocketAddr};

/// The first bytes of version 2.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// The header of a connection between two addresses of one family.
pub(super) fn proxy_header(version: u8, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let is_ipv4 = from.is_ipv4();
    if version == 1 {
        let family = if is_ipv4 { "TCP4" } else { "TCP6" };
        let (source, target) = (from.ip(), to.ip());
        let ports = (from.port(), to.port());
        return format!(
            "PROXY {family} {source} {target} {} {}\r\n",
            ports.0, ports.1
        )
        .into();
    }
    let mut addresses = Vec::new();
    for end in [from, to] {
        match end.ip() {
            IpAddr::V4(ip) => addresses.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => addresses.extend_from_slice(&ip.octets()),
        }
    }
    for end in [from, to] {
        addresses.extend_from_slice(&end.port().to_be_bytes());
    }
    // version 2, command PROXY; stream over IPv4 or IPv6
    let family = if is_ipv4 { 0x11 } else { 0x21 };
    let mut header = [SIGNATURE, &[0x21, family]].concat();
    header.extend_from_slice(&(addresses.len() as u16).to_be_bytes());
    header.extend_from_slice(&addresses);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_have_both_families() {
        let v4 = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let text = proxy_header(1, v4(5), v4(80));
        assert_eq!(text, b"PROXY TCP4 127.0.0.1 127.0.0.1 5 80\r\n");
        let v6: SocketAddr = "[::1]:7".parse().expect("an address");
        assert_eq!(proxy_header(1, v6, v6), b"PROXY TCP6 ::1 ::1 7 7\r\n");
        let binary = proxy_header(2, v4(5), v4(80));
        let expected = b"\x21\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x01\0\x05\0\x50";
        assert_eq!(binary, [SIGNATURE, expected].concat());
        assert_eq!(proxy_header(2, v6, v6).len(), 16 + 36);
    }
}
