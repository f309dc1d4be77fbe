//! Models of the one thread that takes no locks, and of newcomers that end that.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread::JoinHandle;

use crate::sole::atomic::owning;
use crate::sole::atomic::{self, AtomicU32, AtomicUsize, Interrupt, Ordering};
use crate::sole::ownership::{Ownership, ENDING, NOBODY, SEVERAL};
use crate::Model;

pub const MODELS: &[Model] = &[
    ("a_newcomer_and_the_owner_exclude_each_other", one_comes),
    (
        "the_owner_comes_again_and_does_not_wait_for_itself",
        comes_again,
    ),
    ("a_newcomer_waits_for_the_outermost_lock", nested),
    (
        "who_comes_after_the_end_sees_what_the_owner_did",
        comes_late,
    ),
    ("of_two_first_comers_one_owns", two_first),
];

const OWNER: usize = 10;

/// The data behind the locks.
struct World {
    _interrupt: Rc<Interrupt>,
    ownership: Ownership,
    lock: Mutex<()>,
    sum: AtomicU32,
}

impl World {
    #[allow(
        clippy::arc_with_non_send_sync,
        reason = "the model's threads are coroutines of one thread"
    )]
    fn new(owner: usize) -> Arc<Self> {
        Arc::new(Self {
            _interrupt: Interrupt::new(),
            ownership: Ownership {
                owner: AtomicUsize::new(owner),
                former: AtomicUsize::new(NOBODY),
                inside: AtomicU32::new(0),
            },
            lock: Mutex::new(()),
            sum: AtomicU32::new(0),
        })
    }

    /// By load and store, not in one step: only the exclusion keeps the sum right, and only what
    /// orders memory shows the other's sum.
    fn add(&self) {
        let seen = self.sum.load(Ordering::Relaxed);
        self.sum.store(seen + 1, Ordering::Relaxed);
    }

    /// A call that takes a lock, as `Stream::lock` and `sys/owned.rs` do.
    fn work(&self, me: usize) {
        match self.ownership.enter(me) {
            Some(_inside) => self.add(),
            None => {
                let _guard = self.lock.lock().expect("no panic");
                self.add();
            }
        }
    }

    fn finish(&self, sum: u32) {
        let _guard = self.lock.lock().expect("no panic");
        assert_eq!(self.sum.load(Ordering::Relaxed), sum, "a step was lost");
        assert_eq!(self.ownership.inside.load(Ordering::Relaxed), 0);
    }
}

fn spawn(world: &Arc<World>, work: impl FnOnce(&World) + 'static) -> JoinHandle<()> {
    let world = world.clone();
    atomic::spawn(move || work(&world))
}

fn one_comes() {
    let world = World::new(OWNER);
    let newcomer = spawn(&world, |world| world.work(11));
    owning(|| world.work(OWNER));
    newcomer.join().expect("no panic");
    world.finish(2);
    assert_eq!(world.ownership.owner.load(Ordering::Relaxed), SEVERAL);
}

/// The owner's next lock, while or after the newcomer ends the ownership.
fn comes_again() {
    let world = World::new(OWNER);
    let newcomer = spawn(&world, |world| world.ownership.end(11));
    owning(|| {
        world.work(OWNER);
        world.work(OWNER);
    });
    newcomer.join().expect("no panic");
    world.finish(2);
}

/// A lock inside another: what is held stays held until the outer one is let go.
fn nested() {
    let world = World::new(OWNER);
    let newcomer = spawn(&world, |world| world.work(11));
    owning(|| {
        let outer = world.ownership.enter(OWNER);
        if outer.is_some() {
            let before = world.sum.load(Ordering::Relaxed);
            world.work(OWNER);
            world.sum.store(before + 2, Ordering::Relaxed);
        } else {
            world.work(OWNER);
            world.work(OWNER);
        }
        drop(outer);
    });
    newcomer.join().expect("no panic");
    world.finish(3);
}

/// A thread that comes after the end, and had no part in it, sees what the owner did. It looks first, so
/// that the model has no second thread that waits.
fn comes_late() {
    let world = World::new(OWNER);
    let first = spawn(&world, |world| world.ownership.end(11));
    let comes = Rc::new(Cell::new(0));
    let comes_in = comes.clone();
    let second = spawn(&world, move |world| {
        if world.ownership.owner.load(Ordering::Relaxed) == SEVERAL {
            world.work(12);
            comes_in.set(1);
        }
    });
    world.work(OWNER);
    owning(|| ());
    first.join().expect("no panic");
    second.join().expect("no panic");
    world.finish(1 + comes.get());
}

/// Nobody owns yet. Whoever is first may be interrupted at any place; the other ends it.
fn two_first() {
    let world = World::new(NOBODY);
    let other = spawn(&world, |world| world.work(11));
    owning(|| world.work(OWNER));
    other.join().expect("no panic");
    world.finish(2);
    assert_ne!(world.ownership.owner.load(Ordering::Relaxed), ENDING);
}
