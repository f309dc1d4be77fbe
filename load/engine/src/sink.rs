//! A null server: answers every request with nothing, at once. What a generator reaches against it
//! is the headroom of the path; a measured server must stay well below.

use crate::sys::epoll::{Epoll, Events, Trigger, Waits};
use crate::sys::signal::stop_wanted;
use crate::sys::socket::{close, read, set_backlog, write, Fd};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

const KEEP: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const CLOSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;
/// Token of the listening socket.
const LISTENER: u64 = u64::MAX;
/// Longest time until an end is noticed.
const TURN_NS: u64 = 100_000_000;

/// A running null server; it ends when this is dropped.
pub struct Sink {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sink {
    /// Listens on `address` and answers from a thread of its own.
    pub fn start(address: &str) -> io::Result<Sink> {
        let listener = TcpListener::bind(address)?;
        set_backlog(listener.as_raw_fd(), BACKLOG)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let epoll = Epoll::open(Trigger::Level, Waits::Late)?;
        epoll.add(listener.as_raw_fd(), LISTENER, false)?;
        let server = Server {
            listener,
            epoll,
            open: Vec::new(),
            buffer: vec![0; 64 * 1024],
        };
        let thread = std::thread::spawn(move || server.serve(&stopped));
        Ok(Sink {
            address,
            stop,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until a signal ends the program.
    pub fn wait(self) {
        while !stop_wanted() {
            std::thread::park_timeout(std::time::Duration::from_nanos(TURN_NS));
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // a server that panicked has nothing left to end
            let _ = thread.join();
        }
    }
}

struct Server {
    listener: TcpListener,
    epoll: Epoll,
    open: Vec<Fd>,
    buffer: Vec<u8>,
}

impl Server {
    fn serve(mut self, stop: &AtomicBool) {
        let mut events = Events::default();
        while !stop.load(Ordering::Relaxed) && !stop_wanted() {
            for event in 0..self.epoll.wait(&mut events, TURN_NS) {
                let (token, ready) = events.get(event);
                if token == LISTENER {
                    self.accept();
                } else if ready.readable() && !self.answer(token as Fd) {
                    self.open.retain(|&fd| fd != token as Fd);
                    close(token as Fd);
                }
            }
        }
        self.open.iter().for_each(|&fd| close(fd));
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            let ready = stream
                .set_nonblocking(true)
                .and_then(|()| stream.set_nodelay(true));
            let fd = stream.as_raw_fd();
            let added = ready.and_then(|()| self.epoll.add(fd, fd as u64, false));
            if added.is_ok() {
                self.open.push(stream.into_raw_fd());
            }
        }
    }

    /// Answers what has come; false if the connection is to be closed.
    fn answer(&mut self, fd: Fd) -> bool {
        let length = match read(fd, &mut self.buffer) {
            Ok(0) => return false,
            Ok(length) => length,
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        };
        let bytes = &self.buffer[..length];
        let close = contains(bytes, b"\r\nConnection: close\r\n");
        let mut requests = bytes
            .windows(4)
            .filter(|window| *window == b"\r\n\r\n")
            .count();
        while requests > 0 {
            if write(fd, if close { CLOSE } else { KEEP }).is_err() {
                return false;
            }
            requests -= 1;
        }
        !close
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes
        .windows(part.len())
        .any(|window| window.eq_ignore_ascii_case(part))
}
