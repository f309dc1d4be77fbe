//! The load engine: threads, connections, schedule, histograms.
//!
//! One thread per core, each with its own epoll set, connections and histograms; no thread waits
//! for another. Each hands over its figures once a second as an
//! [`interval::Interval`]; [`run`] adds them up. Start reading at [`run::run`], then `worker`.
#![deny(unsafe_code)]

pub mod breakdown;
mod ending;
mod expect;
pub mod interval;
pub mod latency;
mod machine;
pub mod outcome;
mod peaks;
pub mod plan;
mod protocol;
pub mod random;
pub mod run;
pub mod schedule;
pub mod script;
pub mod sink;
mod sum;
pub mod sys;
mod tcp;
mod transport;
pub mod warnings;
mod worker;
