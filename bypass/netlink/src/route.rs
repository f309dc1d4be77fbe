//! The kernel's own routing decision, with policy rules and every table.

use std::net::IpAddr;

use bypass_sys::kernel::Result;

use crate::item::{family, octets, Route};
use crate::message::Request;
use crate::socket::Socket;

/// The route of a connection to `destination`, as `ip route get` shows it. ENETUNREACH and
/// EHOSTUNREACH if there is none.
pub fn ask(destination: IpAddr, source: Option<IpAddr>) -> Result<Route> {
    let bits = octets(destination).len() as u8 * 8;
    let source_bits = source.map_or(0, |_| bits);
    let fixed = [
        family(destination),
        bits,
        source_bits,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
    ];
    let mut request =
        Request::new(libc::RTM_GETROUTE, 0, &fixed).attribute(libc::RTA_DST, &octets(destination));
    if let Some(source) = source {
        request = request.attribute(libc::RTA_SRC, &octets(source));
    }
    let mut found = None;
    Socket::open(0)?.ask(request, &mut |message| {
        found = Route::read(message.body).into_iter().next();
    })?;
    found.ok_or(libc::ENETUNREACH)
}
