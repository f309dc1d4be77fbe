//! The state of a process, once: settings, statistics, its number, the table of descriptors with its
//! pool, wakers, and who may leave locks out.

pub mod choices;
pub mod deadline;
pub mod deferral;
pub mod kept;
pub mod later;
pub mod log;
pub mod namespace;
mod number;
pub mod outcome;
pub mod pool;
pub mod ports;
mod settings;
pub mod sole;
pub mod spin_clock;
mod statistics;
pub mod table;
pub mod uring;
pub mod wakers;

pub use number::{become_child, is_started, next_waker, number, wake};
pub use outcome::Outcome;
pub use settings::{
    complaints, is_ambiguous, is_own, may_share_with, read_environment, ring_bytes, settings,
};
pub use statistics::{
    captured, count, count_sleep, fall_back, is_switched_off, keep, leave_to_kernel, must_fail,
    refuse, stats, Polling,
};
