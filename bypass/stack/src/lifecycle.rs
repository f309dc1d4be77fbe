//! Holders as processes come and go: fork, exec, passing, and the service thread.

pub mod confinement;
pub mod exec;
pub mod fork;
mod former;
pub mod handover;
mod hearing;
mod offers;
pub mod passing;
pub mod serving;
mod sharing;
