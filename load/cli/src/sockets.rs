//! Options of sockets, and the header that proxies send first.

use crate::refusal::{because, wrong, Failure, Mistake, Refusal, Wrong};
use crate::table::Args;
use load_engine::plan::Target;
use load_engine::sys::epoll::{Epoll, Trigger, Waits};
use load_engine::sys::is_preloaded;
use load_engine::sys::options::{own_ports, Ports, SocketOptions};
use load_engine::sys::socket::{self, Address, Kind};

/// Longer polls would keep a thread from its checks.
const BUSY_POLL_MAX_US: u32 = 1_000_000;

/// The options of each socket. They are tried on a socket of its own, so that an option that the
/// kernel refuses is named before the run.
pub fn options(args: &Args, threads: usize) -> Result<SocketOptions, Refusal> {
    let options = SocketOptions {
        congestion_control: args.tcp_congestion.clone(),
        segment_bytes: args.tcp_mss.map(|bytes| bytes.0 as u16),
        send_buffer_bytes: args.send_buffer.map(|bytes| bytes.0),
        receive_buffer_bytes: args.receive_buffer.map(|bytes| bytes.0),
        fast_open: args.tcp_fast_open,
        dscp: args.dscp.map(|class| class.0 as u8),
        device: args.device.clone(),
        ports: args.source_ports,
    };
    if let Some(ports) = options.ports {
        check_ports(ports, threads)?;
    }
    if !options.is_empty() {
        try_out(&options)?;
    }
    Ok(options)
}

/// Each thread needs a port, and the kernel would leave out ports that are not among its own.
fn check_ports(ports: Ports, threads: usize) -> Result<(), Refusal> {
    if ports.count() < threads {
        return because("source-ports", "fewer ports than threads (each needs one)");
    }
    let (first, last) = own_ports().into_inner();
    if ports.first < first || last < ports.last {
        return because(
            "source-ports",
            format!(
                "{}-{} is not within {first}-{last} (see the sysctl net.ipv4.ip_local_port_range)",
                ports.first, ports.last
            ),
        );
    }
    Ok(())
}

/// For how long waits poll network cards, microseconds. Tried on a set of its own, so that a kernel
/// that cannot is named before the run.
pub fn busy_poll(args: &Args) -> Result<Option<u32>, Refusal> {
    let Some(time) = args.busy_poll else {
        return Ok(None);
    };
    let poll_us = match u32::try_from(time.0 / 1_000) {
        Ok(poll_us @ 1..=BUSY_POLL_MAX_US) => poll_us,
        _ => return because("busy-poll", "must be from 1us to 1s"),
    };
    if is_preloaded() {
        return wrong("busy-poll", Wrong::Clash("LD_PRELOAD".into()));
    }
    let epoll = Epoll::open(Trigger::Edge, Waits::Late);
    if epoll
        .and_then(|epoll| epoll.set_busy_poll(poll_us))
        .is_err()
    {
        return because("busy-poll", "this kernel cannot (Linux 6.9 or newer)");
    }
    Ok(Some(poll_us))
}

fn try_out(options: &SocketOptions) -> Result<(), Refusal> {
    let address = Address::Inet(([127, 0, 0, 1], 9).into()).raw();
    let fd = address.and_then(|address| socket::open(&address, Kind::Stream));
    let fd = fd.map_err(|error| Refusal::Absent(Failure::NoSocket(error.to_string())))?;
    let tried = options.set(fd, false);
    socket::close(fd);
    tried.map_err(|error| Refusal::Usage(Mistake::Tried(error.to_string())))
}

/// The version of the PROXY header.
pub fn proxy_header(args: &Args, targets: &[Target]) -> Result<Option<u8>, Refusal> {
    let Some(version) = args.proxy_protocol else {
        return Ok(None);
    };
    let is_unix = |target: &Target| matches!(target.address, Address::Unix(_));
    if targets.iter().any(is_unix) {
        return because(
            "proxy-protocol",
            "is not for unix sockets, which have no IP addresses",
        );
    }
    Ok(Some(version as u8))
}
