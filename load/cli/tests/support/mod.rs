//! A small server that does what a test specifies, keeps the requests it gets, and a way to run the
//! command against it.
#![allow(dead_code, reason = "each test file uses a part of it")]

use serde_json::Value;
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Listeners at one port of two addresses at which no other test listens: the port stays free where one
/// of them is closed.
pub fn two_addresses() -> (TcpListener, TcpListener) {
    (0..100)
        .find_map(|_| {
            let one = TcpListener::bind(own_address()).ok()?;
            let mut other = TcpListener::bind(own_address()).ok()?.local_addr().ok()?;
            other.set_port(one.local_addr().ok()?.port());
            Some((one, TcpListener::bind(other).ok()?))
        })
        .expect("a port that is free at both")
}

/// An address of this machine at which no other test listens or connects from: a port there can be
/// closed and taken again.
pub fn own_address() -> String {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed) % 32;
    let process = std::process::id() as usize % (1 << 16);
    let (high, low) = (process >> 8, process & 0xff);
    format!("127.{}.{high}.{low}:0", 64 + number)
}

/// Reports that the running test did not run. Cargo's runner cannot know and counts it as passed;
/// `./test` counts this line, which goes past the runner's capture, as skipped.
pub fn report_skip(reason: &str) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a test").to_owned();
    writeln!(std::io::stderr(), "\nskipped: {name}: {reason}").expect("stderr");
}

/// Whether a program is there; if not, the running test is reported as skipped.
pub fn is_installed(program: &str) -> bool {
    let is_there = Command::new(program).arg("-v").output().is_ok();
    if !is_there {
        report_skip(&format!("{program} is not installed"));
    }
    is_there
}

/// One request as the server saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Number of the connection.
    pub connection: usize,
    /// Source of the connection.
    pub source: Option<SocketAddr>,
    /// When it was complete.
    pub at: Instant,
    /// First line.
    pub line: String,
    /// Header lines, sorted.
    pub headers: Vec<String>,
    /// Body.
    pub body: Vec<u8>,
}

impl Seen {
    /// The path of the request.
    pub fn path(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }
}

/// A connection from the server's side.
pub struct Conversation {
    number: usize,
    reader: BufReader<TcpStream>,
    log: Arc<Mutex<Vec<Seen>>>,
}

impl Conversation {
    /// The next request; `None` at the end.
    pub fn request(&mut self) -> Option<Seen> {
        let mut line = String::new();
        if self.reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let mut headers = Vec::new();
        let mut length = 0;
        loop {
            let mut header = String::new();
            self.reader.read_line(&mut header).ok()?;
            let header = header.trim_end().to_string();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("Content-Length: ") {
                length = value.parse().ok()?;
            }
            headers.push(header);
        }
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body).ok()?;
        headers.sort();
        let source = self.reader.get_ref().peer_addr().ok();
        let (connection, at, line) = (self.number, Instant::now(), line.trim_end().to_string());
        let seen = Seen {
            connection,
            source,
            at,
            line,
            headers,
            body,
        };
        self.log.lock().expect("no panic").push(seen.clone());
        Some(seen)
    }

    /// Fills `bytes` as they come; false if the client ends before.
    pub fn read_exact(&mut self, bytes: &mut [u8]) -> bool {
        self.reader.read_exact(bytes).is_ok()
    }

    /// Writes bytes; false if the client is gone.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.reader.get_mut().write_all(bytes).is_ok()
    }

    /// What does not come within this time is the end.
    pub fn wait_at_most(&self, time: std::time::Duration) {
        let stream = self.reader.get_ref();
        stream.set_read_timeout(Some(time)).expect("a time");
    }

    /// A conversation that keeps its log to itself.
    pub fn of(stream: TcpStream) -> Conversation {
        Conversation {
            number: 0,
            reader: BufReader::new(stream),
            log: Arc::default(),
        }
    }

    /// Ends the connection with RST as soon as it is dropped.
    pub fn abort(&self) {
        abort(self.reader.get_ref());
    }

    /// The connection itself.
    pub fn stream(&mut self) -> &mut TcpStream {
        self.reader.get_mut()
    }

    /// Number of this connection.
    pub fn number(&self) -> usize {
        self.number
    }
}

/// Ends a connection with RST: at once for a peer that waits on it, without waiting for its end.
pub fn abort(stream: &TcpStream) {
    load_engine::sys::socket::set_abort(stream.as_raw_fd()).expect("an option of every kernel");
    let _ = stream.shutdown(std::net::Shutdown::Read);
}

/// The usual answer.
pub const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// Answers every request with `bytes`.
pub fn always(bytes: &'static [u8]) -> impl Fn(Conversation) + Send + Sync + 'static {
    move |mut conversation| {
        while conversation.request().is_some() {
            pause();
            if !conversation.send(bytes) {
                return;
            }
        }
    }
}

/// What a server of tests rests before each answer: a closed loop that goes on for a time would keep all
/// cores from the tests that run next to it.
pub fn pause() {
    std::thread::sleep(Duration::from_millis(1));
}

/// A server on a free port; its threads end with the test's process.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    log: Arc<Mutex<Vec<Seen>>>,
    accepted: Arc<AtomicUsize>,
}

impl Server {
    /// Each connection is handed to `serve` on a thread of its own.
    pub fn start(serve: impl Fn(Conversation) + Send + Sync + 'static) -> Server {
        Server::start_on("127.0.0.1:0", serve)
    }

    /// As [`Server::start`], on an address.
    pub fn start_on(address: &str, serve: impl Fn(Conversation) + Send + Sync + 'static) -> Server {
        Self::start_at(TcpListener::bind(address).expect("a free port"), serve)
    }

    pub fn start_at(
        listener: TcpListener,
        serve: impl Fn(Conversation) + Send + Sync + 'static,
    ) -> Server {
        let address = listener.local_addr().expect("bound");
        let log = Arc::new(Mutex::new(Vec::new()));
        let (own, serve, accepted) = (Arc::clone(&log), Arc::new(serve), Arc::default());
        let count: Arc<AtomicUsize> = Arc::clone(&accepted);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let number = count.fetch_add(1, Ordering::Relaxed);
                let (log, serve) = (Arc::clone(&own), Arc::clone(&serve));
                std::thread::spawn(move || {
                    stream.set_nodelay(true).expect("a socket");
                    serve(Conversation {
                        number,
                        reader: BufReader::new(stream),
                        log,
                    });
                });
            }
        });
        Server {
            address,
            log,
            accepted,
        }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// How many connections it took so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    /// As [`Server::accepted`], once it has taken at least so many: the last ones may stand in the
    /// kernel's queue when the command has ended.
    pub fn accepted_at_least(&self, count: usize) -> usize {
        wait_until(|| self.accepted() >= count);
        self.accepted()
    }

    /// How often it was asked so far.
    pub fn asked(&self) -> usize {
        self.log.lock().expect("no panic").len()
    }

    /// Everything it was asked so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.log.lock().expect("no panic").clone()
    }

    /// On how many connections it was asked so far.
    pub fn connections(&self) -> usize {
        let seen = self.seen().into_iter();
        seen.map(|seen| seen.connection)
            .collect::<HashSet<_>>()
            .len()
    }
}

/// A server that answers after a while, each connection on its own.
pub fn slow(each: Duration) -> Server {
    Server::start(move |mut conversation| {
        while conversation.request().is_some() {
            std::thread::sleep(each);
            if !conversation.send(HELLO) {
                return;
            }
        }
    })
}

/// Waits for an event far longer than it takes on a busy machine; the test sees whether it came.
pub fn wait_until(is_there: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_there() && began.elapsed().as_secs() < 60 {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The command.
pub fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_wirespeed-load"))
}

/// Runs the command with words separated by blanks.
pub fn run(line: &str) -> Output {
    program()
        .args(line.split_whitespace())
        .output()
        .expect("the command starts")
}

/// Runs the command and reads its result file.
pub fn measured(line: &str) -> Value {
    let (result, code) = measured_or_not(line);
    assert_eq!(code, 0, "{line}: {}", result["warnings"]);
    result
}

/// Runs the command, which opens no connection and says so by its exit code; its result file.
pub fn unreached(line: &str) -> Value {
    let (result, code) = measured_or_not(line);
    assert_eq!(code, 1, "{line}: {}", result["warnings"]);
    result
}

/// Runs the command, which may or may not open a connection; its result file and its exit code.
pub fn measured_or_not(line: &str) -> (Value, i32) {
    let file = temporary("json");
    let output = run(&format!("--json {} {line}", file.display()));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let code = output.status.code().expect("no signal");
    let is_unreached = errors.contains("attempts to connect succeeded: ");
    assert!(code == i32::from(is_unreached), "{line}: {errors}");
    let text = std::fs::read_to_string(&file).expect("a result file");
    std::fs::remove_file(&file).expect("ours");
    (serde_json::from_str(&text).expect("JSON"), code)
}

/// Makes a library of C; its path.
pub fn c_library(text: &str) -> PathBuf {
    let (source, library) = (temporary("c"), temporary("so"));
    std::fs::write(&source, text).expect("a file");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .status()
        .expect("a C compiler, which building LuaJIT needed too");
    assert!(compiled.success());
    std::fs::remove_file(source).expect("ours");
    library
}

/// A path that no other test uses.
pub fn temporary(extension: &str) -> PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("wirespeed-load-{}-{number}.{extension}", std::process::id());
    std::env::temp_dir().join(name)
}

/// A number inside a result.
pub fn count(result: &Value, path: &str) -> u64 {
    result
        .pointer(path)
        .and_then(Value::as_u64)
        .unwrap_or_else(|| panic!("{path}: {result}"))
}
