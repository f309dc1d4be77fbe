//! Scripted dialogues through packetdrill's table, as its runner makes them: calls, packets in both
//! directions and virtual time.

use core::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

use bypass_packetdrill::{packetdrill_interface_init, Interface};

const LOCAL: [u8; 4] = [192, 168, 0, 1];
const REMOTE: [u8; 4] = [192, 0, 2, 1];
const PORT: u16 = 8080;
const REMOTE_PORT: u16 = 40_000;
const FIN: u8 = 1;
const SYN: u8 = 2;
const PUSH: u8 = 8;
const ACK: u8 = 16;
/// Maximum segment size 1000, selective acknowledgments allowed, window scale 0.
const OPTIONS: &[u8] = &[2, 4, 3, 232, 4, 2, 1, 3, 3, 0, 1, 1];

/// packetdrill's side of the table.
#[derive(Clone, Copy)]
struct Runner(Interface);

// SAFETY: packetdrill uses a table from two threads.
unsafe impl Send for Runner {}
// SAFETY: as above.
unsafe impl Sync for Runner {}

/// What left.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Left {
    at_us: i64,
    flags: u8,
    seq: u32,
    ack: u32,
    payload: Vec<u8>,
}

fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2);
    words
        .map(|two| u32::from(two[0]) << 8 | u32::from(*two.get(1).unwrap_or(&0)))
        .sum()
}

fn folded(mut sum: u32) -> [u8; 2] {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!sum as u16).to_be_bytes()
}

fn packet(flags: u8, seq: u32, ack: u32, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut tcp = [REMOTE_PORT.to_be_bytes(), PORT.to_be_bytes()].concat();
    tcp.extend(seq.to_be_bytes());
    tcp.extend(ack.to_be_bytes());
    tcp.extend([((20 + options.len()) / 4 * 16) as u8, flags]);
    tcp.extend(60_000u16.to_be_bytes());
    tcp.extend([0; 4]);
    tcp.extend(options);
    tcp.extend(payload);
    let pseudo = [
        &REMOTE[..],
        &LOCAL,
        &[0, 6],
        &(tcp.len() as u16).to_be_bytes(),
    ]
    .concat();
    let check = folded(sum(&pseudo) + sum(&tcp));
    tcp[16..18].copy_from_slice(&check);
    let length = (20 + tcp.len()) as u16;
    let mut ip = vec![0x45, 0];
    ip.extend(length.to_be_bytes());
    ip.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    ip.extend(REMOTE);
    ip.extend(LOCAL);
    let check = folded(sum(&ip));
    ip[10..12].copy_from_slice(&check);
    [ip, tcp].concat()
}

fn address(ip: [u8; 4], port: u16) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(ip),
        },
        sin_zero: [0; 8],
    }
}

impl Runner {
    fn new() -> Self {
        let mut table = MaybeUninit::uninit();
        // SAFETY: the place is large enough, and filled when the call returns.
        unsafe {
            packetdrill_interface_init(c"local=192.168.0.1".as_ptr(), table.as_mut_ptr());
            Self(table.assume_init())
        }
    }

    fn socket(&self, flags: c_int) -> c_int {
        let kind = libc::SOCK_STREAM | flags;
        // SAFETY: numbers only.
        let fd = unsafe { (self.0.socket)(self.0.userdata, libc::AF_INET, kind, 0) };
        assert!(fd >= 0);
        fd
    }

    fn listener(&self) -> c_int {
        let (fd, at) = (self.socket(0), address(LOCAL, PORT));
        let length = size_of_val(&at) as u32;
        // SAFETY: the address is one.
        unsafe {
            assert_eq!(
                (self.0.bind)(self.0.userdata, fd, (&raw const at).cast(), length),
                0
            );
            assert_eq!((self.0.listen)(self.0.userdata, fd, 1), 0);
        }
        fd
    }

    fn accept(&self, fd: c_int) -> c_int {
        let (name, length) = (core::ptr::null_mut(), core::ptr::null_mut());
        // SAFETY: no address is asked for.
        unsafe { (self.0.accept)(self.0.userdata, fd, name, length) }
    }

    fn send(&self, fd: c_int, bytes: &[u8], flags: c_int) -> isize {
        let from = bytes.as_ptr().cast::<c_void>();
        // SAFETY: the slice is readable.
        unsafe { (self.0.send)(self.0.userdata, fd, from, bytes.len(), flags) }
    }

    fn read(&self, fd: c_int) -> Vec<u8> {
        let mut bytes = vec![0; 10_000];
        let into = bytes.as_mut_ptr().cast::<c_void>();
        // SAFETY: the buffer is writable.
        let got = unsafe { (self.0.read)(self.0.userdata, fd, into, bytes.len()) };
        bytes.truncate(usize::try_from(got).expect("bytes"));
        bytes
    }

    fn option<const N: usize>(&self, fd: c_int, level: c_int, name: c_int) -> [u8; N] {
        let (mut value, mut length) = ([0; N], N as u32);
        let into = value.as_mut_ptr().cast::<c_void>();
        // SAFETY: the buffer is as long as said.
        let done =
            unsafe { (self.0.getsockopt)(self.0.userdata, fd, level, name, into, &raw mut length) };
        assert_eq!((done, length as usize), (0, N));
        value
    }

    fn arrives(&self, flags: u8, seq: u32, ack: u32, options: &[u8], payload: &[u8]) {
        let packet = packet(flags, seq, ack, options, payload);
        let from = packet.as_ptr().cast::<c_void>();
        // SAFETY: the slice is readable.
        let done = unsafe { (self.0.netdev_send)(self.0.userdata, from, packet.len()) };
        assert_eq!(done, 0);
    }

    /// The next packet and its time; no bytes where nothing will ever leave.
    fn next_packet(&self) -> (Vec<u8>, i64) {
        let (mut bytes, mut length, mut at_us) = (vec![0u8; 65_536], 65_536, 0);
        let into = bytes.as_mut_ptr().cast::<c_void>();
        // SAFETY: the buffer is as long as said.
        let done = unsafe {
            (self.0.netdev_receive)(self.0.userdata, into, &raw mut length, &raw mut at_us)
        };
        assert_eq!(done, 0, "packetdrill asks again for ever after an error");
        bytes.truncate(length);
        (bytes, at_us)
    }

    fn leaves(&self) -> Left {
        let (bytes, at_us) = self.next_packet();
        assert!(!bytes.is_empty(), "nothing leaves");
        let tcp = &bytes[20..];
        assert_eq!(folded(sum(&bytes[..20])), [0, 0], "the header's checksum");
        let word = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().expect("four"));
        Left {
            at_us,
            flags: tcp[13],
            seq: word(4),
            ack: word(8),
            payload: tcp[usize::from(tcp[12] >> 4) * 4..].to_vec(),
        }
    }

    fn clock(&self) -> i64 {
        let mut now = MaybeUninit::<libc::timeval>::uninit();
        // SAFETY: the place is one for a time, and filled.
        let now = unsafe {
            (self.0.gettimeofday)(self.0.userdata, now.as_mut_ptr(), core::ptr::null_mut());
            now.assume_init()
        };
        now.tv_sec * 1_000_000 + now.tv_usec
    }

    fn sleep(&self, us: u32) {
        // SAFETY: a number.
        unsafe { (self.0.usleep)(self.0.userdata, us) };
    }

    /// A connection that the remote end has opened; its descriptor and the number of our first byte.
    fn accepted(&self) -> (c_int, u32) {
        let listener = self.listener();
        self.arrives(SYN, 0, 0, OPTIONS, b"");
        let answer = self.leaves();
        assert_eq!((answer.flags, answer.ack), (SYN | ACK, 1));
        self.sleep(10_000);
        self.arrives(ACK, 1, answer.seq.wrapping_add(1), &[], b"");
        let fd = self.accept(listener);
        assert!(fd >= 0);
        (fd, answer.seq.wrapping_add(1))
    }

    fn end(self) {
        // SAFETY: nobody uses it any more.
        unsafe { (self.0.free)(self.0.userdata) };
    }
}

#[test]
fn the_table_has_every_function_in_its_place() {
    assert_eq!(size_of::<Interface>(), 33 * size_of::<usize>());
    assert_eq!(
        core::mem::offset_of!(Interface, getsockopt),
        21 * size_of::<usize>()
    );
    assert_eq!(
        core::mem::offset_of!(Interface, netdev_receive),
        25 * size_of::<usize>()
    );
}

#[test]
fn a_packet_that_never_leaves_ends_the_script_instead_of_hanging_it() {
    let runner = Runner::new();
    runner.accepted();
    let (packet, _) = runner.next_packet();
    assert_eq!(packet, [], "nothing was to be sent, and no timer runs");
    runner.end();
}

#[test]
fn a_server_answers_and_retransmits_in_virtual_time() {
    let runner = Runner::new();
    let (fd, first) = runner.accepted();
    runner.arrives(ACK | PUSH, 1, first, &[], b"GET /");
    let acknowledged = runner.leaves();
    assert_eq!((acknowledged.ack, acknowledged.payload.len()), (6, 0));
    assert_eq!(runner.read(fd), b"GET /");
    assert_eq!(runner.send(fd, &[b'x'; 1500], 0), 1500);
    let lengths = [runner.leaves(), runner.leaves()].map(|left| (left.seq, left.payload.len()));
    assert_eq!(lengths, [(first, 1000), (first.wrapping_add(1000), 500)]);
    // Nobody acknowledges: a tail loss probe of the last segment, two round trips later (RFC 8985, 7.2).
    let before = runner.clock();
    let probe = runner.leaves();
    assert_eq!(
        (probe.seq, probe.payload.len()),
        (first.wrapping_add(1000), 500)
    );
    assert!(
        (15_000..=60_000).contains(&(probe.at_us - before)),
        "{}",
        probe.at_us - before
    );
    // Then the first, when the retransmission timeout of at least 200 ms is over.
    let again = runner.leaves();
    assert_eq!((again.seq, again.payload.len()), (first, 1000));
    assert!(
        (again.at_us - probe.at_us) >= 150_000,
        "{}",
        again.at_us - probe.at_us
    );
    runner.end();
}

#[test]
fn a_script_does_the_same_at_every_run() {
    let play = || {
        let runner = Runner::new();
        let (fd, first) = runner.accepted();
        runner.send(fd, &[7; 3000], 0);
        let left: Vec<Left> = (0..6).map(|_| runner.leaves()).collect();
        runner.arrives(ACK, 1, first.wrapping_add(3000), &[], b"");
        let clock = runner.clock();
        runner.end();
        (left, clock)
    };
    assert_eq!(play(), play());
}

#[test]
fn calls_that_block_end_when_the_packet_comes() {
    let runner = Runner::new();
    let listener = runner.listener();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let fd = runner.accept(listener);
            (fd, runner.clock())
        });
        // Until it waits, as far as anybody can tell; a call that comes later does not wait at all.
        std::thread::sleep(std::time::Duration::from_millis(50));
        runner.sleep(100_000);
        runner.arrives(SYN, 0, 0, OPTIONS, b"");
        let answer = runner.leaves();
        runner.sleep(20_000);
        let before = runner.clock();
        runner.arrives(ACK, 1, answer.seq.wrapping_add(1), &[], b"");
        let (fd, ended) = accepting.join().expect("accepted");
        assert!(fd >= 0);
        assert!(
            (before..before + 100).contains(&ended),
            "{}",
            ended - before
        );
    });
    runner.end();
}

#[test]
fn a_client_connects_without_blocking_and_closes() {
    let runner = Runner::new();
    let fd = runner.socket(libc::SOCK_NONBLOCK);
    let to = address(REMOTE, REMOTE_PORT);
    let length = size_of_val(&to) as u32;
    let connect = || {
        // SAFETY: the address is one.
        let done =
            unsafe { (runner.0.connect)(runner.0.userdata, fd, (&raw const to).cast(), length) };
        let error = std::io::Error::last_os_error().raw_os_error();
        (done, if done == 0 { None } else { error })
    };
    assert_eq!(connect(), (-1, Some(libc::EINPROGRESS)));
    assert_eq!(connect(), (-1, Some(libc::EALREADY)));
    let syn = runner.leaves();
    assert_eq!(syn.flags, SYN);
    // The SYN is sent again after a second (RFC 6298, 2.1).
    let again = runner.leaves();
    assert_eq!((again.flags, again.seq), (SYN, syn.seq));
    assert!((again.at_us - syn.at_us - 1_000_000).abs() < 20_000);
    runner.end();
}

#[test]
fn options_and_facts_are_told() {
    let runner = Runner::new();
    let (fd, first) = runner.accepted();
    let info: [u8; 232] = runner.option(fd, libc::IPPROTO_TCP, libc::TCP_INFO);
    let word = |at: usize| u32::from_ne_bytes(info[at..at + 4].try_into().expect("four"));
    assert_eq!(info[0], 1, "ESTABLISHED");
    assert_eq!(
        (word(16), word(80)),
        (1000, 10),
        "segment size and congestion window"
    );
    let name: [u8; 16] = runner.option(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION);
    assert_eq!(&name[..6], b"cubic\0");
    let error: [u8; 4] = runner.option(fd, libc::SOL_SOCKET, libc::SO_ERROR);
    assert_eq!(error, [0; 4]);
    // MSG_MORE keeps a small segment back until the rest is there.
    assert_eq!(runner.send(fd, b"head", libc::MSG_MORE), 4);
    assert_eq!(runner.send(fd, b"body", 0), 4);
    let left = runner.leaves();
    assert_eq!((left.seq, &left.payload[..]), (first, &b"headbody"[..]));
    runner.arrives(ACK, 1, first.wrapping_add(8), &[], b"");
    // SAFETY: a descriptor of this table.
    assert_eq!(unsafe { (runner.0.close)(runner.0.userdata, fd) }, 0);
    let end = runner.leaves();
    assert_eq!((end.flags & FIN, end.seq), (FIN, first.wrapping_add(8)));
    runner.end();
}

#[test]
fn the_clock_moves_when_it_is_read() {
    let runner = Runner::new();
    let times: Vec<i64> = (0..100).map(|_| runner.clock()).collect();
    assert!(times.windows(2).all(|two| two[1] > two[0]));
    let before = runner.clock();
    runner.sleep(5_000);
    assert!((5_000..5_010).contains(&(runner.clock() - before)));
    runner.end();
}
