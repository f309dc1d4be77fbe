//! User-level sockets of one process: descriptors, readiness, waiting.
//!
//! The modules are layers: each uses only those above it in the list below, as ARCHITECTURE.md says.
//! [`process::table`] records the role of each descriptor number; with one load the hooks see whether a
//! call goes to the kernel. [`sockets`] holds the objects behind the numbers, [`peer`] the segments they
//! live in. A connection begins in [`operations::connect`] or [`listener`], moves bytes in [`stream`],
//! and is waited for in [`wait`]. A UDP socket stays in the kernel; datagrams that arrive for it over packets
//! are in [`datagrams`]. [`lifecycle`] keeps all of it true as processes come and go; the library's only
//! thread, which meets other processes and notices when they die, is started through [`service`].
//!
//! Every operation returns an [`Outcome`]; the callers set errno.
// No panic reaches the C code that calls the hooks.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod process;

pub mod peer;

mod sys;

pub mod sockets;

pub mod service;

pub mod listener;

pub mod stream;

pub mod datagrams;

pub mod packets;

pub mod wait;

pub mod operations;

pub mod lifecycle;

pub use bypass_sys::thread::{thread, Thread};
pub use process::Outcome;
