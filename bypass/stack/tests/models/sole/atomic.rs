//! Loom's atomics as `src/sole/atomic.rs` names the real ones, and the interrupt that makes the owner
//! pass a fence.
//!
//! Loom has no fence that one thread makes another pass. Here the owner counts its operations and,
//! before the one that the run has chosen, waits for a newcomer that fences others: from then on each
//! sees what the other has stored before, as after membarrier, and nothing else orders the two. An
//! owner that has ended has been switched away from, which is the same.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::atomic::AtomicUsize as Plain;

use loom::sync::atomic as real;
pub use loom::sync::atomic::Ordering;

/// Before which operation of the owner the interrupt comes.
static PLACE: Plain = Plain::new(0);
/// Most operations that an owner has done in the runs since the model began.
static OPERATIONS_MAX: Plain = Plain::new(0);

/// Chooses the place for the executions that follow.
pub fn interrupt_before(place: usize) {
    if place == 0 {
        OPERATIONS_MAX.store(0, Ordering::Relaxed);
    }
    PLACE.store(place, Ordering::Relaxed);
}

/// See [`OPERATIONS_MAX`].
pub fn operations_max() -> usize {
    OPERATIONS_MAX.load(Ordering::Relaxed)
}

/// The state of an execution's interrupt.
pub struct Interrupt {
    asked: real::AtomicBool,
    passed: real::AtomicBool,
    /// Newcomers that have not ended.
    newcomers: real::AtomicUsize,
    /// The thread that is interrupted, by loom's number, and what it has done so far.
    owner: RefCell<Option<(loom::thread::ThreadId, usize)>>,
}

thread_local! {
    /// Of the running execution; all its threads are one thread of the system.
    static CURRENT: RefCell<Weak<Interrupt>> = const { RefCell::new(Weak::new()) };
}

fn current() -> Rc<Interrupt> {
    CURRENT.with(|current| current.borrow().upgrade().expect("an execution"))
}

impl Interrupt {
    /// At the start of an execution, to be held as long as it runs.
    pub fn new() -> Rc<Self> {
        let fresh = Rc::new(Self {
            asked: real::AtomicBool::new(false),
            passed: real::AtomicBool::new(false),
            newcomers: real::AtomicUsize::new(0),
            owner: RefCell::new(None),
        });
        CURRENT.with(|current| *current.borrow_mut() = Rc::downgrade(&fresh));
        fresh
    }
}

/// Starts a thread that is not interrupted.
pub fn spawn(work: impl FnOnce() + 'static) -> loom::thread::JoinHandle<()> {
    let interrupt = current();
    interrupt.newcomers.fetch_add(1, Ordering::Relaxed);
    loom::thread::spawn(move || {
        work();
        interrupt.newcomers.fetch_sub(1, Ordering::Release);
    })
}

/// The calling thread is the one that is interrupted, in the middle of `work` or at its end.
pub fn owning(work: impl FnOnce()) {
    let interrupt = current();
    *interrupt.owner.borrow_mut() = Some((loom::thread::current().id(), 0));
    work();
    let done = interrupt.owner.borrow_mut().take();
    OPERATIONS_MAX.fetch_max(done.map_or(0, |(_, count)| count), Ordering::Relaxed);
    interrupt.passed.store(true, Ordering::Release);
}

impl Interrupt {
    fn is_owner(&self) -> bool {
        let me = loom::thread::current().id();
        self.owner.borrow().is_some_and(|(owner, _)| owner == me)
    }

    /// Counts an operation of the owner; whether the interrupt comes before it.
    fn is_here(&self) -> bool {
        if !self.is_owner() {
            return false;
        }
        let mut owner = self.owner.borrow_mut();
        let count = owner.as_mut().map_or(0, |(_, count)| {
            *count += 1;
            *count
        });
        count == PLACE.load(Ordering::Relaxed) + 1
    }
}

/// Before each operation of a modelled thread. Without a newcomer that asks, no thread is interrupted.
fn step() {
    let interrupt = current();
    if !interrupt.is_here() {
        return;
    }
    while !interrupt.asked.load(Ordering::Acquire) {
        if interrupt.newcomers.load(Ordering::Acquire) == 0 {
            return;
        }
        loom::thread::yield_now();
    }
    interrupt.passed.store(true, Ordering::Release);
}

/// Earlier stores of the newcomer are seen by the owner from its interrupt on, and the other way round.
pub fn fence_others() {
    let interrupt = current();
    if interrupt.is_owner() {
        // The other came first and owns; its interrupt comes at its end.
        while interrupt.newcomers.load(Ordering::Acquire) > 0 {
            loom::thread::yield_now();
        }
        return;
    }
    interrupt.asked.store(true, Ordering::Release);
    while !interrupt.passed.load(Ordering::Acquire) {
        loom::thread::yield_now();
    }
}

/// See `bypass_sys::barrier`.
pub fn can_fence_others() -> bool {
    true
}

/// Orders nothing that loom could reorder.
pub fn compiler_fence(_order: Ordering) {}

/// See `src/sole/atomic.rs`.
pub fn let_others_run(_looks: &mut u32) {
    loom::thread::yield_now();
}

macro_rules! atomic {
    ($name:ident, $value:ty) => {
        /// See the module.
        pub struct $name(real::$name);

        impl $name {
            pub fn new(value: $value) -> Self {
                Self(real::$name::new(value))
            }

            pub fn load(&self, order: Ordering) -> $value {
                step();
                self.0.load(order)
            }

            pub fn store(&self, value: $value, order: Ordering) {
                step();
                self.0.store(value, order);
            }

            #[allow(dead_code, reason = "each type has the whole set")]
            pub fn compare_exchange(
                &self,
                from: $value,
                to: $value,
                order: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                step();
                self.0.compare_exchange(from, to, order, failure)
            }
        }
    };
}

atomic!(AtomicUsize, usize);
atomic!(AtomicU32, u32);
