//! Which queues of an interface a process takes, where several processes may have some each.
//!
//! The first process takes its share and leaves the rest to its siblings for a while, in which frames wait in the
//! rings. Queues that stay unclaimed are divided among the running processes, and so are the queues of a process that
//! has ended. A process without a queue takes what is free at once: it is the one that should have it.

/// Looks after which a queue is taken that no process has taken yet: the siblings may still be starting.
const LOOKS_NEW: u32 = 3;
/// The same where more siblings are known to come.
const LOOKS_EXPECTED: u32 = 10;
/// Looks after which the queue of one that has ended is taken.
const LOOKS_LEFT: u32 = 1;
/// Further looks of one that listens nowhere, or that has its share.
const LOOKS_MORE: u32 = 3;

/// A queue that is free, as far as can be seen.
#[derive(Debug, Clone, Copy)]
pub struct Free {
    pub queue: u32,
    /// Nobody has had it yet.
    pub is_new: bool,
}

/// What a process knows of the others.
#[derive(Debug, Clone, Copy)]
pub struct Around {
    /// Queues of the interface.
    pub queues: u32,
    /// Processes that are to share them; 0 where that is not known.
    pub members: u32,
    /// Processes that have queues, this one included.
    pub owners: u32,
    /// Queues of this process.
    pub own: u32,
    /// This process accepts at a listener.
    pub listens: bool,
    /// It accepts, opens connections or sends datagrams. An old worker that only ends takes nothing.
    pub wants: bool,
}

/// How often each queue was seen free in a row.
#[derive(Debug, Default)]
pub struct Looks(Vec<u32>);

impl Looks {
    /// The queues that are to be taken now, after another look, at which these were free; and how many of them, as
    /// others may be faster.
    pub fn choose(&mut self, free: &[Free], around: &Around) -> (Vec<u32>, usize) {
        self.0.resize(around.queues as usize, 0);
        for (queue, looks) in self.0.iter_mut().enumerate() {
            let is_free = free.iter().any(|one| one.queue as usize == queue);
            *looks = if is_free { *looks + 1 } else { 0 };
        }
        if !around.wants {
            return (Vec::new(), 0);
        }
        if around.own == 0 {
            let share = (around.queues / around.members.max(1)).max(1);
            let share = if around.members == 0 { 1 } else { share };
            return (free.iter().map(|one| one.queue).collect(), share as usize);
        }
        let mut own = around.own;
        let mut chosen = Vec::new();
        for one in free {
            let has_share = own >= around.queues.div_ceil(around.owners.max(1));
            if self.0[one.queue as usize] > self.needed(one, around, has_share) {
                own += 1;
                chosen.push(one.queue);
            }
        }
        let count = chosen.len();
        (chosen, count)
    }

    fn needed(&self, one: &Free, around: &Around, has_share: bool) -> u32 {
        let expects = around.owners < around.members.min(around.queues);
        let first = match one.is_new {
            true if expects => LOOKS_EXPECTED,
            true => LOOKS_NEW,
            false => LOOKS_LEFT,
        };
        let more = has_share || !around.listens;
        first + if more { LOOKS_MORE } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AROUND: Around = Around {
        queues: 4,
        members: 0,
        owners: 1,
        own: 0,
        listens: true,
        wants: true,
    };

    fn free(queues: &[u32], is_new: bool) -> Vec<Free> {
        let free = queues.iter().map(|queue| Free {
            queue: *queue,
            is_new,
        });
        free.collect()
    }

    /// Looks until something is chosen, and that.
    fn looks(free: &[Free], around: &Around) -> (usize, Vec<u32>) {
        let mut looks = Looks::default();
        let choose = |look| {
            let (mut chosen, most) = looks.choose(free, around);
            chosen.truncate(most);
            (look, chosen)
        };
        let chosen = (1..100).map(choose);
        let mut chosen = chosen.filter(|(_, queues)| !queues.is_empty());
        chosen.next().expect("some are taken")
    }

    #[test]
    fn the_first_takes_its_share_at_once() {
        let all = free(&[0, 1, 2, 3], true);
        assert_eq!(looks(&all, &AROUND), (1, vec![0]));
        for (members, share) in [(1, 4), (2, 2), (3, 1), (4, 1), (9, 1)] {
            let around = Around { members, ..AROUND };
            assert_eq!(looks(&all, &around).1.len(), share, "{members}");
        }
    }

    #[test]
    fn unclaimed_queues_are_taken_later_than_queues_of_an_ended_process() {
        let has_one = Around { own: 1, ..AROUND };
        let (left, new) = (free(&[2], false), free(&[2], true));
        assert_eq!(looks(&left, &has_one), (2, vec![2]));
        assert_eq!(looks(&new, &has_one), (4, vec![2]));
        let expecting = Around {
            members: 4,
            ..has_one
        };
        assert_eq!(looks(&new, &expecting), (11, vec![2]));
        assert_eq!(looks(&left, &expecting), (2, vec![2]));
    }

    #[test]
    fn two_share_what_is_left() {
        let around = Around {
            owners: 2,
            own: 1,
            ..AROUND
        };
        let (at, chosen) = looks(&free(&[2, 3], true), &around);
        assert_eq!((at, chosen), (4, vec![2]));
    }

    #[test]
    fn a_process_that_listens_nowhere_comes_last() {
        let around = Around {
            own: 1,
            listens: false,
            ..AROUND
        };
        assert_eq!(looks(&free(&[1], false), &around).0, 5);
    }

    #[test]
    fn a_process_that_only_ends_takes_nothing() {
        let around = Around {
            own: 1,
            listens: false,
            wants: false,
            ..AROUND
        };
        let mut looks = Looks::default();
        for _ in 0..2 * LOOKS_EXPECTED {
            assert_eq!(looks.choose(&free(&[1], false), &around), (vec![], 0));
        }
    }

    #[test]
    fn a_queue_that_was_taken_between_two_looks_is_counted_from_the_start() {
        let around = Around { own: 1, ..AROUND };
        let mut looks = Looks::default();
        let free = free(&[1], false);
        assert!(looks.choose(&free, &around).0.is_empty());
        assert!(looks.choose(&[], &around).0.is_empty());
        assert!(looks.choose(&free, &around).0.is_empty());
        assert_eq!(looks.choose(&free, &around), (vec![1], 1));
    }
}
