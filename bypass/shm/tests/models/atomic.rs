//! Loom's atomics as `src/atomic.rs` names the real ones, and ring memory that notices a race.
//!
//! Loom treats sequentially consistent operations as acquire and release only. The missing ordering is
//! added here as a fence in front of each such load and read-modify-write, which is one of the two
//! compilations that the language's authors give. No fence is added after stores, so code that relies
//! on a store being followed by a weaker load fails here, as it would on ARM.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use loom::cell::UnsafeCell;
pub use loom::sync::atomic::{fence, Ordering};

/// See `src/atomic.rs`.
pub fn ringing(flags: &[AtomicU8], news: &[AtomicU8], seen: &[u8]) -> u64 {
    let is_ringing = |at: &usize| {
        flags[*at].load(Ordering::Relaxed) != 0 || news[*at].load(Ordering::Relaxed) != seen[*at]
    };
    (0..flags.len())
        .filter(is_ringing)
        .fold(0, |mask, at| mask | 1 << at)
}

/// See `src/atomic.rs`: orders nothing.
pub fn fetch_for_writing<T>(_place: *const T) {}

/// See the real one.
pub fn fetch<T>(_place: *const T) {}

/// Loom knows no fence that one thread makes another pass; both sides pass one here, which is what
/// the pair of `src/barrier.rs` amounts to wherever the sleeper's comes between.
pub fn light(_fenced: bool) {
    fence(Ordering::SeqCst);
}

/// See [`light`].
pub fn heavy() {
    fence(Ordering::SeqCst);
}

fn before(order: Ordering) {
    if order == Ordering::SeqCst {
        fence(Ordering::SeqCst);
    }
}

macro_rules! atomic {
    ($name:ident, $inner:ty, $value:ty) => {
        /// See the module.
        #[derive(Debug)]
        pub struct $name($inner);

        #[allow(dead_code, reason = "each type has the whole set")]
        impl $name {
            pub fn new(value: $value) -> Self {
                Self(<$inner>::new(value))
            }

            pub fn load(&self, order: Ordering) -> $value {
                before(order);
                self.0.load(match order {
                    Ordering::SeqCst => Ordering::Acquire,
                    other => other,
                })
            }

            pub fn store(&self, value: $value, order: Ordering) {
                self.0.store(
                    value,
                    match order {
                        Ordering::SeqCst => Ordering::Release,
                        other => other,
                    },
                );
            }

            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                before(order);
                self.0.swap(value, order)
            }

            pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                before(order);
                self.0.fetch_or(value, order)
            }

            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                before(order);
                self.0.fetch_add(value, order)
            }

            pub fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                before(order);
                self.0.fetch_max(value, order)
            }

            pub fn compare_exchange(
                &self,
                from: $value,
                to: $value,
                order: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                before(order);
                self.0.compare_exchange(from, to, order, failure)
            }
        }
    };
}

atomic!(AtomicU8, loom::sync::atomic::AtomicU8, u8);
atomic!(AtomicU32, loom::sync::atomic::AtomicU32, u32);
atomic!(AtomicU64, loom::sync::atomic::AtomicU64, u64);

/// The bytes of one ring: addresses for the code under test, cells that loom watches behind them.
pub struct Memory {
    places: Box<[u8]>,
    cells: Rc<Vec<UnsafeCell<u8>>>,
}

thread_local! {
    /// The ring of the running execution; all its threads are one thread of the system.
    static CURRENT: RefCell<(usize, Weak<Vec<UnsafeCell<u8>>>)> = const { RefCell::new((0, Weak::new())) };
}

impl Memory {
    pub fn new(size: usize) -> Self {
        let memory = Self {
            places: vec![0; size].into_boxed_slice(),
            cells: Rc::new((0..size).map(|_| UnsafeCell::new(0)).collect()),
        };
        let base = memory.base() as usize;
        CURRENT.with(|current| *current.borrow_mut() = (base, Rc::downgrade(&memory.cells)));
        memory
    }

    pub fn base(&self) -> *mut u8 {
        self.places.as_ptr().cast_mut()
    }
}

fn cells_from(at: *const u8) -> (usize, Rc<Vec<UnsafeCell<u8>>>) {
    CURRENT.with(|current| {
        let (base, cells) = &*current.borrow();
        (
            at as usize - base,
            cells.upgrade().expect("a ring in this execution"),
        )
    })
}

/// See `src/atomic.rs`.
///
/// # Safety
/// As there.
pub unsafe fn copy_in(from: *const u8, ring: *mut u8, length: usize) {
    let (first, cells) = cells_from(ring);
    for index in 0..length {
        cells[first + index].with_mut(|cell| {
            // SAFETY: the caller vouches for `from`; loom has just checked that no thread uses the cell.
            unsafe { *cell = *from.add(index) };
        });
    }
}

/// See `src/atomic.rs`.
///
/// # Safety
/// As there.
pub unsafe fn copy_out(ring: *const u8, to: *mut u8, length: usize) {
    let (first, cells) = cells_from(ring);
    for index in 0..length {
        cells[first + index].with(|cell| {
            // SAFETY: the caller vouches for `to`; loom has just checked that no thread writes the cell.
            unsafe { *to.add(index) = *cell };
        });
    }
}
