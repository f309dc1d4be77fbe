//! The addresses of listeners in the shared directory (EF_SHARE_DIR), for clients in other network namespaces.
//!
//! Each address is another name of the listener's rendezvous socket. It is a hint: which listener a connection reaches is
//! shown by the network alone.

use std::net::{IpAddr, SocketAddr};

use bypass_netlink::{diag, Tables};
use bypass_sys::waker::Name;
use bypass_sys::{directory, kernel};

use super::Listener;
use crate::process;

/// A listening socket of another namespace: its inode and its owner.
pub type Published = (u64, u32);

/// Publishes a listener at `at`: under each address of this network namespace where it has none of its own, and
/// addresses that are translated to them. Not where other listeners share its connections (SO_REUSEPORT), which are
/// then published no more: the kernel's choice among them is not known before.
pub fn publish(listener: &Listener, at: SocketAddr) {
    let inode = listener.inode;
    let name = Name::of_listener(inode);
    let Some(rendezvous) = name.file() else {
        return;
    };
    directory::clean();
    if accepts_late(listener.any_fd()) {
        return;
    }
    let ips = match at.ip().is_unspecified() {
        true => own_addresses(),
        false => vec![at.ip()],
    };
    let is_published = |ip: &&IpAddr| is_reachable(**ip) && (ip.is_ipv4() || at.is_ipv6());
    for ip in ips.iter().filter(is_published) {
        let here = SocketAddr::new(*ip, at.port());
        let shared = diag::listeners(here);
        let others = shared.iter().flatten().filter(|one| one.inode != inode);
        let is_among = |all: &Vec<diag::Listener>| all.iter().any(|one| one.inode == inode);
        if shared.as_ref().is_ok_and(|all| !is_among(all)) {
            continue; // others' alone, or of another family
        }
        match others.clone().count() {
            0 if ip.is_ipv6() && !listener.keep_syns() => {}
            0 => {
                for address in translated(here) {
                    let _ = directory::link(rendezvous, &name_of(address, inode));
                }
            }
            _ => others.for_each(|other| remove(here, other.inode)),
        }
    }
}

/// Whether an address may be one of several namespaces'. One of a link's own says nothing without that link.
fn is_reachable(ip: IpAddr) -> bool {
    let is_of_link = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    !ip.is_loopback() && !is_of_link
}

fn remove(here: SocketAddr, inode: u64) {
    for address in translated(here) {
        directory::remove(&name_of(address, inode));
    }
}

/// An own address, and addresses that are translated to it (EF_SHARE_AS).
fn translated(here: SocketAddr) -> impl Iterator<Item = SocketAddr> {
    let all = process::settings().share_as.iter();
    let of_port = all
        .filter(move |(address, port)| *port == here.port() && address.is_ipv4() == here.is_ipv4());
    std::iter::once(here).chain(of_port.map(|(address, _)| *address))
}

/// Whether the kernel gives a connection to accept only once it has data: its client waits for the accept first.
fn accepts_late(fd: i32) -> bool {
    kernel::option_int(fd, libc::SOL_TCP, libc::TCP_DEFER_ACCEPT).is_ok_and(|seconds| seconds > 0)
}

/// A listener is published no more.
pub fn withdraw(inode: u64) {
    withdraw_where(inode, |_| true);
}

/// It is published no more to clients over IPv6.
pub fn withdraw_ipv6(inode: u64) {
    withdraw_where(inode, |name| name.contains(':'));
}

fn withdraw_where(inode: u64, which: impl Fn(&str) -> bool) {
    let end = format!("-{inode:016x}");
    let names = directory::names("a-").into_iter();
    let own = names.filter(|name| name.ends_with(&end) && which(name));
    own.for_each(|name| directory::remove(&name));
}

fn own_addresses() -> Vec<IpAddr> {
    let tables = Tables::new();
    let addresses = tables.iter().flat_map(|tables| tables.addresses());
    addresses.map(|address| address.ip).collect()
}

/// The listeners that are published at an address.
pub fn at(target: SocketAddr) -> Vec<Published> {
    if !directory::is_set() || !is_reachable(target.ip()) {
        return Vec::new();
    }
    let start = start_of(target);
    let names = directory::names(&start).into_iter();
    let alive = names.filter(|name| !directory::remove_stale(name));
    let read = |name: String| {
        let inode = u64::from_str_radix(name.get(start.len()..)?, 16).ok()?;
        Some((inode, directory::owner(&name).ok()?))
    };
    alive.filter_map(read).collect()
}

fn name_of(at: SocketAddr, inode: u64) -> String {
    format!("{}{inode:016x}", start_of(at))
}

fn start_of(at: SocketAddr) -> String {
    format!("a-{}-{}-", at.ip(), at.port())
}
