//! Frames from any Linux interface by AF_XDP, next to the kernel's stack and without a module.
//!
//! [`Steering`] attaches a program that takes frames for claimed addresses and ports, and leaves
//! everything else to the kernel. [`Opened`] is a socket of one queue with its memory; it and the
//! steering are made with privilege, can be passed on, and work without privilege. [`Xdp`] is the
//! device made of one, [`queues::over`] that of a whole interface. [`check`](check::interface) says what an interface can do, and what is
//! missing. [`memory`] has the same rings between two programs, without a kernel.
//!
//! Everything is held by descriptors: when the last holder goes, killed or not, the kernel takes the
//! program off the interface, which is then as before.

pub mod check;
mod device;
mod exchange;
mod guarded;
pub mod memory;
mod opened;
mod program;
pub mod queues;
mod rings;
mod steering;
mod sys;
mod traits;
mod ways;

pub use device::Xdp;
pub use exchange::{Exchange, Handed, QUEUES_MAX};
pub use guarded::Transport;
pub use opened::{Layout, Opened, Settings};
pub use steering::{Mode, Steering};
pub use traits::{LinkTraits, Way};
pub use ways::From;
