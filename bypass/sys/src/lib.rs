//! The base of both transports: system calls, mappings, clock, wakers.
//!
//! [`kernel`] is the only way to the kernel: this code runs behind hooked libc functions and must
//! never call one of them. Unsafe code for shared memory, threads and descriptors lives here, so
//! that the layers above need little of it.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod address;
pub mod allocator;
pub mod barrier;
pub mod cache;
pub mod clock;
pub mod descriptor;
pub mod directory;
pub mod interrupt;
pub mod iovec;
pub mod kernel;
pub mod lock;
pub mod memory;
pub mod network;
pub mod numbers;
pub mod process;
pub mod region;
pub mod sandbox;
pub mod signals;
pub mod tasks;
pub mod thread;
pub mod waker;
