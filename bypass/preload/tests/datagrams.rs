//! UDP sockets over packets, between two namespaces: what is carried and counted, and what is left to the kernel.

mod between;
mod library;

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bypass_testkit::{require_tool, Case};

use between::{counter, serve, wait_until, Network, Served, LIMIT, LIMIT_OF_LOST, PATIENCE};

const CASES: &[Case] = &[
    ("datagrams_are_carried_in_both_families", both_families),
    ("control_data_of_ipv6_is_the_kernels", told),
    ("every_way_of_waiting_hears_of_datagrams", every_wait),
    ("what_comes_by_any_queue_is_received", every_queue),
    ("a_killed_server_leaves_its_port_to_the_kernel", killed),
    ("a_port_that_others_have_too_is_the_kernels", others),
    ("sockets_that_share_a_port_are_the_kernels", shared_port),
    (
        "a_socket_of_the_kernels_is_not_asked_about_again",
        asked_once,
    ),
    ("a_flood_costs_bounded_memory_and_nobody_else", flood),
    ("a_refusal_is_told", refused),
    ("a_warm_datagram_is_not_sent", warm),
    ("a_port_of_the_process_before_is_not_taken", follower),
    ("no_datagram_is_lost_while_others_fork", forks),
    (
        "datagrams_are_carried_again_by_an_interface_that_is_made_anew",
        made_anew,
    ),
    (
        "datagrams_are_carried_again_by_an_interface_of_the_former_index",
        made_again_with_its_index,
    ),
    (
        "threads_that_share_a_socket_take_each_datagram_once",
        threads,
    ),
];

fn main() {
    bypass_testkit::main(CASES)
}

const SERVER: &str = "10.79.0.2:8000";

/// Answers at these addresses what it is sent, until its standard input ends.
const ECHO: &str = "\
import select, socket, sys
def bound(address, family=socket.AF_INET, options=()):
    one = socket.socket(family, socket.SOCK_DGRAM)
    for option in options:
        one.setsockopt(socket.SOL_SOCKET, option, 1)
    one.bind((address, 8000))
    return one
def peek(one):
    one.setblocking(False)
    try:
        one.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        pass
def ready():
    print('ready', flush=True)
def echo(*sockets):
    ready()
    while True:
        found = select.select([0, *sockets], [], [])[0]
        for one in found:
            if one == 0:
                sys.exit()
            bytes, sender = one.recvfrom(65536)
            one.sendto(bytes, sender)
";

fn echo(network: &Network, more: &str) -> Served {
    serve(network, &format!("{ECHO}{more}"))
}

/// A client of the kernel's.
fn client(network: &Network, address: &str) -> UdpSocket {
    let address: SocketAddr = address.parse().expect("an address");
    let any = match address.is_ipv4() {
        true => "0.0.0.0:0",
        false => "[::]:0",
    };
    let socket = network.client.run(|| UdpSocket::bind(any)).expect("bound");
    socket.connect(address).expect("connected");
    socket.set_read_timeout(Some(LIMIT)).expect("set");
    socket
}

fn is_answered(client: &UdpSocket, text: &str) -> bool {
    let mut answer = [0; 2048];
    if client.send(text.as_bytes()).is_err() {
        return false;
    }
    // The answer to an earlier one may come late.
    while let Ok(length) = client.recv(&mut answer) {
        if &answer[..length] == text.as_bytes() {
            return true;
        }
    }
    false
}

/// The same of a datagram that may be lost, after which another is tried.
fn may_be_answered(client: &UdpSocket, text: &str) -> bool {
    let limit = |limit| client.set_read_timeout(Some(limit)).expect("set");
    limit(LIMIT_OF_LOST);
    let is_answered = is_answered(client, text);
    limit(LIMIT);
    is_answered
}

fn count(server: &Served, name: &str) -> u64 {
    counter(server.0.id(), name).unwrap_or(0)
}

fn carried(server: &Served) -> (u64, u64) {
    (
        count(server, "datagrams_in"),
        count(server, "datagrams_out"),
    )
}

/// The last may be counted after it has arrived.
fn all_are_carried(server: &Served, wanted: (u64, u64)) {
    wait_until("as many in and out", || carried(server).1 >= wanted.1);
    assert_eq!(carried(server), wanted, "in and out");
}

/// Asks until a datagram goes over packets both ways; how many have, then.
fn begin(server: &Served, mut is_answered: impl FnMut(&str) -> bool) -> (u64, u64) {
    let mut number = 0;
    wait_until("a datagram over packets", || {
        number += 1;
        let before = settled(server);
        is_answered(&format!("is it {number}?")) && settled(server) == (before.0 + 1, before.1 + 1)
    });
    settled(server)
}

/// Once nothing is on its way any more that has arrived and is not counted yet.
fn settled(server: &Served) -> (u64, u64) {
    loop {
        let now = carried(server);
        std::thread::sleep(Duration::from_millis(50));
        if carried(server) == now {
            return now;
        }
    }
}

/// Every datagram of a client is carried by packets, once the first is.
fn are_carried(network: &Network, server: &Served, address: &str) {
    const DATAGRAMS: u64 = 200;
    let client = client(network, address);
    let before = begin(server, |text| may_be_answered(&client, text));
    for number in 0..DATAGRAMS {
        assert!(is_answered(&client, &format!("datagram {number}")));
    }
    let after = (before.0 + DATAGRAMS, before.1 + DATAGRAMS);
    all_are_carried(server, after);
}

fn both_families() {
    let network = Network::new();
    for (side, name, host) in [(&network.client, "va", 1), (&network.server, "vb", 2)] {
        side.ip(&format!("addr add fd79::{host}/64 dev {name} nodad"));
    }
    let dual = echo(&network, "echo(bound('::', socket.AF_INET6))");
    for address in [SERVER, "[fd79::2]:8000"] {
        are_carried(&network, &dual, address);
    }
    drop(dual);
    let v6 = "one = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n\
              one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)\n\
              one.bind(('fd79::2', 8000))\n";
    let each = echo(&network, &format!("{v6}echo(bound('10.79.0.2'), one)"));
    for address in [SERVER, "[fd79::2]:8000"] {
        are_carried(&network, &each, address);
    }
}

/// The server makes a warm send before each answer, which says what that returned.
fn warm() {
    let network = Network::new();
    let program = "\
one = bound('10.79.0.2')
ready()
while True:
    sender = one.recvfrom(64)[1]
    one.sendto(b'%d' % one.sendto(b'warm', 0x400, sender), sender)
";
    let _server = echo(&network, program);
    let client = client(&network, SERVER);
    for _ in 0..20 {
        let mut answer = [0; 64];
        client.send(b"ask").expect("sent");
        let length = client.recv(&mut answer).expect("an answer");
        assert_eq!(&answer[..length], b"0");
    }
}

/// Two sockets ask for all control data; one shares its port, so that the kernel handles it. Both answer with what
/// they have received.
fn told() {
    let network = Network::new();
    for (side, name, host) in [(&network.client, "va", 1), (&network.server, "vb", 2)] {
        side.ip(&format!("addr add fd79::{host}/64 dev {name} nodad"));
    }
    let program = "\
def reports(port, options):
    one = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    for option in options:
        one.setsockopt(socket.SOL_SOCKET, option, 1)
    for option in (socket.IPV6_RECVPKTINFO, socket.IPV6_RECVHOPLIMIT, socket.IPV6_RECVTCLASS):
        one.setsockopt(socket.IPPROTO_IPV6, option, 1)
    for option in (8, 12, 13):
        one.setsockopt(socket.IPPROTO_IP, option, 1)
    one.bind(('::', port))
    return one
both = [reports(8000, []), reports(8001, [socket.SO_REUSEPORT])]
ready()
while True:
    for one in select.select(both, [], [])[0]:
        bytes, parts, flags, sender = one.recvmsg(64, 512)
        one.sendto(repr((bytes, parts, flags)).encode(), sender)
";
    let server = echo(&network, program);
    for host in ["10.79.0.2", "[fd79::2]"] {
        let [ours, kernels] = [8000, 8001].map(|port| client(&network, &format!("{host}:{port}")));
        let answer = |client: &UdpSocket| {
            let mut bytes = [0; 2048];
            client.send(b"tell").expect("sent");
            let length = client.recv(&mut bytes).expect("an answer");
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        };
        wait_until("a datagram over packets", || {
            let before = carried(&server).0;
            answer(&ours);
            carried(&server).0 > before
        });
        for class in [0, 0x2a] {
            set_class(&ours, class);
            set_class(&kernels, class);
            let before = carried(&server).0;
            assert_eq!(answer(&ours), answer(&kernels), "{host}, {class}");
            assert_eq!(carried(&server).0, before + 1);
        }
    }
}

fn set_class(client: &UdpSocket, class: i32) {
    let (level, name) = match client.local_addr().expect("bound") {
        SocketAddr::V4(_) => (libc::SOL_IP, libc::IP_TOS),
        SocketAddr::V6(_) => (libc::SOL_IPV6, libc::IPV6_TCLASS),
    };
    bypass_sys::kernel::set_option_int(client.as_raw_fd(), level, name, class).expect("set");
}

fn every_wait() {
    const WAITS: &[&str] = &[
        "one = bound('0.0.0.0')\nready()\nwhile True:\n one.sendto(*one.recvfrom(65536))",
        "one = bound('0.0.0.0')\nwaits = select.poll()\nwaits.register(one, select.POLLIN)\nready()\n\
         while True:\n waits.poll()\n one.sendto(*one.recvfrom(65536))",
        "one = bound('0.0.0.0')\nwaits = select.epoll()\nwaits.register(one, select.EPOLLIN)\nready()\n\
         while True:\n waits.poll()\n one.sendto(*one.recvfrom(65536))",
        "one = bound('0.0.0.0')\none.setblocking(False)\nwaits = select.epoll()\n\
         waits.register(one, select.EPOLLIN | select.EPOLLET)\nready()\n\
         while True:\n waits.poll()\n try:\n  while True: one.sendto(*one.recvfrom(65536))\n \
         except BlockingIOError: pass",
    ];
    let network = Network::new();
    for wait in WAITS {
        let server = echo(&network, wait);
        are_carried(&network, &server, SERVER);
    }
}

/// One socket whose process has every queue, and one that is opened again for each client's port.
fn every_queue() {
    let network = Network::of_all_queues(4);
    let server = echo(&network, "echo(bound('0.0.0.0'))");
    let before = begin(&server, |text| {
        may_be_answered(&client(&network, SERVER), text)
    });
    for number in 0..64 {
        let client = client(&network, SERVER);
        assert!(is_answered(&client, "by some queue"), "client {number}");
    }
    all_are_carried(&server, (before.0 + 64, before.1 + 64));
}

fn killed() {
    let network = Network::new();
    let mut server = echo(&network, "echo(bound('0.0.0.0'))");
    are_carried(&network, &server, SERVER);
    let _ = server.0.kill();
    let _ = server.0.wait();
    let next = network.server.run(|| UdpSocket::bind("0.0.0.0:8000"));
    let next = next.expect("the port");
    next.set_read_timeout(Some(Duration::from_millis(100)))
        .expect("set");
    let client = client(&network, SERVER);
    let mut bytes = [0; 64];
    // The kernel of a loaded machine may take the program off a moment later.
    wait_until("the kernel has the port", || {
        client.send(b"to the kernel").is_ok() && next.recv(&mut bytes).is_ok()
    });
    next.set_read_timeout(Some(LIMIT)).expect("set");
    for _ in 0..20 {
        client.send(b"to the kernel").expect("sent");
        assert_eq!(next.recv(&mut bytes).expect("received"), 13);
    }
    drop(server);
}

/// First the other program, then ours, and the other way round: each gets what is for its address.
fn others() {
    let network = Network::new();
    network.server.ip("addr add 10.79.0.3/24 dev vb");
    let bind = || network.server.run(|| UdpSocket::bind("10.79.0.3:8000"));
    let other = bind().expect("the port");
    other.set_read_timeout(Some(PATIENCE)).expect("set");
    let server = echo(&network, "echo(bound('10.79.0.2'))");
    let ours = client(&network, SERVER);
    let theirs = client(&network, "10.79.0.3:8000");
    let mut bytes = [0; 64];
    for _ in 0..20 {
        assert!(is_answered(&ours, "ours"));
        theirs.send(b"theirs").expect("sent");
        assert_eq!(other.recv(&mut bytes).expect("received"), 6);
    }
    assert_eq!(carried(&server).0, 0);
    drop((other, server));
    let server = echo(&network, "echo(bound('10.79.0.2'))");
    are_carried(&network, &server, SERVER);
    let other = bind().expect("the port");
    other
        .set_read_timeout(Some(Duration::from_millis(100)))
        .expect("set");
    // It is looked once a second who has the port, while something comes.
    wait_until("the other program is heard", || {
        assert!(is_answered(&ours, "ours"));
        theirs.send(b"theirs").is_ok() && other.recv(&mut bytes).is_ok()
    });
    other.set_read_timeout(Some(LIMIT)).expect("set");
    for _ in 0..20 {
        theirs.send(b"theirs").expect("sent");
        assert_eq!(other.recv(&mut bytes).expect("received"), 6);
        assert!(is_answered(&ours, "ours"));
    }
}

fn shared_port() {
    let network = Network::new();
    let program = "echo(bound('0.0.0.0', options=[socket.SO_REUSEPORT]))";
    let servers = [echo(&network, program), echo(&network, program)];
    for number in 0..64 {
        let client = client(&network, SERVER);
        assert!(is_answered(&client, "one of them"), "client {number}");
    }
    for server in &servers {
        assert_eq!(carried(server), (0, 0));
    }
}

/// One socket is never read, the next one is.
fn flood() {
    let network = Network::new();
    let program = "never = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                   never.bind(('0.0.0.0', 8001))\n\
                   for _ in range(10): peek(never)\n\
                   echo(bound('0.0.0.0'))";
    let server = echo(&network, program);
    are_carried(&network, &server, SERVER);
    let flood = client(&network, "10.79.0.2:8001");
    let ours = client(&network, SERVER);
    let resident = || {
        let path = format!("/proc/{}/status", server.0.id());
        let status = std::fs::read_to_string(path).expect("its status");
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let words = line.and_then(|line| line.split_whitespace().nth(1));
        words.and_then(|word| word.parse::<u64>().ok())
    };
    let before = resident().expect("a number");
    let start = Instant::now();
    let mut number = 0;
    // A full device on the client's side does not count as a failure: a busy kernel loses some of the flood itself.
    while number < 50_000 || count(&server, "datagrams_lost") <= 10_000 {
        assert!(start.elapsed() < PATIENCE, "too few reach the server");
        // Not more at once than the kernel holds for a processor, which others have too.
        (0..200).for_each(|_| drop(flood.send(&[7; 1400])));
        number += 200;
        // Nor does one of ours that the kernel loses with them.
        let mut tries = (0..10).map(|_| may_be_answered(&ours, &format!("next to {number}")));
        assert!(tries.any(|is_answered| is_answered), "after {number}");
    }
    let grown = resident().expect("a number").saturating_sub(before);
    assert!(grown < 4096, "{grown} KiB more");
}

/// An accelerated connected socket learns that no socket is there, also by a send.
fn refused() {
    let network = Network::new();
    // Else only the first few refusals of a second are reported.
    let unlimited = || std::fs::write("/proc/sys/net/ipv4/icmp_ratelimit", "0");
    network.client.run(unlimited).expect("written");
    let program = "\
import socket, sys, time
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.connect(('10.79.0.1', 9))
one.settimeout(60)
print('ready', flush=True)
def is_refused(work):
    try:
        work()
    except ConnectionRefusedError:
        return True
    return False
sys.stdin.readline()
by_receive = []
for _ in range(20):
    one.send(b'nobody')
    by_receive.append(is_refused(lambda: one.recv(1)))
end = time.time() + 60
by_send = False
while not by_send and time.time() < end:
    by_send = is_refused(lambda: one.send(b'more'))
    time.sleep(0.001)
print(all(by_receive), by_send, flush=True)
sys.stdin.readline()
";
    let mut server = serve(&network, program);
    let input = server.0.stdin.as_mut().expect("a pipe");
    std::io::Write::write_all(input, b"go\n").expect("told");
    let output = server.0.stdout.take().expect("a pipe");
    let mut line = String::new();
    let mut output = std::io::BufReader::new(output);
    std::io::BufRead::read_line(&mut output, &mut line).expect("a line");
    assert_eq!(line, "True True\n");
    assert!(count(&server, "datagrams_out") >= 10);
}

/// A process that follows one that was killed, on an interface that its parent keeps open, does not take what that one
/// had claimed.
fn follower() {
    let network = Network::new();
    let program = format!(
        "import os\n{ECHO}\
         mother = os.getpid()\n\
         listening = socket.create_server(('0.0.0.0', 8010))\n\
         listening.setblocking(False)\n\
         def accept():\n \
         try: listening.accept()\n \
         except BlockingIOError: pass\n\
         first = os.fork()\n\
         if first == 0:\n \
         accept()\n \
         select.select([listening], [], [], 0)\n \
         echo(bound('0.0.0.0'))\n\
         sys.stdin.readline()\n\
         os.kill(first, 9)\n\
         os.waitpid(first, 0)\n\
         second = os.fork()\n\
         if second == 0:\n \
         accept()\n \
         while os.getppid() == mother: select.select([listening], [], [], 0.01)\n \
         os._exit(0)\n\
         sys.stdin.readline()\n\
         os.kill(second, 9)\n"
    );
    let mut server = serve(&network, &program);
    let ours = client(&network, SERVER);
    wait_until("the first child answers over packets", || {
        let first = between::children_of(server.0.id());
        let carried = first.first().and_then(|one| counter(*one, "datagrams_in"));
        may_be_answered(&ours, "x") && carried.unwrap_or(0) > 0
    });
    let input = server.0.stdin.as_mut().expect("a pipe");
    std::io::Write::write_all(input, b"go\n").expect("told");
    let next = || network.server.run(|| UdpSocket::bind("0.0.0.0:8000"));
    wait_until("the port is free", || next().is_ok());
    let next = next().expect("the port");
    next.set_read_timeout(Some(Duration::from_millis(100)))
        .expect("set");
    let mut bytes = [0; 64];
    wait_until("the kernel has the port", || {
        ours.send(b"to the kernel").is_ok() && next.recv(&mut bytes).is_ok()
    });
    next.set_read_timeout(Some(LIMIT)).expect("set");
    for _ in 0..20 {
        let _ = ours.send(b"to the kernel");
        assert!(next.recv(&mut bytes).is_ok());
    }
}

/// The engine of the new interface comes next to that of the old one, of which the socket's datagrams were claimed.
fn made_anew() {
    let network = Network::new();
    let server = echo(&network, "echo(bound('0.0.0.0'))\n");
    for _ in 0..2 {
        are_carried(&network, &server, SERVER);
        network.server.ip("link del vb");
        network.link(1);
    }
    are_carried(&network, &server, SERVER);
}

/// Four threads in blocking receives, and a writer that never waits for them.
fn index_of_link(network: &Network) -> u32 {
    let shown = network.server.ip("-o link show vb");
    let index = shown.split(':').next().and_then(|one| one.parse().ok());
    index.expect("a number")
}

/// Before anybody looks, and so as though it were the former one.
fn made_again_with_its_index() {
    let network = Network::new();
    let server = echo(&network, "echo(bound('0.0.0.0'))\n");
    for _ in 0..2 {
        are_carried(&network, &server, SERVER);
        let index = index_of_link(&network);
        network.server.ip("link del vb");
        network.link_with_index(index);
        assert_eq!(index_of_link(&network), index);
    }
    are_carried(&network, &server, SERVER);
}

fn threads() {
    const DATAGRAMS: usize = 2000;
    let network = Network::new();
    let program = "import threading\n\
                   one = bound('0.0.0.0')\n\
                   def work():\n \
                   while True: one.sendto(*one.recvfrom(65536))\n\
                   for _ in range(4): threading.Thread(target=work, daemon=True).start()\n\
                   ready()\n\
                   sys.stdin.readline()\n";
    let server = echo(&network, program);
    are_carried(&network, &server, SERVER);
    let ours = client(&network, SERVER);
    let mut seen = vec![0u32; DATAGRAMS];
    let mut bytes = [0; 64];
    for batch in 0..DATAGRAMS / 20 {
        for number in batch * 20..(batch + 1) * 20 {
            ours.send(number.to_string().as_bytes()).expect("sent");
        }
        for _ in 0..20 {
            let length = ours.recv(&mut bytes).expect("an answer");
            let text = std::str::from_utf8(&bytes[..length]).expect("text");
            seen[text.parse::<usize>().expect("a number")] += 1;
        }
    }
    assert!(seen.iter().all(|times| *times == 1));
}

/// Three threads ask and are answered, with a new socket every now and then, while a fourth forks children that do so too.
fn forks() {
    let network = Network::new();
    let asker = "\
import os, socket, sys, threading
def fresh():
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.connect(('10.79.0.1', 8000))
    one.settimeout(60)
    return one
def ask(one, number):
    one.send(b'%d' % number)
    if one.recv(64) != b'%d' % number:
        raise ValueError
over, failed = False, []
def work():
    one, number = fresh(), 0
    try:
        while not over:
            ask(one, number)
            number += 1
            if number % 50 == 0:
                one.close()
                one = fresh()
    except Exception as error:
        failed.append(error)
def child():
    try:
        one = fresh()
        for number in range(30):
            ask(one, number)
        os._exit(0)
    finally:
        os._exit(1)
print('ready', flush=True)
threads = [threading.Thread(target=work) for _ in range(3)]
for one in threads:
    one.start()
sys.stdin.readline()
for _ in range(40):
    process = os.fork()
    if process == 0:
        child()
    if os.waitpid(process, 0)[1]:
        failed.append('a child')
over = True
for one in threads:
    one.join()
print(failed, flush=True)
sys.stdin.readline()
";
    let answers = network.client.run(|| UdpSocket::bind("0.0.0.0:8000"));
    let answers = answers.expect("bound");
    let is_over = AtomicBool::new(false);
    answers
        .set_read_timeout(Some(Duration::from_millis(50)))
        .expect("set");
    let line = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut bytes = [0; 64];
            while !is_over.load(Ordering::Relaxed) {
                if let Ok((length, sender)) = answers.recv_from(&mut bytes) {
                    let _ = answers.send_to(&bytes[..length], sender);
                }
            }
        });
        let _over = between::SetAtEnd(&is_over);
        let mut server = serve(&network, asker);
        wait_until("datagrams go over packets", || carried(&server).0 > 0);
        let mut input = server.0.stdin.take().expect("a pipe");
        std::io::Write::write_all(&mut input, b"\n").expect("it reads");
        let mut line = String::new();
        let mut output = std::io::BufReader::new(server.0.stdout.take().expect("a pipe"));
        std::io::BufRead::read_line(&mut output, &mut line).expect("a line");
        line
    });
    assert_eq!(line, "[]\n");
}

/// One that shares its port, so that the kernel handles it: its requests cost no more questions than the first.
fn asked_once() {
    require_tool("strace");
    let network = Network::new();
    let calls = std::env::temp_dir().join(format!("datagrams-{}", std::process::id()));
    let mut command = Command::new("strace");
    command
        .args(["-f", "-e", "trace=getsockname", "-o"])
        .arg(&calls)
        .args(["-E", &format!("LD_PRELOAD={}", library::built().display())])
        .args(["python3", "-u", "-c"])
        .arg(format!(
            "{ECHO}echo(bound('0.0.0.0', options=[socket.SO_REUSEPORT]))"
        ))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut server = network.start("server", command).expect("strace starts");
    let mut line = [0; 6];
    let output = server.stdout.as_mut().expect("a pipe");
    std::io::Read::read_exact(output, &mut line).expect("it says ready");
    let ours = client(&network, SERVER);
    for number in 0..100 {
        assert!(is_answered(&ours, &number.to_string()));
    }
    drop(server.stdin.take());
    server.wait().expect("an end");
    let said = std::fs::read_to_string(&calls).expect("what was called");
    let _ = std::fs::remove_file(&calls);
    let asked = said.matches("getsockname").count();
    assert!((1..20).contains(&asked), "{asked} times");
}
