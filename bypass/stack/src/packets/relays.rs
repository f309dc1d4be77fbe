//! The engines of this process. Each has a place, which a later one takes once the interface is gone and no program has any
//! of the connections that ended with it: what threads may look at stays, and what an engine takes is given back.

use std::sync::{Mutex, MutexGuard, TryLockError};

use bypass_sys::process::Leaked;

use super::relay::Relay;

/// Where an engine is, or was.
pub type Place = Mutex<Option<Box<Relay>>>;

static PLACES: Leaked<Vec<&'static Place>> = Leaked::new();

/// All places.
#[inline]
pub fn places() -> &'static [&'static Place] {
    PLACES.get().map_or(&[], Vec::as_slice)
}

/// Locks, also after a panic.
pub fn lock<T>(one: &Mutex<T>) -> MutexGuard<'_, T> {
    one.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Does something with each engine, in its turn.
pub fn each(mut work: impl FnMut(&mut Relay)) {
    for place in places() {
        if let Some(relay) = lock(place).as_deref_mut() {
            work(relay);
        }
    }
}

/// The same with each engine that no other thread has. Whether all were free.
#[inline]
pub fn each_free(mut work: impl FnMut(&mut Relay)) -> bool {
    let mut are_free = true;
    for place in places() {
        let mut locked = match place.try_lock() {
            Ok(locked) => locked,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                are_free = false;
                continue;
            }
        };
        if let Some(relay) = locked.as_deref_mut() {
            work(relay);
        }
    }
    are_free
}

/// The first answer of an engine.
pub fn find<T>(mut ask: impl FnMut(&mut Relay) -> Option<T>) -> Option<T> {
    places()
        .iter()
        .find_map(|place| ask(lock(place).as_deref_mut()?))
}

/// Does something with the engine over the interface of this number.
pub fn with<T>(number: u64, work: impl FnOnce(&mut Relay) -> T) -> Option<T> {
    let mut work = Some(work);
    find(|relay| match relay.number == number {
        true => work.take().map(|work| work(relay)),
        false => None,
    })
}

/// Enters a new engine. One thread at a time, as below.
pub fn enter(relay: Relay) {
    let relay = Box::new(relay);
    for place in places() {
        let mut place = lock(place);
        if place.is_none() {
            *place = Some(relay);
            return;
        }
    }
    let new: &'static Place = Box::leak(Box::new(Mutex::new(Some(relay))));
    PLACES.put(places().iter().copied().chain([new]).collect());
}

/// Frees the engines that are not needed any more, each after `ends` has got the number of its interface.
pub fn free(ends: impl Fn(u64)) {
    for place in places() {
        let over = lock(place).take_if(|relay| relay.is_done());
        if let Some(mut relay) = over {
            relay.leave_segments();
            ends(relay.number);
        }
    }
}

/// In a forked child: the engines are the parent's. They are not dropped, since what is in them lies in memory that the
/// parent uses.
pub fn forget() {
    PLACES.put(Vec::new());
}
