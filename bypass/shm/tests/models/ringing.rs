//! Models of sleep and wake: whoever goes to sleep sees what was published, or is woken.
//!
//! The sleepers do what `wait/epoll/waiting.rs` and `wait/sleeping.rs` of the stack do, in the same order; the
//! ringers what `peer.rs` does.

use std::sync::Arc;

use loom::thread;

use crate::atomic::{fence, heavy, AtomicU32, AtomicU64, Ordering};
use crate::doorbell::{ring_ready_list, News, Seen, Sleeper};
use crate::layout::{ConsumerLine, Locks, ProducerLine, ReadyList, Records, FLAG_GROUP, SLOTS_MAX};
use crate::ring::Ring;
use crate::Model;

pub const MODELS: &[Model] = &[
    ("a_ring_is_seen_or_wakes", set_sleeps),
    ("news_are_seen_or_wake", hears_news),
    (
        "news_behind_a_summary_are_seen_or_wake",
        hears_news_of_a_group,
    ),
    ("news_of_two_kinds_are_both_seen", hears_news_and_flag),
    ("an_announcement_is_heard_once", hears_once),
    ("bytes_held_back_are_seen_or_wake", holds_back),
    ("what_follows_bytes_held_back_is_seen_or_wakes", goes_on),
    ("of_two_that_hold_back_both_are_seen", two_hold_back),
    ("two_rings_of_one_word_are_both_seen", two_ring),
    ("of_two_ringers_one_wakes", one_wakes),
    ("a_member_that_just_joined_is_heard", joins),
    ("a_member_that_moves_to_another_set_is_heard", moves),
    ("a_member_that_comes_back_is_heard", returns),
    ("a_member_whose_number_was_seen_is_heard", returns_by_chance),
    ("a_list_set_aside_hears_or_is_woken", set_aside),
    (
        "a_list_set_aside_as_others_sleep_hears_or_wakes_there",
        set_aside_asleep,
    ),
    ("of_two_rings_aside_none_is_lost", two_ring_aside),
    ("a_list_taken_up_before_a_sleep_is_heard", taken_up_asleep),
    ("a_blocked_reader_sees_or_is_woken", reader_sleeps),
    (
        "a_blocked_reader_sees_the_end_or_is_woken",
        reader_meets_end,
    ),
    ("a_sleeper_that_leaves_is_not_woken_later", withdraws),
    ("a_waiter_for_connections_sees_or_is_woken", listener_sleeps),
];

/// State that an epoll set waits on: two ready lists (of two sets), and the state of a connection.
struct World {
    ready_lists: [ReadyList; 2],
    ready_list_of: AtomicU32,
    /// The connection of slot 0.
    line: ProducerLine,
    writer: Locks,
    unused: (ConsumerLine, Records),
    ends: AtomicU32,
    sleeper: AtomicU64,
    wakes: AtomicU32,
}

impl World {
    fn new(ready_list_of: u32) -> Arc<Self> {
        Arc::new(Self {
            ready_lists: [ReadyList::new(), ReadyList::new()],
            ready_list_of: AtomicU32::new(ready_list_of),
            line: ProducerLine::new(),
            writer: Locks::new(),
            unused: (ConsumerLine::new(), Records::new()),
            ends: AtomicU32::new(0),
            sleeper: AtomicU64::new(0),
            wakes: AtomicU32::new(0),
        })
    }

    /// `ring_side` of the stack: for an end, or for bytes.
    fn tell_of(&self, slot: usize, is_news: bool) {
        ring_ready_list(&self.ready_list_of, |index| {
            let ready_list = &self.ready_lists[index];
            let is_asleep = match is_news {
                true => {
                    let news = self.ring().announcement(index, || ready_list.latest(slot));
                    ready_list.announce(slot, news, false)
                }
                false => ready_list.ring(slot, false),
            };
            if is_asleep {
                self.wakes.fetch_or(1 << index, Ordering::Relaxed);
            }
        });
        if Sleeper::take(&self.sleeper).is_some() {
            self.wakes.fetch_or(1 << 8, Ordering::Relaxed);
        }
    }

    fn tell(&self, slot: usize) {
        self.tell_of(slot, false);
    }

    /// `publish` of a stream.
    fn publish(&self) {
        self.publish_in(0);
    }

    fn publish_in(&self, slot: usize) {
        self.line.tail.store(1, Ordering::Release);
        self.tell_of(slot, true);
    }

    fn ring(&self) -> Ring<'_> {
        let (consumer, records) = &self.unused;
        // SAFETY: no byte of the ring is ever touched.
        unsafe {
            Ring::new(
                &self.line,
                &self.writer,
                consumer,
                records,
                (core::ptr::null_mut(), 4),
            )
        }
    }

    /// `settle` of the stack: the connection of slot 0 has its ready flags in `ready_list` from now on.
    fn settle(&self, ready_list: u32) {
        self.ready_list_of.store(ready_list + 1, Ordering::SeqCst);
        heavy();
    }

    fn has_bytes(&self) -> bool {
        self.line.tail.load(Ordering::Acquire) != 0
    }

    /// `sleep` of a set with one member: true when it found something and does not sleep.
    fn lie_down(&self, ready_list: usize, seen: &mut Seen) -> bool {
        self.ready_lists[ready_list].sleep();
        heavy();
        let mut is_queued = false;
        self.ready_lists[ready_list].drain(SLOTS_MAX, seen, |_| is_queued = true);
        self.ready_lists[ready_list].drain_held_back(|_| is_queued = true);
        is_queued && self.has_bytes()
    }

    fn is_woken(&self, bit: u32) -> bool {
        self.wakes.load(Ordering::Relaxed) >> bit & 1 != 0
    }
}

fn set_sleeps() {
    let world = World::new(1);
    let other = world.clone();
    let thread = thread::spawn(move || {
        other.line.tail.store(1, Ordering::Release);
        other.tell(0);
    });
    let found = world.lie_down(0, &mut Seen::of(SLOTS_MAX));
    thread.join().expect("no panic");
    assert!(found || world.is_woken(0), "asleep, and no wake-up sent");
}

fn hears_news() {
    hear_news_in(0);
}

fn hears_news_of_a_group() {
    hear_news_in(SLOTS_MAX - 1);
}

/// A look that finds nothing, then the one before the sleep.
fn hear_news_in(slot: usize) {
    let world = World::new(1);
    let other = world.clone();
    let thread = thread::spawn(move || other.publish_in(slot));
    let mut seen = Seen::of(SLOTS_MAX);
    let mut found = false;
    world.ready_lists[0].drain(SLOTS_MAX, &mut seen, |_| found = world.has_bytes());
    let found = found || world.lie_down(0, &mut seen);
    thread.join().expect("no panic");
    assert!(found || world.is_woken(0), "asleep, and no wake-up sent");
}

/// Bytes, and at the same time an end that another process writes.
fn hears_news_and_flag() {
    let world = World::new(1);
    let (writer, ender) = (world.clone(), world.clone());
    let first = News {
        count: 1,
        is_elsewhere: true,
    };
    let threads = [
        thread::spawn(move || {
            writer.line.tail.store(1, Ordering::Release);
            writer.ready_lists[0].announce(0, first, false);
        }),
        thread::spawn(move || {
            ender.ends.fetch_or(1, Ordering::SeqCst);
            ender.ready_lists[0].mark(0);
        }),
    ];
    let mut seen = Seen::of(SLOTS_MAX);
    let (mut bytes, mut end) = (false, false);
    let mut look = |_| {
        bytes |= world.has_bytes();
        end |= world.ends.load(Ordering::Acquire) != 0;
    };
    world.ready_lists[0].drain(FLAG_GROUP, &mut seen, &mut look);
    for thread in threads {
        thread.join().expect("no panic");
    }
    world.ready_lists[0].drain(FLAG_GROUP, &mut seen, &mut look);
    assert!(bytes && end, "rang spuriously");
}

/// What is announced is heard once, however early the reader looks.
fn hears_once() {
    let world = World::new(1);
    let other = world.clone();
    let thread = thread::spawn(move || other.publish());
    let mut seen = Seen::of(SLOTS_MAX);
    let mut heard = 0;
    world.ready_lists[0].drain(FLAG_GROUP, &mut seen, |_| heard += 1);
    world.ready_lists[0].drain(FLAG_GROUP, &mut seen, |_| heard += 1);
    thread.join().expect("no panic");
    world.ready_lists[0].drain(FLAG_GROUP, &mut seen, |_| heard += 1);
    assert_eq!(heard, 1);
}

impl World {
    /// `hold_back` of a stream: false when the ready flag must be rung at once.
    fn holds_back(&self) -> bool {
        !self.ready_lists[0].hold_back(0, 1, false)
    }
}

/// A writer that holds its announcement back and never continues.
fn holds_back() {
    let world = World::new(1);
    let other = world.clone();
    let thread = thread::spawn(move || {
        other.line.tail.store(1, Ordering::Release);
        if !other.holds_back() {
            other.ready_lists[0].hold_no_more(1);
            other.tell_of(0, true);
        }
    });
    let mut seen = Seen::of(SLOTS_MAX);
    // A look in a spin, then the one before the sleep.
    let mut found = false;
    world.ready_lists[0].drain_held_back(|_| found = world.has_bytes());
    let found = found || world.lie_down(0, &mut seen);
    thread.join().expect("no panic");
    assert!(found || world.is_woken(0), "asleep, and no wake-up sent");
}

/// A writer that continues: whatever the reader has taken before, it is notified of the rest.
fn goes_on() {
    let world = World::new(1);
    let other = world.clone();
    let thread = thread::spawn(move || {
        other.line.tail.store(1, Ordering::Release);
        let is_held = other.holds_back();
        if !is_held {
            other.ready_lists[0].hold_no_more(1);
            other.tell_of(0, true);
        }
        other.line.tail.store(2, Ordering::Release);
        if is_held {
            other.ready_lists[0].hold_no_more(1);
        }
        other.tell_of(0, true);
    });
    let mut seen = Seen::of(SLOTS_MAX);
    let mut found = 0;
    world.ready_lists[0].sleep();
    heavy();
    let mut look = |_| found = world.line.tail.load(Ordering::Acquire);
    world.ready_lists[0].drain(SLOTS_MAX, &mut seen, &mut look);
    world.ready_lists[0].drain_held_back(&mut look);
    thread.join().expect("no panic");
    assert!(
        found == 2 || world.is_woken(0),
        "asleep, and no wake-up sent"
    );
}

fn two_hold_back() {
    let world = World::new(1);
    let threads: Vec<_> = [0, 1]
        .into_iter()
        .map(|process| {
            let other = world.clone();
            thread::spawn(move || {
                other.ready_lists[0].hold_back(process + 2, process, false);
            })
        })
        .collect();
    let mut seen = Vec::new();
    world.ready_lists[0].drain_held_back(|slot| seen.push(slot));
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert_eq!(seen.len() < 2, world.ready_lists[0].is_held_back());
    world.ready_lists[0].drain_held_back(|slot| seen.push(slot));
    seen.sort_unstable();
    assert_eq!(seen, [2, 3]);
}

fn two_ring() {
    let world = World::new(1);
    let threads: Vec<_> = [1, 2]
        .into_iter()
        .map(|slot| {
            let other = world.clone();
            thread::spawn(move || {
                other.ready_lists[0].ring(slot, false);
            })
        })
        .collect();
    let (mut seen, mut news) = (Vec::new(), Seen::of(SLOTS_MAX));
    world.ready_lists[0].drain(SLOTS_MAX, &mut news, |slot| seen.push(slot));
    for thread in threads {
        thread.join().expect("no panic");
    }
    world.ready_lists[0].drain(SLOTS_MAX, &mut news, |slot| seen.push(slot));
    seen.sort_unstable();
    assert_eq!(seen, [1, 2]);
}

fn one_wakes() {
    let world = World::new(1);
    world.ready_lists[0].sleep();
    let count = Arc::new(AtomicU32::new(0));
    let threads: Vec<_> = (0..2)
        .map(|slot| {
            let (other, count) = (world.clone(), count.clone());
            thread::spawn(move || {
                if other.ready_lists[0].ring(slot, false) {
                    count.fetch_or(1 << slot, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert_eq!(count.load(Ordering::Relaxed).count_ones(), 1);
}

/// `EPOLL_CTL_ADD` while bytes come: the ready list is stored, the member is looked at before the sleep.
fn joins() {
    let world = World::new(0);
    let other = world.clone();
    let thread = thread::spawn(move || other.publish());
    world.settle(0);
    // The new member is looked at in any case.
    let is_heard = world.has_bytes();
    let found = world.lie_down(0, &mut Seen::of(SLOTS_MAX)) || is_heard;
    thread.join().expect("no panic");
    assert!(found || world.is_woken(0), "asleep, and no wake-up sent");
}

/// DEL from one set and ADD to another while bytes come.
fn moves() {
    let world = World::new(1);
    let other = world.clone();
    let thread = thread::spawn(move || other.publish());
    world.ready_list_of.store(0, Ordering::SeqCst);
    world.settle(1);
    let is_heard = world.has_bytes();
    let found = world.lie_down(1, &mut Seen::of(SLOTS_MAX)) || is_heard;
    thread.join().expect("no panic");
    assert!(found || world.is_woken(1), "asleep, and no wake-up sent");
}

/// Taken out of a set and put in again: a ringer may still have the earlier ready list.
fn returns() {
    let world = World::new(1);
    world.writer.ready_list_rung.store(1, Ordering::Relaxed);
    let other = world.clone();
    let thread = thread::spawn(move || other.publish());
    world.ready_list_of.store(0, Ordering::SeqCst);
    world.settle(0);
    let is_heard = world.has_bytes();
    let found = world.lie_down(0, &mut Seen::of(SLOTS_MAX)) || is_heard;
    thread.join().expect("no panic");
    assert!(found || world.is_woken(0), "asleep, and no wake-up sent");
}

/// The same where the ready list has by chance seen the number that comes next.
fn returns_by_chance() {
    let world = World::new(2);
    let mut seen = Seen::of(SLOTS_MAX);
    world.writer.news.store(256, Ordering::Relaxed);
    world.writer.ready_list_rung.store(2, Ordering::Relaxed);
    let next = News {
        count: 257,
        is_elsewhere: false,
    };
    world.ready_lists[0].announce(0, next, false);
    world.ready_lists[0].drain(SLOTS_MAX, &mut seen, |_| ());
    let other = world.clone();
    let thread = thread::spawn(move || other.publish());
    world.settle(0);
    let is_heard = world.has_bytes();
    let found = world.lie_down(0, &mut seen) || is_heard;
    thread.join().expect("no panic");
    assert!(found || world.is_woken(0), "asleep, and no wake-up sent");
}

/// The wakers of a set: for its sleep, and for lists that are set aside.
const OWN: u32 = 1;
const ASIDE: u32 = 2;

impl World {
    /// `ring_side`, with the waker that it finds; the waker's datagram carries along what came before.
    fn ring_waker(&self, slot: usize) {
        let ready_list = &self.ready_lists[0];
        if ready_list.ring(slot, false) {
            let waker = ready_list.waker.load(Ordering::SeqCst);
            self.wakes.fetch_or(1 << waker, Ordering::AcqRel);
        }
    }

    /// `hear_quiet` of a set: whether the list is looked at again.
    fn hear_aside(&self) -> bool {
        let is_woken = self.wakes.swap(0, Ordering::AcqRel) >> ASIDE & 1 != 0;
        let has_rung = is_woken && self.ready_lists[0].has_rung_aside();
        if has_rung {
            self.ready_lists[0].take_up(OWN);
        }
        has_rung
    }

    /// A look, behind whose fence the list is set aside; false: it has rung, or is rung no more.
    fn set_aside(&self, seen: &mut Seen) -> bool {
        self.ready_lists[0].set_aside(ASIDE);
        heavy();
        !self.ready_lists[0].is_ringing(FLAG_GROUP, seen) && !self.ready_lists[0].has_rung_aside()
    }
}

/// `seek_quiet` while a ringer is at work.
fn set_aside() {
    set_aside_as(World::new(1));
}

/// The same while other threads sleep on the set: a ringer may take their word.
fn set_aside_asleep() {
    let world = World::new(1);
    world.ready_lists[0].waker.store(OWN, Ordering::SeqCst);
    world.ready_lists[0].sleep();
    set_aside_as(world);
}

fn set_aside_as(world: Arc<World>) {
    let other = world.clone();
    let thread = thread::spawn(move || other.ring_waker(0));
    let is_aside = world.set_aside(&mut Seen::of(FLAG_GROUP));
    thread.join().expect("no panic");
    assert!(
        !is_aside || world.is_woken(ASIDE),
        "set aside, and no wake-up sent"
    );
}

/// Two ring as the list is taken up because of one of them: the other is found then or wakes later.
fn two_ring_aside() {
    let world = World::new(1);
    let (mut rung, mut seen) = (Vec::new(), Seen::of(FLAG_GROUP));
    assert!(world.set_aside(&mut seen));
    let ring = |slot| {
        let other = world.clone();
        thread::spawn(move || other.ring_waker(slot))
    };
    let threads = [0, 1].map(ring);
    let mut hear = || {
        if world.hear_aside() {
            world.ready_lists[0].drain(FLAG_GROUP, &mut seen, |slot| rung.push(slot));
            world.ready_lists[0].sleep();
            heavy();
            world.ready_lists[0].drain(FLAG_GROUP, &mut seen, |slot| rung.push(slot));
        }
    };
    hear();
    for thread in threads {
        thread.join().expect("no panic");
    }
    // What is left has woken: by the one waker the list is taken up, by the other it is looked at.
    let is_woken = world.is_woken(OWN);
    hear();
    assert!(is_woken || rung.len() == 2, "asleep, and no wake-up sent");
}

/// A list that is taken up for another reason than a ring, before the set sleeps.
fn taken_up_asleep() {
    let world = World::new(1);
    let mut seen = Seen::of(FLAG_GROUP);
    assert!(world.set_aside(&mut seen));
    let other = world.clone();
    let thread = thread::spawn(move || other.ring_waker(0));
    world.ready_lists[0].take_up(OWN);
    world.ready_lists[0].sleep();
    heavy();
    let found = world.ready_lists[0].is_ringing(FLAG_GROUP, &seen);
    thread.join().expect("no panic");
    let is_woken = world.is_woken(OWN) || world.is_woken(ASIDE);
    assert!(found || is_woken, "asleep, and no wake-up sent");
}

const ME: Sleeper = Sleeper {
    process: 3,
    waker: 9,
};

/// `sleep_on` of the stack, without an epoll set.
fn reader_sleeps() {
    let world = World::new(0);
    let other = world.clone();
    let thread = thread::spawn(move || other.publish());
    assert!(ME.register(&world.sleeper));
    heavy();
    let found = world.has_bytes();
    thread.join().expect("no panic");
    assert!(found || world.is_woken(8), "asleep, and no wake-up sent");
}

/// The same with the end of the stream, which `let_go` and `reap` write.
fn reader_meets_end() {
    let world = World::new(0);
    let other = world.clone();
    let thread = thread::spawn(move || {
        other.ends.fetch_or(1, Ordering::SeqCst);
        other.tell(0);
    });
    assert!(ME.register(&world.sleeper));
    heavy();
    let found = world.ends.load(Ordering::Acquire) != 0;
    thread.join().expect("no panic");
    assert!(found || world.is_woken(8), "asleep, and no wake-up sent");
}

/// Withdrawn or taken, never both: the next call in this place starts afresh.
fn withdraws() {
    let world = World::new(0);
    assert!(ME.register(&world.sleeper));
    let other = world.clone();
    let thread = thread::spawn(move || Sleeper::take(&other.sleeper) == Some(ME));
    ME.withdraw(&world.sleeper);
    let taken = thread.join().expect("no panic");
    assert_eq!(world.sleeper.load(Ordering::Relaxed), 0);
    // Nothing is left for a second ringer, whoever won.
    assert!(
        Sleeper::take(&world.sleeper).is_none(),
        "taken before: {taken}"
    );
}

/// A listener's waiter: `listening`, `sleeping`, look; the connector: queue, then `ring_listeners`.
fn listener_sleeps() {
    let world = World::new(0);
    let other = world.clone();
    let thread = thread::spawn(move || {
        other.line.tail.store(1, Ordering::SeqCst);
        // `ring_listeners` has a fence of its own.
        fence(Ordering::SeqCst);
        let ready_list = &other.ready_lists[0];
        ready_list.listening.load(Ordering::SeqCst) != 0 && ready_list.take_sleeper()
    });
    world.ready_lists[0].listening.store(1, Ordering::SeqCst);
    world.ready_lists[0].sleep();
    heavy();
    let found = world.line.tail.load(Ordering::SeqCst) != 0;
    let is_woken = thread.join().expect("no panic");
    assert!(found || is_woken, "asleep, and no wake-up sent");
}
