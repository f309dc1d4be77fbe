//! Questions to the kernel over netlink.

pub mod diag;
