//! IPsec policies of a network namespace (linux/xfrm.h): the kernel applies them to packets that pass through it, and to
//! no others. It shows them to processes with CAP_NET_ADMIN.

use std::net::IpAddr;

use bypass_sys::descriptor::Owned;
use bypass_sys::kernel::Result;

use crate::item::ip;
use crate::message::{attributes, u16_at, u32_at, Message, Request};
use crate::socket::Socket;

const NETLINK_XFRM: i32 = 6;
/// XFRMNLGRP_POLICY as a bit.
const POLICY_NEWS: u32 = 1 << 3;
const GET_POLICY: u16 = 0x15;
const GET_DEFAULT: u16 = 0x28;
/// Bytes of `struct xfrm_userpolicy_id`, and of `struct xfrm_userpolicy_info`.
const ID: usize = 64;
const INFO: usize = 168;
const TEMPLATES: u16 = 5;
const MARK: u16 = 21;
const INTERFACE: u16 = 31;
/// XFRM_POLICY_IN and XFRM_POLICY_OUT; then come those of forwarded packets and of single sockets.
const DIRECTIONS: [&str; 2] = ["in", "out"];
/// XFRM_POLICY_BLOCK.
const BLOCK: u8 = 1;
/// XFRM_USERPOLICY_BLOCK.
const BLOCKED: u8 = 1;

/// The policies that may apply to TCP or UDP between a socket of this namespace and another host, each as `out 10.0.0.0/8
/// to 0.0.0.0/0`. EPERM: without CAP_NET_ADMIN the kernel does not show them.
pub fn policies() -> Result<Vec<String>> {
    let mut socket = match Socket::of(NETLINK_XFRM, 0) {
        // A kernel without IPsec.
        Err(libc::EPROTONOSUPPORT) => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    let request = || Request::new(GET_POLICY, libc::NLM_F_DUMP, &[0; ID]);
    socket.dump(request, &mut |message| found.extend(read(message.body)))?;
    // Linux before 5.14 has no defaults.
    let _ = socket.ask(Request::new(GET_DEFAULT, 0, &[0; 4]), &mut |message| {
        found.extend(defaults(message));
    });
    Ok(found)
}

fn defaults(message: Message) -> impl Iterator<Item = String> {
    let of = |at| message.body.get(at) == Some(&BLOCKED);
    // Between the two stands that of forwarded packets.
    let blocked = [(DIRECTIONS[0], of(0)), (DIRECTIONS[1], of(2))];
    let blocked = blocked.into_iter().filter(|(_, is_blocked)| *is_blocked);
    blocked.map(|(direction, _)| format!("{direction} all that no policy allows"))
}

/// A policy that may apply, as text.
fn read(body: &[u8]) -> Option<String> {
    let fixed = body.get(..INFO)?;
    let direction = DIRECTIONS.get(usize::from(fixed[160]))?;
    let is_for_sockets = matches!(
        i32::from(fixed[44]),
        0 | libc::IPPROTO_TCP | libc::IPPROTO_UDP
    );
    let value = |kind| attributes(&body[INFO..]).find(|(found, _)| *found == kind);
    let number = |kind, at| value(kind).map_or(0, |(_, bytes)| u32_at(bytes, at));
    // Packets that are neither marked nor sent over an interface of IPsec's.
    let is_plain = number(MARK, 0) == 0 && number(INTERFACE, 0) == 0;
    let does_something = fixed[161] == BLOCK || value(TEMPLATES).is_some();
    let network = |at: usize, len: usize| {
        let bytes = match i32::from(u16_at(fixed, 40)) {
            libc::AF_INET => 4,
            _ => 16,
        };
        let address: Option<IpAddr> = fixed.get(at..at + bytes).and_then(ip);
        address.map(|ip| format!("{ip}/{}", fixed[len]))
    };
    let (to, from) = (network(0, 42)?, network(16, 43)?);
    (is_for_sockets && is_plain && does_something).then(|| format!("{direction} {from} to {to}"))
}

/// Readable once a policy was added, changed or removed, for as long as no process reads it: also in a process that may
/// not ask what has changed. On a kernel without IPsec it never is. Needs CAP_NET_ADMIN.
pub fn news() -> Result<Owned> {
    match Socket::of(NETLINK_XFRM, POLICY_NEWS) {
        Err(libc::EPROTONOSUPPORT) => Socket::open(0),
        other => other,
    }
    .map(Socket::into_fd)
}

/// What is known of the policies, kept up to date.
#[derive(Debug)]
pub struct Policies {
    /// None where this process gets no notifications.
    socket: Option<Socket>,
    /// None where it may not ask.
    apply: Option<bool>,
}

impl Policies {
    /// Of the calling thread's network namespace.
    pub fn new() -> Self {
        // Heard before they are asked for.
        let socket = Socket::of(NETLINK_XFRM, POLICY_NEWS).ok();
        Self {
            socket,
            apply: policies().ok().map(|found| !found.is_empty()),
        }
    }

    /// Polled for reading: they have changed. None where this process gets no notifications.
    pub fn fd(&self) -> Option<i32> {
        self.socket.as_ref().map(Socket::fd)
    }

    /// Whether this process may know them.
    pub fn are_known(&self) -> bool {
        self.apply.is_some()
    }

    /// Whether any may apply to connections of this host; None: this process may not know. Without news it costs one
    /// system call.
    pub fn apply(&mut self) -> Option<bool> {
        let mut has_news = false;
        if let Some(socket) = &mut self.socket {
            has_news = socket.news(&mut |_| has_news = true).is_err() || has_news;
        }
        if has_news {
            self.apply = policies().ok().map(|found| !found.is_empty());
        }
        self.apply
    }
}

impl Default for Policies {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The two halves of a policy that stand before its attributes, and what they are by default: TCP and UDP of IPv4.
    fn policy(change: impl FnOnce(&mut [u8]), attributes: &[(u16, &[u8])]) -> Option<String> {
        let mut fixed = [0; INFO];
        fixed[..4].copy_from_slice(&[10, 0, 0, 2]);
        fixed[16..20].copy_from_slice(&[10, 1, 0, 0]);
        fixed[40..42].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        (fixed[42], fixed[43]) = (32, 16);
        fixed[161] = BLOCK;
        change(&mut fixed);
        let begun = Request::new(0, 0, &fixed);
        let whole = attributes.iter().fold(begun, |request, (kind, value)| {
            request.attribute(*kind, value)
        });
        read(&whole.finish(0)[crate::message::HEADER..])
    }

    #[test]
    fn a_policy_counts_where_packets_of_sockets_may_meet_it() {
        let named = Some("in 10.1.0.0/16 to 10.0.0.2/32".to_owned());
        assert_eq!(policy(|_| (), &[]), named);
        assert_eq!(policy(|fixed| fixed[44] = 6, &[]), named);
        let out = policy(|fixed| fixed[160] = 1, &[]);
        assert_eq!(out, Some("out 10.1.0.0/16 to 10.0.0.2/32".to_owned()));
        let is_left_out = |change: fn(&mut [u8]), attributes: &[(u16, &[u8])]| {
            policy(change, attributes).is_none()
        };
        assert!(is_left_out(|fixed| fixed[160] = 2, &[]), "forwarded");
        assert!(is_left_out(|fixed| fixed[160] = 3, &[]), "a socket's own");
        assert!(is_left_out(|fixed| fixed[44] = 47, &[]), "GRE");
        assert!(is_left_out(|fixed| fixed[161] = 0, &[]), "it allows");
        let encrypts = policy(|fixed| fixed[161] = 0, &[(TEMPLATES, &[0; 64])]);
        assert_eq!(encrypts, named);
        let seven = [7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
        assert!(is_left_out(|_| (), &[(MARK, &seven)]), "marked packets");
        assert!(is_left_out(|_| (), &[(INTERFACE, &seven[..4])]));
    }
}
