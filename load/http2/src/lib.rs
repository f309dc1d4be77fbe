//! HTTP/2 as a client's bytes: frames, streams, header compression; no I/O and no clock.
//!
//! [`request`] turns requests into header blocks once, before the run. [`client`] is one connection:
//! it frames these blocks, reads what the server sends, cut anywhere, and tells which streams have
//! been answered. Bodies are counted and never kept, so a connection's memory is bounded by the
//! table of its header compression and one frame.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod client;
pub mod fault;
pub mod frame;
pub mod hpack;
pub mod huffman;
pub mod request;
mod settings;
mod static_table;
mod streams;

pub use client::{Client, Event};
pub use fault::Fault;
pub use request::Encoded;
pub use streams::{Ignore, Sink};
