//! Options of sockets, and the header that proxies send first.

use crate::refusal::{because, Failure, Mistake, Refusal};
use crate::table::Args;
use load_engine::plan::Target;
use load_engine::sys::options::SocketOptions;
use load_engine::sys::socket::{self, Address, Kind};

/// The options of each socket. They are tried on a socket of its own, so that an option that the
/// kernel refuses is named before the run.
pub fn options(args: &Args) -> Result<SocketOptions, Refusal> {
    let options = SocketOptions {
        congestion_control: args.tcp_congestion.clone(),
        segment_bytes: args.tcp_mss.map(|bytes| bytes.0 as u16),
        send_buffer_bytes: args.send_buffer.map(|bytes| bytes.0),
        receive_buffer_bytes: args.receive_buffer.map(|bytes| bytes.0),
        fast_open: args.tcp_fast_open,
        dscp: args.dscp.map(|class| class.0 as u8),
        device: args.device.clone(),
    };
    if !options.is_empty() {
        try_out(&options)?;
    }
    Ok(options)
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
