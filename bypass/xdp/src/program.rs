//! The BPF program that steers frames, instruction by instruction (linux/bpf.h, RFC 9669).
//!
//! It takes a frame when the destination of its TCP or UDP header is claimed, or when it is an ICMP
//! error about a TCP packet whose source is. Everything else, and everything unusual, goes to the
//! kernel: other protocols, VLAN tags, IP options, extension headers, fragments, datagrams above the MTU. Where the kernel has
//! connections at a claimed port too, it is asked whose a frame is, and new ones may be left to it.

mod assembler;
mod new;

use crate::sys::bpf::Instruction;
use assembler::*;

/// Tables that the program looks into, by descriptor.
#[derive(Debug, Clone, Copy)]
pub struct Maps {
    /// Port → who claims it, and how: see [`WORDS`].
    pub ports: i32,
    /// Port → what its claims may take: see [`TRUSTED`].
    pub permits: i32,
    /// Hash of an address → the address.
    pub addresses: i32,
    /// The same → how it is used: see [`USE_WORDS`].
    pub uses: i32,
    /// Number of a list → where new connections may come from: see [`WAYS_MAX`].
    pub ways: i32,
    /// Queue → since when a new connection waits to be seen by its owner.
    pub pending: i32,
    /// Queue → socket.
    pub sockets: i32,
    /// Connections that were opened while the kernel kept an earlier one of the same ends in TIME_WAIT.
    pub reopened: i32,
}

/// Words of 8 bytes of a port, by the constants below. A bit stands for an owner, which is a user of the tables, or
/// for a queue.
pub const WORDS: usize = 7;
/// Owners that claim the port of TCP.
pub const TCP: usize = 0;
/// Queues whose owners claim that of UDP.
pub const UDP: usize = 1;
/// The kernel may have TCP connections of the port, whose frames are its own, for all that these owners know.
pub const SHARED: usize = 2;
/// Owners that have TCP connections of the port, but take no new ones. With [`SHARED`]: where every owner is
/// such a one, new connections go to the kernel.
pub const DRAINING: usize = 3;
/// With [`SHARED`]: new TCP connections whose frames come by these queues go to the kernel.
pub const LEAVES_NEW: usize = 4;
/// How often the TCP port, being unclaimed, was claimed.
pub const USES: usize = 5;
/// The program itself has left new connections of the TCP port to the kernel, which is asked from then on.
pub const LEFT: usize = 6;
/// Owners, and queues, that can be distinguished.
pub const OWNERS_MAX: u32 = 64;

// Bits of a port in the table that only who may load programs can write.
/// Claims of the TCP port are believed.
pub const TRUSTED: u32 = 1;
/// The kernel is asked about each of its frames: what it has connections for is its own.
pub const ASKED: u32 = 2;
/// The same, and what it has a listener for too.
pub const STRICT: u32 = 4;
/// Claims of the UDP port are believed.
pub const DATAGRAMS: u32 = 8;

/// Words of an address in use: the number of its list of ways plus one, 0 where it is not in use; then the address as
/// its users believe it to be, which the program does not.
pub const USE_WORDS: usize = 3;
/// Entries of a list of ways. Each is a mask, a network and whether new connections from there are taken; the
/// first that fits decides, and the list ends with one that is all zeros, which fits everything.
pub const WAYS_MAX: usize = 32;
/// Words of an entry: two of the mask, two of the network, one for the decision.
pub const WAY_WORDS: usize = 5;

/// So long an owner may let a new connection wait. A process that runs looks sooner; one that is
/// stopped, hangs or has ended would let them wait for ever.
pub const PATIENCE_NS: u64 = 250_000_000;

/// Where a word of a port stands.
const fn at(word: usize) -> i16 {
    (word * 8) as i16
}

const XDP_PASS: i32 = 2;
const REDIRECT_MAP: i32 = 51;
const RELEASE_SOCKET: i32 = 86;
const LOOK_UP_SOCKET: i32 = 99;
/// BPF_F_CURRENT_NETNS: that of the interface.
const OWN_NAMESPACE: i32 = -1;
/// Of `struct bpf_sock`, and those of a listener (BPF_TCP_LISTEN) and of what is left of a connection
/// (BPF_TCP_TIME_WAIT: also of one in FIN_WAIT2 that no process holds any more).
const STATE_AT: i16 = 72;
const LISTENS: i32 = 10;
const WAITS: i32 = 6;
const SYN: i32 = 0x02;
const SYN_ACK: i32 = 0x12;

/// The address that is looked for, on the stack; an IPv4 address in its mapped form.
const ADDRESS: i16 = -16;
/// The key of a look-up.
const KEY: i16 = -24;
/// Addresses and ports of a connection as the kernel is asked for it (`struct bpf_sock_tuple`), and its length.
const TUPLE: i16 = -64;
const TUPLE4: i32 = 12;
const TUPLE6: i32 = 36;
/// SYN and ACK of a TCP segment; 0 of an error.
const FLAGS: i16 = -28;
/// The list of ways of the address.
const LIST: i16 = -68;
/// What is permitted at the port.
const PERMIT: i16 = -72;
/// Bytes of a connection as a key: an IPv4 one ends with zeros.
pub const FLOW_BYTES: u32 = TUPLE6 as u32;

impl Assembler {
    /// Copies an IPv6 address of the frame to the stack.
    fn take_address6(&mut self, from: i16, to: i16) {
        for part in 0..4 {
            self.load(WORD, 1, DATA, from + part * 4);
            self.store(WORD, 1, to + part * 4);
        }
    }

    /// Copies an IPv4 address of the frame to the stack.
    fn take_address4(&mut self, from: i16, to: i16) {
        self.add(MOVE, 1, 0, 0, 0);
        self.store(DOUBLE, 1, to);
        self.add(MOVE, 1, 0, 0, i32::from_ne_bytes([0, 0, 0xff, 0xff]));
        self.store(WORD, 1, to + 8);
        self.load(WORD, 1, DATA, from);
        self.store(WORD, 1, to + 12);
    }

    /// Takes in the protocol of a packet whose header has its number at a place, and of a TCP segment the flags, at
    /// another. Other protocols pass to the kernel. So do datagrams above a limit of length: those of a
    /// sender on this host (UDP_SEGMENT) are not segmented yet in generic mode, which only the kernel can do.
    fn take_protocol(
        &mut self,
        from: i16,
        flags: i16,
        limit: (i16, u32),
        [other, done]: [&'static str; 2],
    ) {
        self.load(BYTE, 1, DATA, from);
        self.jump(IF_DIFFERENT, 1, libc::IPPROTO_TCP, other);
        self.require(i32::from(flags) + 7);
        self.load(BYTE, 4, DATA, flags);
        self.add(AND, 4, 0, 0, SYN_ACK);
        self.store(WORD, 4, FLAGS);
        self.add(MOVE, CLAIMS, 0, 0, i32::from(at(TCP)));
        self.jump(JUMP, 0, 0, done);
        self.label(other);
        self.jump(IF_DIFFERENT, 1, libc::IPPROTO_UDP, "pass");
        self.add(MOVE, CLAIMS, 0, 0, i32::from(at(UDP)));
        self.load(HALF, 1, DATA, limit.0);
        self.add(TO_BIG_ENDIAN, 1, 0, 0, 16);
        self.jump(IF_GREATER, 1, limit.1 as i32, "pass");
        self.label(done);
    }

    /// The same of the packet that an error is about, where only TCP is claimed: errors about datagrams are for the
    /// kernel, which has the sockets too.
    fn require_tcp(&mut self, from: i16) {
        self.load(BYTE, 1, DATA, from);
        self.jump(IF_DIFFERENT, 1, libc::IPPROTO_TCP, "pass");
        self.add(MOVE, CLAIMS, 0, 0, 0);
        self.store(WORD, CLAIMS, FLAGS);
        self.add(MOVE, CLAIMS, 0, 0, i32::from(at(TCP)));
    }

    /// Copies some units of the frame to a place in the connection that the kernel is asked for.
    fn take_tuple(&mut self, size: u8, from: i16, to: i16, count: i16) {
        let bytes = if size == WORD { 4 } else { 2 };
        for part in 0..count {
            self.load(size, 1, DATA, from + part * bytes);
            self.store(size, 1, TUPLE + to + part * bytes);
        }
    }

    fn clear_tuple(&mut self) {
        self.add(MOVE, 1, 0, 0, 0);
        for part in 0..5 {
            // The last four bytes of the fifth belong to the flags.
            let size = if part < 4 { DOUBLE } else { WORD };
            self.store(size, 1, TUPLE + part * 8);
        }
    }
}

/// The program over these maps, on an interface of that MTU.
pub fn steering(maps: Maps, mtu: u32) -> Vec<Instruction> {
    let mut code = Assembler::default();
    code.copy(CONTEXT, 1);
    code.take_frame();
    code.require(14);
    code.load(HALF, 5, DATA, 12);
    code.jump(IF_EQUAL, 5, i32::from(0x0800_u16.to_be()), "ipv4");
    code.jump(IF_EQUAL, 5, i32::from(0x86dd_u16.to_be()), "ipv6");
    code.jump(JUMP, 0, 0, "pass");
    ipv4(&mut code, mtu);
    ipv6(&mut code, mtu);
    decide(&mut code, maps);
    code.finish()
}

fn ipv4(code: &mut Assembler, mtu: u32) {
    code.label("ipv4");
    code.require(38);
    code.load(BYTE, 1, DATA, 14);
    code.jump(IF_DIFFERENT, 1, 0x45, "pass");
    // Neither a first nor a later fragment.
    code.load(HALF, 1, DATA, 20);
    code.add(AND, 1, 0, 0, i32::from(0x3fff_u16.to_be()));
    code.jump(IF_DIFFERENT, 1, 0, "pass");
    code.load(BYTE, 1, DATA, 23);
    code.jump(IF_EQUAL, 1, libc::IPPROTO_ICMP, "icmp4");
    code.take_protocol(23, 47, (16, mtu), ["other4", "destination4"]);
    code.take_address4(30, ADDRESS);
    code.load(HALF, PORT, DATA, 36);
    code.jump(JUMP, 0, 0, "decide");

    // An error quotes the packet that it is about: its source is what is claimed.
    code.label("icmp4");
    code.require(66);
    code.load(BYTE, 1, DATA, 34);
    // Unreachable, or too long on its way.
    code.jump(IF_EQUAL, 1, 3, "quoted4");
    code.jump(IF_DIFFERENT, 1, 11, "pass");
    code.label("quoted4");
    code.load(BYTE, 1, DATA, 42);
    code.jump(IF_DIFFERENT, 1, 0x45, "pass");
    code.require_tcp(51);
    code.take_address4(54, ADDRESS);
    code.load(HALF, PORT, DATA, 62);
    code.jump(JUMP, 0, 0, "decide");
}

fn ipv6(code: &mut Assembler, mtu: u32) {
    code.label("ipv6");
    code.require(58);
    code.load(BYTE, 1, DATA, 20);
    code.jump(IF_EQUAL, 1, libc::IPPROTO_ICMPV6, "icmp6");
    // The length is of what follows the header.
    let limit = mtu.saturating_sub(40);
    code.take_protocol(20, 67, (18, limit), ["other6", "destination6"]);
    code.take_address6(38, ADDRESS);
    code.load(HALF, PORT, DATA, 56);
    code.jump(JUMP, 0, 0, "decide");

    code.label("icmp6");
    code.require(106);
    code.load(BYTE, 1, DATA, 54);
    // Types below 128 are errors; 4 is the last one in use.
    code.jump(IF_GREATER, 1, 4, "pass");
    code.require_tcp(68);
    code.take_address6(70, ADDRESS);
    code.load(HALF, PORT, DATA, 102);
    code.jump(JUMP, 0, 0, "decide");
}

/// Protocol, port and address are known: is it claimed, and is there a socket for the queue?
fn decide(code: &mut Assembler, maps: Maps) {
    code.label("decide");
    code.add(TO_BIG_ENDIAN, PORT, 0, 0, 16);
    code.store(WORD, PORT, KEY);
    code.look_up(maps.ports, KEY);
    code.copy(WORDS_AT, 0);
    code.add(ADD | BY_REGISTER, 0, CLAIMS, 0, 0);
    code.load(DOUBLE, 1, 0, 0);
    code.jump(IF_EQUAL, 1, 0, "pass");
    code.look_up(maps.permits, KEY);
    code.load(WORD, 1, 0, 0);
    code.store(WORD, 1, PERMIT);

    // The same hash as `slot`.
    code.load(WORD, 1, STACK, ADDRESS);
    for part in 1..4 {
        code.load(WORD, 4, STACK, ADDRESS + part * 4);
        code.add(XOR | BY_REGISTER, 1, 4, 0, 0);
    }
    code.add(MOVE | BY_REGISTER, 4, 1, 0, 0);
    code.add(SHIFT_RIGHT, 4, 0, 0, 16);
    code.add(XOR | BY_REGISTER, 1, 4, 0, 0);
    code.add(AND, 1, 0, 0, 0xffff);
    code.store(WORD, 1, KEY);
    code.look_up(maps.addresses, KEY);
    for half in 0..2 {
        code.load(DOUBLE, 1, 0, half * 8);
        code.load(DOUBLE, 4, STACK, ADDRESS + half * 8);
        code.jump_by_register(IF_DIFFERENT, 1, 4, "pass");
    }
    code.look_up(maps.uses, KEY);
    code.load(DOUBLE, 1, 0, 0);
    code.jump(IF_EQUAL, 1, 0, "pass");
    code.add(ADD, 1, 0, 0, -1);
    code.store(WORD, 1, LIST);
    code.jump(IF_DIFFERENT, CLAIMS, i32::from(at(TCP)), "datagram");

    code.load(WORD, 1, STACK, PERMIT);
    code.add(AND, 1, 0, 0, (TRUSTED | ASKED | STRICT) as i32);
    code.jump(IF_EQUAL, 1, 0, "pass");
    code.jump(IF_DIFFERENT, 1, TRUSTED as i32, "asked");
    for word in [SHARED, LEFT] {
        code.load(DOUBLE, 1, WORDS_AT, at(word));
        code.jump(IF_DIFFERENT, 1, 0, "asked");
    }
    code.load(WORD, 1, STACK, FLAGS);
    code.jump(IF_DIFFERENT, 1, SYN, "redirect");
    // Nothing of an earlier connection is asked about, and no note of one met.
    code.clear_tuple();
    code.add(MOVE, PORT, 0, 0, TUPLE4);
    code.jump(JUMP, 0, 0, "new");
    ask_kernel(code, maps);
    // Nobody but the owner of its queue can take a datagram.
    code.label("datagram");
    code.load(WORD, 1, STACK, PERMIT);
    code.add(AND, 1, 0, 0, DATAGRAMS as i32);
    code.jump(IF_EQUAL, 1, 0, "pass");
    code.load(DOUBLE, 1, WORDS_AT, at(UDP));
    new::take_bit_of_queue(code);
    code.jump(IF_EQUAL, 1, 0, "pass");
    code.label("redirect");
    code.add(LOAD_MAP, 1, PSEUDO_MAP_FD, 0, maps.sockets);
    code.add(0, 0, 0, 0, 0);
    code.take_queue(2);
    // Frames of a queue without a socket go to the kernel.
    code.add(MOVE, 3, 0, 0, XDP_PASS);
    code.add(CALL, 0, 0, 0, REDIRECT_MAP);
    code.add(EXIT, 0, 0, 0, 0);
    code.label("pass");
    code.add(MOVE, 0, 0, 0, XDP_PASS);
    code.add(EXIT, 0, 0, 0, 0);
}

/// A frame, or the one that an error quotes, of a TCP connection: does the kernel have that one, or is it
/// to have it? Of an error the two ends are in the other order: the quoted packet is one that was sent.
fn ask_kernel(code: &mut Assembler, maps: Maps) {
    code.label("asked");
    code.take_frame();
    code.clear_tuple();
    code.require(54);
    code.load(HALF, 5, DATA, 12);
    code.jump(IF_EQUAL, 5, i32::from(0x86dd_u16.to_be()), "shared6");
    code.add(MOVE, PORT, 0, 0, TUPLE4);
    code.load(BYTE, 1, DATA, 23);
    code.jump(IF_EQUAL, 1, libc::IPPROTO_ICMP, "shared-error4");
    code.take_tuple(WORD, 26, 0, 3);
    code.jump(JUMP, 0, 0, "ask");
    code.label("shared-error4");
    code.require(66);
    code.take_tuple(WORD, 58, 0, 1);
    code.take_tuple(WORD, 54, 4, 1);
    code.take_tuple(HALF, 64, 8, 1);
    code.take_tuple(HALF, 62, 10, 1);
    code.jump(JUMP, 0, 0, "ask");

    code.label("shared6");
    code.add(MOVE, PORT, 0, 0, TUPLE6);
    code.require(74);
    code.load(BYTE, 1, DATA, 20);
    code.jump(IF_EQUAL, 1, libc::IPPROTO_ICMPV6, "shared-error6");
    code.take_tuple(WORD, 22, 0, 9);
    code.jump(JUMP, 0, 0, "ask");
    code.label("shared-error6");
    code.require(106);
    code.take_tuple(WORD, 86, 0, 4);
    code.take_tuple(WORD, 70, 16, 4);
    code.take_tuple(HALF, 104, 32, 1);
    code.take_tuple(HALF, 102, 34, 1);
    decide_shared(code, maps);
}

/// The connection is known: the kernel's, or new and left to it, or ours.
///
/// The kernel keeps what is left of a connection under one state, whether it is in TIME_WAIT or, orphaned, in
/// FIN_WAIT2, where the other end has yet to send its FIN: its segments go to the kernel. Only a SYN begins a
/// new connection (RFC 6191), which is taken as any other is. Its later frames meet the same remains, so a note is
/// made for this use of the port: a note of an earlier one, before the port was unclaimed for a while, is of a
/// connection that is over. Whether the numbers of the SYN are later than the old ones cannot be asked here: a host
/// that has not opened anything answers our SYN-ACK with a reset (RFC 9293, 3.5.1).
fn decide_shared(code: &mut Assembler, maps: Maps) {
    code.label("ask");
    code.load(DOUBLE, 1, WORDS_AT, at(USES));
    code.store(WORD, 1, KEY);
    code.copy(1, CONTEXT);
    code.stack_address(2, TUPLE);
    code.copy(3, PORT);
    code.add(MOVE, 4, 0, 0, OWN_NAMESPACE);
    code.add(MOVE, 5, 0, 0, 0);
    code.add(CALL, 0, 0, 0, LOOK_UP_SOCKET);
    code.load(WORD, CLAIMS, STACK, FLAGS);
    code.jump(IF_EQUAL, 0, 0, "unknown");
    code.load(WORD, PORT, 0, STATE_AT);
    code.copy(1, 0);
    code.add(CALL, 0, 0, 0, RELEASE_SOCKET);
    code.jump(IF_EQUAL, PORT, LISTENS, "listener");
    code.jump(IF_DIFFERENT, PORT, WAITS, "pass");
    code.jump(IF_EQUAL, CLAIMS, SYN, "new");
    code.look_up(maps.reopened, TUPLE);
    code.load(WORD, 1, 0, 0);
    code.load(WORD, 4, STACK, KEY);
    code.jump_by_register(IF_DIFFERENT, 1, 4, "pass");
    code.jump(JUMP, 0, 0, "redirect");
    code.label("listener");
    // Where claims are not believed, it may be another program's.
    code.load(WORD, 1, STACK, PERMIT);
    code.add(AND, 1, 0, 0, STRICT as i32);
    code.jump(IF_DIFFERENT, 1, 0, "pass");
    code.label("unknown");
    code.jump(IF_DIFFERENT, CLAIMS, SYN, "redirect");
    new::decide(code, maps);
}

/// The place of an address in its table.
pub fn slot(octets: [u8; 16]) -> usize {
    let words = octets
        .chunks_exact(4)
        .map(|four| u32::from_ne_bytes([four[0], four[1], four[2], four[3]]));
    let mixed = words.fold(0, |sum, word| sum ^ word);
    ((mixed ^ mixed >> 16) & 0xffff) as usize
}
