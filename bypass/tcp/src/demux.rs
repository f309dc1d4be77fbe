//! From addresses and ports to the entry they belong to: one open-addressed table.
//!
//! A slot is eight bytes: the upper half of the hash, and the entry's number with its kind in the
//! two upper bits. Probing is linear; deletion shifts later slots back, so that no tombstone is
//! left. The hash is seeded, so that a peer cannot choose ports that collide.

use crate::wire::tcp::Flow;
use alloc::vec;
use alloc::vec::Vec;

/// What a flow leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// A connection.
    Connection(u32),
    /// A half-open connection.
    HalfOpen(u32),
    /// A connection that waits out its last segments.
    TimeWait(u32),
}

const KIND_SHIFT: u32 = 30;
const INDEX_MASK: u32 = (1 << KIND_SHIFT) - 1;

impl Entry {
    fn pack(self) -> u32 {
        let (kind, index) = match self {
            Entry::Connection(index) => (1, index),
            Entry::HalfOpen(index) => (2, index),
            Entry::TimeWait(index) => (3, index),
        };
        kind << KIND_SHIFT | index
    }

    #[inline]
    fn unpack(bits: u32) -> Option<Entry> {
        let index = bits & INDEX_MASK;
        match bits >> KIND_SHIFT {
            1 => Some(Entry::Connection(index)),
            2 => Some(Entry::HalfOpen(index)),
            3 => Some(Entry::TimeWait(index)),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Slot {
    tag: u32,
    entry: u32,
}

/// The table.
pub struct Demux {
    slots: Vec<Slot>,
    len: usize,
    seeds: [u64; 4],
}

impl Demux {
    /// An empty table; the seeds come from the engine's secret.
    pub fn new(seeds: [u64; 4]) -> Demux {
        Demux {
            slots: vec![Slot::default(); 64],
            len: 0,
            seeds: seeds.map(|seed| seed | 1),
        }
    }

    /// The seeded hash of a flow.
    #[inline]
    pub fn hash(&self, flow: &Flow) -> u64 {
        let [a, b, c, d] = self.seeds;
        let mut hash = mix(flow.remote.low ^ a, flow.local.low ^ b);
        hash = mix(hash ^ u64::from(flow.ports), c);
        if flow.remote.high | flow.local.high != 0 {
            hash = mix(hash ^ flow.remote.high, flow.local.high ^ d);
        }
        hash
    }

    /// The entry of a flow. `is_it` compares the flow of an entry whose hash fits.
    #[inline]
    pub fn find(&self, hash: u64, is_it: impl Fn(Entry) -> bool) -> Option<Entry> {
        let mask = self.slots.len() - 1;
        let tag = tag(hash);
        let mut at = tag as usize & mask;
        loop {
            let slot = self.slots[at];
            let entry = Entry::unpack(slot.entry)?;
            if slot.tag == tag && is_it(entry) {
                return Some(entry);
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds an entry; the flow must not be in the table.
    pub fn insert(&mut self, hash: u64, entry: Entry) {
        if (self.len + 1) * 2 > self.slots.len() {
            self.grow();
        }
        self.place(Slot {
            tag: tag(hash),
            entry: entry.pack(),
        });
        self.len += 1;
    }

    fn place(&mut self, slot: Slot) {
        let mask = self.slots.len() - 1;
        let mut at = slot.tag as usize & mask;
        while self.slots[at].entry != 0 {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
    }

    fn grow(&mut self) {
        let doubled = vec![Slot::default(); self.slots.len() * 2];
        let old = core::mem::replace(&mut self.slots, doubled);
        for slot in old.into_iter().filter(|slot| slot.entry != 0) {
            self.place(slot);
        }
    }

    /// Takes an entry out.
    pub fn remove(&mut self, hash: u64, entry: Entry) {
        let Some(mut hole) = self.position(hash, entry) else {
            return;
        };
        let mask = self.slots.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let slot = self.slots[at];
            if slot.entry == 0 {
                break;
            }
            let home = slot.tag as usize & mask;
            // It may move back when its home is not between the hole and its place.
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = Slot::default();
        self.len -= 1;
    }

    fn position(&self, hash: u64, entry: Entry) -> Option<usize> {
        let mask = self.slots.len() - 1;
        let (tag, packed) = (tag(hash), entry.pack());
        let mut at = tag as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot.entry == packed {
                return Some(at);
            }
            if slot.entry == 0 {
                return None;
            }
            at = (at + 1) & mask;
        }
    }
}

fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ip::Addr;
    use alloc::collections::BTreeMap;

    fn flow(number: u32) -> Flow {
        Flow::new(
            Addr::v4(0x0a00_0001),
            80,
            Addr::v4(0x0a00_0002 + (number >> 12)),
            number as u16,
        )
    }

    /// Inserts, removals and lookups in an arbitrary order against a tree as the model.
    #[test]
    fn behaves_as_a_map_under_many_inserts_and_removals() {
        let mut demux =
            Demux::new([3, 5, 7, 9].map(|odd: u64| odd.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let mut model = BTreeMap::new();
        let mut state = 1u32;
        for _ in 0..200_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = state >> 16 & 0x1fff;
            let hash = demux.hash(&flow(number));
            let found = demux.find(hash, |entry| entry == Entry::Connection(number));
            assert_eq!(found.is_some(), model.contains_key(&number));
            if found.is_some() {
                demux.remove(hash, Entry::Connection(number));
                model.remove(&number);
            } else {
                demux.insert(hash, Entry::Connection(number));
                model.insert(number, ());
            }
            assert_eq!(demux.len, model.len());
        }
    }
}
