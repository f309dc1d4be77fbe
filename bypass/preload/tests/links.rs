//! Programs over interfaces other than a plain veth pair: every byte comes as it was sent, or the interface is refused by
//! name.

mod between;
mod library;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bypass_stats::View;
use bypass_testkit::links::{Hop, Tap, Upper};
use bypass_testkit::{require_tool, veth, Case, Namespace};
use bypass_xdp::check;

use between::undisturbed;

const CASES: &[Case] = &[
    ("a_macvlan_carries_every_byte", || {
        carried(&[Upper::Macvlan])
    }),
    ("a_bridge_carries_every_byte", || carried(&[Upper::Bridge])),
    ("a_macvlan_above_a_bridge_carries_every_byte", || {
        carried(&[Upper::Bridge, Upper::Macvlan])
    }),
    ("a_tap_interface_carries_every_byte", tap),
    ("what_is_not_known_to_work_is_refused_by_name", refused),
    (
        "each_kind_of_interface_is_carried_right_or_refused_by_name",
        kinds,
    ),
    ("what_a_hop_damages_is_sent_again", damaged),
    ("what_the_kernel_has_merged_is_taken_whole", merged),
    (
        "a_client_whose_answers_leave_elsewhere_is_the_kernels",
        two_uplinks,
    ),
    (
        "a_connection_whose_frames_come_by_the_other_uplink_goes_on",
        || by_the_other_uplink(false),
    ),
    (
        "a_connection_of_an_uplink_made_anew_whose_frames_come_by_the_other_goes_on",
        || by_the_other_uplink(true),
    ),
    (
        "clients_from_networks_that_are_not_named_are_the_kernels",
        accepted_from,
    ),
    ("a_stopped_worker_leaves_new_clients_to_the_kernel", stopped),
    ("an_interface_that_is_made_anew_is_used_again", made_anew),
    (
        "an_interface_of_several_queues_that_is_made_anew_is_used_again",
        queues_made_anew,
    ),
    (
        "an_interface_that_is_made_anew_often_disturbs_no_other_one",
        made_anew_often,
    ),
];

const CLIENT: &str = "10.76.0.1";
const SERVER: &str = "10.76.0.2";
const PORT: u16 = 80;
const PATIENCE: Duration = Duration::from_secs(60);

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
        Self::start_as(side, interface, |_| ())
    }

    fn start_as(side: &Namespace, interface: &str, change: impl FnOnce(&mut Command)) -> Self {
        require_tool("python3");
        let mut command = Command::new("python3");
        command
            .args(["-u", "-c", ECHO])
            .env("LD_PRELOAD", library::built())
            .env("EF_INTERFACE_WHITELIST", interface)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        change(&mut command);
        let mut child = side.run(|| command.spawn()).expect("python starts");
        let mut line = [0; 6];
        let output = child.stdout.as_mut().expect("a pipe");
        output.read_exact(&mut line).expect("it says ready");
        Self(child)
    }

    fn counter(&self, name: &str) -> u64 {
        let counters = self.counters();
        let found = counters.iter().find(|(known, _)| *known == name);
        found.map_or(0, |(_, value)| *value)
    }

    /// How many descriptors it has open, and megabytes of memory.
    fn kept(&self) -> (usize, usize) {
        let folder = format!("/proc/{}", self.0.id());
        let descriptors = std::fs::read_dir(format!("{folder}/fd")).expect("readable");
        let status = std::fs::read_to_string(format!("{folder}/status")).expect("readable");
        let size = status.split("VmRSS:").nth(1).expect("a size");
        let kilobytes = size
            .split_whitespace()
            .next()
            .and_then(|one| one.parse().ok());
        (descriptors.count(), kilobytes.unwrap_or(0_usize) / 1024)
    }

    /// The counters that are not zero.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        let view = View::open(self.0.id()).ok().flatten();
        let mut counters = view.map(|view| view.counters()).unwrap_or_default();
        counters.retain(|(_, value)| *value > 0);
        counters
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
    let at_first = server.counter("accepts_packets");
    while server.counter("accepts_packets") == at_first {
        exchange(client, 1);
        assert!(started.elapsed() < PATIENCE, "nothing comes over packets");
    }
    let (gained, times) = undisturbed(client, || {
        let before = server.counter("accepts_packets");
        let mut times = Vec::new();
        for length in [0, 1, 1448, 5000, 300_000, 3_000_000] {
            let started = Instant::now();
            exchange(client, length);
            times.push((length, started.elapsed(), server.counter("accepts_packets")));
        }
        (server.counter("accepts_packets") - before, times)
    });
    assert_eq!(
        gained,
        6,
        "length, time, connections so far: {times:?}; {:?}",
        server.counters()
    );
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

/// As of a virtual machine's host, or of a tunnel: this process forwards between the two.
fn tap() {
    let (client, server) = (Namespace::new(), Namespace::new());
    let ends = [
        Tap::new(&client, "ta", false),
        Tap::new(&server, "tb", false),
    ];
    let _hop = Hop::new(ends, |_, _| {});
    client.ip(&format!("addr add {CLIENT}/24 dev ta"));
    server.ip(&format!("addr add {SERVER}/24 dev tb"));
    let report = server.run(|| check::interface("tb")).expect("a report");
    assert!(report.is_usable(), "{report}");
    let running = Server::start(&server, "tb");
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
        if let Ok(mtu) = std::env::var("BYPASS_TEST_MTU") {
            side.ip(&format!("link set {name} mtu {mtu}"));
        }
        side.ip(&format!("addr add {address}/24 dev {name}"));
        side.ip(&format!("link set {name} up"));
        // What a kernel before 6.6 needs of a card whose driver runs no programs.
        side.may("ethtool", &format!("-K {name} gro off lro off"));
    }
    let report = server.run(|| check::interface(second)).expect("a report");
    print!("{report}");
    // Of several queues one process has each at once.
    let running = Server::start_as(&server, second, |command| {
        command.env("EF_CLUSTER_IGNORE", "1");
    });
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
        let running = Server::start_as(&server, interface, |command| {
            command.env("EF_LOG_FILE", path);
        });
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

/// A kind of interface over the server's end of the pair, or next to it.
struct Kind {
    /// In the words of `ip -d link`.
    name: &'static str,
    /// Commands of ip that make it; commands that begin with `client` are run there.
    make: &'static [&'static str],
    /// The interfaces with the addresses, here and there.
    ends: [&'static str; 2],
    /// The check's words about the server's: the begin of its first line, or an obstacle and what would help.
    says: Says,
}

enum Says {
    Used(&'static str),
    Missing(&'static str),
    /// Nor does it carry anything to the client.
    Nowhere(&'static str),
}

const KINDS: &[Kind] = &[
    Kind {
        name: "veth",
        make: &[],
        ends: ["va", "vb"],
        says: Says::Used("vb: veth, "),
    },
    Kind {
        name: "macvlan",
        make: &["link add u1 link vb type macvlan mode bridge"],
        ends: ["va", "u1"],
        says: Says::Used("u1: macvlan, generic mode, "),
    },
    Kind {
        name: "bridge",
        make: &["link add u1 type bridge", "link set vb master u1"],
        ends: ["va", "u1"],
        says: Says::Used("u1: bridge, generic mode, "),
    },
    Kind {
        name: "VLAN",
        make: &[
            "link add u1 link vb type vlan id 7",
            "client link add u7 link va type vlan id 7",
        ],
        ends: ["u7", "u1"],
        says: Says::Used("u1: vlan, generic mode, "),
    },
    Kind {
        name: "VLAN that keeps tags",
        make: &[
            "link add u1 link vb type vlan id 7 reorder_hdr off",
            "client link add u7 link va type vlan id 7",
        ],
        ends: ["u7", "u1"],
        says: Says::Missing(
            "its frames keep their VLAN tag, which is not read; ip link set u1 type vlan reorder_hdr on",
        ),
    },
    Kind {
        name: "port of a bridge",
        make: &["link add u1 type bridge", "link set vb master u1"],
        ends: ["va", "vb"],
        says: Says::Nowhere("it belongs to bridge u1, which has the addresses; name u1 instead"),
    },
    Kind {
        name: "bond",
        make: &[
            "link add u1 type bond mode active-backup miimon 100",
            "link set vb down",
            "link set vb master u1",
        ],
        ends: ["va", "u1"],
        says: Says::Used("u1: bond, generic mode, "),
    },
    Kind {
        name: "bond in another mode",
        make: &[
            "link add u1 type bond mode balance-alb miimon 100",
            "link set vb down",
            "link set vb master u1",
        ],
        ends: ["va", "u1"],
        says: Says::Missing(
            "bonds in mode balance-alb have not been tried; \
             ip link set u1 type bond mode active-backup, while it has no members",
        ),
    },
    Kind {
        name: "member of a bond",
        make: &[
            "link add u1 type bond mode active-backup miimon 100",
            "link set vb down",
            "link set vb master u1",
        ],
        ends: ["va", "vb"],
        says: Says::Nowhere("it belongs to bond u1, which has the addresses; name u1 instead"),
    },
    Kind {
        name: "VRF",
        make: &["link add u1 type vrf table 10", "link set vb master u1"],
        ends: ["va", "u1"],
        says: Says::Nowhere("it carries packets by a routing table of its own, which is not followed"),
    },
    Kind {
        name: "member of a VRF",
        make: &["link add u1 type vrf table 10", "link set vb master u1"],
        ends: ["va", "vb"],
        says: Says::Nowhere("it belongs to vrf u1, whose routing table is not followed; ip link set vb nomaster"),
    },
    Kind {
        name: "ipvlan",
        make: &["link add u1 link vb type ipvlan mode l2"],
        ends: ["va", "u1"],
        says: Says::Used("u1: ipvlan, generic mode, "),
    },
    Kind {
        name: "ipvlan in L3 mode",
        make: &["link add u1 link vb type ipvlan mode l3"],
        ends: ["va", "u1"],
        says: Says::Nowhere(
            "its parent's routes decide where its packets go, which are not followed; \
             ip link add link PARENT name u1 type ipvlan mode l2",
        ),
    },
    Kind {
        name: "macvtap",
        make: &["link add u1 link vb type macvtap mode bridge"],
        ends: ["va", "u1"],
        says: Says::Nowhere("interfaces of the kind macvtap have not been tried; name the interface below it"),
    },
    Kind {
        name: "vxlan",
        make: &[
            "addr add 10.71.0.2/24 dev vb",
            "client addr add 10.71.0.1/24 dev va",
            "link add u1 type vxlan id 5 remote 10.71.0.1 dstport 4789",
            "client link add u5 type vxlan id 5 remote 10.71.0.2 dstport 4789",
        ],
        ends: ["u5", "u1"],
        says: Says::Missing("interfaces of the kind vxlan have not been tried; name the interface below it"),
    },
    Kind {
        name: "wireguard",
        make: &["link add u1 type wireguard"],
        ends: ["va", "u1"],
        says: Says::Nowhere("its packets have no Ethernet header, which is needed; name the interface below it"),
    },
    Kind {
        name: "tun",
        make: &["tuntap add u1 mode tun"],
        ends: ["va", "u1"],
        says: Says::Nowhere("its packets have no Ethernet header, which is needed; name the interface below it"),
    },
    Kind {
        name: "dummy",
        make: &["link add u1 type dummy"],
        ends: ["va", "u1"],
        says: Says::Nowhere("it carries no packets to other hosts"),
    },
    Kind {
        name: "ifb",
        make: &["link add u1 type ifb"],
        ends: ["va", "u1"],
        says: Says::Nowhere("it carries no packets to other hosts"),
    },
    Kind {
        name: "loopback",
        make: &[],
        ends: ["va", "lo"],
        says: Says::Nowhere("the loopback interface carries no packets for others"),
    },
];

impl Kind {
    /// Two hosts with it; None where this kernel has none of the kind.
    fn made(&self) -> Option<(Namespace, Namespace)> {
        let (client, server) = (Namespace::new(), Namespace::new());
        veth((&client, "va"), (&server, "vb"), 1);
        for command in self.make {
            match command.strip_prefix("client ") {
                Some(command) => client.may("ip", command)?,
                None => server.may("ip", command)?,
            };
        }
        for (side, lower, end, address) in [
            (&client, "va", self.ends[0], CLIENT),
            (&server, "vb", self.ends[1], SERVER),
        ] {
            // Else both answer ARP for the address of one of them.
            side.run(|| std::fs::write("/proc/sys/net/ipv4/conf/all/arp_ignore", "1"))
                .expect("a namespace of our own");
            for name in [lower, "u1", end] {
                side.may("ip", &format!("link set {name} up"));
            }
            side.may("ip", &format!("addr add {address}/24 dev {end}"));
        }
        Some((client, server))
    }

    fn look(&self) -> bool {
        let Some((client, server)) = self.made() else {
            return false;
        };
        let end = self.ends[1];
        let report = server.run(|| check::interface(end)).expect("a report");
        let (text, name) = (report.to_string(), self.name);
        match self.says {
            // Before Linux 6.6.
            Says::Used(_) if text.contains("need Linux 6.6") => assert!(!report.is_usable()),
            Says::Used(begin) => {
                assert!(
                    report.is_usable() && text.starts_with(begin),
                    "{name}: {text}"
                );
                let running = Server::start(&server, end);
                exchange_over_packets(&client, &running);
            }
            Says::Missing(reason) | Says::Nowhere(reason) => {
                let line = format!("missing: {reason}");
                assert!(text.contains(&line), "{name}: {text}");
            }
        }
        if let Says::Missing(_) = self.says {
            let running = Server::start(&server, end);
            exchange(&client, 100_000);
            assert_eq!(running.counter("accepts_packets"), 0, "{name}");
        }
        true
    }
}

/// What this kernel does not have is said, and tried under another one: see `bypass/bench/drivers/guest.py`.
fn kinds() {
    let (had, lacking): (Vec<&Kind>, Vec<&Kind>) = KINDS.iter().partition(|kind| kind.look());
    let names = |kinds: &[&Kind]| {
        kinds
            .iter()
            .map(|kind| kind.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    println!("tried: {}", names(&had));
    if !lacking.is_empty() {
        println!("not in this kernel: {}", names(&lacking));
    }
    assert!(had.len() >= 3, "not even the usual ones");
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

/// As routers upstream may decide at any time: the way there changes while a connection is used, the way back does not.
fn by_the_other_uplink(is_made_anew: bool) {
    let (client, server) = (Namespace::new(), Namespace::new());
    let make = |ends: [&str; 2], addresses: [&str; 2]| {
        veth((&client, ends[0]), (&server, ends[1]), 1);
        for (side, at) in [(&client, 0), (&server, 1)] {
            side.ip(&format!("addr add {}/24 dev {}", addresses[at], ends[at]));
            side.run(|| {
                for name in ["all", ends[at]] {
                    let folder = format!("/proc/sys/net/ipv4/conf/{name}");
                    let _ = std::fs::write(format!("{folder}/rp_filter"), "0");
                    let _ = std::fs::write(format!("{folder}/arp_ignore"), "1");
                }
            });
        }
    };
    make(["va", "vb"], [CLIENT, SERVER]);
    make(["vc", "vd"], ["10.75.0.1", "10.75.0.2"]);
    let running = Server::start(&server, "vb vd");
    exchange_over_packets(&client, &running);
    if is_made_anew {
        server.ip("link del vb");
        make(["va", "vb"], [CLIENT, SERVER]);
        exchange_over_packets(&client, &running);
    }
    let shown = server.ip("-o link show vd");
    let station = shown
        .split("link/ether ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let station = station.expect("a link address");
    let mut stream = connect(&client, PATIENCE).expect("connected");
    let mut echo = |length: usize| {
        let sent: Vec<u8> = (0..length).map(|at| (at * 7 + (at >> 10)) as u8).collect();
        let mut writer = stream.try_clone().expect("a duplicate");
        let mut received = vec![0; length];
        std::thread::scope(|scope| {
            scope.spawn(|| writer.write_all(&sent).expect("sent"));
            stream.read_exact(&mut received).expect("it goes on");
        });
        assert!(received == sent, "other bytes came back");
    };
    echo(100_000);
    client.ip(&format!(
        "neigh replace {SERVER} lladdr {station} dev vc nud permanent"
    ));
    client.ip(&format!("route add {SERVER}/32 dev vc src {CLIENT}"));
    echo(300_000);
    client.ip(&format!("route del {SERVER}/32 dev vc"));
    echo(100_000);
}

/// Where the kernel's packet filter is to decide about everybody else.
fn accepted_from() {
    let (client, server) = (Namespace::new(), Namespace::new());
    veth((&client, "va"), (&server, "vb"), 1);
    client.ip("addr add 10.73.0.1/32 dev lo");
    client.ip(&format!("addr add {CLIENT}/24 dev va"));
    server.ip(&format!("addr add {SERVER}/24 dev vb"));
    server.ip(&format!("route add 10.73.0.1 via {CLIENT}"));
    let running = Server::start_as(&server, "vb", |command| {
        command.env("EF_ACCEPT_FROM", "10.72.0.0/16, 10.73.0.1");
    });
    for _ in 0..5 {
        exchange(&client, 100_000);
    }
    assert_eq!(running.counter("accepts_packets"), 0);
    client.ip(&format!("route add {SERVER}/32 dev va src 10.73.0.1"));
    exchange_over_packets(&client, &running);
}

/// As of a container that is started again: connections end, and later ones are over packets again.
fn made_anew() {
    let (client, server) = (Namespace::new(), Namespace::new());
    let make = || {
        veth((&client, "va"), (&server, "vb"), 1);
        client.ip(&format!("addr add {CLIENT}/24 dev va"));
        server.ip(&format!("addr add {SERVER}/24 dev vb"));
    };
    make();
    let log = std::env::temp_dir().join(format!("bypass-links-{}-anew", std::process::id()));
    let running = Server::start_as(&server, "vb", |command| {
        command.env("EF_LOG_FILE", &log);
    });
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    for round in 1..=3 {
        exchange_over_packets(&client, &running);
        server.ip("link del vb");
        wait_until(|| said().matches("]: vb: it is gone").count() == round);
        make();
        wait_until(|| said().matches("]: vb: it is back and used again").count() == round);
    }
    exchange_over_packets(&client, &running);
    std::fs::remove_file(&log).ok();
}

/// Each queue might be another process's, so what was opened stays where it can be given back.
fn queues_made_anew() {
    let (client, server) = (Namespace::new(), Namespace::new());
    let make = || {
        veth((&client, "va"), (&server, "vb"), 3);
        client.ip(&format!("addr add {CLIENT}/24 dev va"));
        server.ip(&format!("addr add {SERVER}/24 dev vb"));
    };
    make();
    let running = Server::start(&server, "vb");
    let mut kept = 0;
    for round in 1..=6 {
        let before = running.counter("accepts_packets");
        wait_until(|| {
            exchange(&client, 1000);
            running.counter("accepts_packets") > before
        });
        if round == 2 {
            kept = running.kept().0;
        }
        server.ip("link del vb");
        make();
    }
    wait_until(|| running.kept().0 <= kept + 40);
}

/// More engines have been there than a sleep watches, and than the process can keep.
fn made_anew_often() {
    const ROUNDS: usize = 12;
    let (client, server) = (Namespace::new(), Namespace::new());
    let make = |ends: [&str; 2], network: &str| {
        veth((&client, ends[0]), (&server, ends[1]), 1);
        client.ip(&format!("addr add {network}.1/24 dev {}", ends[0]));
        server.ip(&format!("addr add {network}.2/24 dev {}", ends[1]));
    };
    make(["va", "vb"], "10.76.0");
    make(["vc", "vd"], "10.75.0");
    let log = std::env::temp_dir().join(format!("bypass-links-{}-often", std::process::id()));
    let running = Server::start_as(&server, "vd vb", |command| {
        command.env("EF_LOG_FILE", &log);
    });
    let said = |what: &str| {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        said.matches(&format!("]: vd: {what}")).count()
    };
    exchange_over_packets(&client, &running);
    let mut stream = connect(&client, PATIENCE).expect("connected");
    let mut echo = |text: &[u8]| {
        stream.write_all(text).expect("sent");
        let mut bytes = vec![0; text.len()];
        stream.read_exact(&mut bytes).expect("an answer");
        assert_eq!(bytes, text);
    };
    echo(b"first");
    let mut others = Vec::new();
    let mut kept = (0, 0);
    for round in 1..=ROUNDS {
        // Of every second one something is in use when it goes.
        if round % 2 == 0 {
            let at = SocketAddr::from(([10, 75, 0, 2], PORT));
            let other = client.run(|| TcpStream::connect_timeout(&at, PATIENCE));
            others.push(other.expect("connected"));
        }
        server.ip("link del vd");
        wait_until(|| said("it is gone") == round);
        make(["vc", "vd"], "10.75.0");
        wait_until(|| said("it is back and used again") == round);
        if round == 2 {
            kept = running.kept();
        }
    }
    for text in [&b"still"[..], b"it", b"wakes"] {
        echo(text);
        std::thread::sleep(Duration::from_millis(300));
    }
    // Each engine has some ten descriptors and 20 MB.
    wait_until(|| {
        let (descriptors, megabytes) = running.kept();
        descriptors <= kept.0 + 20 && megabytes <= kept.1 + 40
    });
    echo(b"and still");
    std::fs::remove_file(&log).ok();
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "it never is");
        std::thread::sleep(Duration::from_millis(20));
    }
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
        .map(|_| connect(&client, PATIENCE).expect("the kernel answers"))
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
