//! Same-host byte streams over shared memory: segments, rings, rendezvous.
//!
//! Start with [`layout`], which draws the segment, then [`ring`] (bytes), [`doorbell`] (who must
//! look where, and who sleeps), [`accept_queue`] (connections without the kernel) and [`link`]
//! (how two processes meet).

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod accept_queue;
mod atomic;
pub mod doorbell;
pub mod extents;
pub mod holders;
pub mod layout;
pub mod link;
mod record;
pub mod ring;
pub mod segment;
