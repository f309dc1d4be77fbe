//! A small HTTP responder and client on a shard, and the same responder on the kernel's sockets, to
//! compare the two over one link.
#![forbid(unsafe_code)]

mod client;
mod kernel_server;
mod link;
mod requests;
mod shard_server;

use std::process::ExitCode;

const HELP: &str = "\
usage: http serve LINK [--port P] [--size BYTES] [--spin US]
       http get LINK URL
       http kernel [--port P] [--size BYTES] [--spin US]

serve and get run TCP in this process, kernel on the kernel's sockets. One thread each.

LINK is one of
  --interface IF    next to the kernel, on its addresses, by AF_XDP; needs root
      --generic       not in the driver
      --queue N       receive queue, 0
      --busy-poll US  have the driver work while we look
      --gso           send by AF_PACKET with segmentation
  --tap NAME --address IP/PREFIX    as a host of its own behind a new TAP interface

  --port P      8080
  --size BYTES  of each body, 128
  --spin US     look for so long before sleeping, 50; 0 sleeps at once
";

/// The command line as typed.
#[derive(Debug, Clone)]
pub struct Options {
    words: Vec<String>,
}

impl Options {
    /// The value behind an option.
    pub fn text(&self, name: &str) -> Option<&str> {
        let place = self.words.iter().position(|word| word == name)?;
        self.words.get(place + 1).map(String::as_str)
    }

    /// A number behind an option; anything else is bad input.
    pub fn number(&self, name: &str, otherwise: u32) -> Result<u32, String> {
        let Some(text) = self.text(name) else {
            return Ok(otherwise);
        };
        text.parse()
            .map_err(|_| format!("{name}: invalid number {text:?}"))
    }

    /// A port behind `--port`.
    pub fn port(&self) -> Result<u16, String> {
        let port = self.number("--port", 8080)?;
        u16::try_from(port).map_err(|_| format!("--port {port}: ports end at 65535"))
    }

    /// Whether a switch was given.
    pub fn has(&self, name: &str) -> bool {
        self.words.iter().any(|word| word == name)
    }
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let options = Options {
        words: words.collect(),
    };
    let done = match command.as_str() {
        "serve" => shard_server::run(&options),
        "get" => client::run(&options),
        "kernel" => kernel_server::run(&options),
        "-h" | "--help" => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => Err(format!("unknown command {command:?} (http --help)")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("http: {error}");
            ExitCode::from(2)
        }
    }
}
