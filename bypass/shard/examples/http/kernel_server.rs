//! The same responder on the kernel's sockets, with epoll.

use std::collections::HashMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use bypass_sys::kernel;

use crate::requests::{answer, Requests};
use crate::Options;

const EVENTS: usize = 256;

/// Serves until it is killed.
pub fn run(options: &Options) -> Result<(), String> {
    let (port, size) = (options.port()?, options.number("--size", 128)?);
    let spin = Duration::from_micros(options.number("--spin", 50)?.into());
    let listener =
        TcpListener::bind(("0.0.0.0", port)).map_err(|error| format!("port {port}: {error}"))?;
    let failed = |error: std::io::Error| error.to_string();
    listener.set_nonblocking(true).map_err(failed)?;
    let set = kernel::epoll_create1(0).map_err(|error| format!("epoll: error {error}"))? as i32;
    watch(set, listener.as_raw_fd());
    let (answer, mut clients) = (answer(size), HashMap::new());
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS];
    eprintln!("http: serves {size} bytes on port {port}");
    let mut busy = Instant::now();
    loop {
        let wait = if busy.elapsed() < spin {
            Duration::ZERO
        } else {
            Duration::from_secs(1)
        };
        let count = kernel::epoll_wait(set, &mut events, Some(wait), None).unwrap_or(0);
        if count > 0 {
            busy = Instant::now();
        }
        for event in &events[..count] {
            let fd = event.u64 as i32;
            if fd == listener.as_raw_fd() {
                accept(&listener, set, &mut clients);
            } else if clients
                .get_mut(&fd)
                .is_some_and(|(stream, requests)| !serve(stream, requests, &answer))
            {
                clients.remove(&fd);
            }
        }
    }
}

fn watch(set: i32, fd: i32) {
    let events = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET) as u32;
    let _ = kernel::epoll_control(set, libc::EPOLL_CTL_ADD, fd, events, fd as u64);
}

fn accept(listener: &TcpListener, set: i32, clients: &mut HashMap<i32, (TcpStream, Requests)>) {
    while let Ok((stream, _)) = listener.accept() {
        let _ = stream.set_nonblocking(true);
        let _ = stream.set_nodelay(true);
        watch(set, stream.as_raw_fd());
        clients.insert(stream.as_raw_fd(), (stream, Requests::default()));
    }
}

/// False when the connection is over.
fn serve(stream: &mut TcpStream, requests: &mut Requests, answer: &[u8]) -> bool {
    let mut bytes = [0; 65_536];
    while !requests.is_last {
        match stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(count) => requests.take(&bytes[..count], answer),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(_) => return false,
        }
        // A short read has emptied the socket: as servers do, it is not read again.
        if !requests.unsent.is_empty() {
            break;
        }
    }
    while !requests.unsent.is_empty() {
        match stream.write(&requests.unsent) {
            Ok(count) => drop(requests.unsent.drain(..count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            Err(_) => return false,
        }
    }
    !requests.is_last
}
