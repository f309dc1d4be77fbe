//! Programs over interfaces other than a plain veth pair: every byte comes as it was sent, or the interface is refused by
//! name.

mod library;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bypass_stats::View;
use bypass_testkit::links::{Hop, Tap, Upper};
use bypass_testkit::{require_tool, veth, Case, Namespace};

const CASES: &[Case] = &[
    ("a_macvlan_carries_every_byte", || {
        carried(&[Upper::Macvlan])
    }),
    ("a_bridge_carries_every_byte", || carried(&[Upper::Bridge])),
    ("a_macvlan_above_a_bridge_carries_every_byte", || {
        carried(&[Upper::Bridge, Upper::Macvlan])
    }),
    ("what_is_not_known_to_work_is_refused_by_name", refused),
    ("what_a_hop_damages_is_sent_again", damaged),
    ("what_the_kernel_has_merged_is_taken_whole", merged),
    (
        "a_client_whose_answers_leave_elsewhere_is_the_kernels",
        two_uplinks,
    ),
    ("a_stopped_worker_leaves_new_clients_to_the_kernel", stopped),
];

const CLIENT: &str = "10.76.0.1";
const SERVER: &str = "10.76.0.2";
const PORT: u16 = 80;
const PATIENCE: Duration = Duration::from_secs(30);

/// The same on cards, where a pair is named: see `bypass/bench/drivers/guest.py`.
const CARDS: &[Case] = &[("a_pair_of_cards_carries_every_byte", cards)];

fn main() {
    let has_cards = std::env::var_os("BYPASS_TEST_CARDS").is_some();
    bypass_testkit::main(if has_cards { CARDS } else { CASES })
}

/// Sends back what each connection sends, until its standard input ends. Forks `WORKERS` first, if there are any.
const ECHO: &str = "
import os, selectors, socket, sys, threading
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(('0.0.0.0', 80))
listener.listen(64)
def echo(connection):
    with connection:
        while True:
            data = connection.recv(65536)
            if not data:
                return
            connection.sendall(data)
def serve():
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=echo, args=(connection,), daemon=True).start()
threading.Thread(target=serve, daemon=True).start()
print('ready', flush=True)
sys.stdin.read()
";

/// An echo server with the library on an interface; ends with the test.
struct Server(Child);

impl Server {
    fn start(side: &Namespace, interface: &str) -> Self {
        Self::start_with(side, interface, "")
    }

    fn start_with(side: &Namespace, interface: &str, log: &str) -> Self {
        require_tool("python3");
        let mut command = Command::new("python3");
        command
            .args(["-u", "-c", ECHO])
            .env("LD_PRELOAD", library::built())
            .env("EF_INTERFACE_WHITELIST", interface)
            .env("EF_LOG_FILE", log)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = side.run(|| command.spawn()).expect("python starts");
        let mut line = [0; 6];
        let output = child.stdout.as_mut().expect("a pipe");
        output.read_exact(&mut line).expect("it says ready");
        Self(child)
    }

    fn counter(&self, name: &str) -> u64 {
        let view = View::open(self.0.id()).ok().flatten();
        let counters = view.map(|view| view.counters()).unwrap_or_default();
        let found = counters.iter().find(|(known, _)| *known == name);
        found.map_or(0, |(_, value)| *value)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn connect(side: &Namespace, limit: Duration) -> std::io::Result<TcpStream> {
    let at = SocketAddr::new(SERVER.parse::<IpAddr>().expect("an address"), PORT);
    let stream = side.run(|| TcpStream::connect_timeout(&at, limit))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// So many bytes through the echo, which must come back as they were.
fn exchange(side: &Namespace, length: usize) {
    let mut stream = connect(side, PATIENCE).expect("connected");
    let sent: Vec<u8> = (0..length).map(|at| (at * 31 + (at >> 9)) as u8).collect();
    let mut writer = stream.try_clone().expect("a duplicate");
    let mut received = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            writer.write_all(&sent).expect("sent");
            writer.shutdown(Shutdown::Write).expect("open");
        });
        stream.read_to_end(&mut received).expect("all of it");
    });
    assert_eq!(received.len(), length);
    assert!(received == sent, "other bytes came back");
}

/// Connections of several sizes, all of which must be over packets.
fn exchange_over_packets(client: &Namespace, server: &Server) {
    // Until the engine is there, the kernel has the connections.
    let started = Instant::now();
    while server.counter("accepts_packets") == 0 {
        exchange(client, 1);
        assert!(started.elapsed() < PATIENCE, "nothing comes over packets");
    }
    let before = server.counter("accepts_packets");
    for length in [0, 1, 1448, 5000, 300_000, 3_000_000] {
        exchange(client, length);
    }
    assert_eq!(server.counter("accepts_packets"), before + 6);
}

/// The server's interface is made of others, one above the next; the client's end is a veth with all its offloads.
fn carried(above: &[Upper]) {
    let (client, server) = (Namespace::new(), Namespace::new());
    veth((&client, "va"), (&server, "vb"), 1);
    let names = ["vb", "u1", "u2"];
    for (upper, pair) in above.iter().zip(names.windows(2)) {
        upper.make(&server, pair[0], pair[1]);
    }
    let top = names[above.len()];
    client.ip(&format!("addr add {CLIENT}/24 dev va"));
    server.ip(&format!("addr add {SERVER}/24 dev {top}"));
    let running = Server::start(&server, top);
    exchange_over_packets(&client, &running);
}

/// Two cards that are joined outside, as `bypass/bench/drivers/guest.py --card` gives them.
fn cards() {
    let named = std::env::var("BYPASS_TEST_CARDS").unwrap_or_default();
    let mut named = named.split_whitespace();
    let (Some(first), Some(second)) = (named.next(), named.next()) else {
        panic!("BYPASS_TEST_CARDS names no pair of cards");
    };
    let (client, server) = (Namespace::new(), Namespace::new());
    for (side, name, address) in [(&client, first, CLIENT), (&server, second, SERVER)] {
        let moved = Command::new("ip")
            .args(["link", "set", name, "netns", &side.thread().to_string()])
            .status();
        assert!(
            moved.is_ok_and(|status| status.success()),
            "{name} cannot be moved"
        );
        side.ip(&format!("addr add {address}/24 dev {name}"));
        side.ip(&format!("link set {name} up"));
        // What a kernel before 6.6 needs of a card whose driver runs no programs.
        side.may("ethtool", &format!("-K {name} gro off lro off"));
    }
    let running = Server::start(&server, second);
    exchange_over_packets(&client, &running);
}

/// The kernel serves, and a line says why.
fn refused() {
    let (client, server) = (Namespace::new(), Namespace::new());
    veth((&client, "va"), (&server, "vb"), 1);
    Upper::Bridge.make(&server, "vb", "upper");
    client.ip(&format!("addr add {CLIENT}/24 dev va"));
    server.ip(&format!("addr add {SERVER}/24 dev upper"));
    server.ip("tuntap add tu mode tun");
    server.ip("link set tu up");
    for (interface, reason) in [
        ("vb", "belongs to bridge upper"),
        ("tu", "no Ethernet header"),
        ("nowhere", "no such interface"),
    ] {
        let log =
            std::env::temp_dir().join(format!("bypass-links-{}-{interface}", std::process::id()));
        let path = log.to_str().expect("UTF-8");
        let running = Server::start_with(&server, interface, path);
        exchange(&client, 100_000);
        assert_eq!(running.counter("accepts_packets"), 0);
        let said = std::fs::read_to_string(&log).expect("readable");
        std::fs::remove_file(&log).ok();
        assert!(
            said.contains(reason) && said.contains("stay on the kernel"),
            "{said}"
        );
    }
}

/// A switch between the two flips a bit of one frame in thirty, behind the sender's checksum.
fn damaged() {
    let (client, server) = (Namespace::new(), Namespace::new());
    let ends = [
        Tap::new(&client, "ta", false),
        Tap::new(&server, "tb", false),
    ];
    Upper::Macvlan.make(&server, "tb", "upper");
    let _hop = Hop::new(ends, |number, frame| {
        if number % 30 == 29 && frame.len() > 200 {
            frame[150] ^= 0x10;
        }
    });
    client.ip(&format!("addr add {CLIENT}/24 dev ta"));
    server.ip(&format!("addr add {SERVER}/24 dev upper"));
    let running = Server::start(&server, "upper");
    exchange_over_packets(&client, &running);
}

/// Software GRO below the interface, which holds frames back until there are some to merge.
fn merged() {
    let (client, server) = (Namespace::new(), Namespace::new());
    let ends = [Tap::new(&client, "ta", true), Tap::new(&server, "tb", true)];
    server.run(|| {
        for (name, value) in [
            ("gro_flush_timeout", "200000"),
            ("napi_defer_hard_irqs", "10"),
        ] {
            let _ = std::fs::write(format!("/sys/class/net/tb/{name}"), value);
        }
    });
    Upper::Macvlan.make(&server, "tb", "upper");
    let _hop = Hop::new(ends, |_, _| {});
    client.ip(&format!("addr add {CLIENT}/24 dev ta"));
    server.ip(&format!("addr add {SERVER}/24 dev upper"));
    let running = Server::start(&server, "upper");
    exchange_over_packets(&client, &running);
}

/// The client is behind the interface, but the way back to it leads by another one: the kernel answers there.
fn two_uplinks() {
    let (client, server) = (Namespace::new(), Namespace::new());
    veth((&client, "va"), (&server, "vb"), 1);
    veth((&client, "vc"), (&server, "vd"), 1);
    client.ip(&format!("addr add {CLIENT}/24 dev va"));
    client.ip("addr add 10.75.0.1/24 dev vc");
    client.ip("addr add 10.74.0.1/32 dev lo");
    client.ip(&format!("route add {SERVER} dev va src 10.74.0.1"));
    server.ip(&format!("addr add {SERVER}/24 dev vb"));
    server.ip("addr add 10.75.0.2/24 dev vd");
    server.ip("route add default via 10.75.0.1");
    for side in [&client, &server] {
        side.run(|| {
            for name in ["all", "va", "vb", "vc", "vd"] {
                let _ = std::fs::write(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"), "0");
            }
        });
    }
    let running = Server::start(&server, "vb");
    for _ in 0..3 {
        exchange(&client, 100_000);
    }
    assert_eq!(
        running.counter("accepts_packets"),
        0,
        "answered over the wrong interface"
    );
    // With a rule of its own, the address answers where it is asked.
    server.ip(&format!("route add default via {CLIENT} dev vb table 7"));
    server.ip(&format!("rule add from {SERVER} lookup 7"));
    let started = Instant::now();
    while running.counter("accepts_packets") == 0 {
        exchange(&client, 1000);
        assert!(started.elapsed() < PATIENCE, "nothing comes over packets");
    }
    exchange(&client, 300_000);
}

/// As under a debugger: its kernel's listener goes on.
fn stopped() {
    let (client, server) = (Namespace::new(), Namespace::new());
    veth((&client, "va"), (&server, "vb"), 1);
    client.ip(&format!("addr add {CLIENT}/24 dev va"));
    server.ip(&format!("addr add {SERVER}/24 dev vb"));
    let running = Server::start(&server, "vb");
    exchange_over_packets(&client, &running);
    let process = running.0.id() as i32;
    bypass_sys::kernel::kill(process, libc::SIGSTOP).expect("ours");
    // The first is taken before anybody can know, and tries again after a second.
    let connected: Vec<_> = (0..8)
        .map(|_| connect(&client, Duration::from_secs(5)).expect("the kernel answers"))
        .collect();
    bypass_sys::kernel::kill(process, libc::SIGCONT).expect("ours");
    for mut stream in connected {
        stream.write_all(b"waited").expect("sent");
        let mut bytes = [0; 6];
        stream
            .read_exact(&mut bytes)
            .expect("served once it goes on");
        assert_eq!(&bytes, b"waited");
    }
    exchange_over_packets(&client, &running);
}
