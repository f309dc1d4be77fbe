//! Transport over packets: a TCP engine with its device, its timers and its copy of the kernel's routes.
//!
//! A [`Shard`] serves the queues of an interface and is driven by one thread at a time: frames in,
//! timers, then the application acts, then frames out ([`Shard::drive`], [`Shard::finish`]). On an
//! interface of the kernel's it shares the host's addresses: routes and neighbours come from the kernel,
//! by netlink, and only claimed ports are taken
//! ([`bypass_xdp::Steering`]). Behind a TAP interface it is
//! a host of its own. Where the queues of an interface have several shards, in several processes, each takes what is its
//! own and hands the rest to the others ([`Shard::crosses`]). [`Shared`] puts one behind a lock, for the threads of a
//! program and a service thread that drives it while no other thread does.
#![forbid(unsafe_code)]

mod crossing;
mod held;
mod host;
mod ports;
mod shard;
mod shared;
mod sink;
mod ways;

pub use bypass_device::Counters;
pub use bypass_tcp as tcp;
pub use crossing::{Counts as Crossed, Crossing};
pub use held::Notice;
pub use shard::{Settings, Shard, Stray};
pub use shared::Shared;
