//! WebSocket (RFC 6455) as a client's bytes: the upgrade, frames out and in; no I/O and no clock.
#![forbid(unsafe_code)]

mod client;
pub mod frame;
pub mod upgrade;

pub use client::{Client, Event, Fault};
pub use frame::Opcode;
