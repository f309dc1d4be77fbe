//! bpf(2): maps, the program, and the link that keeps it on an interface (linux/bpf.h).

use bypass_sys::descriptor::Owned;
use bypass_sys::kernel::Result;
use bypass_sys::network;
use bypass_sys::numbers;

const MAP_CREATE: u32 = 0;
const MAP_LOOKUP: u32 = 1;
const MAP_UPDATE: u32 = 2;
const PROG_LOAD: u32 = 5;
const PROG_BY_ID: u32 = 13;
const MAP_BY_ID: u32 = 14;
const INFO: u32 = 15;
const MAP_UPDATE_BATCH: u32 = 26;
const LINK_CREATE: u32 = 28;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const HAS_FRAGS: u32 = 1 << 5;
const MMAPABLE: u32 = 1 << 10;

/// Kinds of maps.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// An array that whoever has its descriptor maps and writes.
    Mapped,
    /// An array that is written by bpf(2) alone.
    Array,
    /// A hash table; where it is full the least recently used go.
    Recent,
    /// Queue number → AF_XDP socket.
    Sockets,
}

impl Kind {
    /// The shape of a map of this kind with values of so many bytes, see [`maps_of`].
    pub fn shape(self, value: u32) -> [u32; 3] {
        let [number, flags] = self.numbers();
        [number, value, flags]
    }

    /// BPF_MAP_TYPE_… and flags.
    fn numbers(self) -> [u32; 2] {
        match self {
            Self::Mapped => [2, MMAPABLE],
            Self::Array => [2, 0],
            Self::Recent => [9, 0],
            Self::Sockets => [17, 0],
        }
    }
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
    let [number, flags] = kind.numbers();
    let attributes = Attributes::new()
        .word(0, number)
        .word(4, key)
        .word(8, value)
        .word(12, entries)
        .word(16, flags);
    // SAFETY: making a map takes numbers only.
    numbers::high(|| unsafe { attributes.call(MAP_CREATE) })
}

/// Puts bytes into a map whose keys are numbers.
pub fn set_entry<const BYTES: usize>(map: i32, key: u32, value: [u8; BYTES]) -> Result<()> {
    let attributes = Attributes::new()
        .word(0, map as u32)
        .address(8, &key)
        .address(16, &value);
    // SAFETY: both are on this frame; whoever has made the map gives values of its size.
    unsafe { attributes.call(MAP_UPDATE) }.map(|_| ())
}

/// A number of 4 bytes in a map whose keys are numbers.
pub fn entry(map: i32, key: u32) -> Result<[u8; 4]> {
    let mut value = [0; 4];
    let attributes = Attributes::new()
        .word(0, map as u32)
        .address(8, &key)
        .address(16, value.as_mut_ptr());
    // SAFETY: both are on this frame; whoever has made the map gives it values of 4 bytes.
    unsafe { attributes.call(MAP_LOOKUP) }?;
    // The kernel wrote through the address in the request.
    // SAFETY: as above.
    Ok(unsafe { core::ptr::read_volatile(&value) })
}

/// Fills an array of numbers from its first place on.
pub fn set_entries(map: i32, values: &[u32]) -> Result<()> {
    let keys: Vec<u32> = (0..values.len() as u32).collect();
    let attributes = Attributes::new()
        .address(16, keys.as_ptr())
        .address(24, values.as_ptr())
        .word(32, keys.len() as u32)
        .word(36, map as u32);
    // SAFETY: both lists outlive the call and have as many numbers.
    unsafe { attributes.call(MAP_UPDATE_BATCH) }.map(|_| ())
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

/// Maps of a program at most that are looked at.
const MAPS_MAX: usize = 32;

/// The maps of the program that `link` keeps on its interface, each with its type, the size of its values and its
/// flags. Needs CAP_SYS_ADMIN.
pub fn maps_of(link: i32) -> Result<Vec<(Owned, [u32; 3])>> {
    let mut of_link = [0; 4];
    info(link, &mut of_link)?;
    let program = by_id(PROG_BY_ID, of_link[2])?;
    let mut ids = [0u32; MAPS_MAX];
    let address = ids.as_mut_ptr() as u64;
    // struct bpf_prog_info: number and address of the list of maps.
    let mut of_program = [0; 16];
    of_program[13] = MAPS_MAX as u32;
    of_program[14] = address as u32;
    of_program[15] = (address >> 32) as u32;
    info(program.0, &mut of_program)?;
    let count = (of_program[13] as usize).min(MAPS_MAX);
    // The kernel wrote through the address in the request.
    // SAFETY: the list is on this frame.
    let ids = unsafe { core::ptr::read_volatile(&ids) };
    ids[..count]
        .iter()
        .map(|id| {
            let map = by_id(MAP_BY_ID, *id)?;
            let mut of_map = [0; 6];
            info(map.0, &mut of_map)?;
            Ok((map, [of_map[0], of_map[3], of_map[5]]))
        })
        .collect()
}

/// A program or map by its number.
fn by_id(command: u32, id: u32) -> Result<Owned> {
    let attributes = Attributes::new().word(0, id);
    // SAFETY: the call takes a number only.
    numbers::high(|| unsafe { attributes.call(command) })
}

/// The first words of `struct bpf_…_info` of a descriptor; the kernel reads them too, as a request.
fn info<const WORDS: usize>(fd: i32, words: &mut [u32; WORDS]) -> Result<()> {
    let attributes = Attributes::new()
        .word(0, fd as u32)
        .word(4, 4 * WORDS as u32)
        .address(8, words.as_mut_ptr());
    // SAFETY: the words outlive the call and are as many; an address among them is the caller's.
    unsafe { attributes.call(INFO) }?;
    // SAFETY: the kernel wrote through the address in the request.
    *words = unsafe { core::ptr::read_volatile(words) };
    Ok(())
}
