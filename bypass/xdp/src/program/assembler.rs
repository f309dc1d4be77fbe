//! Instructions of the kernel's virtual machine (RFC 9669), one method each for what the program does often.

use std::collections::HashMap;

use crate::sys::bpf::Instruction;

/// The registers that keep their meaning: the context, where the claims of the protocol stand among the words of a
/// port (of a TCP segment of which the kernel is asked: its flags SYN and ACK), its port (of the same: what the kernel
/// has), and the words of the port.
pub const CONTEXT: u8 = 6;
pub const CLAIMS: u8 = 7;
pub const PORT: u8 = 8;
pub const WORDS_AT: u8 = 9;
pub const STACK: u8 = 10;
/// First byte of the frame, and the one behind its last, until the next call.
pub const DATA: u8 = 2;
pub const END: u8 = 3;

const MAP_LOOKUP: i32 = 1;
/// BPF_PSEUDO_MAP_FD: the constant is the descriptor of a map.
pub const PSEUDO_MAP_FD: u8 = 1;

// Classes, sizes and operations of instructions.
pub const LOAD: u8 = 0x61;
pub const STORE: u8 = 0x63;
pub const BYTE: u8 = 0x10;
pub const HALF: u8 = 0x08;
pub const WORD: u8 = 0x00;
pub const DOUBLE: u8 = 0x18;
pub const MOVE: u8 = 0xb7;
pub const ADD: u8 = 0x07;
pub const AND: u8 = 0x57;
pub const SUBTRACT: u8 = 0x17;
/// Of 64 bits, as [`MOVE`], [`ADD`] and [`AND`] are.
pub const XOR: u8 = 0xa7;
pub const SHIFT_RIGHT: u8 = 0x77;
pub const BY_REGISTER: u8 = 0x08;
pub const TO_BIG_ENDIAN: u8 = 0xdc;
pub const JUMP: u8 = 0x05;
pub const IF_EQUAL: u8 = 0x15;
pub const IF_GREATER: u8 = 0x25;
/// Of signed numbers.
pub const IF_ABOVE: u8 = 0x65;
pub const IF_DIFFERENT: u8 = 0x55;
pub const CALL: u8 = 0x85;
pub const EXIT: u8 = 0x95;
pub const LOAD_MAP: u8 = 0x18;

/// Instructions with names for the places that are jumped to.
#[derive(Default)]
pub struct Assembler {
    code: Vec<Instruction>,
    labels: HashMap<&'static str, usize>,
    jumps: Vec<(usize, &'static str)>,
}

impl Assembler {
    /// Any instruction.
    pub fn add(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        self.code.push(Instruction {
            code,
            registers: to | from << 4,
            offset,
            immediate,
        });
    }

    /// A place to jump to.
    pub fn label(&mut self, name: &'static str) {
        self.labels.insert(name, self.code.len());
    }

    /// From memory.
    pub fn load(&mut self, size: u8, to: u8, from: u8, offset: i16) {
        self.add(LOAD | size, to, from, offset, 0);
    }

    /// To the stack.
    pub fn store(&mut self, size: u8, from: u8, offset: i16) {
        self.store_at(size, STACK, from, offset);
    }

    pub fn store_at(&mut self, size: u8, base: u8, from: u8, offset: i16) {
        self.add(STORE | size, base, from, offset, 0);
    }

    /// Copies a register.
    pub fn copy(&mut self, to: u8, from: u8) {
        self.add(MOVE | BY_REGISTER, to, from, 0, 0);
    }

    /// The frame's ends, after a call that has overwritten them.
    pub fn take_frame(&mut self) {
        self.load(WORD, DATA, CONTEXT, 0);
        self.load(WORD, END, CONTEXT, 4);
    }

    /// The queue that the frame came by.
    pub fn take_queue(&mut self, to: u8) {
        self.load(WORD, to, CONTEXT, 16);
    }

    /// Jumps to a label, by a value.
    pub fn jump(&mut self, code: u8, register: u8, value: i32, label: &'static str) {
        self.jumps.push((self.code.len(), label));
        self.add(code, register, 0, 0, value);
    }

    /// The same by another register.
    pub fn jump_by_register(&mut self, code: u8, register: u8, other: u8, label: &'static str) {
        self.jumps.push((self.code.len(), label));
        self.add(code | BY_REGISTER, register, other, 0, 0);
    }

    /// Leaves for the kernel unless the frame has so many bytes.
    pub fn require(&mut self, bytes: i32) {
        self.add(MOVE | BY_REGISTER, 4, DATA, 0, 0);
        self.add(ADD, 4, 0, 0, bytes);
        self.jump_by_register(IF_GREATER, 4, END, "pass");
    }

    /// Looks a key on the stack up; to the kernel when there is nothing. The place is in register 0.
    pub fn look_up(&mut self, map: i32, key: i16) {
        self.call_map(map, key, MAP_LOOKUP);
        self.jump(IF_EQUAL, 0, 0, "pass");
    }

    /// Calls a function of a map with a key on the stack.
    pub fn call_map(&mut self, map: i32, key: i16, function: i32) {
        self.add(LOAD_MAP, 1, PSEUDO_MAP_FD, 0, map);
        self.add(0, 0, 0, 0, 0);
        self.stack_address(2, key);
        self.add(CALL, 0, 0, 0, function);
    }

    /// The address of a place on the stack.
    pub fn stack_address(&mut self, to: u8, at: i16) {
        self.add(MOVE | BY_REGISTER, to, STACK, 0, 0);
        self.add(ADD, to, 0, 0, i32::from(at));
    }

    /// The program, every jump with its distance.
    pub fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let distance = self.labels[label] as i64 - at as i64 - 1;
            self.code[at].offset = i16::try_from(distance).expect("a short program");
        }
        self.code
    }
}
