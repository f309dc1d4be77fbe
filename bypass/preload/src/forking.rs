//! fork, as it is followed in the parent and in the child.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::Mutex;

use bypass_stack::lifecycle::fork::{self, Prepared, Taken};
use bypass_stack::process::deferral;
use bypass_sys::{kernel, numbers};

use crate::locking::lock;
use crate::outcome::{errno, set_errno};
use crate::{environment, real, shell, spawning, streams};

/// No descriptor.
const NONE: i32 = -1;

thread_local! {
    static PREPARED: RefCell<Option<Prepared>> = const { RefCell::new(None) };
    /// State that the hooks share and lock.
    static LOCKED: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
    /// Of this thread's vfork, for its child.
    static OWN_WRITER: Cell<i32> = const { Cell::new(NONE) };
    /// Until fork says whether there is a child.
    static TAKEN: RefCell<Option<Taken>> = const { RefCell::new(None) };
}

/// From now on each fork is followed.
pub fn follow() {
    // SAFETY: the three handlers are functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
}

/// fork(2), by whatever name: handlers of pthread_atfork(3) run whether it has worked or not, and get no result.
pub fn fork() -> libc::pid_t {
    // SAFETY: no arguments.
    let child = unsafe { real::fork()() };
    let taken = TAKEN.try_with(RefCell::take).ok().flatten();
    if let Some(taken) = taken.filter(|_| child < 0) {
        let error = errno();
        deferral::inside(|| fork::undo(taken));
        set_errno(error);
    }
    child
}

/// Writing ends of the pipes by which [`vfork`] learns that its child has gone its own way.
static WRITERS: Mutex<Vec<i32>> = Mutex::new(Vec::new());

/// The child of a real vfork would run our hooks in the parent's memory, so a fork takes its place:
/// the parent waits until the child has called exec or has ended, as it would have.
pub fn vfork() -> libc::pid_t {
    let pipe = deferral::inside(|| {
        // No child is made meanwhile, which would keep the pipe open.
        let mut all = lock(&WRITERS).map_err(|_| libc::EAGAIN)?;
        let pipe = numbers::high_pair(kernel::pipe)?;
        all.push(pipe[1].0);
        Ok::<_, i32>(pipe)
    });
    let Ok([reader, writer]) = pipe else {
        return fork();
    };
    let _ = OWN_WRITER.try_with(|own| own.set(writer.0));
    let child = fork();
    let _ = OWN_WRITER.try_with(|own| own.set(NONE));
    if child == 0 {
        // Closed by exec or exit.
        let _ = writer.into_raw();
        return 0;
    }
    deferral::inside(|| {
        // Until it is closed no child is made, which would keep it open and this thread waiting.
        let all = lock(&WRITERS).map(|mut all| {
            all.retain(|one| *one != writer.0);
            all
        });
        drop(writer);
        drop(all);
    });
    if child > 0 {
        while kernel::read(reader.0, &mut [0]) == Err(libc::EINTR) {}
    }
    child
}

/// In a child: it keeps no other child's pipe open.
fn close_others_writers() {
    let own = OWN_WRITER.try_with(Cell::get).unwrap_or(NONE);
    let all = lock(&WRITERS).map(|mut all| std::mem::take(&mut *all));
    for fd in all.unwrap_or_default() {
        if fd != own {
            let _ = kernel::close(fd);
        }
    }
}

extern "C" {
    fn _IO_list_lock();
    fn _IO_list_unlock();
    fn _IO_list_resetlock();
}

/// Runs `call`, in which libc takes its list of streams and starts a program, while nothing else is started. As in a fork
/// the list comes first.
pub fn starting_alone<T>(call: impl FnOnce() -> T) -> T {
    struct Listed;
    impl Drop for Listed {
        fn drop(&mut self) {
            // SAFETY: taken below.
            unsafe { _IO_list_unlock() };
        }
    }
    // SAFETY: the lock counts how often a thread has it.
    unsafe { _IO_list_lock() };
    let _listed = Listed;
    let _alone = spawning::alone();
    call()
}

/// What this thread keeps across a fork has its place from now on. The loader makes such places under its lock, which a
/// thread has that loads a library, whose constructor may open a stream and wait for the list of them.
fn make_places() {
    let _ = PREPARED.try_with(|_| ());
    let _ = LOCKED.try_with(|_| ());
    let _ = TAKEN.try_with(|_| ());
}

/// Before any other lock, libc's of its list of streams, which its fork takes after ours: a thread that flushes all streams
/// holds it while one of them writes to a connection.
extern "C" fn before_fork() {
    deferral::inside(make_places);
    // SAFETY: the lock counts how often a thread has it.
    unsafe { _IO_list_lock() };
    deferral::enter();
    // A thread that starts a program takes locks of the stack.
    let starting = spawning::alone();
    let prepared = fork::prepare();
    let _ = PREPARED.try_with(|place| place.replace(prepared));
    let hooks = (
        (streams::hold(), spawning::hold(), environment::hold()),
        (lock(&WRITERS).ok(), shell::hold(), starting),
    );
    // Last: a thread that takes numbers waits for nothing.
    let locked: Box<dyn Any> = Box::new((hooks, numbers::hold()));
    let _ = LOCKED.try_with(|place| place.replace(Some(locked)));
}

extern "C" fn in_parent() {
    let _ = LOCKED.try_with(RefCell::take);
    let prepared = PREPARED.try_with(RefCell::take).ok().flatten();
    let taken = prepared.map(fork::parent);
    let _ = TAKEN.try_with(|place| place.replace(taken));
    // SAFETY: taken before.
    unsafe { _IO_list_unlock() };
    deferral::leave();
}

extern "C" fn in_child() {
    // SAFETY: this thread is the only one. Where there were others libc has done it; otherwise our count is left.
    unsafe { _IO_list_resetlock() };
    let _ = LOCKED.try_with(RefCell::take);
    numbers::forget_closes();
    let prepared = PREPARED.try_with(RefCell::take).ok().flatten();
    environment::forget();
    shell::forget();
    close_others_writers();
    fork::child(prepared);
    deferral::leave();
}
