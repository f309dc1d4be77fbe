//! Ethernet frames in and out, without the kernel's network stack.
//!
//! [`Device`] is what a TCP engine sees. [`sim`] joins two engines by a link with seeded faults in
//! virtual time, [`impaired`] puts faults in front of any device, [`tap`] is a virtual interface of the kernel's, [`packet`] sends through the
//! kernel's queues with segmentation, [`pcap`] writes what passes. AF_XDP is a crate of its own,
//! which keeps its frames in a [`pool`].
#![forbid(unsafe_code)]

mod frame;
pub mod impaired;
pub mod packet;
pub mod pcap;
pub mod pool;
pub mod sim;
pub mod tap;
mod virtio;

pub use frame::{
    Capabilities, Checksum, Counters, Device, Error, Frame, Offload, Partial, Protocol, Segments,
};
