//! For tests: network namespaces and links that die with the test, the contract of devices, and a
//! runner that counts what it skips.
//!
//! Cargo's own test runner cannot say at run time that a test was skipped. Tests that need privilege
//! are therefore programs of their own (`harness = false`) whose `main` calls [`main`].
#![forbid(unsafe_code)]

pub mod contract;
pub mod links;
mod namespace;
mod runner;

pub use namespace::{require_tool, veth, Namespace};
pub use runner::{main, report_skip, skip, Case};
