//! HTTP/1 as bytes: requests rendered, responses parsed; no I/O and no clock.
//!
//! A response takes one of two paths. [`template`] recognises a response whose head equals the
//! previous one (except for `Date`), as nearly every response of a load test does. All others go
//! through [`response`], which can stop and continue at any byte, and never panics.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod chunked;
pub mod head;
pub mod request;
pub mod response;
pub mod sink;
pub mod template;
pub mod url;

pub use head::{Framing, Head, Malformed};
pub use response::{Done, Parser, Progress};
pub use sink::{Ignore, Sink};
pub use template::{Recognised, Template};
