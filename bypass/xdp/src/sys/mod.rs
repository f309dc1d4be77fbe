//! The unsafe code of AF_XDP: rings and frames in memory that the kernel shares, and bpf(2).

pub mod bpf;
pub mod ethtool;
pub mod frames;
pub mod ring;
pub mod table;
