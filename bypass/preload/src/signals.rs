//! Signal handlers are wrapped, so that a thread which spins learns that one has run.
//!
//! Handlers of faults are left alone: the JVM and crash reporters look at them closely.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use bypass_stack::process::{deferral, kept};

use crate::outcome::fail;
use crate::real;

const SIGNALS: usize = 65;
static HANDLERS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];
static FLAGS: [AtomicI32; SIGNALS] = [const { AtomicI32::new(0) }; SIGNALS];

fn is_wrapped(signal: c_int) -> bool {
    let faults = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
    ];
    // 32 and 33 are libc's own.
    (1..SIGNALS as c_int).contains(&signal)
        && !faults.contains(&signal)
        && !(32..34).contains(&signal)
}

extern "C-unwind" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let index = signal as usize % SIGNALS;
    let flags = FLAGS[index].load(Ordering::Acquire);
    let thread = bypass_stack::thread();
    thread.signals.fetch_add(1, Ordering::Relaxed);
    if flags & libc::SA_RESTART == 0 {
        thread.interrupts.fetch_add(1, Ordering::Relaxed);
    }
    if deferral::put_off(signal, || queue_again(signal, info, context, true)) {
        return;
    }
    let handler = match flags & libc::SA_RESETHAND {
        0 => HANDLERS[index].load(Ordering::Acquire),
        _ => HANDLERS[index].swap(libc::SIG_DFL, Ordering::AcqRel),
    };
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        if flags & libc::SA_RESETHAND != 0 {
            // Another thread runs the handler, the only time: what comes now has the default effect.
            reset(signal);
            queue_again(signal, info, context, false);
        }
        return;
    }
    if flags & libc::SA_RESETHAND != 0 {
        reset(signal);
    }
    thread.handling(|| kept::without(|| run(handler, flags, (signal, info, context))));
}

/// Sets the default action, as the kernel does before it calls a handler that was set with SA_RESETHAND. The kernel does
/// not know of the flag: it calls a handler once more that was put off.
fn reset(signal: c_int) {
    // SAFETY: all zero is a valid sigaction, of the default action.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: it lives on this frame.
    unsafe {
        real::sigaction_real()(signal, core::ptr::null(), &mut action);
        // The program may have set another one meanwhile.
        if action.sa_sigaction == handle as *const () as usize {
            action.sa_sigaction = libc::SIG_DFL;
            real::sigaction_real()(signal, &action, core::ptr::null_mut());
        }
    }
}

/// Runs a handler of the program.
fn run(
    handler: usize,
    flags: c_int,
    (signal, info, context): (c_int, *mut libc::siginfo_t, *mut libc::c_void),
) {
    if flags & libc::SA_SIGINFO != 0 {
        type Full = extern "C-unwind" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: the program gave a function of this signature with SA_SIGINFO.
        let handler = unsafe { core::mem::transmute::<usize, Full>(handler) };
        handler(signal, info, context);
    } else {
        // SAFETY: the program gave a function of this signature.
        let handler =
            unsafe { core::mem::transmute::<usize, extern "C-unwind" fn(c_int)>(handler) };
        handler(signal);
    }
}

/// Queues a signal for this thread as it came, and keeps it `blocked` when the handler returns. False
/// when the kernel has no room: then the handler must run now.
fn queue_again(
    signal: c_int,
    info: *const libc::siginfo_t,
    context: *mut libc::c_void,
    blocked: bool,
) -> bool {
    // SAFETY: the kernel has given us both.
    let Some(context) = (unsafe { context.cast::<libc::ucontext_t>().as_mut() }) else {
        return false;
    };
    let (process, thread) = (libc::SYS_getpid, libc::SYS_gettid);
    // SAFETY: these take nothing.
    let (process, thread) = unsafe {
        (
            real::syscall()(process, 0, 0, 0, 0, 0, 0),
            real::syscall()(thread, 0, 0, 0, 0, 0, 0),
        )
    };
    let number = libc::SYS_rt_tgsigqueueinfo;
    // SAFETY: the kernel reads the information that it gave us.
    let queued = unsafe {
        real::syscall()(
            number,
            process as usize,
            thread as usize,
            signal as usize,
            info as usize,
            0,
            0,
        )
    };
    // SAFETY: the set is a valid one of this frame.
    queued == 0 && (!blocked || unsafe { libc::sigaddset(&mut context.uc_sigmask, signal) } == 0)
}

/// The kernel's flags of a wrapped handler, with the two flags that wrapping changes as the program gave them.
fn with_flags_of(kernels: c_int, programs: c_int) -> c_int {
    let changed = libc::SA_SIGINFO | libc::SA_RESETHAND;
    (kernels & !changed) | (programs & changed)
}

#[no_mangle]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    if !is_wrapped(signal) {
        // SAFETY: the caller's arguments.
        return unsafe { real::sigaction_real()(signal, new, old) };
    }
    let index = signal as usize;
    let ours = handle as *const () as usize;
    let (old_handler, old_flags) = (
        HANDLERS[index].load(Ordering::Acquire),
        FLAGS[index].load(Ordering::Acquire),
    );
    // SAFETY: null or readable, by sigaction(2).
    let wanted = unsafe { new.as_ref() }.copied();
    let mut wrapped = wanted;
    if let Some(wrapped) = &mut wrapped {
        let handler = wrapped.sa_sigaction;
        if handler != libc::SIG_DFL && handler != libc::SIG_IGN {
            if handler == ours {
                // As the kernel has it: it stands for the program's, which is known, with two flags of that one's.
                FLAGS[index].store(
                    with_flags_of(wrapped.sa_flags, old_flags),
                    Ordering::Release,
                );
            } else {
                HANDLERS[index].store(handler, Ordering::Release);
                FLAGS[index].store(wrapped.sa_flags, Ordering::Release);
            }
            wrapped.sa_sigaction = ours;
            wrapped.sa_flags |= libc::SA_SIGINFO;
            wrapped.sa_flags &= !libc::SA_RESETHAND;
        }
    }
    let place = wrapped
        .as_ref()
        .map_or(core::ptr::null(), |wrapped| wrapped as *const _);
    // SAFETY: a copy of the caller's arguments.
    let result = unsafe { real::sigaction_real()(signal, place, old) };
    if result != 0 {
        HANDLERS[index].store(old_handler, Ordering::Release);
        FLAGS[index].store(old_flags, Ordering::Release);
        return result;
    }
    // SAFETY: null or writable, by sigaction(2).
    if let Some(old) = unsafe { old.as_mut() } {
        if old.sa_sigaction == ours {
            old.sa_sigaction = old_handler;
            old.sa_flags = with_flags_of(old.sa_flags, old_flags);
        }
    }
    result
}

/// The signals that [`siginterrupt`] has named: a bit each.
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);

fn bit(signal: c_int) -> u64 {
    1 << ((signal - 1) as u64 % 64)
}

/// Sets a handler with these flags; the former one, or SIG_ERR.
unsafe fn set_handler(signal: c_int, handler: usize, flags: c_int) -> usize {
    // SAFETY: all zero is a valid sigaction.
    let mut new: libc::sigaction = unsafe { core::mem::zeroed() };
    new.sa_sigaction = handler;
    new.sa_flags = flags;
    // SAFETY: as above.
    let mut old: libc::sigaction = unsafe { core::mem::zeroed() };
    if !(1..SIGNALS as c_int).contains(&signal) || handler == libc::SIG_ERR {
        return fail(libc::EINVAL) as usize;
    }
    // SAFETY: both live on this frame.
    match unsafe { sigaction(signal, &new, &mut old) } {
        0 => old.sa_sigaction,
        _ => libc::SIG_ERR,
    }
}

#[no_mangle]
pub unsafe extern "C" fn signal(signal: c_int, handler: usize) -> usize {
    let is_interrupting = INTERRUPTING.load(Ordering::Relaxed) & bit(signal) != 0;
    let flags = if is_interrupting { 0 } else { libc::SA_RESTART };
    // SAFETY: the caller's handler.
    unsafe { set_handler(signal, handler, flags) }
}

#[no_mangle]
pub unsafe extern "C" fn bsd_signal(number: c_int, handler: usize) -> usize {
    // SAFETY: the caller's handler.
    unsafe { signal(number, handler) }
}

#[no_mangle]
pub unsafe extern "C" fn ssignal(number: c_int, handler: usize) -> usize {
    // SAFETY: the caller's handler.
    unsafe { signal(number, handler) }
}

/// What signal() is for programs that ask for X/Open's meaning of it.
#[no_mangle]
pub unsafe extern "C" fn __sysv_signal(signal: c_int, handler: usize) -> usize {
    // SAFETY: the caller's handler.
    unsafe { set_handler(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER) }
}

#[no_mangle]
pub unsafe extern "C" fn sysv_signal(signal: c_int, handler: usize) -> usize {
    // SAFETY: the caller's handler.
    unsafe { __sysv_signal(signal, handler) }
}

#[no_mangle]
pub unsafe extern "C" fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int {
    // SAFETY: all zero is a valid sigaction.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: it lives on this frame.
    if unsafe { sigaction(signal, core::ptr::null(), &mut action) } != 0 {
        return -1;
    }
    if interrupts != 0 {
        INTERRUPTING.fetch_or(bit(signal), Ordering::Relaxed);
        action.sa_flags &= !libc::SA_RESTART;
    } else {
        INTERRUPTING.fetch_and(!bit(signal), Ordering::Relaxed);
        action.sa_flags |= libc::SA_RESTART;
    }
    // SAFETY: as above.
    unsafe { sigaction(signal, &action, core::ptr::null_mut()) }
}
