//! What a program does through the library: the calls of the hooks, as short functions.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bypass_shm::ring::Ring;
use bypass_stack::lifecycle::serving;
use bypass_stack::operations::{accept, connect, descriptors, listen};
use bypass_stack::process::table::{self, Kind};
use bypass_stack::wait::{epoll, poll};
use bypass_stack::{operations, Outcome};
use bypass_sys::iovec::Pieces;
use bypass_sys::{address, kernel};

/// A listening socket of this process.
pub struct Listening {
    pub fd: i32,
    pub port: u16,
    pub inode: u64,
}

fn socket(flags: i32) -> i32 {
    serving::provide();
    match descriptors::socket(libc::AF_INET, libc::SOCK_STREAM | flags, 0) {
        Outcome::Done(fd) => fd as i32,
        other => panic!("no socket: {other:?}"),
    }
}

fn loopback(port: u16) -> Vec<u8> {
    let mut bytes = [0; 28];
    let name = (std::net::Ipv4Addr::LOCALHOST, port).into();
    let length = address::to_bytes(name, libc::AF_INET, &mut bytes);
    bytes[..length].to_vec()
}

/// A socket that is bound to a port, or to any for 0.
pub fn bound(port: u16) -> i32 {
    let fd = socket(libc::SOCK_NONBLOCK);
    assert_eq!(descriptors::bind(fd), Outcome::Kernel);
    kernel::bind(fd, &loopback(port)).expect("a port");
    fd
}

impl Listening {
    pub fn open() -> Self {
        Self::open_at(0)
    }

    pub fn open_at(port: u16) -> Self {
        let fd = bound(port);
        assert_eq!(listen::listen(fd, 256), Outcome::Done(0));
        assert_eq!(table::get(fd).kind(), Kind::Listener);
        let name = kernel::socket_name(fd).expect("bound");
        let port = u16::from_be_bytes([name.bytes[2], name.bytes[3]]);
        let inode = kernel::fstat(fd).expect("open").st_ino;
        // From the first look for a connection on clients may come through shared memory.
        assert_eq!(accept_within(fd, Duration::ZERO), None);
        Self { fd, port, inode }
    }

    pub fn close(self) {
        close(self.fd);
    }
}

/// A connected socket, accelerated or not.
pub fn dial(port: u16) -> i32 {
    let fd = socket(0);
    match connect::connect(fd, &loopback(port)) {
        Outcome::Kernel => {
            kernel::connect(fd, &loopback(port)).expect("the kernel connects");
        }
        other => assert_eq!(other, Outcome::Done(0)),
    }
    fd
}

pub fn is_accelerated(fd: i32) -> bool {
    table::get(fd).kind() == Kind::Connected
}

/// An accepted connection; None when none comes.
pub fn accept_within(fd: i32, wait: Duration) -> Option<i32> {
    let since = Instant::now();
    loop {
        let mut client = accept::Client::NOBODY;
        match accept::accept(fd, libc::SOCK_CLOEXEC, &mut client) {
            Outcome::Done(new) => return Some(new as i32),
            Outcome::Error(libc::EAGAIN) if since.elapsed() < wait => std::thread::yield_now(),
            _ => return None,
        }
    }
}

/// Reads once, blocking for bytes unless none can come.
pub fn read(fd: i32, limit: usize) -> Result<Vec<u8>, i32> {
    let mut bytes = vec![0u8; limit];
    let piece = [libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: limit,
    }];
    // SAFETY: the vector is writable.
    let mut pieces = unsafe { Pieces::new(&piece) }.expect("fits");
    match operations::read::read(fd, &mut pieces, WAIT.get()) {
        Outcome::Done(count) => {
            bytes.truncate(count as usize);
            Ok(bytes)
        }
        Outcome::Error(error) => Err(error),
        Outcome::Kernel => Err(libc::ENOSYS),
    }
}

/// Writes once.
pub fn write(fd: i32, bytes: &[u8]) -> Outcome {
    let piece = [libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }];
    // SAFETY: the slice is readable; writing only reads it.
    let mut pieces = unsafe { Pieces::new(&piece) }.expect("fits");
    operations::write::write(fd, &mut pieces, libc::MSG_NOSIGNAL | WAIT.get())
}

/// Writes bytes as a writer does that has yet to announce them.
pub fn push(ring: &Ring, bytes: &[u8]) {
    let piece = [libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }];
    // SAFETY: the slice is readable; writing only reads it.
    let mut pieces = unsafe { Pieces::new(&piece) }.expect("fits");
    assert_eq!(ring.push(&mut pieces), Ok(bytes.len()));
}

/// What poll(2) finds of bytes, without waiting.
pub fn polled(fd: i32) -> i16 {
    let mut one = [libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }];
    let found = poll::poll(&mut one, Some(Duration::ZERO), None);
    assert_eq!(found, Outcome::Done(isize::from(one[0].revents != 0)));
    one[0].revents
}

/// A set that waits for bytes of one connection.
pub fn readable_set(fd: i32) -> i32 {
    let Outcome::Done(set) = descriptors::epoll_create(libc::EPOLL_CLOEXEC) else {
        panic!("no set");
    };
    watch(set as i32, fd);
    set as i32
}

/// Adds a descriptor to a set, for bytes or connections.
pub fn watch(set: i32, fd: i32) {
    let event = epoll::Event {
        events: libc::EPOLLIN as u32,
        data: fd as u64,
    };
    let added = epoll::control(set, libc::EPOLL_CTL_ADD, fd, Some(event));
    assert_eq!(added, Outcome::Done(0));
}

/// The descriptors that epoll_wait(2) finds.
pub fn ready_in_set(set: i32, wait: Duration) -> Vec<i32> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
    match epoll::wait(set, &mut events, Some(wait), None) {
        Outcome::Done(count) => events[..count as usize]
            .iter()
            .map(|one| one.u64 as i32)
            .collect(),
        other => panic!("{other:?}"),
    }
}

/// How many events epoll_wait(2) finds without waiting.
pub fn in_set(set: i32) -> usize {
    ready_in_set(set, Duration::ZERO).len()
}

thread_local! {
    /// Flags of every read and write of a thread: MSG_DONTWAIT where a hostile peer decides.
    static WAIT: std::cell::Cell<i32> = const { std::cell::Cell::new(0) };
}

/// From now on this thread's reads and writes do not wait.
pub fn never_wait(is_on: bool) {
    WAIT.set(if is_on { libc::MSG_DONTWAIT } else { 0 });
}

pub fn close(fd: i32) {
    assert_eq!(descriptors::close(fd), Outcome::Done(0));
}

/// Closes what may be the kernel's.
pub fn close_any(fd: i32) {
    if descriptors::close(fd) == Outcome::Kernel {
        let _ = kernel::close(fd);
    }
}

/// A peer writes into memory that it shares.
pub fn write_word(at: *mut u64, value: u64) {
    // SAFETY: the caller took the address from a living mapping.
    unsafe { at.write_volatile(value) };
}

/// The same with what the word becomes.
pub fn change_word(at: *mut u64, change: impl FnOnce(u64) -> u64) {
    // SAFETY: as above.
    write_word(at, change(unsafe { at.read_volatile() }));
}

/// Starts this test program as another user. Without root, reports a skip and returns None.
pub fn as_other_user(arguments: &[&str], variable: (&str, u64)) -> Option<Child> {
    use std::os::unix::process::CommandExt;
    if kernel::geteuid() != Ok(0) {
        bypass_testkit::report_skip("only root can become another user");
        return None;
    }
    // The other user may not be allowed into the folder of the build.
    let own = std::env::current_exe().expect("this program");
    let copy = std::env::temp_dir().join(format!("bypass-hostile-{:x}", kernel::random()));
    std::fs::copy(own, &copy).expect("a copy, which keeps the permissions");
    let mut command = Command::new(&copy);
    command
        .args(arguments)
        .env(variable.0, variable.1.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    // The test harness in it complains when no process reads on.
    command.stderr(Stdio::null());
    let child = command.uid(65_534).gid(65_534).spawn();
    std::fs::remove_file(&copy).expect("ours");
    Some(child.expect("the program starts as another user"))
}

/// Until the child has printed a line that ends so.
pub fn wait_for_line(child: &mut Child, end: &str) {
    let out = child.stdout.take().expect("a pipe");
    let mut lines = BufReader::new(out).lines();
    assert!(
        lines.any(|line| line.is_ok_and(|line| line.ends_with(end))),
        "it said nothing"
    );
}
