//! Ethernet frames in and out, without the kernel's network stack.
//!
//! [`Device`] is the interface for a TCP engine. [`sim`] connects two engines by a link with seeded
//! faults in virtual time, [`impaired`] adds faults to any device, [`tap`] is a virtual interface
//! of the kernel, [`packet`] sends through the kernel's queues with segmentation, [`pcap`] writes a
//! capture file. AF_XDP is a separate crate, which keeps its frames in a [`pool`].
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
