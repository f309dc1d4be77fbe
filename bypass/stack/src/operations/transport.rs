//! Options of connections with other hosts that their TCP engine obeys, and what it says of them.
//!
//! The shadow checks each value, keeps it and returns it to the program; the engine is notified of it.

use core::time::Duration;

use bypass_shm::layout::INFO_WORDS;
use bypass_sys::clock::Waited;
use bypass_sys::kernel;

use super::inherited;
use crate::listener;
use crate::packets::options::{self, Wish};
use crate::packets::{self, info};
use crate::process::Outcome;
use crate::sockets::{self, Socket};
use crate::stream::{self, Stream};

/// How long an engine of another process may take to answer: then the shadow does, which knows no connection.
const ANSWER_NS: u64 = 1_000_000_000;
const LOOK: Duration = Duration::from_micros(200);

/// Options that the program has set on a socket that is being connected.
pub fn wishes(fd: i32, socket: &Socket) -> Vec<Wish> {
    let wish = |(code, option)| {
        if option == (libc::SOL_SOCKET, libc::SO_KEEPALIVE) {
            let is_on = socket.has(sockets::KEEPALIVE);
            return is_on.then_some(Wish { code, value: 1 });
        }
        let is_set = inherited::is_set_by_program(socket, option);
        let value = is_set.then(|| options::value_of(fd, option)).flatten();
        value.map(|value| Wish { code, value })
    };
    options::all().filter_map(wish).collect()
}

/// setsockopt(2) of a connection; None: no engine obeys this option, or none carries the connection.
pub fn set(fd: i32, socket: &Socket, option: (i32, i32), value: &[u8]) -> Option<Outcome> {
    let code = options::code_of(option.0, option.1)?;
    let stream = stream::find(fd)
        .ok()
        .filter(|stream| stream.is_over_packets())?;
    if option == (libc::SOL_TCP, libc::TCP_CONGESTION) && options::congestion(value).is_none() {
        return Some(Outcome::Error(libc::ENOENT));
    }
    socket.set(sockets::DIRTY, true);
    if let Err(error) = kernel::set_option(fd, option.0, option.1, value) {
        return Some(Outcome::Error(error));
    }
    // The size of segments was agreed upon as the connection was opened.
    let is_late = option == (libc::SOL_TCP, libc::TCP_MAXSEG);
    if let Some(value) = options::value_of(fd, option).filter(|_| !is_late) {
        let _ = stream.ask_for_option(code, value);
    }
    Some(Outcome::Done(0))
}

/// setsockopt(2) of a listener, from which engines take the options of new connections; None: as in
/// [`set`].
pub fn set_listener(fd: i32, option: (i32, i32), value: &[u8]) -> Option<Outcome> {
    options::code_of(option.0, option.1).filter(|_| packets::is_wanted())?;
    let done = kernel::set_option(fd, option.0, option.1, value);
    listener::changed();
    Some(match done {
        Ok(_) => Outcome::Done(0),
        Err(error) => Outcome::Error(error),
    })
}

/// getsockopt(2) of a connection of which the engine knows more than the shadow.
pub fn get(fd: i32, option: (i32, i32)) -> Option<Vec<u8>> {
    let is_known = matches!(
        option,
        (
            libc::SOL_TCP,
            libc::TCP_INFO | libc::TCP_MAXSEG | libc::TCP_CONGESTION
        )
    );
    if !is_known {
        return None;
    }
    let stream = stream::find(fd)
        .ok()
        .filter(|stream| stream.is_over_packets())?;
    match option.1 {
        libc::TCP_CONGESTION => congestion(fd),
        libc::TCP_MAXSEG => {
            let size = info::segment_bytes(&facts(&stream)?);
            Some(size.to_ne_bytes().to_vec())
        }
        _ => {
            let words = facts(&stream)?;
            Some(words.iter().flat_map(|word| word.to_ne_bytes()).collect())
        }
    }
}

/// The shadow may begin with one that no engine has.
fn congestion(fd: i32) -> Option<Vec<u8>> {
    let mut name = [0; options::NAME_BYTES];
    kernel::option(fd, libc::SOL_TCP, libc::TCP_CONGESTION, &mut name).ok()?;
    if options::congestion(&name).is_none() {
        name = *b"cubic\0\0\0\0\0\0\0\0\0\0\0";
    }
    Some(name.to_vec())
}

/// `struct tcp_info` of the engine, which may be another process's.
fn facts(stream: &Stream) -> Option<[u32; INFO_WORDS]> {
    let before = stream.ask_for_info().ok()?;
    let mut waited = Waited::begin();
    packets::drive_in_turn();
    loop {
        if stream.answers() != before {
            return Some(stream.info());
        }
        if waited.look_ns() > ANSWER_NS || !stream.is_alive() {
            return None;
        }
        let _ = kernel::poll(&mut [], Some(LOOK), None);
    }
}
