//! Waiting of one thread: spin as the options say, then sleep on a waker and on kernel objects.

pub mod blocking;
pub mod epoll;
pub mod poll;
mod sleeping;

pub use sleeping::{sleep_on, spin};
