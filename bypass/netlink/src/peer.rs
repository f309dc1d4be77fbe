//! The interface to which another one leads, in whichever network namespace it is.

use bypass_sys::kernel::Result;

use crate::item::Link;
use crate::message::Request;
use crate::socket::Socket;

const IFLA_TARGET_NETNSID: u16 = 46;

/// The other end of a veth, e.g. ENODEV: there is none. EPERM: an interface of another network namespace is shown to the
/// administrator of that one only.
pub fn of(link: &Link) -> Result<Link> {
    let (index, namespace) = link.leads_to.ok_or(libc::ENODEV)?;
    let mut fixed = [0; 16];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    let mut request = Request::new(libc::RTM_GETLINK, 0, &fixed);
    if let Some(namespace) = namespace {
        request = request.attribute(IFLA_TARGET_NETNSID, &namespace.to_ne_bytes());
    }
    let mut found = None;
    Socket::open(0)?.ask(request, &mut |message| found = Link::read(message.body))?;
    found.ok_or(libc::ENODEV)
}
