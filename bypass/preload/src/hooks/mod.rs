//! The hooked functions, by what they are about.

mod aliases;
mod clone;
mod closing;
mod control;
pub mod creating;
pub mod data;
mod datagrams;
pub mod descriptors;
pub mod exec;
pub mod extensions;
mod files;
mod fortified;
mod memory;
mod offsets;
pub mod process;
mod rights;
pub mod sockets;
pub mod stdio;
pub mod uring;
pub mod users;
mod variadic;
pub mod waiting;
