//! bpf(2): maps, the program, and the link that keeps it on an interface (linux/bpf.h).

use bypass_sys::descriptor::Owned;
use bypass_sys::kernel::Result;
use bypass_sys::network;
use bypass_sys::numbers;

const MAP_CREATE: u32 = 0;
const MAP_UPDATE: u32 = 2;
const PROG_LOAD: u32 = 5;
const LINK_CREATE: u32 = 28;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const HAS_FRAGS: u32 = 1 << 5;
const MMAPABLE: u32 = 1 << 10;

/// Kinds of maps.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// An array that can be mapped.
    Array = 2,
    /// A hash table; where it is full the least recently used go.
    Recent = 9,
    /// Queue number → AF_XDP socket.
    Sockets = 17,
}

/// One instruction of the kernel's virtual machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Instruction {
    /// Operation.
    pub code: u8,
    /// Destination in the low half, source in the high half.
    pub registers: u8,
    /// Offset of memory and jumps.
    pub offset: i16,
    /// Immediate value.
    pub immediate: i32,
}

/// The attributes of a call, by place.
struct Attributes([u8; 128]);

impl Attributes {
    fn new() -> Self {
        Self([0; 128])
    }

    fn word(mut self, at: usize, value: u32) -> Self {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn address<T>(mut self, at: usize, value: *const T) -> Self {
        self.0[at..at + 8].copy_from_slice(&(value as u64).to_ne_bytes());
        self
    }

    /// # Safety
    /// The addresses must be what `command` demands.
    unsafe fn call(mut self, command: u32) -> Result<usize> {
        // SAFETY: the caller vouches for the addresses.
        unsafe { network::bpf(command, &mut self.0) }
    }
}

/// Makes a map with keys and values of so many bytes.
pub fn make_map(kind: Kind, [key, value]: [u32; 2], entries: u32) -> Result<Owned> {
    let flags = match kind {
        Kind::Array => MMAPABLE,
        Kind::Recent | Kind::Sockets => 0,
    };
    let attributes = Attributes::new()
        .word(0, kind as u32)
        .word(4, key)
        .word(8, value)
        .word(12, entries)
        .word(16, flags);
    // SAFETY: making a map takes numbers only.
    numbers::high(|| unsafe { attributes.call(MAP_CREATE) })
}

/// Puts a number into a map.
pub fn set_entry(map: i32, key: u32, value: u32) -> Result<()> {
    let attributes = Attributes::new()
        .word(0, map as u32)
        .address(8, &key)
        .address(16, &value);
    // SAFETY: key and value are 4 bytes on this frame, as the map of sockets has them.
    unsafe { attributes.call(MAP_UPDATE) }.map(|_| ())
}

/// Loads an XDP program.
pub fn load(program: &[Instruction], takes_fragments: bool) -> Result<Owned> {
    let license = c"Apache-2.0";
    let attributes = Attributes::new()
        .word(0, PROG_TYPE_XDP)
        .word(4, program.len() as u32)
        .address(8, program.as_ptr())
        .address(16, license.as_ptr())
        .word(44, if takes_fragments { HAS_FRAGS } else { 0 })
        .word(68, ATTACH_XDP);
    // SAFETY: program and licence outlive the call and have the lengths given.
    numbers::high(|| unsafe { attributes.call(PROG_LOAD) })
}

/// Attaches a program to an interface for as long as the result is held. The kernel may take milliseconds, in which the
/// program's calls that take numbers wait. `flags`: XDP_FLAGS_….
pub fn attach(program: i32, link: u32, flags: u32) -> Result<Owned> {
    let attributes = Attributes::new()
        .word(0, program as u32)
        .word(4, link)
        .word(8, ATTACH_XDP)
        .word(12, flags);
    // SAFETY: making a link takes numbers only.
    numbers::high(|| unsafe { attributes.call(LINK_CREATE) })
}
