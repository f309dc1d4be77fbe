//! `bypass capture`: frames of accelerated processes as a capture file, live or stored.

mod arguments;
mod frame;
mod source;

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, ErrorKind, IsTerminal as _, Write};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bypass_device::pcap::Capture;
use bypass_stats::capture::{Captured, Record};
use bypass_sys::interrupt;

use crate::failure::{print, Failure};
use arguments::Arguments;
use source::Sources;

const HELP: &str = "\
usage: bypass capture [OPTIONS] [PID …]

Writes what accelerated processes send and receive as a capture file (pcap) that Wireshark, tshark and
tcpdump open: frames of connections over packets, and connections over shared memory as TCP would
have sent them. Without PID: every process of the user, root of all, and the ones that start
meanwhile. Connections on the kernel are not in it; tcpdump shows those.

  -p, --pid PID          only these processes; may be repeated
  -w, --write FILE       write to FILE; - is standard output, the default
      --port PORT        only frames from or to this port
      --host ADDRESS     only frames from or to this address
  -c, --count N          end after N frames
  -d, --duration SECONDS
                         end after so long
  -s, --snap-length BYTES
                         keep so many bytes of each frame, of shared memory of each payload
                         (default all)
  -h, --help

Ends at Ctrl-C, or when the processes that were named have ended. What is not written in time is
dropped and counted; the programs never wait.

  bypass capture 4711 | tcpdump -n -r -
  bypass capture --port 80 -w page.pcap

Exit codes: 0 done, 1 a process given by PID cannot be captured or FILE not be written, 2 bad input.
";

/// Frames between looks: live enough for a reader, rare enough for the processor.
const PAUSE: Duration = Duration::from_millis(2);
const PAUSE_IDLE: Duration = Duration::from_millis(10);

/// Captures until it is enough.
pub(crate) fn command(words: &[OsString]) -> Result<ExitCode, Failure> {
    let arguments = Arguments::parse(words)?;
    if arguments.help {
        return print(HELP);
    }
    run(&arguments)
}

/// `onload_tcpdump`: with tcpdump's options and the simplest of its filters.
pub(crate) fn as_tcpdump(words: &[OsString]) -> Result<ExitCode, Failure> {
    run(&Arguments::parse_as_tcpdump(words)?)
}

fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let is_asked = interrupt::asked();
    let name = arguments.write.as_deref().unwrap_or("-");
    if name == "-" && std::io::stdout().is_terminal() {
        let text = "a capture is not for a terminal: -w FILE, or | tcpdump -n -r -";
        return Err(Failure::usage(text));
    }
    let mut sources = Sources::begin(&arguments.pids, arguments.filter, arguments.snap)?;
    let mut out = Output::open(name, arguments.count)?;
    sources.look();
    eprintln!("bypass capture: {} to {name}", processes(sources.count()));
    let end = arguments.duration.map(|duration| Instant::now() + duration);
    loop {
        let is_last = is_asked.load(Ordering::Relaxed)
            || end.is_some_and(|end| Instant::now() >= end)
            || sources.are_over();
        let came = sources.drain(is_last);
        let is_idle = came.is_empty();
        if !out.write(came)? || is_last {
            break;
        }
        std::thread::sleep(if is_idle { PAUSE_IDLE } else { PAUSE });
    }
    let dropped = sources.dropped();
    eprintln!("bypass capture: {} frames, {dropped} dropped", out.written);
    Ok(ExitCode::SUCCESS)
}

fn processes(count: usize) -> String {
    match count {
        0 => "no accelerated process yet".to_owned(),
        1 => "1 process".to_owned(),
        count => format!("{count} processes"),
    }
}

/// The file.
struct Output {
    file: Capture<BufWriter<Box<dyn Write>>>,
    name: String,
    written: u64,
    most: u64,
}

impl Output {
    fn open(name: &str, count: Option<u64>) -> Result<Self, Failure> {
        let fail = |error: std::io::Error| Failure::failed(format!("{name}: {error}"));
        let sink: Box<dyn Write> = match name {
            "-" => Box::new(std::io::stdout()),
            path => Box::new(File::create(path).map_err(fail)?),
        };
        let mut file = Capture::new(BufWriter::new(sink)).map_err(fail)?;
        // A reader of a pipe learns at once what comes; one that has gone away is noticed below.
        match file.flush() {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(fail(error)),
            _ => {}
        }
        Ok(Self {
            file,
            name: name.to_owned(),
            written: 0,
            most: count.unwrap_or(u64::MAX),
        })
    }

    /// False when it is enough, or the reader is gone.
    fn write(&mut self, came: Vec<Captured>) -> Result<bool, Failure> {
        let is_empty = came.is_empty();
        for captured in came {
            if self.written == self.most {
                break;
            }
            self.add(captured);
            self.written += 1;
        }
        let flushed = if is_empty { Ok(()) } else { self.file.flush() };
        match flushed {
            Ok(()) => Ok(self.written < self.most),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(Failure::failed(format!("{}: {error}", self.name))),
        }
    }

    fn add(&mut self, captured: Captured) {
        let (bytes, length) = match captured.record {
            Record::Frame {
                mut bytes,
                length,
                is_incomplete,
            } => {
                if is_incomplete && bytes.len() == length {
                    frame::complete_partial(&mut bytes);
                }
                (bytes, length)
            }
            Record::Segment {
                segment,
                payload,
                length,
            } => {
                let whole = frame::overhead(&segment) + length;
                (frame::of_segment(&segment, &payload, length), whole)
            }
        };
        self.file.add_cut(captured.unix_ns, &bytes, length);
    }
}
