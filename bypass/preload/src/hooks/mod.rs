//! The hooked functions, by what they are about.

pub mod data;
pub mod descriptors;
pub mod process;
pub mod sockets;
pub mod waiting;
