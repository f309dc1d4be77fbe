//! For tests: network namespaces and links that end with the test, the contract of devices, and a
//! runner that counts skips.
//!
//! Cargo's own test runner cannot report a skip at run time. Tests that need privilege are
//! therefore separate programs (`harness = false`) whose `main` calls [`main`].
#![forbid(unsafe_code)]

pub mod contract;
pub mod links;
mod namespace;
mod runner;

pub use namespace::{require_tool, veth, Namespace};
pub use runner::{main, report_skip, skip, Case};
