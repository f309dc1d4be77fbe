//! Segments that were sent and not yet acknowledged: the scoreboard of a connection.
//!
//! Each connection has two lists through one pool of nodes: by sequence number, for
//! acknowledgments and retransmission, and by time of the last transmission, for RACK (RFC 8985).
//! A node stands for one segment of at most one MSS, also when a device cut a GSO segment of them.

use alloc::vec::Vec;

use crate::seq::after;

/// The end of a list.
pub const NONE: u32 = u32::MAX;

/// Covered by a selective acknowledgment.
pub const SACKED: u8 = 1;
/// Taken for lost and not yet sent again.
pub const LOST: u8 = 2;
/// Sent again, and that copy is taken to be in flight.
pub const RETRANSMITTED: u8 = 4;
/// Sent more than once: no round-trip time can be taken from it (Karn's rule).
pub const AMBIGUOUS: u8 = 8;
/// Carries FIN.
pub const FIN: u8 = 16;
/// In the list by time.
const TIMED: u8 = 32;
/// Was sent with PSH.
pub const PUSHED: u8 = 64;
/// The last of the frame that it was first sent in.
pub const FRAME_END: u8 = 128;

/// One segment.
#[derive(Clone, Copy)]
pub struct Node {
    /// First sequence number.
    pub seq: u32,
    /// The one behind the last.
    pub end: u32,
    /// When it was last sent.
    pub sent_us: u64,
    /// Next by sequence number; also the list of free nodes.
    pub next: u32,
    /// The one before it by sequence number.
    pub previous: u32,
    older: u32,
    /// Next by time; of one that is marked: the last one known of a run of marked ones, none: itself.
    pub newer: u32,
    /// `SACKED`, `LOST` and so on.
    pub flags: u8,
}

impl Node {
    /// Whether any of these flags is set.
    #[inline]
    pub fn is(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }
}

/// The two lists of a connection.
#[derive(Clone, Copy)]
pub struct List {
    /// Lowest sequence number.
    pub head: u32,
    /// Highest sequence number.
    pub tail: u32,
    /// Sent longest ago.
    pub oldest: u32,
    newest: u32,
}

impl Default for List {
    fn default() -> List {
        List {
            head: NONE,
            tail: NONE,
            oldest: NONE,
            newest: NONE,
        }
    }
}

/// The nodes of all connections.
pub struct Nodes {
    nodes: Vec<Node>,
    free: u32,
    in_use: usize,
}

impl Nodes {
    /// An empty pool; it grows with use and reuses what was freed.
    pub fn new() -> Nodes {
        Nodes {
            nodes: Vec::new(),
            free: NONE,
            in_use: 0,
        }
    }

    /// Nodes in use.
    pub fn in_use(&self) -> usize {
        self.in_use
    }

    /// A node.
    #[inline]
    pub fn get(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }

    /// A node, to be changed.
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> &mut Node {
        &mut self.nodes[index as usize]
    }

    fn allocate(&mut self, node: Node) -> u32 {
        self.in_use += 1;
        if self.free == NONE {
            self.nodes.push(node);
            return self.nodes.len() as u32 - 1;
        }
        let index = self.free;
        self.free = self.nodes[index as usize].next;
        self.nodes[index as usize] = node;
        index
    }

    /// Appends a segment that is sent now.
    #[inline]
    pub fn push(&mut self, list: &mut List, (seq, end): (u32, u32), now_us: u64, flags: u8) {
        let node = Node {
            seq,
            end,
            sent_us: now_us,
            next: NONE,
            previous: list.tail,
            older: NONE,
            newer: NONE,
            flags,
        };
        let index = self.allocate(node);
        match list.tail {
            NONE => list.head = index,
            tail => self.get_mut(tail).next = index,
        }
        list.tail = index;
        self.append_newest(list, index);
    }

    /// Takes the segment with the lowest number out.
    #[inline]
    pub fn pop(&mut self, list: &mut List) {
        let index = list.head;
        self.forget_time(list, index);
        list.head = self.get(index).next;
        match list.head {
            NONE => list.tail = NONE,
            head => self.get_mut(head).previous = NONE,
        }
        self.get_mut(index).next = self.free;
        self.free = index;
        self.in_use -= 1;
    }

    /// Takes all segments out.
    pub fn clear(&mut self, list: &mut List) {
        while list.head != NONE {
            self.pop(list);
        }
    }

    /// The segment was sent again: it is now the newest by time.
    pub fn resend(&mut self, list: &mut List, index: u32, now_us: u64) {
        self.forget_time(list, index);
        self.get_mut(index).sent_us = now_us;
        self.append_newest(list, index);
    }

    /// Puts a segment into the list by time again, at the place that its time gives it. It is looked for from `near`
    /// on, a segment of the list sent at about the same time; none: from the oldest.
    pub fn put_back(&mut self, list: &mut List, index: u32, near: u32) {
        self.forget_time(list, index);
        let place = (self.get(index).sent_us, self.get(index).end);
        let is_later =
            |it: &Node| it.sent_us > place.0 || it.sent_us == place.0 && after(it.end, place.1);
        let mut older = near;
        while older != NONE && is_later(self.get(older)) {
            older = self.get(older).older;
        }
        let behind = |nodes: &Nodes, at: u32| match at {
            NONE => list.oldest,
            at => nodes.get(at).newer,
        };
        let mut newer = behind(self, older);
        while newer != NONE && !is_later(self.get(newer)) {
            older = newer;
            newer = self.get(older).newer;
        }
        match older {
            NONE => list.oldest = index,
            older => self.get_mut(older).newer = index,
        }
        match newer {
            NONE => list.newest = index,
            newer => self.get_mut(newer).older = index,
        }
        let node = self.get_mut(index);
        (node.older, node.newer) = (older, newer);
        node.flags |= TIMED;
    }

    /// Takes a segment out of the list by time: RACK need not look at it.
    #[inline]
    pub fn forget_time(&mut self, list: &mut List, index: u32) {
        let node = *self.get(index);
        if !node.is(TIMED) {
            return;
        }
        match node.older {
            NONE => list.oldest = node.newer,
            older => self.get_mut(older).newer = node.newer,
        }
        match node.newer {
            NONE => list.newest = node.older,
            newer => self.get_mut(newer).older = node.older,
        }
        self.get_mut(index).flags &= !TIMED;
    }

    /// Marks a segment as selectively acknowledged: RACK need not look at it.
    pub fn mark(&mut self, list: &mut List, index: u32) {
        self.forget_time(list, index);
        let node = self.get_mut(index);
        node.flags = node.flags & !(LOST | RETRANSMITTED) | SACKED;
        node.newer = NONE;
    }

    /// The last of a run of marked segments, of which this is one. What is gone through is remembered: a run costs its
    /// length once, however often it is asked about. `steps` counts.
    pub fn end_of_run(&mut self, index: u32, steps: &mut u64) -> u32 {
        let mut end = index;
        while let Some(next) = self.next_in_run(end) {
            *steps += 1;
            end = next;
        }
        let mut at = index;
        while at != end {
            let next = self.next_in_run(at).unwrap_or(end);
            self.get_mut(at).newer = end;
            at = next;
        }
        end
    }

    fn next_in_run(&self, index: u32) -> Option<u32> {
        let node = self.get(index);
        let next = if node.newer == NONE {
            node.next
        } else {
            node.newer
        };
        (next != NONE && self.get(next).is(SACKED)).then_some(next)
    }

    #[inline]
    fn append_newest(&mut self, list: &mut List, index: u32) {
        let newest = list.newest;
        let node = self.get_mut(index);
        node.older = newest;
        node.newer = NONE;
        node.flags |= TIMED;
        match newest {
            NONE => list.oldest = index,
            newest => self.get_mut(newest).newer = index,
        }
        list.newest = index;
    }

    /// Cuts a segment in two at `seq`; both parts keep time and flags, FIN, PSH and the end of the frame go to the second.
    pub fn split(&mut self, list: &mut List, index: u32, seq: u32) {
        let first = *self.get(index);
        let second = self.allocate(Node {
            seq,
            previous: index,
            ..first
        });
        self.get_mut(index).end = seq;
        self.get_mut(index).flags &= !(FIN | PUSHED | FRAME_END);
        self.get_mut(index).next = second;
        match first.next {
            NONE => list.tail = second,
            next => self.get_mut(next).previous = second,
        }
        if first.is(TIMED) {
            self.get_mut(index).newer = second;
            self.get_mut(second).older = index;
            match first.newer {
                NONE => list.newest = second,
                newer => self.get_mut(newer).older = second,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_seq(nodes: &Nodes, list: &List) -> Vec<u32> {
        let mut found = Vec::new();
        let mut at = list.head;
        while at != NONE {
            found.push(nodes.get(at).seq);
            at = nodes.get(at).next;
        }
        found
    }

    fn by_time(nodes: &Nodes, list: &List) -> Vec<u32> {
        let mut found = Vec::new();
        let mut at = list.oldest;
        while at != NONE {
            found.push(nodes.get(at).seq);
            at = nodes.get(at).newer;
        }
        found
    }

    #[test]
    fn a_run_of_marked_segments_is_gone_through_once() {
        let (mut nodes, mut list) = (Nodes::new(), List::default());
        for seq in 0..1_000 {
            nodes.push(&mut list, (seq, seq + 1), 0, 0);
        }
        for index in 100..900 {
            nodes.mark(&mut list, index);
        }
        let mut steps = 0;
        assert_eq!(nodes.end_of_run(100, &mut steps), 899);
        assert_eq!(steps, 799);
        for index in (100..899).rev() {
            assert_eq!(nodes.end_of_run(index, &mut steps), 899);
        }
        assert_eq!(steps, 2 * 799);
        // It grows, and its begin is acknowledged.
        (900..950).for_each(|index| nodes.mark(&mut list, index));
        (0..500).for_each(|_| nodes.pop(&mut list));
        assert_eq!(nodes.end_of_run(500, &mut steps), 949);
        assert!(steps < 2 * 799 + 60, "{steps}");
    }

    #[test]
    fn segments_put_back_are_where_their_time_says() {
        let (mut nodes, mut list) = (Nodes::new(), List::default());
        for seq in 0..8 {
            nodes.push(&mut list, (seq, seq + 1), u64::from(seq / 2), 0);
        }
        nodes.resend(&mut list, 1, 2);
        for index in [0, 1, 4, 5, 7] {
            nodes.forget_time(&mut list, index);
        }
        assert_eq!(by_time(&nodes, &list), [2, 3, 6]);
        let mut near = NONE;
        for index in [0, 1, 4, 5, 7] {
            nodes.put_back(&mut list, index, near);
            near = index;
        }
        assert_eq!(by_time(&nodes, &list), [0, 2, 3, 1, 4, 5, 6, 7]);
        nodes.put_back(&mut list, 2, 7);
        assert_eq!(by_time(&nodes, &list), [0, 2, 3, 1, 4, 5, 6, 7]);
        nodes.clear(&mut list);
        assert_eq!((list.oldest, list.newest), (NONE, NONE));
    }

    #[test]
    fn a_resent_segment_is_last_by_time_and_stays_in_its_place_by_number() {
        let (mut nodes, mut list) = (Nodes::new(), List::default());
        for seq in 0..4 {
            nodes.push(&mut list, (seq * 10, seq * 10 + 10), u64::from(seq), 0);
        }
        let second = nodes.get(list.head).next;
        nodes.resend(&mut list, second, 9);
        nodes.split(&mut list, second, 15);
        assert_eq!(by_seq(&nodes, &list), [0, 10, 15, 20, 30]);
        assert_eq!(by_time(&nodes, &list), [0, 20, 30, 10, 15]);
        nodes.pop(&mut list);
        nodes.pop(&mut list);
        assert_eq!(by_seq(&nodes, &list), [15, 20, 30]);
        assert_eq!(by_time(&nodes, &list), [20, 30, 15]);
        nodes.clear(&mut list);
        assert_eq!((nodes.in_use(), list.oldest, list.tail), (0, NONE, NONE));
    }
}
