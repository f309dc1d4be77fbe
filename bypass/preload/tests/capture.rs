//! `bypass capture` of accelerated programs, judged by tshark: nothing malformed, every checksum right, and
//! the bytes of each connection equal to the bytes sent.

mod library;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Output, Stdio};

use bypass_sys::kernel;
use bypass_testkit::{require_tool, skip, veth, Case, Namespace};

const CASES: &[Case] = &[
    (
        "a_connection_of_the_same_host_is_whole_and_in_order",
        one_end_tells,
    ),
    (
        "both_ends_of_a_connection_show_it_once",
        both_ends_report_once,
    ),
    (
        "who_holds_an_inherited_connection_last_shows_its_end",
        shown_by_the_last_holder,
    ),
    (
        "frames_over_packets_have_their_checksums_and_all_bytes",
        over_packets,
    ),
    (
        "a_reader_that_stands_still_loses_frames_and_holds_nobody_up",
        a_stopped_reader,
    ),
    (
        "options_of_tcp_reach_what_is_sent_over_packets",
        options_of_tcp,
    ),
    (
        "only_the_frames_that_are_wanted_are_written",
        filtered_and_counted,
    ),
];

/// Bytes that the client sends on each connection; it gets twice as much back. 0: it resets.
const COUNTS: [usize; 5] = [1, 1000, 0, 100_000, 300_000];
/// Where servers look for a free one; no port that the kernel gives out.
const FIRST_PORT: u16 = 20_981;
/// tcp.flags
const FIN: u32 = 1;
const SYN: u32 = 2;
const RST: u32 = 4;

fn main() {
    bypass_testkit::main(CASES)
}

/// A program of ours that is ended with its scope.
struct Running {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    fn start(role: &str, address: &str, port: u16, host: Host, counts: &[usize]) -> Self {
        Self::with(role, address, port, host, (counts, &[]))
    }

    fn with(
        role: &str,
        address: &str,
        port: u16,
        host: Host,
        (counts, environment): (&[usize], &[(&str, &str)]),
    ) -> Self {
        let mut command = Command::new("python3");
        command
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/capture/peer.py"))
            .args([role, address, &port.to_string()])
            .args(counts.iter().map(usize::to_string))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .envs(environment.iter().copied());
        if let Some(interface) = host.accelerated {
            command
                .env("LD_PRELOAD", library::built())
                .env("EF_INTERFACE_WHITELIST", interface);
        }
        let child = match host.namespace {
            Some(namespace) => namespace.run(|| command.spawn()),
            None => command.spawn(),
        };
        let mut child = child.expect("python3 starts");
        Self {
            stdin: child.stdin.take().expect("a pipe"),
            stdout: BufReader::new(child.stdout.take().expect("a pipe")),
            child,
        }
    }

    fn expect(&mut self, wanted: &str) {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("it says something");
        assert_eq!(line.trim(), wanted);
    }

    /// The port of a server.
    fn listens(&mut self) -> u16 {
        self.number("listening ") as u16
    }

    /// The number that it says behind a word.
    fn number(&mut self, word: &str) -> u32 {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("it says something");
        let number = line.trim().strip_prefix(word);
        let number = number.and_then(|number| number.parse().ok());
        number.unwrap_or_else(|| panic!("no number: {line:?}"))
    }

    fn begin(&mut self) {
        self.stdin.write_all(b"\n").expect("it listens");
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where a program runs, and the interface that it may use when it is accelerated.
#[derive(Clone, Copy, Default)]
struct Host<'a> {
    namespace: Option<&'a Namespace>,
    accelerated: Option<&'a str>,
}

const ACCELERATED: Host = Host {
    namespace: None,
    accelerated: Some(""),
};

/// `bypass capture` under way.
struct Capturing {
    child: Child,
    said: BufReader<ChildStderr>,
    file: PathBuf,
}

impl Capturing {
    fn start(name: &str, words: &[String]) -> Self {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.pcap"));
        let _ = std::fs::remove_file(&file);
        let mut child = Command::new(command())
            .arg("capture")
            .args(words)
            .arg("-w")
            .arg(&file)
            .stderr(Stdio::piped())
            .spawn()
            .expect("bypass starts");
        let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        said.read_line(&mut line).expect("it says that it begins");
        assert!(line.contains("process"), "{line}");
        Self { child, said, file }
    }

    /// Ends it as Ctrl-C does; frames written and dropped.
    fn end(mut self) -> (u64, u64, PathBuf) {
        let _ = kernel::kill(self.child.id() as i32, libc::SIGINT);
        self.wait()
    }

    fn wait(&mut self) -> (u64, u64, PathBuf) {
        let mut line = String::new();
        self.said.read_to_string(&mut line).expect("its last line");
        let status = self.child.wait().expect("a child of ours");
        assert!(status.success(), "{status}: {line}");
        let numbers: Vec<u64> = line
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        let [written, dropped] = numbers[..] else {
            panic!("two numbers: {line}");
        };
        (written, dropped, self.file.clone())
    }
}

impl Drop for Capturing {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command of this run's profile, built from the sources as they are.
fn command() -> PathBuf {
    let folder = library::built().parent().expect("a folder");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--locked", "-p", "bypass-cli"]);
    cargo
        .arg("--target-dir")
        .arg(folder.parent().expect("target"));
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    assert!(cargo.status().expect("cargo").success(), "bypass is built");
    folder.join("bypass")
}

/// One segment, as tshark sees it.
#[derive(Debug)]
struct Seen {
    stream: u32,
    from: u16,
    sequence: u32,
    flags: u32,
    payload: Vec<u8>,
    /// Remarks of tshark about its numbers.
    remarks: String,
}

const FIELDS: [&str; 8] = [
    "tcp.stream",
    "tcp.srcport",
    "tcp.seq_raw",
    "tcp.flags",
    "tcp.checksum.status",
    "tcp.payload",
    "_ws.malformed",
    "tcp.analysis.flags",
];

/// Every segment of a file; fails where one is malformed or has a wrong checksum.
fn judged(file: &Path) -> Vec<Seen> {
    let mut tshark = Command::new("tshark");
    tshark
        .args(["-r"])
        .arg(file)
        .args(["-Y", "tcp", "-T", "fields"]);
    for option in ["tcp.check_checksum:TRUE", "ip.check_checksum:TRUE"] {
        tshark.args(["-o", option]);
    }
    tshark.args(FIELDS.iter().flat_map(|field| ["-e", field]));
    let Output {
        status,
        stdout,
        stderr,
    } = tshark.output().expect("tshark runs");
    let errors = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{errors}");
    assert!(!errors.contains("cut short"), "{errors}");
    let text = String::from_utf8(stdout).expect("text");
    text.lines().map(seen).collect()
}

fn seen(line: &str) -> Seen {
    let fields: Vec<&str> = line.split('\t').collect();
    let number = |index: usize| -> u32 {
        let text = fields[index];
        match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).expect("a number"),
            None => text.parse().expect("a number"),
        }
    };
    assert_eq!(fields[4], "1", "the checksum of {line}");
    assert_eq!(fields[6], "", "malformed: {line}");
    Seen {
        stream: number(0),
        from: number(1) as u16,
        sequence: number(2),
        flags: number(3),
        payload: bytes(fields[5]),
        remarks: fields[7].to_owned(),
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("hexadecimal") as u8;
    let pairs = hex.as_bytes().chunks_exact(2);
    pairs
        .map(|two| digit(two[0]) << 4 | digit(two[1]))
        .collect()
}

fn pattern(count: usize, start: usize) -> Vec<u8> {
    (0..count)
        .map(|place| ((start + place * 7) % 251) as u8)
        .collect()
}

/// The bytes of each direction, put together by their numbers as a receiver does: by connection, and
/// whether they came from the server.
fn transferred(all: &[Seen], port: u16) -> BTreeMap<(u32, bool), Vec<u8>> {
    let mut starts = BTreeMap::new();
    let mut bytes: BTreeMap<(u32, bool), Vec<u8>> = BTreeMap::new();
    for segment in all {
        let direction = (segment.stream, segment.from == port);
        if segment.flags & SYN != 0 {
            starts.insert(direction, segment.sequence.wrapping_add(1));
            continue;
        }
        let start = starts.get(&direction).expect("a SYN before the bytes");
        let at = segment.sequence.wrapping_sub(*start) as usize;
        let whole = bytes.entry(direction).or_default();
        if segment.payload.is_empty() {
            continue;
        }
        whole.resize(whole.len().max(at + segment.payload.len()), 0);
        whole[at..at + segment.payload.len()].copy_from_slice(&segment.payload);
    }
    bytes
}

/// Each connection of [`COUNTS`] is there once, with its bytes, its handshake and its end.
fn assert_whole(all: &[Seen], port: u16) {
    let bytes = transferred(all, port);
    let streams: Vec<u32> = bytes.keys().filter(|key| !key.1).map(|key| key.0).collect();
    let mut left: Vec<usize> = COUNTS.into();
    for stream in streams {
        // Each once, however often it was sent: over packets one that is late is sent again.
        let of = |flag: u32| {
            let is_it = |one: &&Seen| one.stream == stream && one.flags & flag != 0;
            let found = all.iter().filter(is_it);
            let found: BTreeSet<_> = found.map(|one| (one.from, one.sequence)).collect();
            found.len()
        };
        assert_eq!(of(SYN), 2, "both SYNs of {stream}");
        let sent = &bytes[&(stream, false)];
        let place = left.iter().position(|count| match count {
            0 => sent == b"x",
            _ => *sent == pattern(*count, 0),
        });
        let count = left.remove(place.expect("a connection of the client's"));
        if count == 0 {
            assert_eq!(of(RST), 1, "the reset of {stream}");
            continue;
        }
        assert_eq!(of(RST), 0, "{stream}");
        assert!(of(FIN) >= 2, "both ends of {stream}");
        assert!(
            bytes[&(stream, true)] == pattern(2 * count, 1),
            "the answer to {count}"
        );
    }
    assert!(left.is_empty(), "connections that were not shown: {left:?}");
}

fn assert_unremarkable(all: &[Seen]) {
    let remarkable: Vec<&Seen> = all.iter().filter(|one| !one.remarks.is_empty()).collect();
    assert!(remarkable.is_empty(), "{remarkable:#?}");
}

fn pid_words(pids: &[u32]) -> Vec<String> {
    pids.iter().map(u32::to_string).collect()
}

/// The server alone is captured.
fn one_end_tells() {
    require_tool("tshark");
    let mut server = Running::start("server", "127.0.0.1", FIRST_PORT, ACCELERATED, &[]);
    let port = server.listens();
    let mut client = Running::start("client", "127.0.0.1", port, ACCELERATED, &COUNTS);
    client.expect("ready");
    let capturing = Capturing::start("one-end", &pid_words(&[server.pid()]));
    client.begin();
    client.expect("done");
    server.expect("reset");
    let (written, dropped, file) = capturing.end();
    let all = judged(&file);
    assert_eq!((written, dropped), (all.len() as u64, 0));
    assert_whole(&all, port);
    assert_unremarkable(&all);
}

/// Both processes are captured, each reports both directions: one is enough.
fn both_ends_report_once() {
    require_tool("tshark");
    let mut server = Running::start("server", "127.0.0.1", FIRST_PORT, ACCELERATED, &[]);
    let port = server.listens();
    let mut client = Running::start("client", "127.0.0.1", port, ACCELERATED, &COUNTS);
    client.expect("ready");
    let pids = pid_words(&[server.pid(), client.pid()]);
    let capturing = Capturing::start("both-ends", &pids);
    client.begin();
    client.expect("done");
    server.expect("reset");
    let (_, dropped, file) = capturing.end();
    let all = judged(&file);
    assert_eq!(dropped, 0);
    assert_whole(&all, port);
    assert_unremarkable(&all);
}

/// The child has never used the connection, and its parent closes it first.
fn shown_by_the_last_holder() {
    require_tool("tshark");
    let mut parent = Running::start("parent", "127.0.0.1", FIRST_PORT, ACCELERATED, &[]);
    let port = parent.listens();
    let mut client = Running::start("client", "127.0.0.1", port, ACCELERATED, &[]);
    let child = parent.number("child ");
    let of_parent = Capturing::start("of-parent", &pid_words(&[parent.pid()]));
    let of_child = Capturing::start("of-child", &pid_words(&[child]));
    parent.begin();
    parent.expect("closed");
    parent.begin();
    client.expect("ready");
    let ends = |capturing: Capturing| {
        let all = judged(&capturing.end().2);
        let is_end = |one: &&Seen| one.from == port && one.flags & FIN != 0;
        all.iter().filter(is_end).count()
    };
    assert_eq!((ends(of_parent), ends(of_child)), (0, 1));
}

/// Two hosts joined by a link.
fn hosts() -> (Namespace, Namespace) {
    require_xdp();
    let (far, near) = (Namespace::new(), Namespace::new());
    veth((&far, "va"), (&near, "vb"), 1);
    far.ip("addr add 10.78.0.1/24 dev va");
    near.ip("addr add 10.78.0.2/24 dev vb");
    (far, near)
}

/// EF_TCP_SYN_OPTS=2: window scaling, and neither timestamps nor selective acknowledgments.
fn options_of_tcp() {
    require_tool("tshark");
    let (far, near) = hosts();
    let on_packets = Host {
        namespace: Some(&near),
        accelerated: Some("vb"),
    };
    let on_kernel = Host {
        namespace: Some(&far),
        accelerated: None,
    };
    let option = &[("EF_TCP_SYN_OPTS", "2")];
    let mut server = Running::with("server", "10.78.0.2", FIRST_PORT, on_packets, (&[], option));
    let port = server.listens();
    let mut client = Running::start("client", "10.78.0.2", port, on_kernel, &[1000]);
    client.expect("ready");
    let capturing = Capturing::start("options", &pid_words(&[server.pid()]));
    client.begin();
    client.expect("done");
    let (_, _, file) = capturing.end();
    let answer = format!("tcp.srcport == {port} && tcp.flags.syn == 1");
    let fields = [
        "tcp.options.timestamp.tsval",
        "tcp.options.sack_perm",
        "tcp.options.wscale.shift",
    ];
    let shown = Command::new("tshark")
        .arg("-r")
        .arg(&file)
        .args(["-Y", &answer, "-T", "fields"])
        .args(fields.iter().flat_map(|field| ["-e", field]))
        .output()
        .expect("tshark runs");
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    let is_right = |line: &str| {
        let found: Vec<&str> = line.split('\t').collect();
        matches!(found[..], ["", "", shift] if !shift.is_empty())
    };
    assert!(
        !text.is_empty() && text.lines().all(is_right),
        "timestamps, selective acknowledgments, scale: {text:?}"
    );
}

fn over_packets() {
    require_tool("tshark");
    let (far, near) = hosts();
    let host = |namespace, accelerated| Host {
        namespace: Some(namespace),
        accelerated,
    };
    let on_packets = host(&near, Some("vb"));
    let mut server = Running::start("server", "10.78.0.2", FIRST_PORT, on_packets, &[]);
    let port = server.listens();
    let on_kernel = host(&far, None);
    let mut client = Running::start("client", "10.78.0.2", port, on_kernel, &COUNTS);
    client.expect("ready");
    let capturing = Capturing::start("packets", &pid_words(&[server.pid()]));
    client.begin();
    client.expect("done");
    server.expect("reset");
    let (written, dropped, file) = capturing.end();
    let all = judged(&file);
    assert!(
        written >= all.len() as u64 && dropped == 0,
        "{written} {dropped}"
    );
    assert_whole(&all, port);
}

fn require_xdp() {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    match kernel::socket(libc::AF_XDP, kind, 0) {
        Ok(fd) => drop(kernel::close(fd as i32)),
        Err(error) => skip(format!("no AF_XDP socket may be made here (error {error})")),
    }
}

fn a_stopped_reader() {
    let mut server = Running::start("server", "127.0.0.1", FIRST_PORT, ACCELERATED, &[]);
    let port = server.listens();
    let counts = [1_500_000; 3];
    let mut client = Running::start("client", "127.0.0.1", port, ACCELERATED, &counts);
    client.expect("ready");
    let capturing = Capturing::start("stopped", &pid_words(&[server.pid()]));
    let _ = kernel::kill(capturing.child.id() as i32, libc::SIGSTOP);
    client.begin();
    client.expect("done");
    let _ = kernel::kill(capturing.child.id() as i32, libc::SIGCONT);
    let (written, dropped, file) = capturing.end();
    assert!(written > 0 && dropped > 0, "{written} {dropped}");
    let length = std::fs::metadata(&file).expect("a file").len();
    let _ = std::fs::remove_file(&file);
    assert!(length < 16 << 20, "{length} bytes were kept for it");
}

fn filtered_and_counted() {
    let mut server = Running::start("server", "127.0.0.1", FIRST_PORT, ACCELERATED, &[]);
    let port = server.listens();
    let mut client = Running::start("client", "127.0.0.1", port, ACCELERATED, &COUNTS);
    client.expect("ready");
    let words = |line: &str| -> Vec<String> {
        let pid = server.pid().to_string();
        let rest = line.split_whitespace().map(str::to_owned);
        [pid].into_iter().chain(rest).collect()
    };
    let wrong = words(&format!("--port {}", port + 1));
    let busy = Capturing::start("filtered", &wrong);
    let second = Command::new(command()).arg("capture").args(&wrong).output();
    let second = second.expect("bypass starts");
    assert_eq!(second.status.code(), Some(1), "one reader at a time");
    client.begin();
    client.expect("done");
    assert_eq!((busy.end().0), 0, "of another port");
    let mut again = Running::start("client", "127.0.0.1", port, ACCELERATED, &COUNTS);
    again.expect("ready");
    let mut capturing = Capturing::start("counted", &words("--host 127.0.0.1 -c 7"));
    again.begin();
    again.expect("done");
    assert_eq!(capturing.wait().0, 7);
    let mut ends_with_it = Capturing::start("ended", &words(""));
    drop(server);
    ends_with_it.wait();
}
