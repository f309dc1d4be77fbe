//! The hooked functions, by what they are about.

mod clone;
pub mod creating;
pub mod data;
pub mod descriptors;
pub mod exec;
pub mod process;
mod rights;
pub mod sockets;
pub mod uring;
mod variadic;
pub mod waiting;
