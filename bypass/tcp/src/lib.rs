//! A user-level TCP engine over IPv4 and IPv6.
//!
//! The engine reads no clock, makes no system call, starts no thread and holds no global: Ethernet
//! frames and the time come in as arguments, frames leave through a [`TxSink`]. One engine serves
//! one device queue and is driven by one thread at a time.
//!
//! # Driving it
//!
//! A round has four steps. The caller reads the clock once and passes it to each.
//!
//! ```
//! use bypass_tcp::{Address, Config, Engine, Rx, TxMeta, TxSink};
//!
//! /// A device that keeps what it is given.
//! #[derive(Default)]
//! struct Frames(Vec<Vec<u8>>);
//! impl TxSink for Frames {
//!     fn transmit(&mut self, len: usize, _: TxMeta, fill: impl FnOnce(&mut [u8])) -> bool {
//!         let mut frame = vec![0; len];
//!         fill(&mut frame);
//!         self.0.push(frame);
//!         true
//!     }
//! }
//!
//! let mut now_us = 1_000_000;
//! let mut device = Frames::default();
//! let mut engine = Engine::new(Config { secret: *b"0123456789abcdef", ..Config::default() }, now_us);
//! engine.set_addresses(&[Address { ip: [10, 0, 0, 1].into(), prefix_len: 24 }]);
//! let listener = engine.listen("0.0.0.0:80".parse().unwrap(), 128).unwrap();
//!
//! for _ in 0..3 {
//!     let received: &[Rx] = &[]; // what the device received
//!     engine.rx_burst(now_us, received, &mut device); // 1. frames in; urgent answers leave
//!     engine.poll_timers(now_us, &mut device); // 2. timers that are due
//!     while let Some(event) = engine.next_event() {
//!         // 3. the application acts: accept, recv, send, close
//!         if event.handle == listener {
//!             while let Ok(connection) = engine.accept(listener) {
//!                 let _ = engine.send(now_us, connection, b"hello", false);
//!             }
//!         }
//!     }
//!     engine.end_batch(now_us, &mut device); // 4. data, acknowledgments, retransmissions leave
//!     now_us = engine.next_timer().unwrap_or(now_us + 1_000); // sleep until then, or until frames come
//! }
//! ```
//!
//! * Nothing but answers that cannot wait (duplicate acknowledgments, resets, SYN/ACKs, ARP) leaves
//!   before [`Engine::end_batch`], so that acknowledgments ride on the application's answers. Call it
//!   after every round in which the application wrote, read or closed.
//! * [`TxSink::transmit`] may refuse for want of room; the segment stays with the engine, and
//!   [`Engine::has_output`] says that `end_batch` should be called again once there is room.
//! * [`Engine::next_event`] reports changes; [`Engine::readiness`] what is true now. Bits are those of
//!   `epoll`. A handle is a number and the count of its uses: an old one answers
//!   [`Error::BadHandle`].
//! * Bytes are copied once on each way, between the application's memory and rings that belong to the
//!   engine; a frame belongs to the device again when `rx_burst` returns.
//!
//! # Where to read
//!
//! `arrival` takes frames apart and finds whose they are; `input` is RFC 9293, 3.10.7; `receive`, `ack`
//! and `recovery` are what a segment does; `output` is what leaves; `timeout` what time does. `conn`
//! has the state of a connection. `datagram` takes UDP apart and sends it, for a caller that has the
//! sockets.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod ack;
mod arrival;
mod belonging;
mod buffer;
mod calls;
mod chrono;
mod config;
mod congestion;
mod conn;
mod connect;
mod context;
mod datagram;
mod demux;
mod engine;
mod error;
mod hash;
mod hystart;
mod info;
mod input;
mod invariants;
mod isn;
mod listen;
mod loss;
mod marked;
mod neighbour;
mod open;
mod option;
mod output;
mod rack;
mod reassembly;
mod receive;
mod recovery;
mod route;
mod rtt;
mod segment;
mod sent;
mod seq;
mod sink;
mod slab;
mod stats;
mod syn;
mod timeout;
mod timer;
mod timewait;
mod undo;
pub mod wire;
mod write;

pub use calls::Shutdown;
pub use config::{Config, Congestion, Ecn, QuickAcks};
pub use conn::{State, ERROR, HANGUP, PEER_CLOSED, READABLE, URGENT, WRITABLE};
pub use datagram::{Datagram, Way};
pub use engine::{Counts, Engine, Event, Handle};
pub use error::Error;
pub use info::{Info, INFO_WORDS, LINUX_CLOSED, SEGMENT_WORD};
pub use loss::Phase;
pub use option::{OptionName, Settings, SocketOption};
pub use route::{Address, Route};
pub use sink::{Rx, Sum, TxMeta, TxSink};
pub use stats::Stats;
