//! Options of sockets, and the header that proxies send first.

use crate::options::Typed;
use crate::values::{choice, number, usage, Refusal};
use load_engine::plan::Target;
use load_engine::sys::options::SocketOptions;
use load_engine::sys::socket::{self, Address, Kind};

/// The options of each socket. They are tried on a socket of its own, so that an option that the
/// kernel refuses is named before the run.
pub fn options(typed: &Typed) -> Result<SocketOptions, Refusal> {
    let options = SocketOptions {
        congestion_control: typed.last("tcp-congestion").map(String::from),
        segment_bytes: bounded(typed, "tcp-mss", 65_535)?.map(|bytes| bytes as u16),
        send_buffer_bytes: bounded(typed, "send-buffer", i32::MAX as u32)?,
        receive_buffer_bytes: bounded(typed, "receive-buffer", i32::MAX as u32)?,
        fast_open: typed.has("tcp-fast-open"),
        dscp: bounded(typed, "dscp", 63)?.map(|class| class as u8),
        device: typed.last("device").map(String::from),
    };
    if !options.is_empty() {
        try_out(&options)?;
    }
    Ok(options)
}

fn try_out(options: &SocketOptions) -> Result<(), Refusal> {
    let address = Address::Inet(([127, 0, 0, 1], 9).into()).raw();
    let fd = address.and_then(|address| socket::open(&address, Kind::Stream));
    let fd = fd.map_err(|error| Refusal::Absent(format!("cannot open a socket: {error}")))?;
    let tried = options.set(fd, false);
    socket::close(fd);
    tried.map_err(|error| Refusal::Usage(error.to_string()))
}

fn bounded(typed: &Typed, name: &str, most: u32) -> Result<Option<u32>, Refusal> {
    if !typed.has(name) {
        return Ok(None);
    }
    let figure = number(typed, name, 0.0)?;
    if figure.fract() != 0.0 || figure > f64::from(most) {
        return usage(format!("--{name}: must be a whole number from 0 to {most}"));
    }
    Ok(Some(figure as u32))
}

/// The version of the PROXY header.
pub fn proxy_header(typed: &Typed, targets: &[Target]) -> Result<Option<u8>, Refusal> {
    if !typed.has("proxy-protocol") {
        return Ok(None);
    }
    let version = choice(typed, "proxy-protocol", &[("v1", 1), ("v2", 2)])?;
    let is_unix = |target: &Target| matches!(target.address, Address::Unix(_));
    if targets.iter().any(is_unix) {
        return usage("--proxy-protocol: is not for unix sockets, which have no IP addresses");
    }
    Ok(Some(version))
}
