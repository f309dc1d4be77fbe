//! A crowd of honest connections next to a client that writes into every word of its segment: none of their requests may
//! fail. Three processes: this test is the server; it starts the honest client, and the client that writes.
//!
//! `HOSTILE_WRITES`, `HOSTILE_CONNECTIONS` and `HOSTILE_TURNS` make it longer, see bypass/preload/tests/README.md. How
//! long requests took is printed for turns in which the writer shares its memory with the server, and for turns in which
//! it is as busy with memory of its own.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bypass_shm::layout::{extents_at, Header, QUEUED, READY_LISTS_AT, SLOTS_AT};
use bypass_shm::link;
use bypass_shm::segment::Segment;
use bypass_stack::operations::{options, shutdown};
use bypass_stack::{peer, Outcome};
use bypass_sys::descriptor::Owned;
use bypass_sys::kernel;
use bypass_sys::memory::Mapping;
use bypass_sys::waker::Name;

use super::program::{self, close, dial, is_accelerated, read, write, Listening};
use super::{greet_at, Dice, PATIENCE};

const TEST: &str =
    "crowd::honest_requests_are_answered_next_to_a_client_that_writes_into_every_word";
/// What a process that this test has started is: `honest PORT CONNECTIONS` or `writer INODE WRITES`.
const ROLE: &str = "HOSTILE_TEST_ROLE";
/// Begins what such a process has to say.
const SAID: &str = "hostile: ";
const SLOTS: usize = 64;
const RING_BYTES: usize = 4096;
/// After so many writes the client begins again with another segment: the server has had enough of the old one.
const WRITES_OF_A_SEGMENT: usize = 5_000;
const BURST: usize = 50;
/// How long a connection that is offered may wait for the server before the next burst.
const TURN_OF_THE_SERVER: Duration = Duration::from_micros(100);
/// Between two rounds of honest requests: they shall find cores of a small machine free.
const PAUSE: Duration = Duration::from_millis(2);
/// How long the server has to notice all ends, most of which come at once.
const STAYING: Duration = Duration::from_secs(10);
/// What is written at the moment of an end can hide it: docs/internals/limits/bypass.md.
const LEFT_MAX: usize = 10;
/// Steps between two words that are written by plan: without a divisor in common with their number all get their turn,
/// and few are already spread over the whole.
const STRIDE: usize = 1_000_003;
const REQUEST: usize = 64;

fn from_environment(name: &str, usual: usize) -> usize {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
}

#[test]
fn honest_requests_are_answered_next_to_a_client_that_writes_into_every_word() {
    if let Ok(role) = std::env::var(ROLE) {
        let words: Vec<&str> = role.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        return match words[0] {
            "honest" => be_honest(number(1) as u16, number(2) as usize),
            _ => write_everywhere(number(1), number(2) as usize),
        };
    }
    let writes = from_environment("HOSTILE_WRITES", 40_000);
    let connections = from_environment("HOSTILE_CONNECTIONS", 10);
    let turns = from_environment("HOSTILE_TURNS", 1);
    let (listening, server) = (Listening::open(), Server::default());
    std::thread::scope(|scope| {
        let _end = Ended(&server.is_over);
        scope.spawn(|| server.serve(listening.fd));
        let mut honest = Honest::start(listening.port, connections);
        for _ in 0..turns {
            run_writer(0, writes / turns);
            println!("own memory:    {}", honest.delays());
            run_writer(listening.inode, writes / turns);
            println!("shared memory: {}", honest.delays());
        }
        honest.end();
        server.wait_for_ends();
    });
    listening.close();
}

/// Says that it is over when it goes, also when the test fails.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn start(role: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", TEST, "--nocapture"]);
    command.env(ROLE, role).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).spawn().expect("a child")
}

/// Until the writer has written all; listener 0 is none.
fn run_writer(listener: u64, writes: usize) {
    let done = start(&format!("writer {listener} {writes}")).wait_with_output();
    let done = done.expect("an end");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "the writer failed: {said}");
    let lines = said.lines().filter_map(|line| line.split_once(SAID));
    lines.for_each(|(_, line)| println!("{line}"));
}

/// The honest client, as the test sees it.
struct Honest {
    child: Child,
    ask: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl Honest {
    fn start(port: u16, connections: usize) -> Self {
        let mut child = start(&format!("honest {port} {connections}"));
        let ask = child.stdin.take().expect("a pipe");
        let said = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut honest = Self { child, ask, said };
        honest.delays();
        honest
    }

    /// How long its requests took since the last question.
    fn delays(&mut self) -> String {
        writeln!(self.ask).expect("an honest client that lives");
        let mut line = String::new();
        loop {
            line.clear();
            let length = self.said.read_line(&mut line).expect("readable");
            assert!(length > 0, "the honest client has failed");
            // The test harness in it says something, too.
            if let Some((_, said)) = line.split_once(SAID) {
                return said.trim_end().to_owned();
            }
        }
    }

    fn end(mut self) {
        drop(self.ask);
        assert!(self.child.wait().expect("an end").success());
    }
}

/* ---- server ---- */

/// An event loop that sends back what comes; whom it serves it does not know.
#[derive(Default)]
struct Server {
    is_over: AtomicBool,
    /// Connections that are open now, and the most that ever were.
    open: AtomicUsize,
    most: AtomicUsize,
}

impl Server {
    fn serve(&self, listening: i32) {
        program::never_wait(true);
        let set = program::readable_set(listening);
        let (mut open, mut calls) = (HashSet::new(), 0);
        while !self.is_over.load(Ordering::Relaxed) {
            for fd in program::ready_in_set(set, Duration::from_millis(100)) {
                calls += 1;
                if fd != listening {
                    if !answer(fd, calls) {
                        open.remove(&fd);
                        close(fd);
                    }
                    continue;
                }
                while let Some(new) = program::accept_within(listening, Duration::ZERO) {
                    program::watch(set, new);
                    open.insert(new);
                }
            }
            self.open.store(open.len(), Ordering::Relaxed);
            self.most.fetch_max(open.len(), Ordering::Relaxed);
        }
        open.into_iter().for_each(close);
        program::close_any(set);
    }

    /// All clients have ended: next to none of their connections stays open.
    fn wait_for_ends(&self) {
        let since = Instant::now();
        let open = || self.open.load(Ordering::Relaxed);
        while open() > 0 && since.elapsed() < STAYING {
            std::thread::sleep(PAUSE);
        }
        let (left, most) = (open(), self.most.load(Ordering::Relaxed));
        assert!(left <= LEFT_MAX, "{left} connections stay");
        println!("{left} connections stay open, {most} at most were open at a time");
    }
}

/// False when the connection is over. Now and then it makes calls that no echo needs.
fn answer(fd: i32, turn: usize) -> bool {
    if turn % 16 == 0 {
        let _ = (program::polled(fd), options::fcntl(fd, libc::F_GETFL, 0));
    }
    match read(fd, 4096) {
        Ok(bytes) if bytes.is_empty() => {
            let _ = shutdown::shutdown(fd, libc::SHUT_WR);
            false
        }
        Ok(bytes) => !matches!(write(fd, &bytes), Outcome::Error(error) if error != libc::EAGAIN),
        Err(error) => error == libc::EAGAIN,
    }
}

/* ---- honest client ---- */

/// Requests over all connections at a time, until standard input ends; a line there asks how long they took. One
/// connection is closed and opened again in each round.
fn be_honest(port: u16, connections: usize) {
    let (asked, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _end = Ended(&is_over);
            for _ in std::io::stdin().lines().map_while(Result::ok) {
                asked.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut open: Vec<i32> = (0..connections).map(|_| dial_honestly(port)).collect();
        let (mut delays, mut said) = (Vec::new(), 0);
        for round in 0u64.. {
            exchange(&open, round, &mut delays);
            let which = round as usize % connections;
            close(open[which]);
            open[which] = dial_honestly(port);
            if said < asked.load(Ordering::Relaxed) {
                said += 1;
                println!("{SAID}{}", distribution(&mut std::mem::take(&mut delays)));
            }
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        open.into_iter().for_each(close);
    });
}

fn dial_honestly(port: u16) -> i32 {
    let fd = dial(port);
    assert!(is_accelerated(fd), "an honest client is accelerated");
    let mut patience = [0u8; 16];
    patience[..8].copy_from_slice(&PATIENCE.as_secs().to_ne_bytes());
    let set = options::set(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &patience);
    assert_eq!(set, Outcome::Done(0));
    fd
}

fn exchange(open: &[i32], round: u64, delays: &mut Vec<Duration>) {
    let request = |at: usize| {
        [round, at as u64]
            .map(u64::to_ne_bytes)
            .concat()
            .repeat(REQUEST / 16)
    };
    let sent: Vec<Instant> = (open.iter().enumerate())
        .map(|(at, fd)| {
            let now = Instant::now();
            assert_eq!(write(*fd, &request(at)), Outcome::Done(REQUEST as isize));
            now
        })
        .collect();
    for (at, fd) in open.iter().enumerate() {
        let mut answer = Vec::new();
        while answer.len() < REQUEST {
            let more = read(*fd, REQUEST - answer.len()).expect("an answer");
            assert!(!more.is_empty(), "an honest connection was ended");
            answer.extend(more);
        }
        assert_eq!(answer, request(at));
        delays.push(sent[at].elapsed());
    }
}

fn distribution(delays: &mut [Duration]) -> String {
    delays.sort_unstable();
    let last = delays.len() - 1;
    let at = |part: f64| delays[(last as f64 * part) as usize].as_secs_f64() * 1e3;
    format!(
        "{} requests, ms: p50 {:.3}, p99 {:.3}, p99.9 {:.3}, p99.99 {:.3}, longest {:.3}",
        delays.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(0.9999),
        at(1.0)
    )
}

/* ---- the client that writes ---- */

fn write_everywhere(listener: u64, writes: usize) {
    let mut dice = Dice(77);
    let (mut written, mut taken) = (0, 0);
    while written < writes {
        let some = WRITES_OF_A_SEGMENT.min(writes - written);
        taken += Writer::begin(listener).write(written, some, &mut dice);
        written += some;
    }
    assert_eq!(
        taken > 0,
        listener != 0,
        "the server takes what it is offered"
    );
    println!("{SAID}{writes} writes, the server has taken {taken} connections");
}

/// A client with its segment, and the memory as the server may not expect it.
struct Writer {
    segment: Segment,
    memory: Mapping,
    index: usize,
    _rendezvous: Owned,
    link: Option<Owned>,
}

impl Writer {
    fn begin(listener: u64) -> Self {
        let number = kernel::random();
        let segment = Segment::create(number, SLOTS, RING_BYTES).expect("memory");
        let rendezvous = link::open_rendezvous(&Name::of_process(number)).expect("a free name");
        let index = segment.enter(0, number).expect("a place");
        let memory = kernel::dup(segment.fd()).expect("a descriptor") as i32;
        Self {
            memory: Mapping::adopt(memory).expect("sealed"),
            index,
            _rendezvous: rendezvous,
            link: (listener != 0).then(|| greet_at(listener, &segment)),
            segment,
        }
    }

    /// The words from the `first` on, half of them by plan; how many connections the server has taken meanwhile.
    fn write(&self, first: usize, count: usize, dice: &mut Dice) -> usize {
        let mut taken = 0;
        for at in first..first + count {
            if at % BURST == 0 {
                // The first of a segment is as good as any honest client's: the server takes it.
                let is_good = at == first && self.link.is_some();
                let wait = if is_good {
                    PATIENCE
                } else {
                    TURN_OF_THE_SERVER
                };
                let is_taken = self.offer(dice.next() as usize % SLOTS, wait);
                assert!(is_taken || !is_good, "the server has stopped");
                taken += usize::from(is_taken);
            }
            if at % 2 == 0 {
                self.write_by_plan(at / 2, dice);
            } else {
                self.write_at_random(dice);
            }
        }
        taken
    }

    /// Offers a connection to the server, and lets it have its turn; whether it took the connection in time.
    fn offer(&self, slot: usize, wait: Duration) -> bool {
        let meta = &self.segment.slot(slot).meta;
        meta.holders[0].store(1 << self.index, Ordering::SeqCst);
        meta.holders[1].store(QUEUED, Ordering::SeqCst);
        self.segment
            .header()
            .slots_used
            .store(SLOTS as u32, Ordering::SeqCst);
        let is_offered = self.segment.queue().push(slot);
        peer::ring_listeners(&self.segment);
        let since = Instant::now();
        let is_taken = || meta.holders[1].load(Ordering::SeqCst) & QUEUED == 0;
        while !is_taken() && since.elapsed() < wait {
            std::thread::yield_now();
        }
        is_offered && is_taken()
    }

    fn write_by_plan(&self, step: usize, dice: &mut Dice) {
        let words = extents_at(SLOTS, RING_BYTES) / 8;
        let word = self
            .memory
            .bytes_at(step.wrapping_mul(STRIDE) % words * 8, 8);
        program::change_word(word.cast(), |old| match dice.next() % 8 {
            0 => 0,
            1 => 1,
            2 => u64::MAX,
            3 => old.wrapping_add(1),
            4 => old.wrapping_sub(1),
            5 => old ^ 1 << (dice.next() % 64),
            6 => old ^ u64::from(u32::MAX),
            _ => dice.next(),
        });
    }

    /// Where connections live, and what is looked at first.
    fn write_at_random(&self, dice: &mut Dice) {
        let (start, length) = match dice.next() % 10 {
            0 => (READY_LISTS_AT, 512),
            1 => (0, 512),
            2 => (0, size_of::<Header>()),
            _ => (SLOTS_AT, SLOTS * 1280),
        };
        let word = self
            .memory
            .bytes_at((start + dice.next() as usize % length) & !7, 8);
        let value = match dice.next() % 4 {
            0 => dice.next(),
            1 => 0,
            _ => dice.next() % 5000,
        };
        program::write_word(word.cast(), value);
    }
}
