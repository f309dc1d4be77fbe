//! New TCP connections: taken only where their answers have a way over this interface, and where the owner of the
//! queue has lately looked for frames. All others go to the kernel, which has the listener too.

use super::assembler::*;
use super::{
    at, Maps, DRAINING, KEY, LEAVES_NEW, LEFT, LIST, OWNERS_MAX, PATIENCE_NS, TCP, TUPLE, WAITS,
    WAYS_MAX, WAY_WORDS,
};

const MAP_UPDATE: i32 = 2;
const MAP_DELETE: i32 = 3;
const TIME: i32 = 5;
/// The place of a new connection's other end on the stack.
const SOURCE: i16 = -88;
/// The queue as a key.
const QUEUE: i16 = -92;

/// Decides about a SYN: it is taken, or passes to the kernel.
pub fn decide(code: &mut Assembler, maps: Maps) {
    code.label("new");
    leave_where_wanted(code);
    require_way(code, maps.ways);
    require_owner(code, maps.pending);
    // Where nothing was found this is the length of a tuple, which is another number than this state.
    code.jump(IF_DIFFERENT, PORT, WAITS, "redirect");
    note_reopened(code, maps.reopened);
}

/// No owner takes new connections of the port, or the one with the queue of the frame takes none.
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
pub fn take_bit_of_queue(code: &mut Assembler) {
    code.take_queue(4);
    code.add(AND, 4, 0, 0, OWNERS_MAX as i32 - 1);
    code.add(SHIFT_RIGHT | BY_REGISTER, 1, 4, 0, 0);
    code.add(AND, 1, 0, 0, 1);
}

/// The address's list of ways says whether an answer would leave over this interface.
fn require_way(code: &mut Assembler, ways: i32) {
    code.take_frame();
    code.require(54);
    code.load(HALF, 5, DATA, 12);
    code.jump(IF_EQUAL, 5, i32::from(0x86dd_u16.to_be()), "source6");
    code.take_address4(26, SOURCE);
    code.jump(JUMP, 0, 0, "source");
    code.label("source6");
    code.take_address6(22, SOURCE);
    code.label("source");
    code.look_up(ways, LIST);
    code.load(DOUBLE, 2, STACK, SOURCE);
    code.load(DOUBLE, 3, STACK, SOURCE + 8);
    for entry in 0..WAYS_MAX {
        let word = |number: usize| ((entry * WAY_WORDS + number) * 8) as i16;
        // Beyond the last instruction of an entry, of which two and seven are left.
        for (half, source, behind) in [(0, 2, 7), (1, 3, 2)] {
            code.copy(1, source);
            code.load(DOUBLE, 4, 0, word(half));
            code.add(AND | BY_REGISTER, 1, 4, 0, 0);
            code.load(DOUBLE, 4, 0, word(2 + half));
            code.add(IF_DIFFERENT | BY_REGISTER, 1, 4, behind, 0);
        }
        code.load(DOUBLE, 1, 0, word(4));
        code.jump(JUMP, 0, 0, "way");
    }
    code.jump(JUMP, 0, 0, "left");
    code.label("way");
    code.jump(IF_EQUAL, 1, 0, "left");
}

/// Notes when the first new connection came that the owner of the queue has not seen. It clears the note whenever it
/// looks for frames: where the note is old, it does not.
fn require_owner(code: &mut Assembler, pending: i32) {
    code.take_queue(1);
    code.add(AND, 1, 0, 0, OWNERS_MAX as i32 - 1);
    code.store(WORD, 1, QUEUE);
    code.look_up(pending, QUEUE);
    code.copy(CLAIMS, 0);
    code.add(CALL, 0, 0, 0, TIME);
    code.load(DOUBLE, 1, CLAIMS, 0);
    code.jump(IF_DIFFERENT, 1, 0, "waiting");
    code.store_at(DOUBLE, CLAIMS, 0, 0);
    code.jump(JUMP, 0, 0, "owned");
    code.label("waiting");
    code.add(SUBTRACT | BY_REGISTER, 0, 1, 0, 0);
    code.jump(IF_ABOVE, 0, PATIENCE_NS as i32, "left");
    code.label("owned");
}

/// A new connection that meets the remains of an old one is noted, and the kernel's where that fails. One that
/// is left to the kernel is not ours any more, and the kernel is asked about the port from then on.
fn note_reopened(code: &mut Assembler, reopened: i32) {
    // The value: which use of the port.
    code.stack_address(3, KEY);
    code.add(MOVE, 4, 0, 0, 0);
    code.call_map(reopened, TUPLE, MAP_UPDATE);
    code.jump(IF_EQUAL, 0, 0, "redirect");
    code.jump(JUMP, 0, 0, "pass");
    code.label("left");
    code.add(MOVE, 1, 0, 0, 1);
    code.store_at(DOUBLE, WORDS_AT, 1, at(LEFT));
    code.label("leave");
    code.call_map(reopened, TUPLE, MAP_DELETE);
    code.jump(JUMP, 0, 0, "pass");
}
