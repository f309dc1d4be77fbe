//! libc in front, user-level stack or kernel behind.
//!
//! Each hook is one question (is this descriptor handled by the kernel?) and one operation of the stack.
//! [`outcome`] alone turns results into return values and errno; [`real`] finds libc's own
//! functions. Nothing here keeps state but [`signals`], which counts handlers for threads that wait,
//! [`streams`], [`spawning`], [`shell`] and [`environment`].
//!
//! Hooks that wait are `extern "C-unwind"`: pthread_cancel(3) ends a thread by unwinding through them. A panic would
//! unwind into C there, so nothing in them may panic.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]
#![allow(
    clippy::missing_safety_doc,
    reason = "the contract of each hook is its man page"
)]
#![allow(missing_docs, reason = "the hooks are documented by their man pages")]

/// ThreadSanitizer follows libc's allocator only: its runs leave this one out.
#[cfg(not(libc_allocator))]
#[global_allocator]
static ALLOCATOR: bypass_sys::allocator::Allocator = bypass_sys::allocator::Allocator;

mod address;
mod cancel;
mod environment;
mod forking;
mod hooks;
mod locking;
mod outcome;
mod real;
mod shell;
mod signals;
mod spawning;
mod start;
mod streams;
