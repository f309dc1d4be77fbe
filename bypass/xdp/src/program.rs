//! The steering program, instruction by instruction (linux/bpf.h, RFC 9669).
//!
//! It takes a frame when the destination of its TCP or UDP header is claimed, or when it is an ICMP
//! error about a TCP packet whose source is. Everything else, and everything unusual, goes to the
//! kernel: other protocols, VLAN tags, IP options, extension headers, fragments, datagrams above the MTU. Where the kernel has
//! connections at a claimed port too, it is asked whose a frame is, and new ones may be left to it.

use std::collections::HashMap;

use crate::sys::bpf::Instruction;

/// Tables that the program looks into, by descriptor.
#[derive(Debug, Clone, Copy)]
pub struct Maps {
    /// Port → who claims it, and how: see [`WORDS`].
    pub ports: i32,
    /// Hash of an address → the address.
    pub addresses: i32,
    /// Queue → socket.
    pub sockets: i32,
    /// Connections that were opened while the kernel kept an earlier one of the same ends in TIME_WAIT.
    pub reopened: i32,
}

/// Words of 8 bytes of a port, by the constants below. A bit stands for an owner, which is a user of the tables, or
/// for a queue.
pub const WORDS: usize = 6;
/// Owners that claim the port of TCP.
pub const TCP: usize = 0;
/// Queues whose owners claim that of UDP.
pub const UDP: usize = 1;
/// The kernel may have TCP connections of the port, whose frames are its own, for all that these owners know.
pub const SHARED: usize = 2;
/// Owners that have TCP connections of the port, but take no new ones. With [`SHARED`]: where every owner is
/// such a one, new connections are the kernel's.
pub const DRAINING: usize = 3;
/// With [`SHARED`]: new TCP connections whose frames come by these queues are the kernel's.
pub const LEAVES_NEW: usize = 4;
/// How often the TCP port was claimed after nobody had claimed it.
pub const USES: usize = 5;
/// Owners, and queues, that can be told apart.
pub const OWNERS_MAX: u32 = 64;

/// Where a word of a port stands.
const fn at(word: usize) -> i16 {
    (word * 8) as i16
}

const XDP_PASS: i32 = 2;
const MAP_LOOKUP: i32 = 1;
const MAP_UPDATE: i32 = 2;
const MAP_DELETE: i32 = 3;
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
const PSEUDO_MAP_FD: u8 = 1;

// Classes, sizes and operations of instructions.
const LOAD: u8 = 0x61;
const STORE: u8 = 0x63;
const BYTE: u8 = 0x10;
const HALF: u8 = 0x08;
const WORD: u8 = 0x00;
const DOUBLE: u8 = 0x18;
const MOVE: u8 = 0xb7;
const ADD: u8 = 0x07;
const AND: u8 = 0x57;
/// Of 64 bits, as [`MOVE`], [`ADD`] and [`AND`] are.
const XOR: u8 = 0xa7;
const SHIFT_RIGHT: u8 = 0x77;
const BY_REGISTER: u8 = 0x08;
const TO_BIG_ENDIAN: u8 = 0xdc;
const JUMP: u8 = 0x05;
const IF_EQUAL: u8 = 0x15;
const IF_GREATER: u8 = 0x25;
const IF_DIFFERENT: u8 = 0x55;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const LOAD_MAP: u8 = 0x18;

const CONTEXT: u8 = 6;
/// Where the claims of the protocol stand among the words of a port; later the flags of a TCP segment.
const CLAIMS: u8 = 7;
const PORT: u8 = 8;
/// The words of the port.
const WORDS_AT: u8 = 9;
const STACK: u8 = 10;
const DATA: u8 = 2;
const END: u8 = 3;

/// The address that is looked for, on the stack; an IPv4 address in its mapped form.
const ADDRESS: i16 = -16;
/// The key of a look-up.
const KEY: i16 = -24;
/// Addresses and ports of a connection as the kernel is asked for it (`struct bpf_sock_tuple`), and its length.
const TUPLE: i16 = -64;
const TUPLE4: i32 = 12;
const TUPLE6: i32 = 36;
/// Bytes of a connection as a key: an IPv4 one ends with zeros.
pub const FLOW_BYTES: u32 = TUPLE6 as u32;

/// Instructions with names for the places that are jumped to.
#[derive(Default)]
struct Assembler {
    code: Vec<Instruction>,
    labels: HashMap<&'static str, usize>,
    jumps: Vec<(usize, &'static str)>,
}

impl Assembler {
    fn add(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        self.code.push(Instruction {
            code,
            registers: to | from << 4,
            offset,
            immediate,
        });
    }

    fn label(&mut self, name: &'static str) {
        self.labels.insert(name, self.code.len());
    }

    fn load(&mut self, size: u8, to: u8, from: u8, offset: i16) {
        self.add(LOAD | size, to, from, offset, 0);
    }

    fn store(&mut self, size: u8, from: u8, offset: i16) {
        self.add(STORE | size, STACK, from, offset, 0);
    }

    fn jump(&mut self, code: u8, register: u8, value: i32, label: &'static str) {
        self.jumps.push((self.code.len(), label));
        self.add(code, register, 0, 0, value);
    }

    fn jump_by_register(&mut self, code: u8, register: u8, other: u8, label: &'static str) {
        self.jumps.push((self.code.len(), label));
        self.add(code | BY_REGISTER, register, other, 0, 0);
    }

    /// Leaves for the kernel unless the frame has so many bytes.
    fn require(&mut self, bytes: i32) {
        self.add(MOVE | BY_REGISTER, 4, DATA, 0, 0);
        self.add(ADD, 4, 0, 0, bytes);
        self.jump_by_register(IF_GREATER, 4, END, "pass");
    }

    /// Copies an IPv6 address of the frame to the stack.
    fn take_address6(&mut self, at: i16) {
        for part in 0..4 {
            self.load(WORD, 1, DATA, at + part * 4);
            self.store(WORD, 1, ADDRESS + part * 4);
        }
    }

    /// Copies an IPv4 address of the frame to the stack.
    fn take_address4(&mut self, at: i16) {
        self.add(MOVE, 1, 0, 0, 0);
        self.store(DOUBLE, 1, ADDRESS);
        self.add(MOVE, 1, 0, 0, i32::from_ne_bytes([0, 0, 0xff, 0xff]));
        self.store(WORD, 1, ADDRESS + 8);
        self.load(WORD, 1, DATA, at);
        self.store(WORD, 1, ADDRESS + 12);
    }

    /// Where the claims of the protocol stand whose number is at a place; other protocols are the kernel's.
    /// So are datagrams whose length, at another place, is above a limit: a train of a sender on this host (UDP_SEGMENT)
    /// is whole in generic mode, and only the kernel can cut it.
    fn take_protocol(&mut self, from: i16, (length, limit): (i16, u32), done: &'static str) {
        self.load(BYTE, 1, DATA, from);
        self.add(MOVE, CLAIMS, 0, 0, i32::from(at(TCP)));
        self.jump(IF_EQUAL, 1, libc::IPPROTO_TCP, done);
        self.add(MOVE, CLAIMS, 0, 0, i32::from(at(UDP)));
        self.jump(IF_DIFFERENT, 1, libc::IPPROTO_UDP, "pass");
        self.load(HALF, 1, DATA, length);
        self.add(TO_BIG_ENDIAN, 1, 0, 0, 16);
        self.jump(IF_GREATER, 1, limit as i32, "pass");
        self.label(done);
    }

    /// The same where only TCP is claimed: errors about datagrams are for the kernel, which has the sockets too.
    fn require_tcp(&mut self, from: i16) {
        self.load(BYTE, 1, DATA, from);
        self.jump(IF_DIFFERENT, 1, libc::IPPROTO_TCP, "pass");
        self.add(MOVE, CLAIMS, 0, 0, i32::from(at(TCP)));
    }

    /// Looks a key on the stack up; to the kernel when there is nothing. The place is in register 0.
    fn look_up(&mut self, map: i32, key: i16) {
        self.call_map(map, key, MAP_LOOKUP);
        self.jump(IF_EQUAL, 0, 0, "pass");
    }

    /// Calls a function of a map with a key on the stack.
    fn call_map(&mut self, map: i32, key: i16, function: i32) {
        self.add(LOAD_MAP, 1, PSEUDO_MAP_FD, 0, map);
        self.add(0, 0, 0, 0, 0);
        self.stack_address(2, key);
        self.add(CALL, 0, 0, 0, function);
    }

    fn stack_address(&mut self, to: u8, at: i16) {
        self.add(MOVE | BY_REGISTER, to, STACK, 0, 0);
        self.add(ADD, to, 0, 0, i32::from(at));
    }

    /// Copies some units of the frame to a place in the connection that the kernel is asked for.
    fn take_tuple(&mut self, size: u8, from: i16, to: i16, count: i16) {
        let bytes = if size == WORD { 4 } else { 2 };
        for part in 0..count {
            self.load(size, 1, DATA, from + part * bytes);
            self.store(size, 1, TUPLE + to + part * bytes);
        }
    }

    fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let distance = self.labels[label] as i64 - at as i64 - 1;
            self.code[at].offset = i16::try_from(distance).expect("a short program");
        }
        self.code
    }
}

/// The program over these maps, on an interface of that MTU.
pub fn steering(maps: Maps, mtu: u32) -> Vec<Instruction> {
    let mut code = Assembler::default();
    code.add(MOVE | BY_REGISTER, CONTEXT, 1, 0, 0);
    code.load(WORD, DATA, CONTEXT, 0);
    code.load(WORD, END, CONTEXT, 4);
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
    code.take_protocol(23, (16, mtu), "destination4");
    code.take_address4(30);
    code.load(HALF, PORT, DATA, 36);
    code.jump(JUMP, 0, 0, "decide");

    // An error quotes the packet that it is about: its source is what is claimed.
    code.label("icmp4");
    code.require(66);
    code.load(BYTE, 1, DATA, 34);
    code.jump(IF_DIFFERENT, 1, 3, "pass");
    code.load(BYTE, 1, DATA, 42);
    code.jump(IF_DIFFERENT, 1, 0x45, "pass");
    code.require_tcp(51);
    code.take_address4(54);
    code.load(HALF, PORT, DATA, 62);
    code.jump(JUMP, 0, 0, "decide");
}

fn ipv6(code: &mut Assembler, mtu: u32) {
    code.label("ipv6");
    code.require(58);
    code.load(BYTE, 1, DATA, 20);
    code.jump(IF_EQUAL, 1, libc::IPPROTO_ICMPV6, "icmp6");
    // The length is of what follows the header.
    code.take_protocol(20, (18, mtu.saturating_sub(40)), "destination6");
    code.take_address6(38);
    code.load(HALF, PORT, DATA, 56);
    code.jump(JUMP, 0, 0, "decide");

    code.label("icmp6");
    code.require(106);
    code.load(BYTE, 1, DATA, 54);
    // Types below 128 are errors; 4 is the last one in use.
    code.jump(IF_GREATER, 1, 4, "pass");
    code.require_tcp(68);
    code.take_address6(70);
    code.load(HALF, PORT, DATA, 102);
    code.jump(JUMP, 0, 0, "decide");
}

/// Protocol, port and address are known: is it claimed, and is there a socket for the queue?
fn decide(code: &mut Assembler, maps: Maps) {
    code.label("decide");
    code.add(TO_BIG_ENDIAN, PORT, 0, 0, 16);
    code.store(WORD, PORT, KEY);
    code.look_up(maps.ports, KEY);
    code.add(MOVE | BY_REGISTER, WORDS_AT, 0, 0, 0);
    code.add(ADD | BY_REGISTER, 0, CLAIMS, 0, 0);
    code.load(DOUBLE, 1, 0, 0);
    code.jump(IF_EQUAL, 1, 0, "pass");

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
    code.jump(IF_DIFFERENT, CLAIMS, i32::from(at(TCP)), "datagram");
    code.load(DOUBLE, 1, WORDS_AT, at(SHARED));
    code.jump(IF_EQUAL, 1, 0, "redirect");
    ask_kernel(code, maps.reopened);
    // Nobody but the owner of its queue can take a datagram.
    code.label("datagram");
    code.load(DOUBLE, 1, WORDS_AT, at(UDP));
    take_bit_of_queue(code);
    code.jump(IF_EQUAL, 1, 0, "pass");
    code.label("redirect");
    code.add(LOAD_MAP, 1, PSEUDO_MAP_FD, 0, maps.sockets);
    code.add(0, 0, 0, 0, 0);
    code.load(WORD, 2, CONTEXT, 16);
    // A queue without a socket is the kernel's.
    code.add(MOVE, 3, 0, 0, XDP_PASS);
    code.add(CALL, 0, 0, 0, REDIRECT_MAP);
    code.add(EXIT, 0, 0, 0, 0);
    code.label("pass");
    code.add(MOVE, 0, 0, 0, XDP_PASS);
    code.add(EXIT, 0, 0, 0, 0);
}

/// A frame, or the one that an error quotes, of a TCP connection: does the kernel have that one, or is it
/// to have it? Of an error the two ends are in the other order: the quoted packet is one that was sent.
fn ask_kernel(code: &mut Assembler, reopened: i32) {
    code.load(WORD, DATA, CONTEXT, 0);
    code.load(WORD, END, CONTEXT, 4);
    // What an error quotes opens no connection.
    code.add(MOVE, CLAIMS, 0, 0, 0);
    for part in 0..5 {
        code.store(DOUBLE, CLAIMS, TUPLE + part * 8);
    }
    code.require(54);
    code.load(HALF, 5, DATA, 12);
    code.jump(IF_EQUAL, 5, i32::from(0x86dd_u16.to_be()), "shared6");
    code.add(MOVE, PORT, 0, 0, TUPLE4);
    code.load(BYTE, 1, DATA, 23);
    code.jump(IF_EQUAL, 1, libc::IPPROTO_ICMP, "shared-error4");
    code.take_tuple(WORD, 26, 0, 3);
    code.load(BYTE, CLAIMS, DATA, 47);
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
    code.load(BYTE, CLAIMS, DATA, 67);
    code.jump(JUMP, 0, 0, "ask");
    code.label("shared-error6");
    code.require(106);
    code.take_tuple(WORD, 86, 0, 4);
    code.take_tuple(WORD, 70, 16, 4);
    code.take_tuple(HALF, 104, 32, 1);
    code.take_tuple(HALF, 102, 34, 1);
    decide_shared(code, reopened);
}

/// The connection is known: the kernel's, or new and left to it, or ours.
///
/// The kernel keeps what is left of a connection under one state, whether it is in TIME_WAIT or, orphaned, in
/// FIN_WAIT2, where the other end has yet to send its FIN: what comes for it is the kernel's. Only a SYN begins a
/// new connection (RFC 6191), which is ours as any other is. Its later frames meet the same remains, so it is
/// noted, for this use of the port: a note of an earlier one, before the port was nobody's for a while, is of a
/// connection that is over. Whether the numbers of the SYN are later than the old ones cannot be asked here: a host that has not
/// opened anything answers our SYN-ACK with a reset (RFC 9293, 3.5.1).
fn decide_shared(code: &mut Assembler, reopened: i32) {
    code.label("ask");
    code.load(DOUBLE, 1, WORDS_AT, at(USES));
    code.store(WORD, 1, KEY);
    code.add(MOVE | BY_REGISTER, 1, CONTEXT, 0, 0);
    code.stack_address(2, TUPLE);
    code.add(MOVE | BY_REGISTER, 3, PORT, 0, 0);
    code.add(MOVE, 4, 0, 0, OWN_NAMESPACE);
    code.add(MOVE, 5, 0, 0, 0);
    code.add(CALL, 0, 0, 0, LOOK_UP_SOCKET);
    code.add(AND, CLAIMS, 0, 0, SYN_ACK);
    code.jump(IF_EQUAL, 0, 0, "unknown");
    code.load(WORD, PORT, 0, STATE_AT);
    code.add(MOVE | BY_REGISTER, 1, 0, 0, 0);
    code.add(CALL, 0, 0, 0, RELEASE_SOCKET);
    code.jump(IF_EQUAL, PORT, LISTENS, "unknown");
    code.jump(IF_DIFFERENT, PORT, WAITS, "pass");
    code.jump(IF_EQUAL, CLAIMS, SYN, "new");
    code.look_up(reopened, TUPLE);
    code.load(WORD, 1, 0, 0);
    code.load(WORD, 4, STACK, KEY);
    code.jump_by_register(IF_DIFFERENT, 1, 4, "pass");
    code.jump(JUMP, 0, 0, "redirect");
    code.label("unknown");
    code.jump(IF_DIFFERENT, CLAIMS, SYN, "redirect");
    code.label("new");
    leave_where_wanted(code);
    // Where nothing was found this is the length of a tuple, which is another number than this state.
    code.jump(IF_DIFFERENT, PORT, WAITS, "redirect");
    note_reopened(code, reopened);
}

/// Nobody takes new connections of the port, or who has the queue of the frame takes none.
fn leave_where_wanted(code: &mut Assembler) {
    code.load(DOUBLE, 1, WORDS_AT, at(DRAINING));
    code.add(XOR, 1, 0, 0, -1);
    code.load(DOUBLE, 4, WORDS_AT, at(TCP));
    code.add(AND | BY_REGISTER, 1, 4, 0, 0);
    code.jump(IF_EQUAL, 1, 0, "leave");
    code.load(DOUBLE, 1, WORDS_AT, at(LEAVES_NEW));
    take_bit_of_queue(code);
    code.jump(IF_DIFFERENT, 1, 0, "leave");
}

/// Of register 1, a word with a bit for each queue, that of the frame's.
fn take_bit_of_queue(code: &mut Assembler) {
    code.load(WORD, 4, CONTEXT, 16);
    code.add(AND, 4, 0, 0, OWNERS_MAX as i32 - 1);
    code.add(SHIFT_RIGHT | BY_REGISTER, 1, 4, 0, 0);
    code.add(AND, 1, 0, 0, 1);
}

/// A new connection that meets the remains of an old one is noted, and the kernel's where that fails; one that
/// is left to the kernel is not ours any more.
fn note_reopened(code: &mut Assembler, reopened: i32) {
    // The value: which use of the port.
    code.stack_address(3, KEY);
    code.add(MOVE, 4, 0, 0, 0);
    code.call_map(reopened, TUPLE, MAP_UPDATE);
    code.jump(IF_EQUAL, 0, 0, "redirect");
    code.jump(JUMP, 0, 0, "pass");
    code.label("leave");
    code.call_map(reopened, TUPLE, MAP_DELETE);
    code.jump(JUMP, 0, 0, "pass");
}

/// The place of an address in its table.
pub fn slot(octets: [u8; 16]) -> usize {
    let words = octets
        .chunks_exact(4)
        .map(|four| u32::from_ne_bytes([four[0], four[1], four[2], four[3]]));
    let mixed = words.fold(0, |sum, word| sum ^ word);
    ((mixed ^ mixed >> 16) & 0xffff) as usize
}
