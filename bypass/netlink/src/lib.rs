//! Links, routes and sockets of the kernel, asked and followed over netlink(7), by raw system calls.
//!
//! [`Tables`] holds links, addresses, routes and neighbours of the calling thread's network
//! namespace and follows their changes; [`Tables::next_hop`] and [`Tables::neighbour`] answer from
//! it without a system call, policy rules included. [`route::ask`] has the kernel decide.
//! [`diag`] finds which listening sockets an address means.
#![forbid(unsafe_code)]

pub mod diag;
pub mod features;
pub mod filter;
pub mod item;
mod message;
pub mod neighbour;
pub mod policy;
pub mod route;
mod rule;
mod socket;
mod tables;

pub use item::{Address, Link, Mac, Neighbour, Route, RouteKind};
pub use policy::{Fate, Prefix, Ways};
pub use rule::{Action, Applies, Rule};
pub use tables::{NextHop, Tables};
