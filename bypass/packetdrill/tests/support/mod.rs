//! packetdrill's side of its table.
#![allow(dead_code)] // each test file uses a part of it

use core::ffi::{c_int, c_void, CStr};
use std::mem::MaybeUninit;

use bypass_packetdrill::{packetdrill_interface_init, Interface};

pub const LOCAL: [u8; 4] = [192, 168, 0, 1];
pub const REMOTE: [u8; 4] = [192, 0, 2, 1];
pub const PORT: u16 = 8080;
pub const REMOTE_PORT: u16 = 40_000;
pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const PUSH: u8 = 8;
pub const ACK: u8 = 16;
/// Maximum segment size 1000, selective acknowledgments allowed, window scale 0.
pub const OPTIONS: &[u8] = &[2, 4, 3, 232, 4, 2, 1, 3, 3, 0, 1, 1];

/// packetdrill's side of the table.
#[derive(Clone, Copy)]
pub struct Runner(pub Interface);

// SAFETY: packetdrill uses a table from two threads.
unsafe impl Send for Runner {}
// SAFETY: as above.
unsafe impl Sync for Runner {}

/// A packet that left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    pub at_us: i64,
    pub flags: u8,
    pub seq: u32,
    pub ack: u32,
    pub payload: Vec<u8>,
}

pub fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2);
    words
        .map(|two| u32::from(two[0]) << 8 | u32::from(*two.get(1).unwrap_or(&0)))
        .sum()
}

pub fn folded(mut sum: u32) -> [u8; 2] {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!sum as u16).to_be_bytes()
}

pub fn packet(flags: u8, seq: u32, ack: u32, options: &[u8], payload: &[u8]) -> Vec<u8> {
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

pub fn address(ip: [u8; 4], port: u16) -> libc::sockaddr_in {
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
    pub fn new() -> Self {
        Self::with(c"local=192.168.0.1")
    }

    /// With these flags.
    pub fn with(flags: &CStr) -> Self {
        let mut table = MaybeUninit::uninit();
        // SAFETY: the place is large enough, and filled when the call returns.
        unsafe {
            packetdrill_interface_init(flags.as_ptr(), table.as_mut_ptr());
            Self(table.assume_init())
        }
    }

    pub fn socket(&self, flags: c_int) -> c_int {
        let kind = libc::SOCK_STREAM | flags;
        // SAFETY: numbers only.
        let fd = unsafe { (self.0.socket)(self.0.userdata, libc::AF_INET, kind, 0) };
        assert!(fd >= 0);
        fd
    }

    pub fn listener(&self) -> c_int {
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

    pub fn accept(&self, fd: c_int) -> c_int {
        let (name, length) = (core::ptr::null_mut(), core::ptr::null_mut());
        // SAFETY: no address is asked for.
        unsafe { (self.0.accept)(self.0.userdata, fd, name, length) }
    }

    pub fn send(&self, fd: c_int, bytes: &[u8], flags: c_int) -> isize {
        let from = bytes.as_ptr().cast::<c_void>();
        // SAFETY: the slice is readable.
        unsafe { (self.0.send)(self.0.userdata, fd, from, bytes.len(), flags) }
    }

    pub fn read(&self, fd: c_int) -> Vec<u8> {
        let mut bytes = vec![0; 10_000];
        let into = bytes.as_mut_ptr().cast::<c_void>();
        // SAFETY: the buffer is writable.
        let got = unsafe { (self.0.read)(self.0.userdata, fd, into, bytes.len()) };
        bytes.truncate(usize::try_from(got).expect("bytes"));
        bytes
    }

    pub fn option<const N: usize>(&self, fd: c_int, level: c_int, name: c_int) -> [u8; N] {
        let (mut value, mut length) = ([0; N], N as u32);
        let into = value.as_mut_ptr().cast::<c_void>();
        // SAFETY: the buffer is as long as said.
        let done =
            unsafe { (self.0.getsockopt)(self.0.userdata, fd, level, name, into, &raw mut length) };
        assert_eq!((done, length as usize), (0, N));
        value
    }

    /// The result of setsockopt(2).
    pub fn set(&self, fd: c_int, level: c_int, name: c_int, value: &[u8]) -> Result<(), i32> {
        let (from, length) = (value.as_ptr().cast::<c_void>(), value.len() as u32);
        // SAFETY: the slice is readable.
        let done = unsafe { (self.0.setsockopt)(self.0.userdata, fd, level, name, from, length) };
        result(done as isize).map(drop)
    }

    pub fn arrives(&self, flags: u8, seq: u32, ack: u32, options: &[u8], payload: &[u8]) {
        let packet = packet(flags, seq, ack, options, payload);
        let from = packet.as_ptr().cast::<c_void>();
        // SAFETY: the slice is readable.
        let done = unsafe { (self.0.netdev_send)(self.0.userdata, from, packet.len()) };
        assert_eq!(done, 0);
    }

    /// The next packet and its time; no bytes if nothing will ever leave.
    pub fn next_packet(&self) -> (Vec<u8>, i64) {
        let (mut bytes, mut length, mut at_us) = (vec![0u8; 65_536], 65_536, 0);
        let into = bytes.as_mut_ptr().cast::<c_void>();
        // SAFETY: the buffer is as long as said.
        let done = unsafe {
            (self.0.netdev_receive)(self.0.userdata, into, &raw mut length, &raw mut at_us)
        };
        assert_eq!(done, 0, "packetdrill asks again forever after an error");
        bytes.truncate(length);
        (bytes, at_us)
    }

    pub fn leaves(&self) -> Left {
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

    pub fn clock(&self) -> i64 {
        let mut now = MaybeUninit::<libc::timeval>::uninit();
        // SAFETY: the place is one for a time, and filled.
        let now = unsafe {
            (self.0.gettimeofday)(self.0.userdata, now.as_mut_ptr(), core::ptr::null_mut());
            now.assume_init()
        };
        now.tv_sec * 1_000_000 + now.tv_usec
    }

    pub fn sleep(&self, us: u32) {
        // SAFETY: a number.
        unsafe { (self.0.usleep)(self.0.userdata, us) };
    }

    /// A connection that the remote end opened; its descriptor and our first sequence number.
    pub fn accepted(&self) -> (c_int, u32) {
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

    pub fn end(self) {
        // SAFETY: no other use remains.
        unsafe { (self.0.free)(self.0.userdata) };
    }
}

/// The result of a call, or its error number.
pub fn result(answer: isize) -> Result<usize, i32> {
    let error = std::io::Error::last_os_error().raw_os_error();
    usize::try_from(answer).map_err(|_| error.unwrap_or(0))
}
