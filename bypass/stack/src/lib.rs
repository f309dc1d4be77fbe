//! User-level sockets of one process: descriptors, readiness, waiting.
//!
//! [`table`] says for each descriptor number what it is; one load tells the hooks whether the
//! kernel is meant. [`sockets`] holds the objects behind the numbers, [`peer`] the segments they
//! live in. A connection begins in [`connect`] or [`listener`], moves bytes in [`stream`], waits in
//! [`wait`], [`epoll`] or [`poll`]. [`service`] is the one thread of ours: it meets other processes
//! and notices when they die. [`fork`] keeps all of it true in a child.
//!
//! Every operation answers with an [`Outcome`]; errno is somebody else's business.

pub mod confinement;
pub mod connect;
pub mod content;
pub mod deferral;
pub mod descriptors;
pub mod epoll;
pub mod exec;
pub mod fork;
pub mod handover;
mod inherited;
mod lending;
pub mod listener;
pub mod options;
pub mod packets;
pub mod passing;
mod peek;
pub mod peer;
pub mod poll;
pub mod pool;
pub mod process;
pub mod sendfile;
pub mod service;
pub mod sockets;
mod sole;
pub mod splice;
pub mod stream;
mod sys;
pub mod table;
mod trimming;
pub mod urgent;
pub mod uring;
pub mod wait;

pub use bypass_sys::thread::{thread, Thread};

/// What an operation says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The call's result.
    Done(isize),
    /// errno.
    Error(i32),
    /// The kernel is to do it: call the real function.
    Kernel,
}

impl From<Result<usize, i32>> for Outcome {
    fn from(result: Result<usize, i32>) -> Self {
        match result {
            Ok(value) => Self::Done(value as isize),
            Err(error) => Self::Error(error),
        }
    }
}
