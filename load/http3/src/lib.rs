//! HTTP/3 as a client's bytes: frames, header compression, the server's streams; no I/O and no clock.
//!
//! QUIC is the caller's: it hands over the bytes of each stream, cut anywhere. [`request`] turns requests
//! into frames once, before the run. A [`Response`] reads what comes on the stream of a request, and
//! [`Server`] the streams that the server opens. Bodies are counted and never kept.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod fault;
mod frame;
pub mod qpack;
pub mod request;
mod response;
mod server;
mod static_table;
pub mod varint;

pub use fault::{Fault, NO_ERROR, REQUEST_CANCELLED};
pub use request::Encoded;
pub use response::{Answer, Response};
pub use server::{Server, ServerStream};

/// The name of HTTP/3 in a TLS handshake (RFC 9114, 3.1).
pub const ALPN: &[u8] = b"h3";

/// The client's control stream: its type, then SETTINGS without any, which allows no dynamic table.
pub const CONTROL_STREAM: &[u8] = &[server::CONTROL as u8, frame::kind::SETTINGS as u8, 0];
