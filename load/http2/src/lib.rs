//! HTTP/2 as a client's bytes: frames, streams, header compression; no I/O and no clock.
//!
//! [`request`] turns requests into header blocks once, before the run. A [`Client`] is one
//! connection: it frames these blocks, reads the server's bytes, cut anywhere, and reports the
//! streams with a response. Bodies are counted and never kept, so the memory of a connection is
//! limited to the table of its header compression and one frame.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod client;
mod fault;
pub mod frame;
pub mod hpack;
pub mod huffman;
pub mod primitive;
pub mod request;
mod settings;
mod static_table;
mod streams;
pub mod value;

pub use client::{Client, Event};
pub use fault::Fault;
pub use request::Encoded;
pub use streams::{Ignore, Sink};
