//! Users who think before their next request, however often their connection ends meanwhile.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Users who think (`--think`, or a script's delay), by the number of their connection.
#[derive(Default)]
pub(super) struct Thinking(HashMap<u32, Thoughts>);

/// Until when the users of a connection think, the earliest first.
#[derive(Default)]
struct Thoughts {
    generation: u32,
    /// Those of this generation.
    until_ns: BinaryHeap<Reverse<u64>>,
    /// Those whose connection has ended, until a later one has a stream for them.
    waiting_ns: BinaryHeap<Reverse<u64>>,
}

impl Thinking {
    /// Until when a user thinks who thought on the connection before this one, if there is one that does
    /// not go on yet.
    pub fn resume(&mut self, index: usize, generation: u32) -> Option<u64> {
        let thoughts = self.0.get_mut(&(index as u32))?;
        thoughts.go_on_to(generation);
        let next = thoughts.waiting_ns.pop();
        next.map(|Reverse(until_ns)| until_ns)
    }

    /// A user begins to, or goes on.
    pub fn begin(&mut self, index: usize, generation: u32, until_ns: u64) {
        let thoughts = self.0.entry(index as u32).or_default();
        thoughts.go_on_to(generation);
        thoughts.until_ns.push(Reverse(until_ns));
    }

    /// A user has thought, if one did.
    pub fn end(&mut self, index: usize, generation: u32) {
        let thoughts = self.0.get_mut(&(index as u32));
        if let Some(own) = thoughts.filter(|thoughts| thoughts.generation == generation) {
            own.until_ns.pop();
        }
    }

    /// How many do.
    pub fn on(&self, index: usize, generation: u32) -> u32 {
        let thoughts = self.0.get(&(index as u32));
        let own = thoughts.filter(|thoughts| thoughts.generation == generation);
        own.map_or(0, |own| own.until_ns.len() as u32)
    }

    /// The users of a connection are gone.
    pub fn forget(&mut self, index: usize) {
        self.0.remove(&(index as u32));
    }
}

impl Thoughts {
    /// The connection may be another one since.
    fn go_on_to(&mut self, generation: u32) {
        if self.generation != generation {
            self.generation = generation;
            self.waiting_ns.append(&mut self.until_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_thinks_on_where_a_connection_ends() {
        let mut thinking = Thinking::default();
        for until_ns in [30, 10, 20] {
            assert_eq!(thinking.resume(7, 1), None, "no user has thought before");
            thinking.begin(7, 1, until_ns);
        }
        thinking.end(7, 1);
        assert_eq!((thinking.on(7, 1), thinking.on(7, 2)), (2, 0));
        for until_ns in [20, 30] {
            assert_eq!(thinking.resume(7, 2), Some(until_ns));
            thinking.begin(7, 2, until_ns);
        }
        assert_eq!(thinking.resume(7, 2), None, "all go on");
        // a timer of the connection before
        thinking.end(7, 1);
        assert_eq!((thinking.on(7, 1), thinking.on(7, 2)), (0, 2));
        thinking.forget(7);
        assert_eq!(thinking.resume(7, 3), None);
    }
}
