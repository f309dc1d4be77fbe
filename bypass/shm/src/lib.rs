//! Same-host byte streams over shared memory: segments, rings, rendezvous.
//!
//! Start with [`layout`], which draws the segment, then [`ring`] (bytes), [`doorbell`] (who must
//! look where, and who sleeps), [`accept_queue`] (connections without the kernel) and [`link`]
//! (how two processes meet). [`sys`] is the only door to the kernel: this code runs behind hooked
//! libc functions and must never call one of them.

pub mod accept_queue;
pub mod address;
mod atomic;
pub mod barrier;
pub mod clock;
pub mod diag;
pub mod doorbell;
pub mod layout;
pub mod link;
pub mod lock;
pub mod memory;
pub mod ring;
pub mod segment;
pub mod stats;
pub mod sys;
pub mod waker;
