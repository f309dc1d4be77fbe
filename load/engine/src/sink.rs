//! Servers that do as little as a server can: the null server answers every request with nothing, at
//! once; the echo server sends back what it gets. What a generator reaches against them is the headroom
//! of the path; a measured server must stay well below.

use crate::sys::clock::monotonic_ns;
use crate::sys::epoll::{Epoll, Events, Ready, Trigger, Waits};
use crate::sys::signal::stop_wanted;
use crate::sys::socket::{close, read, set_backlog, write, Fd};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

const KEEP: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const CLOSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
/// The end of a request's head.
const END: &[u8] = b"\r\n\r\n";
/// A head that is longer than this ends its connection.
const HEAD_MAX: usize = 64 * 1024;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;
/// Token of the listening socket.
const LISTENER: u64 = u64::MAX;
/// A server without a free descriptor accepts again so long after, or when a connection is closed: the
/// listener stays readable meanwhile.
const REST_NS: u64 = 100_000_000;
/// Longest time until an end is noticed.
const TURN_NS: u64 = 100_000_000;

/// What a server does with what it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    /// Requests of HTTP are answered with nothing.
    Null,
    /// Bytes go back as they came.
    Echo,
}

/// A running server; it ends when this is dropped.
pub struct Sink {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Sink {
    /// A null server: listens on `address` and answers from a thread of its own.
    pub fn start(address: &str) -> io::Result<Sink> {
        Sink::serve(address, Service::Null)
    }

    /// An echo server over TCP and, on the same port, over UDP.
    pub fn echo(address: &str) -> io::Result<Sink> {
        let mut sink = Sink::serve(address, Service::Echo)?;
        let datagrams = UdpSocket::bind(sink.address)?;
        datagrams.set_read_timeout(Some(Duration::from_nanos(TURN_NS)))?;
        let stop = Arc::clone(&sink.stop);
        sink.threads.push(std::thread::spawn(move || {
            echo_datagrams(&datagrams, &stop)
        }));
        Ok(sink)
    }

    fn serve(address: &str, service: Service) -> io::Result<Sink> {
        let listener = TcpListener::bind(address)?;
        set_backlog(listener.as_raw_fd(), BACKLOG)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let epoll = Epoll::open(Trigger::Level, Waits::Late)?;
        epoll.add(listener.as_raw_fd(), LISTENER, false)?;
        let server = Server {
            service,
            listener,
            epoll,
            peers: Vec::new(),
            buffer: vec![0; 64 * 1024],
            rests_until_ns: 0,
        };
        let thread = std::thread::spawn(move || server.serve(&stopped));
        Ok(Sink {
            address,
            stop,
            threads: vec![thread],
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
        for thread in self.threads.drain(..) {
            // a server that panicked has nothing left to end
            let _ = thread.join();
        }
    }
}

/// Sends each datagram back to where it came from.
fn echo_datagrams(socket: &UdpSocket, stop: &AtomicBool) {
    let mut buffer = vec![0; 64 * 1024];
    while !stop.load(Ordering::Relaxed) && !stop_wanted() {
        // errors are of one datagram: its sender is gone, or none came for a while
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..length], from);
        }
    }
}

/// What is known of one connection.
#[derive(Default)]
struct Peer {
    /// The beginning of a request that is not complete.
    begun: Vec<u8>,
    /// Bytes of a request's body that are still to come.
    body_left: usize,
    /// Answers that the socket had no room for.
    unsent: Vec<u8>,
    /// The last request asked for the end of the connection.
    is_last: bool,
}

struct Server {
    service: Service,
    listener: TcpListener,
    epoll: Epoll,
    /// By descriptor.
    peers: Vec<Option<Peer>>,
    buffer: Vec<u8>,
    /// Until when nothing is accepted, for want of a descriptor; 0 if it is.
    rests_until_ns: u64,
}

impl Server {
    fn serve(mut self, stop: &AtomicBool) {
        let mut events = Events::default();
        while !stop.load(Ordering::Relaxed) && !stop_wanted() {
            for event in 0..self.epoll.wait(&mut events, TURN_NS) {
                let (token, ready) = events.get(event);
                if token == LISTENER {
                    self.accept();
                    continue;
                }
                let fd = token as Fd;
                if let Some(mut peer) = self.peers[fd as usize].take() {
                    if self.turn(fd, &mut peer, ready).is_some() {
                        self.peers[fd as usize] = Some(peer);
                    } else {
                        close(fd);
                        self.rests_until_ns = self.rests_until_ns.min(1);
                    }
                }
            }
            if self.rests_until_ns > 0 && monotonic_ns() >= self.rests_until_ns {
                self.rests_until_ns = 0;
                let fd = self.listener.as_raw_fd();
                // the next wait reports the connections in the queue
                let _ = self.epoll.want_room(fd, LISTENER, false);
            }
        }
        for (fd, peer) in self.peers.iter().enumerate() {
            if peer.is_some() {
                close(fd as Fd);
            }
        }
    }

    /// Takes all connections that wait; without descriptors for them it rests.
    fn accept(&mut self) {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if is_passing(&error) => continue,
                Err(_) => {
                    self.rests_until_ns = monotonic_ns() + REST_NS;
                    let fd = self.listener.as_raw_fd();
                    let _ = self.epoll.want_nothing(fd, LISTENER);
                    return;
                }
            };
            let ready = stream
                .set_nonblocking(true)
                .and_then(|()| stream.set_nodelay(true));
            let fd = stream.as_raw_fd();
            let added = ready.and_then(|()| self.epoll.add(fd, fd as u64, false));
            if added.is_ok() {
                let place = stream.into_raw_fd() as usize;
                if self.peers.len() <= place {
                    self.peers.resize_with(place + 1, || None);
                }
                self.peers[place] = Some(Peer::default());
            }
        }
    }

    /// Handles one event; nothing if the connection is to be closed.
    fn turn(&mut self, fd: Fd, peer: &mut Peer, ready: Ready) -> Option<()> {
        if !peer.unsent.is_empty() {
            // what came meanwhile is read when the answers before it are gone
            peer.send(fd).ok()?;
            if peer.unsent.is_empty() && !peer.is_last {
                self.epoll.want_room(fd, fd as u64, false).ok()?;
            }
        } else if ready.readable() {
            let length = match read(fd, &mut self.buffer) {
                Ok(0) => return None,
                Ok(length) => length,
                Err(error) => return (error.kind() == ErrorKind::WouldBlock).then_some(()),
            };
            let bytes = &self.buffer[..length];
            match self.service {
                Service::Null => peer.answer(fd, bytes).ok()?,
                Service::Echo => peer.put(fd, bytes).ok()?,
            }
            if !peer.unsent.is_empty() {
                self.epoll.only_room(fd, fd as u64).ok()?;
            }
        }
        (!peer.is_last || !peer.unsent.is_empty()).then_some(())
    }
}

/// Whether it is about one connection only.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
    )
}

impl Peer {
    /// Answers each request that ends in what has come.
    fn answer(&mut self, fd: Fd, bytes: &[u8]) -> io::Result<()> {
        if self.begun.is_empty() {
            let used = self.answer_all(fd, bytes)?;
            self.begun.extend_from_slice(&bytes[used..]);
        } else {
            let mut whole = std::mem::take(&mut self.begun);
            whole.extend_from_slice(bytes);
            let used = self.answer_all(fd, &whole)?;
            whole.drain(..used);
            self.begun = whole;
        }
        if self.begun.len() > HEAD_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        Ok(())
    }

    /// How many of the bytes were used: all but the beginning of a head.
    fn answer_all(&mut self, fd: Fd, bytes: &[u8]) -> io::Result<usize> {
        let mut at = 0;
        while !self.is_last {
            let body = self.body_left.min(bytes.len() - at);
            self.body_left -= body;
            at += body;
            let Some(length) = find(&bytes[at..], END) else {
                break;
            };
            let head = &bytes[at..at + length + END.len()];
            at += head.len();
            self.is_last = find(head, b"\r\nConnection: close\r\n").is_some();
            if !head.starts_with(b"GET ") {
                self.body_left = body_length(head);
            }
            self.put(fd, if self.is_last { CLOSE } else { KEEP })?;
        }
        Ok(at)
    }

    /// Writes an answer behind the unsent ones.
    fn put(&mut self, fd: Fd, answer: &[u8]) -> io::Result<()> {
        let written = if self.unsent.is_empty() {
            write_some(fd, answer)?
        } else {
            0
        };
        self.unsent.extend_from_slice(&answer[written..]);
        Ok(())
    }

    /// Writes what waits, as far as there is room.
    fn send(&mut self, fd: Fd) -> io::Result<()> {
        let written = write_some(fd, &self.unsent)?;
        self.unsent.drain(..written);
        Ok(())
    }
}

/// Writes what there is room for, which may be nothing.
fn write_some(fd: Fd, bytes: &[u8]) -> io::Result<usize> {
    match write(fd, bytes) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        result => result,
    }
}

fn body_length(head: &[u8]) -> usize {
    const NAME: &[u8] = b"\r\nContent-Length:";
    let text = find(head, NAME).map_or(&[][..], |at| &head[at + NAME.len()..]);
    let end = find(text, b"\r\n").unwrap_or(0);
    let number = std::str::from_utf8(&text[..end]).map(str::trim);
    number
        .ok()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

/// Where `part` begins, in letters of any case.
fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes
        .windows(part.len())
        .position(|window| window.eq_ignore_ascii_case(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\n\r\n";

    fn connected(sink: &Sink) -> TcpStream {
        let stream = TcpStream::connect(sink.address()).expect("it listens");
        let patience = Some(Duration::from_secs(60));
        stream.set_read_timeout(patience).expect("a time");
        stream.set_nodelay(true).expect("TCP");
        stream
    }

    fn read_answers(stream: &mut TcpStream, count: usize) {
        let mut answers = vec![0; count * KEEP.len()];
        stream.read_exact(&mut answers).expect("all answers");
        assert!(answers.chunks(KEEP.len()).all(|answer| answer == KEEP));
    }

    #[test]
    fn a_request_cut_anywhere_is_answered_once() {
        let sink = Sink::start("127.0.0.1:0").expect("a port");
        for cut in [1, REQUEST.len() - 3, REQUEST.len() - 1] {
            let mut stream = connected(&sink);
            stream.write_all(&REQUEST[..cut]).expect("open");
            std::thread::sleep(Duration::from_millis(30)); // the server reads it alone
            stream.write_all(&REQUEST[cut..]).expect("open");
            stream.write_all(REQUEST).expect("open");
            read_answers(&mut stream, 2);
        }
    }

    #[test]
    fn bytes_and_datagrams_come_back_as_they_were() {
        let sink = Sink::echo("127.0.0.1:0").expect("a port");
        let mut stream = connected(&sink);
        let (sent, mut back) = (vec![7; 300_000], vec![0; 300_000]);
        let mut writing = stream.try_clone().expect("a descriptor");
        let text = sent.clone();
        let writer = std::thread::spawn(move || writing.write_all(&text).expect("open"));
        stream.read_exact(&mut back).expect("all of it");
        writer.join().expect("no panic");
        assert!(back == sent);
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a time");
        for length in [0, 1, 60_000] {
            socket
                .send_to(&sent[..length], sink.address())
                .expect("room");
            assert_eq!(socket.recv(&mut back).expect("an echo"), length);
        }
    }

    #[test]
    fn a_body_that_looks_like_requests_is_none() {
        let sink = Sink::start("127.0.0.1:0").expect("a port");
        let mut stream = connected(&sink);
        let head = format!(
            "POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n",
            REQUEST.len()
        );
        stream.write_all(head.as_bytes()).expect("open");
        stream.write_all(REQUEST).expect("open");
        stream
            .write_all(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n")
            .expect("open");
        let mut told = Vec::new();
        stream.read_to_end(&mut told).expect("the end");
        assert_eq!(told, [KEEP, CLOSE].concat());
    }

    #[test]
    fn answers_wait_for_a_slow_reader_and_all_arrive() {
        const REQUESTS: usize = 300_000; // 11 MB of answers: more than two sockets hold
        let sink = Sink::start("127.0.0.1:0").expect("a port");
        let mut stream = connected(&sink);
        let mut writing = stream.try_clone().expect("a descriptor");
        let writer = std::thread::spawn(move || {
            let many = REQUEST.repeat(REQUESTS / 100);
            (0..100).for_each(|_| writing.write_all(&many).expect("open"));
        });
        std::thread::sleep(Duration::from_millis(200));
        read_answers(&mut stream, REQUESTS);
        writer.join().expect("no panic");
    }
}
