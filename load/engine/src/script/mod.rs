//! wrk's Lua scripts.
//!
//! A script is loaded once in a main state (`setup`, `done`) and once for every thread (`init`,
//! `delay`, `request`, `response`). A thread's state is made and used in its thread alone; the main
//! thread asks it for things over a channel, before the run and after it. A script without
//! `request`, `response` and `delay` costs nothing while the run goes on.

mod main_state;
mod state;
mod statistics;
mod thread;
mod transfer;

pub use main_state::ScriptMain;
pub use thread::{Answer, Command, ThreadScript};

use load_http1::url::Url;

/// A script and its input.
#[derive(Clone, Debug)]
pub struct Script {
    /// Its file, as typed.
    pub file: String,
    /// Its text.
    pub text: Vec<u8>,
    /// The URL, then the extra words of the command line.
    pub arguments: Vec<String>,
    /// The URL in its parts.
    pub url: Url,
    /// The method, unless it is GET.
    pub method: String,
    /// Header fields of the command line.
    pub headers: Vec<(String, String)>,
    /// The body of the command line.
    pub body: Option<Vec<u8>>,
    /// Connections go over UDP, where only a response shows that a server is there.
    pub is_udp: bool,
    /// Whether figures are those of wrk2, whose `latency[i]` means another thing.
    pub open_loop: bool,
}
