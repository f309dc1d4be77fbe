//! Connections over packets that the program does not accept: how many may wait, and that those of other ports do not suffer.

mod between;
mod library;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bypass_stats::View;
use bypass_testkit::{require_tool, Case};

use between::{accepts, undisturbed, wait_until, Network};

const CASES: &[Case] = &[
    (
        "as_many_connections_wait_as_the_kernel_would_let_wait",
        as_many_as_the_kernel,
    ),
    (
        "a_port_that_is_not_accepted_at_takes_nothing_from_the_others",
        beside_a_crowd,
    ),
    (
        "a_listener_that_does_not_accept_takes_no_more_than_its_places_from_one_of_its_port",
        beside_a_listener,
    ),
];

fn main() {
    bypass_testkit::main(CASES)
}

/// Accepts at port 8000 until a client says `stop`, and listens again after a signal; at port 8001 it only waits.
const SERVER: &str = "
import os, select, signal, socket, sys, time
ready, backlog, later = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
address = os.environ['CONTRACT_ADDRESS']
served, left = [socket.create_server((address, port), backlog=backlog) for port in (8000, 8001)]
served.setblocking(False)
waiting = select.epoll()
waiting.register(served, select.EPOLLIN)
waiting.register(left, select.EPOLLIN | select.EPOLLET)
signal.signal(signal.SIGUSR1, lambda *_: (served.listen(later), open(ready, 'w').close()))
open(ready, 'w').close()
is_over = False
while not is_over:
    for fd, _ in waiting.poll():
        if fd == left.fileno():
            continue
        one, _ = served.accept()
        one.setblocking(True)
        is_over = one.recv(4) == b'stop'
        one.sendall(b'done')
        one.close()
open(ready, 'w').close()
while True:
    time.sleep(1)
";

/// Says what the server shall do, for so many connections in a row.
const ASK: &str = "
import socket, sys
word, count = sys.argv[1].encode(), int(sys.argv[2])
for _ in range(count):
    with socket.create_connection(('10.79.0.2', 8000), timeout=60) as one:
        one.sendall(word)
        assert one.recv(4) == b'done'
";

/// Connections that are never accepted: how many of them are established.
const WAIT: &str = "
import socket, sys
port, count, limit = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
held = []
for _ in range(count):
    one = socket.socket()
    one.settimeout(limit)
    try:
        one.connect(('10.79.0.2', port))
    except OSError:
        one.close()
        continue
    held.append(one)
print(len(held), flush=True)
sys.stdin.read()
";

/// Two listeners of one port, of which one accepts.
const TWO: &str = "
import os, socket, sys
address = (os.environ['CONTRACT_ADDRESS'], 8000)
left, served = [socket.create_server(address, backlog=4096, reuse_port=True) for _ in range(2)]
open(sys.argv[1], 'w').close()
while True:
    one, _ = served.accept()
    one.sendall(b'done')
    one.close()
";

/// Connections in groups of twenty: how many the server leaves waiting.
const TRY: &str = "
import select, socket, sys
waiting = []
def look(limit):
    found = select.select(waiting, [], [], limit)[0]
    for one in found:
        assert one.recv(4) == b'done'
        waiting.remove(one)
        one.close()
    return found
for begun in range(0, int(sys.argv[1]), 20):
    waiting += [socket.create_connection(('10.79.0.2', 8000), timeout=60) for _ in range(20)]
    look(0.05)
while look(3):
    pass
print(len(waiting))
";

struct Server {
    process: Child,
    ready: PathBuf,
}

impl Server {
    /// With a backlog, and another one for when it listens again.
    fn start(network: &Network, name: &str, library: Option<&Path>, backlogs: [u32; 2]) -> Self {
        require_tool("python3");
        let file = format!("bypass-backlog-{}-{name}", std::process::id());
        let ready = std::env::temp_dir().join(file);
        Self::run(network, (SERVER, ready), library, &backlogs)
    }

    fn run(
        network: &Network,
        (program, ready): (&str, PathBuf),
        library: Option<&Path>,
        backlogs: &[u32],
    ) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", program]).arg(&ready);
        command.args(backlogs.iter().map(u32::to_string));
        command.envs(library.map(|library| ("LD_PRELOAD", library)));
        let process = network.start("server", command).expect("python3");
        let server = Self { process, ready };
        server.await_ready();
        server
    }

    fn await_ready(&self) {
        wait_until("the server is ready", || self.ready.exists());
        fs::remove_file(&self.ready).expect("its own");
    }

    fn accepts(&self) -> [u64; 2] {
        ["packets", "kernel"].map(|path| accepts(self.process.id(), path))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn ask(network: &Network, word: &str, count: u32) {
    let mut command = Command::new("python3");
    command.args(["-c", ASK, word, &count.to_string()]);
    let asked = network.client.run(|| command.status());
    assert!(asked.expect("python3").success(), "{word}");
}

/// Clients that hold what they have until their input ends, and how many connections that is.
fn hold(network: &Network, port: u16, count: u32, limit: &str) -> (Child, usize) {
    let mut command = Command::new("python3");
    command.args(["-c", WAIT, &port.to_string(), &count.to_string(), limit]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = network.client.run(|| command.spawn()).expect("python3");
    let output = child.stdout.take().expect("a pipe");
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).expect("a line");
    (child, line.trim().parse().expect("a number"))
}

/// Established of six that are tried while three may wait, and then of ten while many more may.
fn established(library: Option<&Path>, name: &str) -> [usize; 2] {
    let network = Network::new();
    let server = Server::start(&network, name, library, [2, 30]);
    if library.is_some() {
        wait_until("the server takes packets", || {
            ask(&network, "more", 1);
            server.accepts()[0] > 0
        });
    }
    ask(&network, "stop", 1);
    server.await_ready();
    let (mut first, held) = hold(&network, 8000, 6, "1.5");
    let _ = bypass_sys::kernel::kill(server.process.id() as i32, libc::SIGUSR1);
    server.await_ready();
    let (mut second, more) = hold(&network, 8000, 10, "60");
    for child in [&mut first, &mut second] {
        let _ = child.kill();
        let _ = child.wait();
    }
    [held, more]
}

fn as_many_as_the_kernel() {
    let kernels = established(None, "kernel");
    assert_eq!(kernels, [3, 10], "on the kernel");
    assert_eq!(established(Some(library::built()), "packets"), kernels);
}

/// More connections wait at one port than a server has places for that would make a child for each.
fn beside_a_crowd() {
    const CROWD: u32 = 1000;
    let network = Network::new();
    let library = library::built();
    let server = Server::start(&network, "crowd", Some(library), [4096, 4096]);
    wait_until("the server takes packets", || {
        ask(&network, "more", 1);
        server.accepts()[0] > 0
    });
    let (mut crowd, held) = hold(&network, 8001, CROWD, "60");
    assert_eq!(held, CROWD as usize);
    let gained = undisturbed(&network.client, || {
        let before = server.accepts();
        ask(&network, "more", 20);
        let after = server.accepts();
        [after[0] - before[0], after[1] - before[1]]
    });
    let view = View::open(server.process.id()).ok().flatten();
    let left = view.map_or(Vec::new(), |view| view.fallbacks());
    let _ = crowd.kill();
    let _ = crowd.wait();
    assert_eq!(gained, [20, 0], "over packets, kernel: {left:?}");
}

/// The listener that does not accept fills its places, and all the rest goes to the other one.
fn beside_a_listener() {
    const PLACES_MAX: usize = 256;
    require_tool("python3");
    let network = Network::new();
    let ready = std::env::temp_dir().join(format!("bypass-backlog-{}-two", std::process::id()));
    let server = Server::run(&network, (TWO, ready), Some(library::built()), &[]);
    let unanswered = |count: u32| -> usize {
        let mut command = Command::new("python3");
        command.args(["-c", TRY, &count.to_string()]);
        let tried = network.client.run(|| command.output()).expect("python3");
        let text = String::from_utf8_lossy(&tried.stdout);
        text.trim().parse().expect("a number")
    };
    wait_until("the server takes packets", || {
        unanswered(20);
        server.accepts()[0] > 0
    });
    let waiting = unanswered(900);
    assert!(waiting <= PLACES_MAX, "{waiting} of 900 wait");
}
