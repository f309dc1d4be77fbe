//! The calls as POSIX words them: one file for a call or a family of them.

pub mod accept;
pub mod connect;
pub mod datagrams;
pub mod descriptors;
pub mod extensions;
mod inherited;
pub mod listen;
pub mod options;
mod peek;
pub mod read;
pub mod release;
pub mod sendfile;
pub mod shadow;
pub mod shutdown;
pub mod signals;
pub mod splice;
mod transport;
pub mod write;
