//! Queries and follows links, routes and sockets of the kernel over netlink(7), by raw system
//! calls.
//!
//! [`Tables`] has links, addresses, routes and neighbours of the calling thread's network namespace
//! and follows their changes; [`Tables::next_hop`] and [`Tables::neighbour`] use it without a
//! system call, policy rules included. [`route::ask`] asks the kernel for its decision. [`diag`]
//! finds the listening sockets for an address.
#![forbid(unsafe_code)]

pub mod diag;
pub mod features;
pub mod filter;
pub mod item;
mod message;
pub mod neighbour;
pub mod peer;
pub mod policy;
pub mod route;
mod rule;
mod socket;
mod tables;
pub mod xfrm;

pub use item::{Address, Link, Mac, Neighbour, Route, RouteKind};
pub use policy::{Fate, Prefix, Ways};
pub use rule::{Action, Applies, Rule};
pub use tables::{NextHop, Tables};
