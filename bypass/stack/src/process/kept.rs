//! The connection that a call holds while it sleeps, and lets go of while a signal's handler runs.
//!
//! A handler may leave the call for good by siglongjmp, and then nothing of the call is dropped. So
//! the call must hold nothing that matters to others while a handler runs. A call that continues after its
//! handler takes the connection again, if it is still the same: the kernel, too, looks a descriptor up again
//! when it restarts a call.

use core::sync::atomic::Ordering;
use std::sync::OnceLock;

use bypass_sys::thread::thread;

use super::deferral::inside;

/// How a connection is released and taken again, by name; supplied by the module that knows connections.
#[derive(Debug)]
pub struct Keeper {
    /// Lets go.
    pub let_go: fn(u64),
    /// Takes it again; false when it has been closed.
    pub take: fn(u64) -> bool,
}

static KEEPER: OnceLock<Keeper> = OnceLock::new();

/// Says how. Before the first socket of a process.
pub fn provide(keeper: Keeper) {
    let _ = KEEPER.set(keeper);
}

/// Notes that a call of this thread holds a connection; false when one holds another already.
pub fn begin(name: u64) -> bool {
    let kept = &thread().kept;
    let is_first = kept.load(Ordering::Relaxed) == 0;
    if is_first {
        kept.store(name, Ordering::Relaxed);
    }
    is_first
}

/// The call is over; false when the connection was let go of behind its back.
pub fn end(name: u64) -> bool {
    let kept = &thread().kept;
    let is_held = kept.load(Ordering::Relaxed) == name;
    if is_held {
        kept.store(0, Ordering::Relaxed);
    }
    is_held
}

/// Runs the handler of a signal. If it has interrupted a sleep, the held connection is released first.
pub fn without<T>(handler: impl FnOnce() -> T) -> T {
    let thread = thread();
    let is_sleeping = thread.inside.load(Ordering::Relaxed) == 0;
    let name = match KEEPER.get() {
        Some(_) if is_sleeping => thread.kept.swap(0, Ordering::Relaxed),
        _ => 0,
    };
    let Some(keeper) = KEEPER.get().filter(|_| name != 0) else {
        return handler();
    };
    inside(|| (keeper.let_go)(name));
    let result = handler();
    if inside(|| (keeper.take)(name)) {
        thread.kept.store(name, Ordering::Relaxed);
    }
    result
}
