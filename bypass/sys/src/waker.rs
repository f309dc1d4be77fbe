//! Wakes a sleeper of another process by name, without passing anything beforehand.
//!
//! A waker is a datagram socket with an abstract name made of its process's random number and its
//! own. The sleeper polls it; a datagram without content wakes it. Abstract names belong to a
//! network namespace, as ports do, and vanish with the process. Where processes of several namespaces
//! meet, the name is that of a file in their [directory].

use crate::descriptor::Owned;
use crate::directory;
use crate::kernel::{self, Result};
use crate::numbers;

/// More datagrams than a kernel queues for one socket with the default net.unix.max_dgram_qlen.
const QUEUE_MAX: usize = 64;

/// How long a blocking waker sleeps.
const READ_US: i64 = 10_000;

/// The receiving end.
#[derive(Debug)]
pub struct Waker {
    fd: i32,
    number: u32,
}

impl Waker {
    /// Waker `number` of process `process`.
    pub fn create(process: u64, number: u32) -> Result<Self> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let fd = numbers::high(|| kernel::socket(libc::AF_UNIX, kind, 0))?.into_raw();
        let waker = Self { fd, number };
        Name::of_waker(process, number).bind(fd)?;
        Ok(waker)
    }

    /// Makes [`Self::wait`] sleep for a little while. Its other users would block as well: to them
    /// it is not a waker any more.
    pub fn make_blocking(&self) -> Result<()> {
        let mut time = [0u8; 16];
        time[8..].copy_from_slice(&READ_US.to_ne_bytes());
        kernel::set_option(self.fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &time)?;
        kernel::fcntl(self.fd, libc::F_SETFL, libc::O_RDWR as usize)?;
        Ok(())
    }

    /// Sleeps until it is woken, for a [blocking](Self::make_blocking) waker; true if it was woken.
    pub fn wait(&self) -> Result<bool> {
        match kernel::read(self.fd, &mut [0; 8]) {
            Ok(_) => Ok(true),
            Err(libc::EAGAIN) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The descriptor to poll for reading.
    pub fn fd(&self) -> i32 {
        self.fd
    }

    /// Its number within the process.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Takes one wake-up; further ones keep the descriptor readable.
    pub fn take(&self) -> bool {
        // read instead of recv, which a confined process may not call; the socket never blocks.
        kernel::read(self.fd, &mut [0; 8]).is_ok()
    }

    /// Takes the pending wake-ups. A sender can produce more all the time, so the number is
    /// bounded; the rest keep the descriptor readable.
    pub fn drain(&self) {
        for _ in 0..QUEUE_MAX {
            if !self.take() {
                return;
            }
        }
    }
}

impl Drop for Waker {
    fn drop(&mut self) {
        let _ = kernel::close(self.fd);
    }
}

/// A socket to wake others with.
pub fn sender() -> Result<i32> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    numbers::high(|| kernel::socket(libc::AF_UNIX, kind, 0)).map(Owned::into_raw)
}

/// Wakes waker `number` of `process`; one with a full queue is already awake. EMFILE or ENFILE: not
/// woken, because no descriptor was free.
pub fn wake(sender: i32, process: u64, number: u32) -> Result<()> {
    let name = Name::of_waker(process, number);
    match ring(sender, &name) {
        Err(libc::EAGAIN) => ring_by_another(sender, &name),
        // No thread sleeps there any more.
        _ => Ok(()),
    }
}

fn ring(sender: i32, name: &Name) -> Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    kernel::send_to(sender, &[1], flags, name.bytes())
}

/// Wake-ups that no waker has taken yet count against the send buffer of the socket that sent them
/// (SO_SNDBUF, socket(7)): about 270 fill it. Then a new socket replaces it.
#[cold]
fn ring_by_another(sender: i32, name: &Name) -> Result<()> {
    let fresh = self::sender()?;
    if ring(fresh, name).is_ok() {
        // Under the same number and at once: other threads send with it.
        let _ = kernel::dup3(fresh, sender, libc::O_CLOEXEC);
    }
    let _ = kernel::close(fresh);
    Ok(())
}

/// The address of a Unix socket: abstract, or a file in the [directory].
pub struct Name {
    bytes: [u8; NAME_BYTES],
    length: usize,
    is_file: bool,
}

/// Bytes of `struct sockaddr_un`.
const NAME_BYTES: usize = 110;

impl Name {
    /// Name of a waker.
    pub fn of_waker(process: u64, number: u32) -> Self {
        Self::new(b'w', process, Some(number))
    }

    /// Name of a process's rendezvous socket.
    pub fn of_process(process: u64) -> Self {
        Self::new(b'p', process, None)
    }

    /// Name of the socket that reserves a block of local ports.
    pub fn of_ports(block: u64) -> Self {
        Self::of_namespace(b'b', block, None)
    }

    /// Name of the rendezvous socket of a listening socket, by inode.
    pub fn of_listener(inode: u64) -> Self {
        Self::new(b'l', inode, None)
    }

    /// Name of rendezvous socket `turn` at which a connection in transit, by its shadow's inode, is
    /// available.
    pub fn of_offer(inode: u64, turn: u32) -> Self {
        Self::new(b'o', inode, Some(turn))
    }

    /// Name of the rendezvous socket of programs that share interface `link`, by a hash of their
    /// cluster's name.
    pub fn of_cluster(cluster: u64, link: u32) -> Self {
        Self::of_namespace(b'c', cluster, Some(link))
    }

    fn new(kind: u8, number: u64, second: Option<u32>) -> Self {
        let Some(mut name) = Self::in_directory() else {
            return Self::of_namespace(kind, number, second);
        };
        name.append(&[kind]);
        name.append_numbers(b"-", number, second);
        name.append(b"\0");
        name
    }

    /// An abstract one, of which each network namespace has its own.
    fn of_namespace(kind: u8, number: u64, second: Option<u32>) -> Self {
        let mut name = Self::empty();
        name.append(b"\0wirespeed/");
        name.append(&[kind]);
        name.append_numbers(b"/", number, second);
        name
    }

    fn empty() -> Self {
        let mut name = Self {
            bytes: [0; NAME_BYTES],
            length: 2,
            is_file: false,
        };
        name.bytes[..2].copy_from_slice(&(libc::AF_UNIX as u16).to_ne_bytes());
        name
    }

    fn in_directory() -> Option<Self> {
        let path = directory::path()?;
        let mut name = Self::empty();
        name.is_file = true;
        name.append(path.to_bytes());
        name.append(b"/");
        Some(name)
    }

    fn append_numbers(&mut self, between: &[u8], number: u64, second: Option<u32>) {
        self.append(between);
        self.append_hex(number);
        if let Some(second) = second {
            self.append(between);
            self.append_hex(u64::from(second));
        }
    }

    /// Gives the name to a socket.
    pub fn bind(&self, fd: i32) -> Result<()> {
        kernel::bind(fd, self.bytes())?;
        match self.file() {
            Some(file) => directory::open_to_users(file),
            None => Ok(()),
        }
    }

    /// The file's name within the directory.
    pub fn file(&self) -> Option<&str> {
        let path = self.bytes.get(2..self.length.checked_sub(1)?)?;
        let name = path.rsplit(|byte| *byte == b'/').next()?;
        let name = core::str::from_utf8(name).ok();
        name.filter(|_| self.is_file)
    }

    fn append(&mut self, bytes: &[u8]) {
        self.bytes[self.length..][..bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    fn append_hex(&mut self, number: u64) {
        for nibble in (0..16)
            .rev()
            .map(|index| (number >> (index * 4)) as usize & 15)
        {
            self.append(&[b"0123456789abcdef"[nibble]]);
        }
    }

    /// The bytes for bind and connect.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_arrives_and_many_do_no_harm() {
        let process = kernel::random();
        let waker = Waker::create(process, 7).expect("a socket");
        let sender = sender().expect("a socket");
        for _ in 0..1000 {
            wake(sender, process, 7).expect("a descriptor");
        }
        assert!(waker.take());
        waker.drain();
        assert!(!waker.take());
        wake(sender, process, 8).expect("a descriptor");
        assert!(!waker.take());
        let _ = kernel::close(sender);
    }

    #[test]
    fn every_waker_wakes_however_many_are_pending() {
        let process = kernel::random();
        let waker = |number| Waker::create(process, number).expect("a socket");
        let wakers: Vec<Waker> = (0..400).map(waker).collect();
        let sender = sender().expect("a socket");
        for number in 0..400 {
            wake(sender, process, number).expect("a descriptor");
        }
        assert!(wakers.iter().all(Waker::take));
        let _ = kernel::close(sender);
    }

    #[test]
    fn a_blocking_waker_sleeps_until_woken_or_for_a_little_while() {
        let process = kernel::random();
        let waker = Waker::create(process, 7).expect("a socket");
        waker.make_blocking().expect("options");
        assert_eq!(waker.wait(), Ok(false));
        let sender = sender().expect("a socket");
        wake(sender, process, 7).expect("a descriptor");
        assert_eq!(waker.wait(), Ok(true));
        let _ = kernel::close(sender);
    }

    #[test]
    fn constant_wake_ups_do_not_block_the_sleeper() {
        use core::sync::atomic::{AtomicBool, Ordering};
        let process = kernel::random();
        let waker = Waker::create(process, 7).expect("a socket");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let sender = sender().expect("a socket");
                    while !is_over.load(Ordering::Relaxed) {
                        let _ = wake(sender, process, 7);
                    }
                    let _ = kernel::close(sender);
                });
            }
            for _ in 0..1000 {
                waker.drain();
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
