//! HTTP/1 as bytes: requests rendered, responses parsed; no I/O and no clock.
//!
//! A response takes one of two paths. A [`Template`] recognises a response whose head equals the
//! previous one (except for `Date`), as nearly every response of a load test does. All others go
//! through a [`Parser`], which can stop and continue at any byte, and never panics.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod chunked;
pub mod head;
pub mod request;
mod response;
mod sink;
mod template;
pub mod url;

pub use head::{Framing, Head, Malformed, HEAD_MAX_BYTES};
pub use response::{Done, Parser, Progress};
pub use sink::{Ignore, Sink};
pub use template::{Recognised, Template};
