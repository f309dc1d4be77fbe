//! Asks the kernel whether it allows what acceleration needs; sandboxes forbid some of it.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use rustix::fs::MemfdFlags;
use rustix::net::{netlink, AddressFamily, SocketFlags, SocketType};
use rustix::process::{getpid, PidfdFlags};

/// One thing that must be allowed: what for, and the error when it is not.
pub(crate) struct Probe {
    /// The call and its purpose.
    pub(crate) what: &'static str,
    /// None when it works.
    pub(crate) error: Option<String>,
}

/// Every probe, each of which leaves nothing behind.
pub(crate) fn all() -> Vec<Probe> {
    vec![
        probe("memfd_create: memory that two processes share", memory()),
        probe(
            "abstract Unix sockets: how two processes meet",
            meeting_place(),
        ),
        probe("sock_diag: which listener an address means", diagnosis()),
        probe("pidfd_open: when a peer dies", peer_watch()),
    ]
}

fn probe(what: &'static str, result: Result<(), String>) -> Probe {
    Probe {
        what,
        error: result.err(),
    }
}

fn memory() -> Result<(), String> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    rustix::fs::memfd_create("wirespeed-probe", flags)
        .map(drop)
        .map_err(|error| error.to_string())
}

fn meeting_place() -> Result<(), String> {
    let name = format!("wirespeed-probe-{}", std::process::id());
    SocketAddr::from_abstract_name(name)
        .and_then(|address| UnixListener::bind_addr(&address))
        .map(drop)
        .map_err(|error| error.to_string())
}

fn diagnosis() -> Result<(), String> {
    rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )
    .map(drop)
    .map_err(|error| error.to_string())
}

fn peer_watch() -> Result<(), String> {
    rustix::process::pidfd_open(getpid(), PidfdFlags::empty())
        .map(drop)
        .map_err(|error| error.to_string())
}
