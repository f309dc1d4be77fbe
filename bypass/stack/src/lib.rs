//! User-level sockets of one process: descriptors, readiness, waiting.
//!
//! The modules are layers: each uses only those above it in the list below, as ARCHITECTURE.md says.
//! [`process::table`] says for each descriptor number what it is; one load tells the hooks whether the
//! kernel is meant. [`sockets`] holds the objects behind the numbers, [`peer`] the segments they
//! live in. A connection begins in [`operations::connect`] or [`listener`], moves bytes in [`stream`],
//! and is waited for in [`wait`]. A UDP socket is the kernel's; what of its datagrams comes over packets
//! is in [`datagrams`]. [`lifecycle`] keeps all of it true as processes come and go; the one thread of
//! ours, which meets other processes and notices when they die, is started through [`service`].
//!
//! Every operation answers with an [`Outcome`]; errno is somebody else's business.

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
