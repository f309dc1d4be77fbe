//! The tables against the kernel's own, in network namespaces that the tests create.

use std::net::{IpAddr, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::time::{Duration, Instant};

use bypass_netlink::xfrm::{self, Policies};
use bypass_netlink::{filter, neighbour, route, Fate, RouteKind, Tables};
use bypass_sys::kernel;
use bypass_testkit::{require_tool, veth, Case, Namespace};

const CASES: &[Case] = &[
    ("links_addresses_and_routes_are_the_kernels", links),
    ("the_next_hop_is_what_ip_route_get_says", next_hop),
    (
        "policy_rules_decide_as_ip_route_get_says_and_are_followed",
        policy,
    ),
    ("chains_that_look_at_what_comes_in_are_named", filters),
    (
        "routes_that_only_the_kernel_can_follow_are_its_own",
        kernels_routes,
    ),
    (
        "what_the_kernel_remembers_of_one_host_is_no_route",
        remembered,
    ),
    ("policies_of_ipsec_are_named_and_followed", ipsec),
    ("changes_are_followed", changes),
    (
        "an_interface_that_is_made_anew_is_another_one",
        link_made_anew,
    ),
    (
        "routes_of_a_link_without_a_carrier_are_used_as_ip_route_get_says",
        without_carrier,
    ),
    ("a_neighbour_is_found_when_it_is_asked_for", neighbours),
    (
        "a_process_without_privilege_finds_a_link_local_neighbour",
        unprivileged,
    ),
    ("lost_news_are_read_again", losses),
];

/// Of a process that only resolves: the link and the address.
const RESOLVES: &str = "NETLINK_TEST_RESOLVES";

fn main() {
    if let Ok(asked) = std::env::var(RESOLVES) {
        let (link, address) = asked.split_once(' ').expect("two words");
        let link = link.parse().expect("a number");
        return neighbour::resolve(link, ip(address)).expect("sent");
    }
    bypass_testkit::main(CASES)
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Two namespaces, 10.9.0.1 and 10.9.0.2, fd09::1 and fd09::2.
fn pair() -> (Namespace, Namespace) {
    let (a, b) = (Namespace::new(), Namespace::new());
    veth((&a, "va"), (&b, "vb"), 2);
    for (side, name, host) in [(&a, "va", 1), (&b, "vb", 2)] {
        side.ip(&format!("addr add 10.9.0.{host}/24 dev {name}"));
        side.ip(&format!("addr add fd09::{host}/64 dev {name} nodad"));
    }
    (a, b)
}

/// Follows changes until a condition holds.
fn until(tables: &mut Tables, what: &str, holds: impl Fn(&Tables) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds(tables) {
        assert!(Instant::now() < deadline, "never: {what}\n{tables:?}");
        std::thread::sleep(Duration::from_millis(2));
        tables.update().expect("an update");
    }
}

fn links() {
    let (a, _b) = pair();
    a.ip("link set va mtu 9000");
    a.enter();
    let tables = Tables::new().expect("tables");
    let link = tables.link("va").expect("the link");
    assert_eq!(
        (link.kind.as_str(), link.mtu, link.is_up),
        ("veth", 9000, true)
    );
    assert_eq!((link.rx_queues, link.tx_queues), (2, 2));
    assert_eq!((link.xdp_program, link.is_loopback), (None, false));
    let shown = a.ip("-o link show va");
    let mac = link
        .mac
        .expect("an address")
        .map(|byte| format!("{byte:02x}"))
        .join(":");
    assert!(shown.contains(&mac), "{mac} in {shown}");
    let own = |text| {
        tables
            .addresses()
            .iter()
            .any(|one| one.ip == ip(text) && one.link == link.index)
    };
    assert!(own("10.9.0.1") && own("fd09::1") && !own("10.9.0.2"));
    assert!(tables.link("lo").is_some_and(|lo| lo.is_loopback));
    let local = tables
        .routes()
        .find(|route| route.destination == ip("10.9.0.1"));
    assert_eq!(local.map(|route| route.kind), Some(RouteKind::Local));
}

fn next_hop() {
    let (a, _b) = pair();
    a.ip("route add 10.20.0.0/16 via 10.9.0.2 mtu 1400 advmss 1234 hoplimit 9");
    a.ip("route add 10.20.30.0/24 via 10.9.0.9 metric 50");
    a.ip("route add 10.20.30.0/24 via 10.9.0.8 metric 20");
    a.ip("route add unreachable 10.20.40.0/24");
    a.ip("route add default via 10.9.0.3");
    a.ip("route add fd77::/64 via fd09::2");
    a.enter();
    let tables = Tables::new().expect("tables");
    let set = tables
        .routes()
        .find(|route| route.destination == ip("10.20.0.0"))
        .expect("the first route");
    assert_eq!(
        (set.mtu, set.mss, set.hops),
        (Some(1400), Some(1234), Some(9))
    );
    let cases = [
        ("10.9.0.77", Some(("10.9.0.77", 1500, false))),
        ("10.20.1.1", Some(("10.9.0.2", 1400, false))),
        ("10.20.30.1", Some(("10.9.0.8", 1500, false))),
        ("10.20.40.1", None),
        ("192.0.2.1", Some(("10.9.0.3", 1500, false))),
        ("fd77::5", Some(("fd09::2", 1500, false))),
        ("fd09::1", Some(("fd09::1", 65536, true))),
        ("10.9.0.1", Some(("10.9.0.1", 1500, true))),
        ("2001:db8::1", None),
    ];
    for (to, expected) in cases {
        let found = tables.next_hop(ip(to));
        let asked = route::ask(ip(to), None);
        let Some((through, mtu, is_local)) = expected else {
            assert!(
                found.is_none() && asked.is_err(),
                "{to}: {found:?} {asked:?}"
            );
            continue;
        };
        let found = found.unwrap_or_else(|| panic!("a way to {to}"));
        assert_eq!((found.ip, found.is_local), (ip(through), is_local), "{to}");
        let asked = asked.unwrap_or_else(|error| panic!("{to}: error {error}"));
        assert_eq!(asked.gateway.unwrap_or(ip(to)), ip(through), "{to}");
        if !is_local {
            assert_eq!((found.link, found.mtu), (asked.link, mtu), "{to}");
        }
    }
}

/// Two uplinks; the second has a separate table for packets from its address.
fn policy() {
    let (a, _b) = pair();
    let c = Namespace::new();
    veth((&a, "vc"), (&c, "vd"), 1);
    a.ip("addr add 10.8.0.1/24 dev vc");
    a.ip("route add default via 10.9.0.2");
    a.ip("route add default via 10.8.0.2 dev vc table 7");
    a.ip("rule add from 10.8.0.1 lookup 7");
    a.enter();
    let mut tables = Tables::new().expect("tables");
    let link = |name: &str| tables.link(name).expect("the link").index;
    let (first, second) = (link("va"), link("vc"));
    let leaves_by =
        |tables: &Tables, from: &str, to: &str| match tables.ways_from(ip(from)).to(ip(to)) {
            Some(Fate::Goes(route)) => Some(route.link),
            _ => None,
        };
    for (from, to) in [
        ("10.9.0.1", "8.8.8.8"),
        ("10.8.0.1", "8.8.8.8"),
        ("10.8.0.1", "10.9.0.7"),
        ("10.9.0.1", "10.8.0.7"),
    ] {
        let kernels = route::ask(ip(to), Some(ip(from))).expect("a way").link;
        assert_eq!(
            leaves_by(&tables, from, to),
            Some(kernels),
            "{from} to {to}"
        );
    }
    assert_eq!(leaves_by(&tables, "10.9.0.1", "8.8.8.8"), Some(first));
    assert_eq!(leaves_by(&tables, "10.8.0.1", "8.8.8.8"), Some(second));
    assert_eq!(
        tables.next_hop(ip("8.8.8.8")).map(|hop| hop.link),
        Some(first)
    );
    a.ip("rule add to 8.8.0.0/16 prohibit");
    until(&mut tables, "the rule counts", |tables| {
        tables.next_hop(ip("8.8.8.8")).is_none()
    });
    assert_eq!(leaves_by(&tables, "10.8.0.1", "8.8.8.8"), None);
    a.ip("rule del to 8.8.0.0/16 prohibit");
    until(&mut tables, "the rule is gone", |tables| {
        tables.next_hop(ip("8.8.8.8")).is_some()
    });
}

fn filters() {
    require_tool("nft");
    let side = Namespace::new();
    let chains = || side.run(filter::incoming_chains).expect("nf_tables");
    assert_eq!(chains(), Vec::<String>::new());
    for command in [
        "add table ip own",
        "add chain ip own in { type filter hook input priority 0 ; }",
        "add chain ip own out { type filter hook output priority 0 ; }",
        "add rule ip own out counter drop",
        "add chain ip own other",
        "add rule ip own other counter drop",
    ] {
        side.command("nft", command);
    }
    assert_eq!(
        chains(),
        Vec::<String>::new(),
        "no chain for incoming packets"
    );
    side.command("nft", "add rule ip own in ip saddr 10.0.0.1 drop");
    assert_eq!(chains(), ["own in"]);
    side.command("nft", "add table inet both");
    side.command(
        "nft",
        "add chain inet both in { type filter hook input priority 0 ; policy drop ; }",
    );
    assert_eq!(chains(), ["both in", "own in"]);
}

fn kernels_routes() {
    let (a, _b) = pair();
    a.ip("route add 10.60.0.0/16 via 10.9.0.3");
    a.ip("route add 10.60.0.0/16 via 10.9.0.2 tos 0x10");
    a.ip("route add 10.61.0.0/16 via 10.9.0.2 mtu lock 1400");
    a.ip("-6 route add fd0a::/64 via fd09::2");
    a.enter();
    let mut tables = Tables::new().expect("tables");
    let hop = |tables: &Tables, to: &str| tables.next_hop(ip(to)).map(|hop| hop.ip);
    assert_eq!(hop(&tables, "10.60.0.1"), None, "by type of service");
    assert_eq!(hop(&tables, "10.61.0.1"), None, "fragmented on its way");
    a.ip("route del 10.60.0.0/16 via 10.9.0.2 tos 0x10");
    until(&mut tables, "one for every type of service", |tables| {
        hop(tables, "10.60.0.1") == Some(ip("10.9.0.3"))
    });
    // The same gateway: one of them remains.
    a.ip("route add 10.60.0.0/16 via 10.9.0.3 tos 0x10");
    until(&mut tables, "by type of service again", |tables| {
        hop(tables, "10.60.0.1").is_none()
    });
    a.ip("route del 10.60.0.0/16 via 10.9.0.3 tos 0x10");
    until(&mut tables, "the other remains", |tables| {
        hop(tables, "10.60.0.1") == Some(ip("10.9.0.3"))
    });
    assert_eq!(hop(&tables, "fd0a::1"), Some(ip("fd09::2")));
    if a.may(
        "ip",
        "-6 route replace fd0a::/64 encap seg6 mode encap segs fd09::9 dev va",
    )
    .is_some()
    {
        until(&mut tables, "wrapped up", |tables| {
            hop(tables, "fd0a::1").is_none()
        });
    }
}

/// A router has said that the way to a host carries less. The kernel believes that for ten minutes, and does not
/// report when that is over.
fn remembered() {
    let (a, b) = pair();
    let forwards = b.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1"));
    forwards.expect("set");
    b.ip("route add 10.62.0.0/16 via 10.9.0.9 mtu 1300");
    a.ip("route add 10.62.0.0/16 via 10.9.0.2");
    a.enter();
    let socket = UdpSocket::bind("0.0.0.0:0").expect("bound");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !a.ip("route show cache").contains("10.62.0.1") {
        assert!(Instant::now() < deadline, "it remembers nothing");
        let _ = socket.send_to(&[0; 1400], "10.62.0.1:9");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut tables = Tables::new().expect("tables");
    let hop = |tables: &Tables| {
        let found = tables.next_hop(ip("10.62.0.1")).expect("a way");
        (found.ip, found.mtu)
    };
    assert_eq!(hop(&tables), (ip("10.9.0.2"), 1500));
    // All routes are read again.
    a.ip("route replace 10.63.0.0/16 via 10.9.0.2");
    a.ip("route replace 10.63.0.0/16 via 10.9.0.3");
    until(&mut tables, "a replaced route", |tables| {
        tables.next_hop(ip("10.63.0.1")).map(|hop| hop.ip) == Some(ip("10.9.0.3"))
    });
    assert_eq!(hop(&tables), (ip("10.9.0.2"), 1500));
}

fn ipsec() {
    let side = Namespace::new();
    let found = || side.run(xfrm::policies).expect("IPsec");
    let mut followed = side.run(Policies::new);
    assert_eq!((found(), followed.apply()), (Vec::new(), Some(false)));
    let news = side.run(xfrm::news).expect("IPsec");
    let has_news = || {
        let mut byte = [0; 1];
        kernel::receive(news.0, &mut byte, libc::MSG_PEEK | libc::MSG_DONTWAIT).is_ok()
    };
    assert!(!has_news());
    side.ip("xfrm policy add src 10.9.0.2 dst 10.9.0.1 proto tcp dir in action block");
    assert_eq!(found(), ["in 10.9.0.2/32 to 10.9.0.1/32"]);
    assert!(has_news());
    assert_eq!(side.run(|| followed.apply()), Some(true));
    let encrypted = "tmpl proto esp mode transport level required";
    side.ip(&format!(
        "xfrm policy add src fd09::/64 dst ::/0 dir out {encrypted}"
    ));
    let mut both = found();
    both.sort();
    assert_eq!(
        both,
        ["in 10.9.0.2/32 to 10.9.0.1/32", "out fd09::/64 to ::/0"]
    );
    side.ip("xfrm policy flush");
    assert_eq!(
        (found(), side.run(|| followed.apply())),
        (Vec::new(), Some(false))
    );
    // Nobody has read them.
    assert!(has_news());
    if side
        .may(
            "ip",
            "xfrm policy setdefault in block out accept fwd accept",
        )
        .is_some()
    {
        assert_eq!(found(), ["in all that no policy allows"]);
        assert_eq!(side.run(|| followed.apply()), Some(true));
    }
}

fn changes() {
    let (a, _b) = pair();
    a.enter();
    let mut tables = Tables::new().expect("tables");
    assert!(!tables.update().expect("an update") || tables.generation() > 0);
    a.ip("addr add 10.9.7.1/24 dev va");
    until(&mut tables, "a new address", |t| {
        t.addresses().iter().any(|one| one.ip == ip("10.9.7.1"))
    });
    until(&mut tables, "its network", |t| {
        t.next_hop(ip("10.9.7.9")).is_some()
    });
    a.ip("route add 10.50.0.0/16 via 10.9.0.2");
    until(&mut tables, "a new route", |t| {
        t.next_hop(ip("10.50.1.1")).map(|hop| hop.ip) == Some(ip("10.9.0.2"))
    });
    a.ip("route replace 10.50.0.0/16 via 10.9.0.3");
    until(&mut tables, "a replaced route", |t| {
        t.next_hop(ip("10.50.1.1")).map(|hop| hop.ip) == Some(ip("10.9.0.3"))
    });
    a.ip("route del 10.50.0.0/16");
    until(&mut tables, "a route that went", |t| {
        t.next_hop(ip("10.50.1.1")).is_none()
    });
    a.ip("addr del 10.9.7.1/24 dev va");
    until(&mut tables, "an address that went", |t| {
        t.next_hop(ip("10.9.7.9")).is_none()
            && t.addresses().iter().all(|one| one.ip != ip("10.9.7.1"))
    });
    a.ip("link set va mtu 1300");
    until(&mut tables, "another MTU", |t| {
        t.link("va").is_some_and(|link| link.mtu == 1300)
    });
    a.ip("link set va down");
    until(&mut tables, "a link that is down", |t| {
        t.link("va").is_some_and(|link| !link.is_up) && t.next_hop(ip("10.9.0.9")).is_none()
    });
    a.ip("link del va");
    until(&mut tables, "a link that went", |t| t.link("va").is_none());
    assert!(tables
        .addresses()
        .iter()
        .all(|one| one.ip != ip("10.9.0.1")));
}

/// All of it between two looks, and with the former index.
fn link_made_anew() {
    let a = Namespace::new();
    let make = || a.ip("link add va index 70 type veth peer name vb index 71");
    make();
    a.enter();
    let mut tables = Tables::new().expect("tables");
    let came = tables.link_came(70);
    assert!(came.is_some());
    a.ip("link set va up mtu 1400");
    until(&mut tables, "another MTU", |t| {
        t.link_at(70).is_some_and(|link| link.mtu == 1400)
    });
    assert_eq!(tables.link_came(70), came);
    a.ip("link del va");
    make();
    until(&mut tables, "the first MTU", |t| {
        t.link_at(70).is_some_and(|link| link.mtu == 1500)
    });
    assert!(tables.link_came(70).is_some_and(|now| Some(now) != came));
}

/// The other end of a link goes down. Linux goes on using routes over it where a setting does not say otherwise.
fn without_carrier() {
    const WAYS: [&str; 3] = ["10.70.0.1", "10.71.0.1", "fd70::1"];
    let (a, b) = pair();
    let c = Namespace::new();
    veth((&a, "vc"), (&c, "vd"), 1);
    a.ip("addr add 10.8.0.1/24 dev vc");
    a.ip("addr add fd08::1/64 dev vc nodad");
    a.ip("route add 10.70.0.0/16 via 10.9.0.2 metric 10");
    a.ip("route add 10.70.0.0/16 via 10.8.0.2 metric 20");
    a.ip("route add 10.71.0.0/16 nexthop via 10.9.0.2 nexthop via 10.8.0.2");
    a.ip("route add fd70::/64 via fd09::2 metric 10");
    a.ip("route add fd70::/64 via fd08::2 metric 20");
    a.enter();
    let mut tables = Tables::new().expect("tables");
    let hop = |tables: &Tables, to: &str| tables.next_hop(ip(to)).map(|hop| hop.ip);
    let kernels = |to: &str| route::ask(ip(to), None).expect("a way").gateway;
    let mut set = |to: &str| {
        b.ip(&format!("link set vb {to}"));
        until(&mut tables, to, |t| {
            t.link("va").is_some_and(|va| va.is_running == (to == "up"))
        });
        WAYS.map(|way| (hop(&tables, way), kernels(way)))
    };
    let first = [Some(ip("10.9.0.2")), None, Some(ip("fd09::2"))];
    let second = [
        Some(ip("10.8.0.2")),
        Some(ip("10.8.0.2")),
        Some(ip("fd08::2")),
    ];
    let found = set("down");
    assert_eq!(found.map(|(hop, _)| hop), first);
    assert_eq!((found[0].0, found[2].0), (found[0].1, found[2].1));
    set("up");
    for name in ["ipv4/conf/all", "ipv6/conf/va"] {
        let path = format!("/proc/sys/net/{name}/ignore_routes_with_linkdown");
        std::fs::write(path, "1").expect("set");
    }
    for (hop, kernels) in set("down") {
        assert_eq!(hop, kernels);
    }
    assert_eq!(set("down").map(|(hop, _)| hop), second);
    assert_eq!(set("up").map(|(hop, _)| hop), first);
}

/// The tables once IPv6 works on the link, which the kernel notices up to two seconds after it is up:
/// until then it drops solicitations of the peer, and of three none may be left.
fn ready(name: &str) -> Tables {
    let mut tables = Tables::new().expect("tables");
    until(&mut tables, "a link-local address", |t| {
        t.addresses().iter().any(|one| {
            is_of_link(&one.ip)
                && !one.is_tentative
                && t.link(name).is_some_and(|link| link.index == one.link)
        })
    });
    tables
}

fn neighbours() {
    let (a, b) = pair();
    let peer = b.run(|| ready("vb").link("vb").and_then(|link| link.mac));
    a.enter();
    let mut tables = ready("va");
    let link = tables.link("va").expect("the link").index;
    for host in ["10.9.0.2", "fd09::2"] {
        assert_eq!(tables.mac(link, ip(host)), None);
        neighbour::resolve(link, ip(host)).expect("allowed");
        until(&mut tables, host, |t| t.mac(link, ip(host)) == peer);
    }
    // No host is there: the kernel reports it after three seconds, and nothing until then.
    neighbour::resolve(link, ip("10.9.0.99")).expect("allowed");
    tables.update().expect("an update");
    assert_eq!(tables.mac(link, ip("10.9.0.99")), None);
    a.ip("neigh replace 10.9.0.50 lladdr 02:00:00:00:00:50 dev va nud permanent");
    until(&mut tables, "a permanent one", |t| {
        t.mac(link, ip("10.9.0.50")) == Some([2, 0, 0, 0, 0, 0x50])
    });
    a.ip("neigh del 10.9.0.50 dev va");
    until(&mut tables, "one that went", |t| {
        t.mac(link, ip("10.9.0.50")).is_none()
    });
}

/// Another link, which the kernel would choose, has link-local hosts too.
fn unprivileged() {
    let (a, _b) = pair();
    let c = Namespace::new();
    veth((&a, "vc"), (&c, "vd"), 1);
    let (host, mac) = c.run(|| {
        let tables = ready("vd");
        let mac = tables.link("vd").and_then(|link| link.mac);
        (
            tables.addresses().iter().map(|one| one.ip).find(is_of_link),
            mac,
        )
    });
    let host = host.expect("an address");
    a.enter();
    ready("va");
    let mut tables = ready("vc");
    let link = tables.link("vc").expect("the link").index;
    // The other user may not be allowed into the folder of the build.
    let own = std::env::current_exe().expect("a path");
    let copy = std::env::temp_dir().join(format!("bypass-netlink-{}", std::process::id()));
    std::fs::copy(own, &copy).expect("a copy");
    let mut asking = std::process::Command::new(&copy);
    asking.env(RESOLVES, format!("{link} {host}")).uid(65534);
    let ended = asking.status();
    std::fs::remove_file(&copy).expect("removed");
    assert!(ended.expect("started").success());
    until(&mut tables, "its address", |t| t.mac(link, host) == mac);
}

fn is_of_link(ip: &IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

fn losses() {
    let (a, _b) = pair();
    a.ip("route add 10.250.9.0/24 via 10.9.0.2");
    a.enter();
    let mut tables = Tables::new().expect("tables");
    // More than the socket holds, whatever the host allows it. The notification that the route is
    // gone arrives, the one that it is back is lost.
    let many: String = (0..6_000)
        .map(|at| {
            format!(
                "route add 10.{}.{}.0/24 via 10.9.0.2\n",
                100 + at / 250,
                at % 250
            )
        })
        .collect();
    let (gone, back) = (
        "route del 10.250.9.0/24",
        "route add 10.250.9.0/24 via 10.9.0.2",
    );
    let batch = format!("{gone}\n{many}{back}\n");
    let path = std::env::temp_dir().join(format!("bypass-netlink-{}", std::process::id()));
    std::fs::write(&path, batch).expect("a file");
    let done = a.run(|| {
        std::process::Command::new("ip")
            .arg("-force")
            .arg("-batch")
            .arg(&path)
            .output()
    });
    std::fs::remove_file(&path).ok();
    done.expect("ip runs");
    a.ip("addr add 10.9.8.1/24 dev va");
    until(&mut tables, "the last change", |t| {
        t.addresses().iter().any(|one| one.ip == ip("10.9.8.1"))
    });
    tables.update().expect("an update");
    let is_back = |t: &Tables| t.routes().any(|one| one.destination == ip("10.250.9.0"));
    assert!(is_back(&tables), "older news came after what was read");
    assert!(
        tables.losses() > 0,
        "the news were to be more than the socket holds"
    );
}
