//! AF_XDP over veth pairs in namespaces made here.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bypass_device::{Device, Frame, Offload};
use bypass_netlink::{Link, Prefix, Tables};
use bypass_sys::descriptor::Owned;
use bypass_sys::{address, interrupt, kernel, network, numbers};
use bypass_testkit::contract::{self, Pair, PORT};
use bypass_testkit::{skip, veth, Case, Namespace};
use bypass_xdp::{check, From, Layout, Mode, Opened, Settings, Steering, Transport, Xdp};

const CASES: &[Case] = &[
    ("native_mode_keeps_the_contract", native),
    ("generic_mode_keeps_the_contract", generic),
    ("busy_polling_keeps_the_contract", busy_polling),
    (
        "large_frames_in_several_buffers_keep_the_contract",
        fragments,
    ),
    ("trains_sent_by_af_packet_keep_the_contract", packet_sender),
    ("what_is_not_claimed_is_the_kernels", unclaimed),
    (
        "a_train_of_datagrams_is_cut_by_the_kernel",
        trains_of_datagrams,
    ),
    (
        "what_the_kernel_has_at_a_claimed_port_stays_its_own",
        shared,
    ),
    (
        "what_one_owner_gives_up_stays_what_others_have_claimed",
        owners,
    ),
    (
        "a_datagram_is_for_the_owner_of_its_queue_or_the_kernel",
        datagrams_of_owners,
    ),
    (
        "who_comes_back_to_what_the_kernel_keeps_in_time_wait_is_new",
        time_wait,
    ),
    (
        "what_was_noted_before_a_port_was_the_kernels_counts_no_more",
        noted_before,
    ),
    (
        "who_closes_after_the_kernels_server_is_answered_by_the_kernel",
        fin_wait,
    ),
    ("who_may_not_ask_hears_of_ipsec_policies", ipsec),
    (
        "errors_about_claimed_tcp_come_too_and_about_udp_not",
        errors,
    ),
    ("each_queue_has_its_socket", queues),
    ("a_killed_holder_gives_the_interface_back", killed),
    (
        "a_process_without_privilege_uses_what_it_was_passed",
        passed,
    ),
    (
        "whoever_has_given_up_root_can_hear_and_claim_nothing_of_others",
        misused,
    ),
    (
        "new_connections_that_nobody_looks_at_are_the_kernels",
        unattended,
    ),
    (
        "new_connections_are_taken_where_their_answers_have_a_way",
        ways,
    ),
    (
        "a_socket_receives_as_soon_as_it_is_opened",
        received_when_opened,
    ),
    ("a_successor_finds_what_arrived_meanwhile", succeeded),
    ("another_program_is_refused_and_named", occupied),
    ("the_check_names_what_is_missing", checked),
];

/// Addresses of the two sides; the suite's frames go to the second one, whoever sends.
const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const NOBODY: u32 = 65_534;
/// For what has to happen.
const PATIENCE: Duration = Duration::from_secs(60);
/// For what must not.
const MOMENT: Duration = Duration::from_millis(200);

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("hold") => hold(),
        Some("use-passed") => use_passed(),
        Some("misuse") => misuse(),
        Some("check") => print!("{}", check::interface("va").expect("netlink")),
        _ => bypass_testkit::main(CASES),
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Two namespaces joined by va and vb.
fn namespaces(queues: usize, mtu: u32) -> [Namespace; 2] {
    let sides = [Namespace::new(), Namespace::new()];
    veth((&sides[0], "va"), (&sides[1], "vb"), queues);
    for (side, name, address) in [
        (&sides[0], "va", ADDRESSES[0]),
        (&sides[1], "vb", ADDRESSES[1]),
    ] {
        side.ip(&format!("link set {name} mtu {mtu}"));
        side.ip(&format!("addr add {address}/24 dev {name}"));
    }
    sides
}

/// A steering and a device on queue 0 of the only interface besides lo of a namespace.
fn open(side: &Namespace, name: &str, mode: Mode, settings: Settings) -> (Steering, Xdp) {
    let (steering, mut devices) = open_queues(side, name, mode, settings, 1);
    (steering, devices.remove(0))
}

fn open_queues(
    side: &Namespace,
    name: &str,
    mode: Mode,
    settings: Settings,
    queues: u32,
) -> (Steering, Vec<Xdp>) {
    side.run(|| {
        let link = Tables::new()
            .expect("tables")
            .link(name)
            .expect("the link")
            .clone();
        let takes_fragments = link.mtu > 3000 || settings.takes_gso;
        let steering = match Steering::attach(link.index, link.mtu, mode, takes_fragments) {
            Ok(steering) => steering,
            Err(libc::EPERM) => {
                skip("bpf(2) is not allowed here (needs CAP_BPF and CAP_NET_ADMIN)")
            }
            Err(error) => panic!("attach to {name}: error {error}"),
        };
        steering.add_address(ip(ADDRESSES[1]));
        let devices = (0..queues).map(|queue| {
            let opened = match Opened::open(&link, queue, settings) {
                Ok(opened) => opened,
                Err(libc::EAFNOSUPPORT) => skip("this kernel has no AF_XDP"),
                Err(error) => panic!("open {name}, queue {queue}: error {error}"),
            };
            steering
                .set_socket(queue, opened.socket())
                .expect("room in the map");
            Xdp::new(opened).expect("rings")
        });
        let devices = devices.collect();
        (steering, devices)
    })
}

fn mac(side: &Namespace, name: &str) -> [u8; 6] {
    side.run(|| {
        Tables::new()
            .expect("tables")
            .link(name)
            .and_then(|link| link.mac)
            .expect("an address")
    })
}

fn contract(mode: Mode, mtu: u32, settings: Settings) {
    let sides = namespaces(1, mtu);
    let (steer_a, a) = open(&sides[0], "va", mode, settings);
    let (steer_b, b) = open(&sides[1], "vb", mode, settings);
    for steering in [&steer_a, &steer_b] {
        assert!(steering.claim(Transport::Udp, PORT));
    }
    let macs = [mac(&sides[0], "va"), mac(&sides[1], "vb")];
    let (a, b): (Box<dyn Device>, Box<dyn Device>) = (Box::new(a), Box::new(b));
    contract::run(&mut Pair {
        a,
        b,
        macs,
        tick: Box::new(|| {}),
    });
}

fn native() {
    contract(Mode::Native, 1500, Settings::default());
}

fn generic() {
    contract(Mode::Generic, 1500, Settings::default());
}

fn busy_polling() {
    contract(
        Mode::Native,
        1500,
        Settings {
            busy_poll_us: 20,
            ..Settings::default()
        },
    );
}

fn fragments() {
    contract(Mode::Native, 9000, Settings::default());
}

fn packet_sender() {
    contract(
        Mode::Native,
        1500,
        Settings {
            packet_sender: true,
            ..Settings::default()
        },
    );
}

/// A socket of the kernel's in a namespace.
fn socket(side: &Namespace, address: &str, port: u16) -> UdpSocket {
    let socket = side.run(|| UdpSocket::bind((address, port)).expect("a port"));
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    socket
}

fn hears(socket: &UdpSocket) -> Option<u8> {
    let mut byte = [0];
    socket.recv(&mut byte).ok().map(|_| byte[0])
}

fn hears_nothing(socket: &UdpSocket) -> bool {
    socket.set_read_timeout(Some(MOMENT)).expect("a time");
    let heard = hears(socket);
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    heard.is_none()
}

/// Looks at a device until there is enough of what `look` counts, and then for a moment whether there is more.
fn enough(wanted: usize, mut look: impl FnMut() -> usize) -> usize {
    let (mut found, begun) = (0, Instant::now());
    while found < wanted && begun.elapsed() < PATIENCE {
        found += look();
    }
    let begun = Instant::now();
    loop {
        found += look();
        if begun.elapsed() > MOMENT {
            return found;
        }
    }
}

/// Datagrams for a port that have arrived at a device, when so many are to come.
fn count(device: &mut Xdp, port: u16, wanted: usize) -> usize {
    enough(wanted, || {
        let mut found = 0;
        let mut note = |frame: Frame| {
            found += usize::from(frame.bytes.get(36..38) == Some(&port.to_be_bytes()))
        };
        device.receive(64, &mut note).expect("frames");
        device.flush().expect("a flush");
        found
    })
}

/// Whether it is so at any time, while signals interrupt the system calls of this thread.
fn under_signals(is_so: impl Fn() -> bool) -> bool {
    const ENOUGH: u32 = 5000;
    let has_come = interrupt::asked();
    let [process, thread] = [kernel::getpid(), kernel::gettid()].map(|id| id.expect("a number"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = kernel::tgkill(process as i32, thread as i32, libc::SIGTERM);
            }
        });
        let (mut was, mut signals) = (false, 0);
        let until = Instant::now() + Duration::from_secs(2);
        while signals < ENOUGH && Instant::now() < until {
            was |= is_so();
            signals += u32::from(has_come.swap(false, Ordering::Relaxed));
        }
        is_over.store(true, Ordering::Relaxed);
        was
    })
}

fn ipsec() {
    let sides = namespaces(1, 1500);
    let (kept, _device) = open(&sides[1], "vb", Mode::Generic, Settings::default());
    let all = kept.descriptors();
    let fds = all[..Steering::UNPRIVILEGED].iter();
    let fds = fds.map(|fd| numbers::duplicate(*fd).expect("a duplicate"));
    let steering = Steering::of(Mode::Generic, fds.collect()).expect("tables");
    assert!(!steering.has_policy_news());
    assert!(!under_signals(|| steering.has_policy_news()));
    sides[0].ip("xfrm policy add src 10.77.0.1 dst 10.77.0.2 dir out action block");
    assert!(!steering.has_policy_news(), "another namespace's");
    sides[1].ip("xfrm policy add src 10.77.0.1 dst 10.77.0.2 dir in action block");
    assert!(steering.has_policy_news() && steering.has_policy_news());
}

fn unclaimed() {
    let sides = namespaces(1, 1500);
    let (steering, mut device) = open(&sides[1], "vb", Mode::Native, Settings::default());
    let sender = socket(&sides[0], ADDRESSES[0], 0);
    let kernels = socket(&sides[1], ADDRESSES[1], 5001);
    let ours = socket(&sides[1], ADDRESSES[1], 5000);
    sides[1].ip("addr add 10.77.0.3/24 dev vb");
    let other_address = socket(&sides[1], "10.77.0.3", 5000);
    let send = |port: u16, byte: u8| sender.send_to(&[byte], (ADDRESSES[1], port)).expect("sent");
    send(5000, 1);
    assert_eq!(
        (hears(&ours), count(&mut device, 5000, 0)),
        (Some(1), 0),
        "nothing is claimed"
    );
    // Claims are counted.
    assert!(steering.claim(Transport::Udp, 5000) && !steering.claim(Transport::Udp, 5000));
    steering.release(Transport::Udp, 5000);
    assert!(steering.claim(Transport::Tcp, 5001));
    send(5000, 2);
    send(5001, 3);
    sender.send_to(&[4], ("10.77.0.3", 5000)).expect("sent");
    assert_eq!(hears(&kernels), Some(3), "a claim of TCP is none of UDP");
    assert_eq!(
        hears(&other_address),
        Some(4),
        "another address of the host"
    );
    assert_eq!(
        (count(&mut device, 5000, 1), hears_nothing(&ours)),
        (1, true),
        "claimed"
    );
    // Fragments cannot be distinguished by port: the kernel puts them together.
    sender
        .send_to(&[5; 4000], (ADDRESSES[1], 5000))
        .expect("sent");
    let mut whole = [0; 4000];
    assert_eq!(ours.recv(&mut whole).ok(), Some(4000));
    // Neighbours are still found, so the kernel handles ARP.
    sides[0].ip("neigh flush dev va");
    send(5001, 8);
    assert_eq!(hears(&kernels), Some(8));
    steering.remove_address(ip(ADDRESSES[1]));
    send(5000, 6);
    assert_eq!(hears(&ours), Some(6), "the address was given up");
    assert!(steering.add_address(ip(ADDRESSES[1])));
    steering.release(Transport::Udp, 5000);
    send(5000, 7);
    assert_eq!(
        (hears(&ours), count(&mut device, 5000, 0)),
        (Some(7), 0),
        "the port was given up"
    );
}

/// A GSO segment of datagrams (UDP_SEGMENT), which a sender of this host hands over whole, is cut by the kernel.
fn trains_of_datagrams() {
    for takes_gso in [false, true] {
        let sides = namespaces(1, 1500);
        for (side, name, host) in [(&sides[0], "va", 1), (&sides[1], "vb", 2)] {
            side.ip(&format!("addr add fd77::{host}/64 dev {name} nodad"));
        }
        let settings = Settings {
            takes_gso,
            ..Settings::default()
        };
        let (steering, mut device) = open(&sides[1], "vb", Mode::Generic, settings);
        assert!(steering.add_address(ip("fd77::2")));
        steering.claim(Transport::Udp, 5000);
        let size = 1000_u32.to_ne_bytes();
        for (from, to) in [(ADDRESSES[0], ADDRESSES[1]), ("fd77::1", "fd77::2")] {
            let (sender, ours) = (socket(&sides[0], from, 0), socket(&sides[1], to, 5000));
            sender.send_to(&[1; 1000], (to, 5000)).expect("sent");
            let found = frames(&mut device, 1);
            let is_taken = (found, hears_nothing(&ours));
            assert_eq!(is_taken, (1, true), "one datagram to {to}");
            let fd = sender.as_raw_fd();
            kernel::set_option(fd, libc::SOL_UDP, libc::UDP_SEGMENT, &size).expect("set");
            sender.send_to(&[5; 30_000], (to, 5000)).expect("sent");
            for _ in 0..30 {
                assert_eq!(ours.recv(&mut [0; 2000]).ok(), Some(1000));
            }
        }
    }
}

/// Connections that the kernel has before a claim, and ones that are left to it after; IPv4 and IPv6.
fn shared() {
    let sides = namespaces(1, 1500);
    for (side, name, host) in [(&sides[0], "va", 1), (&sides[1], "vb", 2)] {
        side.ip(&format!("addr add fd77::{host}/64 dev {name} nodad"));
    }
    let (steering, mut device) = open(&sides[1], "vb", Mode::Native, Settings::default());
    assert!(steering.add_address(ip("fd77::2")));
    for address in [ADDRESSES[1], "fd77::2"] {
        let at = (ip(address), 5000).into();
        let listener = sides[1].run(|| TcpListener::bind(at).expect("a listener"));
        let connect = || {
            steering.looked();
            sides[0].run(|| TcpStream::connect_timeout(&at, PATIENCE))
        };
        let mut first = Connection::of(connect().expect("the kernel's"), &listener);
        steering.share(5000, false);
        steering.claim(Transport::Tcp, 5000);
        first.exchange();
        let is_taken = is_taken(&sides[0], at, &steering, &mut device);
        assert!(is_taken, "{address}: a new one is not the kernel's");
        steering.share(5000, true);
        let left = connect().expect("left to the kernel");
        let mut left = Connection::of(left, &listener);
        first.exchange();
        left.exchange();
        assert_eq!(syns(&mut device), 0, "{address}");
        steering.share(5000, false);
        left.exchange();
        steering.own(5000);
        left.client.write_all(b"lost").expect("sent");
        let lost = frames(&mut device, 1);
        assert!(lost > 0, "the kernel handles none any more");
        steering.release(Transport::Tcp, 5000);
    }
}

/// Two owners of queues; what arrives comes by the first one's.
fn owners() {
    let sides = namespaces(1, 1500);
    let (steering, mut device) = open(&sides[1], "vb", Mode::Native, Settings::default());
    let (first, second) = (steering.of_queue(0), steering.of_queue(1));
    let at = (ip(ADDRESSES[1]), 5000).into();
    let listener = sides[1].run(|| TcpListener::bind(at).expect("a listener"));
    let mut is_kernels = || !is_taken(&sides[0], at, &steering, &mut device);
    for owner in [&first, &second] {
        owner.share(5000, false);
        assert!(owner.claim(Transport::Tcp, 5000));
    }
    assert!(!is_kernels());
    second.share(5000, true);
    assert!(!is_kernels(), "the queue is not the one that leaves");
    first.share(5000, true);
    assert!(is_kernels(), "this one is");
    second.own(5000);
    assert!(is_kernels(), "whatever the other one says");
    first.share(5000, false);
    first.drains(5000, true);
    assert!(!is_kernels(), "the other one takes new connections");
    second.drains(5000, true);
    assert!(is_kernels(), "no program does");
    second.drains(5000, false);
    first.own(5000);
    first.release(Transport::Tcp, 5000);
    assert!(!is_kernels(), "the other one claims it still");
    // The second one has ended without a word, and its queue is the first one's now.
    assert!(first.claim(Transport::Tcp, 6000));
    first.add_queue(1, true);
    assert!(is_kernels(), "its claims have ended too");
    // Another process is the first one now.
    let successor = steering.of_queue(0);
    assert!(successor.claim(Transport::Tcp, 5000));
    successor.keep_only(Transport::Tcp, &[5000]);
    assert!(!is_kernels());
    successor.release(Transport::Tcp, 5000);
    assert!(is_kernels());
    drop(listener);
}

/// A datagram is taken where the owner of its queue claims the port, and the kernel's elsewhere.
fn datagrams_of_owners() {
    let sides = namespaces(1, 1500);
    let (steering, mut device) = open(&sides[1], "vb", Mode::Native, Settings::default());
    let (first, second) = (steering.of_queue(0), steering.of_queue(1));
    let kernels = socket(&sides[1], ADDRESSES[1], 5000);
    let sender = socket(&sides[0], ADDRESSES[0], 0);
    let mut is_kernels = || {
        sender.send_to(&[7], (ADDRESSES[1], 5000)).expect("sent");
        let begun = Instant::now();
        loop {
            let (heard, taken) = (!hears_nothing(&kernels), count(&mut device, 5000, 0));
            assert!(taken <= usize::from(!heard), "not both");
            if heard || taken > 0 {
                return heard;
            }
            assert!(begun.elapsed() < PATIENCE, "it is lost");
        }
    };
    assert!(second.claim(Transport::Udp, 5000));
    assert!(is_kernels(), "of another queue");
    assert!(first.claim(Transport::Udp, 5000));
    assert!(!is_kernels());
    first.release(Transport::Udp, 5000);
    assert!(is_kernels());
    // It comes with the queue, and goes with it.
    second.add_queue(0, false);
    assert!(!is_kernels());
    second.remove_queue(0);
    assert!(is_kernels());
    second.add_queue(0, false);
    second.keep_only(Transport::Udp, &[]);
    assert!(is_kernels());
}

/// A client comes from the port of a connection that the kernel's side has closed first a moment ago.
fn time_wait() {
    let sides = namespaces(1, 1500);
    for (side, name, host) in [(&sides[0], "va", 1), (&sides[1], "vb", 2)] {
        side.ip(&format!("addr add fd77::{host}/64 dev {name} nodad"));
    }
    sides[0].run(|| {
        let ports = "/proc/sys/net/ipv4/ip_local_port_range";
        std::fs::write(ports, "40000 40000").expect("a namespace of our own")
    });
    let (steering, mut device) = open(&sides[1], "vb", Mode::Native, Settings::default());
    assert!(steering.add_address(ip("fd77::2")));
    for (address, table) in [(ADDRESSES[1], "tcp"), ("fd77::2", "tcp6")] {
        let at = (ip(address), 5000).into();
        let listener = sides[1].run(|| TcpListener::bind(at).expect("a listener"));
        let connect = || {
            steering.looked();
            sides[0].run(|| TcpStream::connect_timeout(&at, PATIENCE))
        };
        for leaves_new in [false, true] {
            let first = Connection::of(connect().expect("the kernel's"), &listener);
            first.close_by_server();
            let end = Instant::now() + PATIENCE;
            while !sides[1].run(|| keeps(table, TIME_WAIT)) {
                assert!(Instant::now() < end, "{address}");
            }
            await_answered(&sides[0], table);
            steering.share(5000, leaves_new);
            steering.claim(Transport::Tcp, 5000);
            if leaves_new {
                // Also where one of the same ends was not the kernel's before.
                let client = connect().expect("left to the kernel");
                assert_eq!(syns(&mut device), 0, "{address}");
                Connection::of(client, &listener).close_one_after_the_other(&sides[1], table);
                assert_eq!(frames(&mut device, 0), 0, "{address}");
            } else {
                let is_taken = is_taken(&sides[0], at, &steering, &mut device);
                assert!(is_taken, "{address}");
            }
            steering.own(5000);
            steering.release(Transport::Tcp, 5000);
        }
    }
}

/// A connection that took the place of one of the kernel's, and then again one of the kernel's, of the same ends.
fn noted_before() {
    let sides = namespaces(1, 1500);
    sides[0].run(|| {
        let ports = "/proc/sys/net/ipv4/ip_local_port_range";
        std::fs::write(ports, "40000 40000").expect("a namespace of our own")
    });
    let (steering, mut device) = open(&sides[1], "vb", Mode::Native, Settings::default());
    let at = SocketAddr::from((ip(ADDRESSES[1]), 5000));
    let listener = sides[1].run(|| TcpListener::bind(at).expect("a listener"));
    let connect = || {
        steering.looked();
        sides[0].run(|| TcpStream::connect_timeout(&at, PATIENCE))
    };
    Connection::of(connect().expect("the kernel's"), &listener).close_by_server();
    let end = Instant::now() + PATIENCE;
    while !sides[1].run(|| keeps("tcp", TIME_WAIT)) {
        assert!(Instant::now() < end, "no TIME_WAIT");
    }
    await_answered(&sides[0], "tcp");
    steering.share(5000, false);
    steering.claim(Transport::Tcp, 5000);
    let is_taken = is_taken(&sides[0], at, &steering, &mut device);
    assert!(is_taken, "ours, which no program answers");
    steering.own(5000);
    steering.release(Transport::Tcp, 5000);
    let again = Connection::of(connect().expect("the kernel's again"), &listener);
    steering.share(5000, false);
    steering.claim(Transport::Tcp, 5000);
    again.close_one_after_the_other(&sides[1], "tcp");
    assert_eq!(frames(&mut device, 0), 0);
}

/// The client's FIN comes when the kernel keeps little of the connection, but is the first one.
fn fin_wait() {
    let sides = namespaces(1, 1500);
    for (side, name, host) in [(&sides[0], "va", 1), (&sides[1], "vb", 2)] {
        side.ip(&format!("addr add fd77::{host}/64 dev {name} nodad"));
    }
    let (steering, mut device) = open(&sides[1], "vb", Mode::Native, Settings::default());
    assert!(steering.add_address(ip("fd77::2")));
    for (port, (address, table)) in [(5000, (ADDRESSES[1], "tcp")), (5001, ("fd77::2", "tcp6"))] {
        let at = SocketAddr::from((ip(address), port));
        let listener = sides[1].run(|| TcpListener::bind(at).expect("a listener"));
        for leaves_new in [false, true] {
            steering.share(port, true);
            steering.claim(Transport::Tcp, port);
            let client = sides[0].run(|| TcpStream::connect(at).expect("the kernel's"));
            steering.share(port, leaves_new);
            Connection::of(client, &listener).close_one_after_the_other(&sides[1], table);
            assert_eq!(frames(&mut device, 0), 0, "{address}");
        }
    }
}

/// States of /proc/net/tcp.
const FIN_WAIT2: &str = "05";
const TIME_WAIT: &str = "06";
const LAST_ACK: &str = "09";

/// Whether the calling thread's namespace has a connection of the servers' ports in a state.
fn keeps(table: &str, state: &str) -> bool {
    let path = format!("/proc/thread-self/net/{table}");
    let sockets = std::fs::read_to_string(path).expect("proc");
    let mut fields = sockets.lines().map(|line| line.split_whitespace());
    fields.any(|mut fields| {
        let is_own = fields.nth(1).is_some_and(|own| own.contains(":138"));
        is_own && fields.nth(1) == Some(state)
    })
}

/// Until the client's FINs are answered: the port of one that waits for that is taken, and the server is done before.
fn await_answered(client: &Namespace, table: &str) {
    let path = format!("/proc/thread-self/net/{table}");
    let waits = || {
        let sockets = std::fs::read_to_string(&path).expect("proc");
        let mut states = sockets.lines().map(|line| line.split_whitespace().nth(3));
        states.any(|state| state == Some(LAST_ACK))
    };
    let end = Instant::now() + PATIENCE;
    while client.run(waits) {
        assert!(Instant::now() < end, "{table}: no answer to a FIN");
    }
}

/// Both ends of a connection of the kernel's.
struct Connection {
    client: TcpStream,
    server: TcpStream,
}

impl Connection {
    fn of(client: TcpStream, listener: &TcpListener) -> Self {
        let (server, _) = listener.accept().expect("accepted");
        for end in [&client, &server] {
            let limit = Some(PATIENCE);
            end.set_read_timeout(limit).expect("a limit");
        }
        Self { client, server }
    }

    fn close_by_server(mut self) {
        drop(self.server);
        assert_eq!(self.client.read(&mut [0]).expect("the end"), 0);
    }

    /// The client is a moment later, and receives no reset.
    fn close_one_after_the_other(mut self, side: &Namespace, table: &str) {
        let wait = |state| {
            let end = Instant::now() + PATIENCE;
            while !side.run(|| keeps(table, state)) {
                assert!(Instant::now() < end, "{table}: no state {state}");
            }
        };
        drop(self.server);
        assert_eq!(self.client.read(&mut [0]).expect("the end"), 0);
        wait(FIN_WAIT2);
        self.client.shutdown(Shutdown::Write).expect("open");
        let end = Instant::now() + PATIENCE;
        while side.run(|| keeps(table, FIN_WAIT2)) {
            assert!(Instant::now() < end, "{table}: the FIN is not heard");
        }
        wait(TIME_WAIT);
        let error = self.client.take_error().expect("a socket");
        assert!(error.is_none(), "{table}: {error:?}");
    }

    fn exchange(&mut self) {
        let mut bytes = [0; 4];
        self.client.write_all(b"ping").expect("sent");
        self.server.read_exact(&mut bytes).expect("received");
        self.server.write_all(b"pong").expect("sent");
        self.client.read_exact(&mut bytes).expect("received");
        assert_eq!(&bytes, b"pong");
    }
}

/// A client begins a connection: whether its SYN comes to the device, or the kernel answers it. The owner of the queue
/// has looked before.
fn is_taken(side: &Namespace, at: SocketAddr, steering: &Steering, device: &mut Xdp) -> bool {
    steering.looked();
    let family = if at.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let mut to = [0; 28];
    let length = address::to_bytes(at, family, &mut to);
    let client = side.run(|| {
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let client = Owned(kernel::socket(family, kind, 0).expect("a socket") as i32);
        let begun = kernel::connect(client.0, &to[..length]);
        assert_eq!(begun.err(), Some(libc::EINPROGRESS));
        client
    });
    let begun = Instant::now();
    loop {
        let mut polled = [libc::pollfd {
            fd: client.0,
            events: libc::POLLOUT,
            revents: 0,
        }];
        let is_answered = kernel::poll(&mut polled, Some(Duration::from_millis(1)), None) == Ok(1);
        // First that: one that waits here for long goes to the kernel when it is sent again.
        if arrived(device).contains(&true) {
            return true;
        }
        if is_answered {
            return false;
        }
        assert!(begun.elapsed() < PATIENCE, "the SYN is lost");
    }
}

/// SYNs that arrive at a device within a moment.
fn syns(device: &mut Xdp) -> usize {
    enough(0, || {
        let found = arrived(device).into_iter();
        found.filter(|is_syn| *is_syn).count()
    })
}

/// Frames that have arrived at a device, when so many are to come.
fn frames(device: &mut Xdp, wanted: usize) -> usize {
    enough(wanted, || arrived(device).len())
}

/// Of the frames that wait at a device, whether each is a SYN.
fn arrived(device: &mut Xdp) -> Vec<bool> {
    let mut found = Vec::new();
    let mut note = |frame: Frame| {
        let tcp_at = if frame.bytes[12..14] == [8, 0] {
            34
        } else {
            54
        };
        found.push(frame.bytes[tcp_at + 13] & 0x12 == 0x02);
    };
    device.receive(64, &mut note).expect("frames");
    found
}

/// A port-unreachable error from [`ADDRESSES`]`[0]`, or from fd77::1, about a packet of port 6000 there.
fn send_error(side: &Namespace, is_v6: bool, protocol: i32) {
    let unreachable = if is_v6 { [1, 4] } else { [3, 3] };
    send_error_of(side, is_v6, protocol, unreachable);
}

/// The same of another type and code.
fn send_error_of(side: &Namespace, is_v6: bool, protocol: i32, kind: [u8; 2]) {
    let (own, other) = match is_v6 {
        false => (ADDRESSES[1], ADDRESSES[0]),
        true => ("fd77::2", "fd77::1"),
    };
    let (family, icmp) = match is_v6 {
        false => (libc::AF_INET, libc::IPPROTO_ICMP),
        true => (libc::AF_INET6, libc::IPPROTO_ICMPV6),
    };
    let mut error = kind.to_vec();
    error.resize(8, 0);
    match is_v6 {
        false => {
            error.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, protocol as u8, 0, 0]);
            error.extend([10, 77, 0, 2, 10, 77, 0, 1]);
        }
        true => {
            error.extend([0x60, 0, 0, 0, 0, 20, protocol as u8, 64]);
            for ip in [own, other] {
                error.extend(ip.parse::<Ipv6Addr>().expect("an address").octets());
            }
        }
    }
    error.extend(6000_u16.to_be_bytes());
    error.extend(9_u16.to_be_bytes());
    error.resize(error.len() + 16, 0);
    if !is_v6 {
        let sum: u32 = error
            .chunks_exact(2)
            .map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])))
            .sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        error[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    let mut to = [0; 28];
    let length = address::to_bytes((ip(own), 0).into(), family, &mut to);
    side.run(|| {
        let raw = Owned(kernel::socket(family, libc::SOCK_RAW, icmp).expect("a socket") as i32);
        kernel::send_to(raw.0, &error, 0, &to[..length]).expect("sent");
    });
}

/// ICMP and ICMPv6 "port unreachable" and "time exceeded" about TCP come to us, about UDP to the kernel, which notifies the
/// socket.
fn errors() {
    let sides = namespaces(1, 1500);
    for (side, name, host) in [(&sides[0], "va", 1), (&sides[1], "vb", 2)] {
        side.ip(&format!("addr add fd77::{host}/64 dev {name} nodad"));
    }
    let (steering, mut device) = open(&sides[1], "vb", Mode::Native, Settings::default());
    assert!(steering.add_address(ip("fd77::2")));
    let own4 = socket(&sides[1], ADDRESSES[1], 6000);
    let own6 = socket(&sides[1], "fd77::2", 6000);
    let sender6 = socket(&sides[0], "fd77::1", 0);
    steering.claim(Transport::Udp, 6000);
    steering.claim(Transport::Tcp, 6000);
    // Nobody listens on port 9 over there.
    for (own, other) in [(&own4, ADDRESSES[0]), (&own6, "fd77::1")] {
        own.connect((other, 9)).expect("connected");
        own.send(b"?").expect("sent");
        let told = own.recv(&mut [0]).expect_err("an error");
        assert_eq!(told.raw_os_error(), Some(libc::ECONNREFUSED));
    }
    for is_v6 in [false, true] {
        send_error(&sides[0], is_v6, libc::IPPROTO_UDP);
        send_error(&sides[0], is_v6, libc::IPPROTO_TCP);
    }
    for kind in [[11, 0], [12, 0]] {
        send_error_of(&sides[0], false, libc::IPPROTO_TCP, kind);
    }
    send_error_of(&sides[0], true, libc::IPPROTO_TCP, [3, 0]);
    sender6.send_to(b"6", ("fd77::2", 6000)).expect("sent");
    let mut kinds = Vec::new();
    let end = Instant::now() + PATIENCE;
    // Version, protocol, and of an error the protocol and the type.
    while kinds.len() < 5 && Instant::now() < end {
        let mut note = |frame: Frame| {
            let byte = |at: usize| *frame.bytes.get(at).unwrap_or(&0);
            kinds.push(match frame.bytes[12..14] {
                [8, 0] => (4, byte(23), byte(51), byte(34)),
                _ if byte(20) == 17 => (6, 17, 0, 0),
                _ => (6, byte(20), byte(68), byte(54)),
            });
        };
        device.receive(64, &mut note).expect("frames");
    }
    kinds.sort_unstable();
    let errors = [(4, 1, 6, 3), (4, 1, 6, 11), (6, 58, 6, 1), (6, 58, 6, 3)];
    assert_eq!(
        kinds,
        [&errors[..2], &[(6, 17, 0, 0)], &errors[2..]].concat()
    );
    // Neighbours are still found, so the kernel handles ICMPv6 other than errors.
    let unclaimed = socket(&sides[1], "fd77::2", 6001);
    sides[0].ip("-6 neigh flush dev va");
    sender6.send_to(&[9], ("fd77::2", 6001)).expect("sent");
    assert_eq!(hears(&unclaimed), Some(9));
}

fn queues() {
    let sides = namespaces(4, 1500);
    for (side, name) in [(&sides[0], "va"), (&sides[1], "vb")] {
        side.command("ethtool", &format!("-L {name} rx 4 tx 4"));
    }
    let (steer_a, mut senders) = open_queues(&sides[0], "va", Mode::Native, Settings::default(), 4);
    let (steer_b, mut receivers) =
        open_queues(&sides[1], "vb", Mode::Native, Settings::default(), 4);
    for steering in [&steer_a, &steer_b] {
        steering.claim(Transport::Udp, 7000);
    }
    let mut seen = [0; 4];
    for (queue, sender) in senders.iter_mut().enumerate() {
        for _ in 0..10 * (queue + 1) {
            let fill = &mut |frame: &mut [u8]| {
                frame.fill(0);
                frame[12..14].copy_from_slice(&[8, 0]);
                frame[14] = 0x45;
                frame[23] = 17;
                frame[26..34].copy_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
                frame[36..38].copy_from_slice(&7000u16.to_be_bytes());
            };
            sender.send(60, Offload::default(), fill).expect("room");
        }
        sender.flush().expect("a flush");
    }
    for (queue, receiver) in receivers.iter_mut().enumerate() {
        seen[queue] = count(receiver, 7000, 10 * (queue + 1));
    }
    // The queue that a frame was sent on is the one that it arrives on, over veth.
    assert_eq!(seen, [10, 20, 30, 40]);
}

/// This program again, inside a namespace. A copy, because another user may not reach the checkout's folder.
fn again(side: &Namespace, word: &str, with: impl FnOnce(&mut Command) + Send) -> Child {
    static COPIES: AtomicU32 = AtomicU32::new(0);
    let number = COPIES.fetch_add(1, Ordering::Relaxed);
    let name = format!("bypass-veth-{}-{number}", std::process::id());
    let copy = std::env::temp_dir().join(name);
    let program = std::env::current_exe().expect("a path");
    std::fs::copy(program, &copy).expect("a copy");
    let child = side.run(|| {
        let mut command = Command::new(&copy);
        command.arg(word).stdout(Stdio::piped());
        with(&mut command);
        command.spawn()
    });
    std::fs::remove_file(&copy).expect("the copy is gone");
    child.expect("a process")
}

/// Queue 0 of an interface, of which the kernel lets go somewhat after a socket of it was closed.
fn open_when_free(link: &Link) -> Opened {
    let begun = Instant::now();
    let mut opened = Opened::open(link, 0, Settings::default());
    while matches!(opened, Err(libc::EBUSY)) && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
        opened = Opened::open(link, 0, Settings::default());
    }
    opened.expect("opened")
}

/// Holds vb with port 5000 claimed until it is killed.
fn hold() {
    let link = Tables::new()
        .expect("tables")
        .link("vb")
        .expect("the link")
        .clone();
    let steering = Steering::attach(link.index, link.mtu, Mode::Native, false).expect("attached");
    steering.add_address(ip(ADDRESSES[1]));
    let opened = open_when_free(&link);
    steering.set_socket(0, opened.socket()).expect("room");
    steering.claim(Transport::Udp, 5000);
    println!("holds");
    std::thread::sleep(10 * PATIENCE);
}

fn killed() {
    let sides = namespaces(1, 1500);
    drop(open(&sides[1], "vb", Mode::Native, Settings::default()));
    await_detached(&sides[1]);
    let sender = socket(&sides[0], ADDRESSES[0], 0);
    let kernels = socket(&sides[1], ADDRESSES[1], 5000);
    for round in 0..5 {
        let mut child = again(&sides[1], "hold", |_| {});
        let mut said = [0; 5];
        child
            .stdout
            .as_mut()
            .expect("a pipe")
            .read_exact(&mut said)
            .expect("it holds");
        assert!(program(&sides[1]).is_some());
        sender.send_to(&[1], (ADDRESSES[1], 5000)).expect("sent");
        assert!(hears_nothing(&kernels), "round {round}: it was taken");
        child.kill().expect("a process of ours");
        child.wait().expect("an end");
        await_detached(&sides[1]);
        sender.send_to(&[2], (ADDRESSES[1], 5000)).expect("sent");
        assert_eq!(
            hears(&kernels),
            Some(2),
            "round {round}: the kernel's again"
        );
    }
}

/// The program on vb.
fn program(side: &Namespace) -> Option<u32> {
    side.run(|| {
        let tables = Tables::new().expect("tables");
        tables.link("vb").expect("the link").xdp_program
    })
}

/// The kernel lets go of vb some time after the last process that held its program has ended.
fn await_detached(side: &Namespace) {
    let ended = Instant::now();
    while program(side).is_some() {
        assert!(ended.elapsed() < PATIENCE, "still attached");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Descriptors of the standard input: the socket that everything comes over.
fn use_passed() {
    let mut bytes = [0; 256];
    let (count, mut fds) = network::receive_descriptors(0, &mut bytes).expect("descriptors");
    let layout = Layout::decode(&bytes[..count]).expect("a layout");
    let refused = kernel::socket(libc::AF_XDP, libc::SOCK_RAW, 0);
    assert_eq!(refused, Err(libc::EPERM), "this process has no privilege");
    let steering = fds.drain(..Steering::UNPRIVILEGED).collect();
    let steering = Steering::of(Mode::Native, steering).expect("tables");
    let mut device = Xdp::new(Opened::of(layout, fds).expect("opened")).expect("rings");
    assert!(
        steering.claim(Transport::Udp, 5000),
        "a claim needs no privilege"
    );
    kernel::write(1, b"ready").expect("a pipe");
    let end = Instant::now() + 2 * PATIENCE;
    let mut answered = 0;
    while answered < 100 && Instant::now() < end {
        let mut polled = [libc::pollfd {
            fd: device.poll_fd().expect("a socket"),
            events: libc::POLLIN,
            revents: 0,
        }];
        let _ = kernel::poll(&mut polled, Some(Duration::from_millis(100)), None);
        let mut answers = Vec::new();
        device
            .receive(64, &mut |frame| answers.push(turned(frame.bytes)))
            .expect("frames");
        for answer in &answers {
            let fill = &mut |place: &mut [u8]| place.copy_from_slice(answer);
            device
                .send(answer.len(), Offload::default(), fill)
                .expect("room");
        }
        answered += answers.len();
        device.flush().expect("a flush");
    }
}

/// The datagram sent back: addresses and ports exchanged, which leaves the checksums right.
fn turned(frame: &[u8]) -> Vec<u8> {
    let mut turned = frame.to_vec();
    for (at, length) in [(0, 6), (26, 4), (34, 2)] {
        let (first, second) = turned[at..at + 2 * length].split_at_mut(length);
        first.swap_with_slice(second);
    }
    // Its sender left the checksum of UDP to be completed: none is as good.
    turned[40..42].fill(0);
    turned
}

/// Passes the descriptors that a process without privilege may have.
fn pass(to: &UnixDatagram, steering: &Steering, opened: &Opened) {
    let steering = &steering.descriptors()[..Steering::UNPRIVILEGED];
    let fds = [steering, &opened.descriptors()].concat();
    let layout = opened.layout().encode();
    network::send_descriptors(to.as_raw_fd(), &layout, &fds).expect("sent");
}

/// As [`NOBODY`], with everything that a worker inherits: each misuse of it, and a word to the one that looks.
fn misuse() {
    let mut bytes = [0; 256];
    let (_, mut fds) = network::receive_descriptors(0, &mut bytes).expect("descriptors");
    let steering = fds.drain(..Steering::UNPRIVILEGED).collect();
    let steering = Steering::of(Mode::Native, steering).expect("tables");
    let packet = fds.pop().expect("a packet socket");
    // The whole traffic of the loopback.
    const ALL: u16 = 0x0003;
    let loopback = Tables::new().expect("tables").link("lo").expect("lo").index;
    let mut name = [0u8; 20];
    name[..2].copy_from_slice(&(libc::AF_PACKET as u16).to_ne_bytes());
    name[2..4].copy_from_slice(&ALL.to_be_bytes());
    name[4..8].copy_from_slice(&loopback.to_ne_bytes());
    kernel::bind(packet.0, &name).expect("not refused by Linux");
    for option in [libc::SO_DETACH_FILTER, libc::SO_LOCK_FILTER] {
        let refused = kernel::set_option_int(packet.0, libc::SOL_SOCKET, option, 0);
        assert_eq!(refused, Err(libc::EPERM), "option {option}");
    }
    let here = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let to = here.local_addr().expect("bound");
    here.send_to(b"secret", to).expect("sent");
    here.recv(&mut [0; 9]).expect("received");
    let heard = kernel::receive(packet.0, &mut [0; 99], libc::MSG_DONTWAIT);
    assert_eq!(heard, Err(libc::EAGAIN), "others' frames");
    // Ports and addresses of others; each claim is a store into memory that is its to write.
    for port in [22, 5001, 5002] {
        steering.claim(Transport::Tcp, port);
        steering.claim(Transport::Udp, port);
    }
    assert!(!steering.add_address(ip("10.77.0.3")) && !steering.permit_address(ip("10.77.0.3")));
    assert!(!steering.permit(Transport::Tcp, 22));
    assert_eq!(steering.set_socket(0, packet.0), Err(libc::EPERM));
    kernel::write(1, b"ready").expect("a pipe");
    kernel::read(0, &mut [0; 9]).ok();
}

/// A worker that has given up root can take its server's ports, unused ports, and nothing else.
fn misused() {
    let sides = namespaces(1, 1500);
    let (here, there) = UnixDatagram::pair().expect("a pair");
    let mut child = again(&sides[1], "misuse", |command| {
        command.uid(NOBODY).gid(NOBODY).stdin(OwnedFd::from(there));
    });
    sides[1].ip("addr add 10.77.0.3/24 dev vb");
    let listen =
        |address: &str, port| sides[1].run(|| TcpListener::bind((address, port)).expect("a port"));
    let settings = Settings {
        packet_sender: true,
        ..Settings::default()
    };
    let others = [listen(ADDRESSES[1], 22), listen(ADDRESSES[1], 5001)];
    let other_address = listen("10.77.0.3", 5002);
    let datagrams = socket(&sides[1], ADDRESSES[1], 5001);
    let (steering, opened) = sides[1].run(|| {
        let tables = Tables::new().expect("tables");
        let link = tables.link("vb").expect("the link");
        let steering = match Steering::attach(link.index, link.mtu, Mode::Native, false) {
            Err(libc::EPERM) => {
                skip("bpf(2) is not allowed here (needs CAP_BPF and CAP_NET_ADMIN)")
            }
            other => other.expect("attached"),
        };
        steering.add_address(ip(ADDRESSES[1]));
        assert!(steering.permit(Transport::Tcp, 80));
        let opened = Opened::open(link, 0, settings).expect("opened");
        steering.set_socket(0, opened.socket()).expect("room");
        pass(&here, &steering, &opened);
        (steering, opened)
    });
    let mut said = [0; 5];
    let output = child.stdout.as_mut().expect("a pipe");
    output.read_exact(&mut said).expect("it is ready");
    let mut device = Xdp::new(opened).expect("rings");
    let connect = |address: &str, port: u16| {
        let at = (ip(address), port).into();
        sides[0].run(|| TcpStream::connect_timeout(&at, PATIENCE))
    };
    for other in &others {
        let port = other.local_addr().expect("bound").port();
        connect(ADDRESSES[1], port).unwrap_or_else(|error| panic!("port {port}: {error}"));
    }
    connect("10.77.0.3", 5002).expect("another address");
    socket(&sides[0], ADDRESSES[0], 0)
        .send_to(&[7], (ADDRESSES[1], 5001))
        .expect("sent");
    assert_eq!(hears(&datagrams), Some(7));
    assert_eq!(frames(&mut device, 0), 0);
    // It may claim a port of the server, and an unused one.
    steering.claim(Transport::Tcp, 80);
    for port in [80, 5002] {
        let at = (ip(ADDRESSES[1]), port).into();
        let is_taken = is_taken(&sides[0], at, &steering, &mut device);
        assert!(is_taken, "port {port}");
    }
    drop(other_address);
    here.send(b"end").expect("sent");
    assert!(child.wait().expect("an end").success());
}

/// No thread looks at the queue of a program that is stopped, or has been killed while another holds its descriptors:
/// the kernel's listener answers instead, from a quarter of a second after the first new connection on.
fn unattended() {
    let sides = namespaces(1, 1500);
    let (steering, mut device) = open(&sides[1], "vb", Mode::Native, Settings::default());
    let at = (ip(ADDRESSES[1]), 5000).into();
    let listener = sides[1].run(|| TcpListener::bind(at).expect("a listener"));
    steering.claim(Transport::Tcp, 5000);
    // Its SYN is taken, and sent again after a second.
    let connect = || sides[0].run(|| TcpStream::connect_timeout(&at, PATIENCE));
    let mut first = Connection::of(connect().expect("the kernel's"), &listener);
    assert_eq!(syns(&mut device), 1);
    let mut second = Connection::of(connect().expect("the kernel's"), &listener);
    assert_eq!(syns(&mut device), 0, "at once");
    assert!(steering.has_left(5000) && steering.is_shared(5000));
    let is_taken = is_taken(&sides[0], at, &steering, &mut device);
    assert!(is_taken, "somebody looks again");
    // The kernel keeps both connections.
    first.exchange();
    second.exchange();
}

/// New connections are taken from where their answers can leave for.
fn ways() {
    let sides = namespaces(1, 1500);
    for (side, name, host) in [(&sides[0], "va", 1), (&sides[1], "vb", 2)] {
        side.ip(&format!("addr add fd77::{host}/64 dev {name} nodad"));
    }
    sides[0].ip("addr add 10.77.0.9/24 dev va");
    let (steering, mut device) = open(&sides[1], "vb", Mode::Native, Settings::default());
    assert!(steering.add_address(ip("fd77::2")));
    let from = |network: &str, len, is_ours| From {
        network: Prefix::new(ip(network), len),
        is_ours,
    };
    let mut is_taken = |to: &str, by: &str| {
        let at = SocketAddr::from((ip(to), 5000));
        let listener = sides[1].run(|| TcpListener::bind(at).expect("a listener"));
        steering.claim(Transport::Tcp, 5000);
        sides[0].ip(&format!("route replace {to} dev va src {by}"));
        let is_taken = is_taken(&sides[0], at, &steering, &mut device);
        steering.forget_left(5000);
        steering.release(Transport::Tcp, 5000);
        drop(listener);
        is_taken
    };
    assert!(is_taken(ADDRESSES[1], ADDRESSES[0]) && is_taken("fd77::2", "fd77::1"));
    let list = vec![from("10.77.0.0", 24, true), from("10.77.0.9", 32, false)];
    steering.set_ways(ip(ADDRESSES[1]), list);
    assert!(is_taken(ADDRESSES[1], ADDRESSES[0]));
    assert!(!is_taken(ADDRESSES[1], "10.77.0.9"));
    assert!(
        is_taken("fd77::2", "fd77::1"),
        "another address's are its own"
    );
    steering.set_ways(
        ip("fd77::2"),
        vec![from("::", 0, true), from("fd77::", 64, false)],
    );
    assert!(!is_taken("fd77::2", "fd77::1"));
    steering.set_ways(ip(ADDRESSES[1]), Vec::new());
    assert!(!is_taken(ADDRESSES[1], ADDRESSES[0]));
    steering.set_ways(ip(ADDRESSES[1]), vec![from("0.0.0.0", 0, true)]);
    assert!(is_taken(ADDRESSES[1], "10.77.0.9"));
}

fn passed() {
    let sides = namespaces(1, 1500);
    let (here, there) = UnixDatagram::pair().expect("a pair");
    let mut child = again(&sides[1], "use-passed", |command| {
        command.uid(NOBODY).gid(NOBODY).stdin(OwnedFd::from(there));
    });
    sides[1].run(|| {
        let link = Tables::new()
            .expect("tables")
            .link("vb")
            .expect("the link")
            .clone();
        let steering = match Steering::attach(link.index, link.mtu, Mode::Native, false) {
            Err(libc::EPERM) => {
                skip("bpf(2) is not allowed here (needs CAP_BPF and CAP_NET_ADMIN)")
            }
            other => other.expect("attached"),
        };
        steering.add_address(ip(ADDRESSES[1]));
        let opened = Opened::open(&link, 0, Settings::default()).expect("opened");
        steering.set_socket(0, opened.socket()).expect("room");
        assert!(steering.permit(Transport::Udp, 5000));
        pass(&here, &steering, &opened);
    });
    let mut said = [0; 5];
    child
        .stdout
        .as_mut()
        .expect("a pipe")
        .read_exact(&mut said)
        .expect("it is ready");
    let client = socket(&sides[0], ADDRESSES[0], 0);
    for number in 0..100 {
        client
            .send_to(&[number], (ADDRESSES[1], 5000))
            .expect("sent");
        assert_eq!(hears(&client), Some(number));
    }
    assert!(child.wait().expect("an end").success());
    // No process holds it any more.
    await_detached(&sides[1]);
}

/// A driver with zero-copy asks for frames to receive into when the socket is bound, and need not ask again.
fn received_when_opened() {
    let sides = namespaces(1, 1500);
    let (steering, opened) = sides[1].run(|| {
        let tables = Tables::new().expect("tables");
        let link = tables.link("vb").expect("the link");
        let steering = match Steering::attach(link.index, link.mtu, Mode::Native, false) {
            Err(libc::EPERM) => {
                skip("bpf(2) is not allowed here (needs CAP_BPF and CAP_NET_ADMIN)")
            }
            other => other.expect("attached"),
        };
        let opened = Opened::open(link, 0, Settings::default()).expect("opened");
        steering.set_socket(0, opened.socket()).expect("room");
        (steering, opened)
    });
    steering.add_address(ip(ADDRESSES[1]));
    steering.claim(Transport::Udp, 5000);
    let client = socket(&sides[0], ADDRESSES[0], 0);
    for number in 0..3 {
        client
            .send_to(&[number], (ADDRESSES[1], 5000))
            .expect("sent");
    }
    let mut device = Xdp::new(opened).expect("rings");
    assert_eq!(count(&mut device, 5000, 3), 3);
}

/// One process after the other uses a socket; its descriptors stay open in a third. Unread frames
/// go to the successor, frames that wait to be sent leave, and no frame's place is lost.
fn succeeded() {
    let sides = namespaces(1, 1500);
    let (steering, kept) = sides[1].run(|| {
        let tables = Tables::new().expect("tables");
        let link = tables.link("vb").expect("the link");
        let steering = match Steering::attach(link.index, link.mtu, Mode::Native, false) {
            Err(libc::EPERM) => {
                skip("bpf(2) is not allowed here (needs CAP_BPF and CAP_NET_ADMIN)")
            }
            other => other.expect("attached"),
        };
        let opened = Opened::open(link, 0, Settings::default()).expect("opened");
        steering.set_socket(0, opened.socket()).expect("room");
        (steering, opened)
    });
    steering.add_address(ip(ADDRESSES[1]));
    for port in [5000, 6000] {
        assert!(steering.claim(Transport::Udp, port));
    }
    let again = || {
        let copy = |fd: &i32| Owned(kernel::dup(*fd).expect("dup") as i32);
        let fds = kept.descriptors().iter().map(copy).collect();
        let mut opened = Opened::of(*kept.layout(), fds).expect("opened");
        let begun = Instant::now();
        // The kernel may have to finish sending first.
        loop {
            match Xdp::over(opened) {
                Err((libc::EBUSY, back)) if begun.elapsed() < PATIENCE => opened = back,
                device => return device.map_err(|(error, _)| error).expect("rings"),
            }
        }
    };
    let client = socket(&sides[0], ADDRESSES[0], 0);
    let mut device = again();
    let free = device.frames_free();
    for round in 0..40u8 {
        for number in 0..100 {
            client
                .send_to(&[number], (ADDRESSES[1], 5000))
                .expect("sent");
        }
        // Half of what came is read and answered, and one answer is not flushed.
        let mut answers = Vec::new();
        while answers.len() < 50 {
            let most = 50 - answers.len();
            device
                .receive(most, &mut |frame| answers.push(turned(frame.bytes)))
                .expect("frames");
        }
        for (number, answer) in answers.iter().enumerate() {
            let fill = &mut |place: &mut [u8]| place.copy_from_slice(answer);
            device
                .send(answer.len(), Offload::default(), fill)
                .expect("room");
            if number < 49 {
                device.flush().expect("a flush");
            }
        }
        drop(device);
        device = again();
        let mut left = 0;
        while left < 50 {
            left += device.receive(64, &mut |_| ()).expect("frames");
        }
        for number in 0..49 {
            assert_eq!(hears(&client), Some(number), "round {round}");
        }
        wait_for_frames(&mut device, free);
    }
    steering.keep_only(Transport::Udp, &[5000]);
    let kernels = socket(&sides[1], ADDRESSES[1], 6000);
    client.send_to(&[7], (ADDRESSES[1], 6000)).expect("sent");
    assert_eq!(hears(&kernels), Some(7), "no longer claimed");
}

/// Until the kernel has given every frame back that was sent.
fn wait_for_frames(device: &mut Xdp, free: usize) {
    let end = Instant::now() + PATIENCE;
    while device.frames_free() != free {
        device.flush().expect("a flush");
        assert!(
            Instant::now() < end,
            "{} of {free} are free",
            device.frames_free()
        );
    }
}

fn occupied() {
    let sides = namespaces(1, 1500);
    let (_held, _device) = open(&sides[0], "va", Mode::Native, Settings::default());
    let (report, second) = sides[0].run(|| {
        let link = Tables::new()
            .expect("tables")
            .link("va")
            .expect("the link")
            .clone();
        let second = Steering::attach(link.index, link.mtu, Mode::Native, false).err();
        (check::interface("va").expect("netlink"), second)
    });
    assert_eq!(second, Some(libc::EBUSY));
    assert!(!report.is_usable());
    let text = report.to_string();
    assert!(
        text.contains("is attached already") && text.contains("ip link set dev va xdp off"),
        "{text}"
    );
}

fn checked() {
    let sides = namespaces(4, 9000);
    let report = |name: &'static str| sides[0].run(|| check::interface(name).expect("netlink"));
    let usable = report("va");
    assert!(usable.is_usable(), "{usable}");
    let (_, traits) = usable.link.as_ref().expect("a link");
    let features = traits.features.expect("said by Linux 6.3");
    assert!(features.native && features.fragments && !features.zero_copy);
    // Its peer on this host need not cut GSO segments for it.
    let modes = |report: &check::Report| -> Vec<Mode> {
        let (_, traits) = report.link.as_ref().expect("a link");
        traits.ways.iter().map(|way| way.mode).collect()
    };
    assert_eq!(modes(&usable), [Mode::Generic, Mode::Native]);
    let text = usable.to_string();
    assert!(
        text.contains("queues 4") && text.contains("no zero-copy"),
        "{text}"
    );
    // Made of others: no driver runs programs, and a member is its bridge's.
    sides[0].ip("link add mv link va type macvlan mode bridge");
    sides[0].ip("link set mv up");
    sides[0].ip("link add bri type bridge");
    sides[0].ip("link set bri up");
    for name in ["mv", "bri"] {
        let report = report(name);
        assert!(report.is_usable(), "{report}");
        assert_eq!(modes(&report), [Mode::Generic], "{name}");
        assert!(report.to_string().contains("no address"), "{report}");
    }
    sides[0].ip("link add vp type veth peer name vq");
    sides[0].ip("link set vp master bri up");
    let member = report("vp").to_string();
    assert!(
        member.contains("belongs to bridge bri") && member.contains("name bri instead"),
        "{member}"
    );
    // Not known to work.
    sides[0].ip("link add vx type vxlan id 5 dstport 4789 remote 10.77.0.2 dev va");
    sides[0].ip("link set vx up");
    let tunnel = report("vx").to_string();
    assert!(
        tunnel.contains("kind vxlan have not been tried"),
        "{tunnel}"
    );
    sides[0].ip("tuntap add tu mode tun");
    let routed = report("tu").to_string();
    assert!(routed.contains("no Ethernet header"), "{routed}");
    let text = report("va").to_string();
    assert!(
        text.contains("answer ARP") && text.contains("arp_ignore=1"),
        "{text}"
    );
    sides[0].ip("xfrm policy add src 10.77.0.2 dst 0.0.0.0/0 proto tcp dir in action block");
    let guarded = report("va");
    let said = "an IPsec policy would not apply to its connections (in 10.77.0.2/32 to 0.0.0.0/0)";
    assert!(!guarded.is_usable(), "{guarded}");
    assert!(guarded.to_string().contains(said), "{guarded}");
    sides[0].ip("xfrm policy flush");
    let no_pmtu_disc = |value: u8| {
        let setting = format!("-q -w net.ipv4.ip_no_pmtu_disc={value}");
        sides[0].command("sysctl", &setting);
    };
    no_pmtu_disc(1);
    let cut = report("va");
    assert!(
        !cut.is_usable() && cut.to_string().contains("ip_no_pmtu_disc=0"),
        "{cut}"
    );
    no_pmtu_disc(0);
    // More than a frame carries comes from there, unless it is cut before.
    sides[1].ip("link set vb gso_max_size 131072");
    assert_eq!(modes(&report("va")), [Mode::Native]);
    sides[1].ip("link set vb gso_max_size 65536");
    assert_eq!(modes(&report("va")), [Mode::Generic, Mode::Native]);
    // What is promised was tried, and another program has the socket.
    let taken = sides[0].run(|| {
        let tables = Tables::new().expect("tables");
        let link = tables.link("mv").expect("the link");
        let _opened = open_when_free(link);
        check::interface("mv").expect("netlink").to_string()
    });
    assert!(taken.contains("has an AF_XDP socket already"), "{taken}");
    assert!(report("nowhere")
        .to_string()
        .contains("there is no such interface"));
    assert!(!report("lo").is_usable());
    sides[0].ip("link set va down");
    assert!(report("va").to_string().contains("ip link set va up"));
    let child = again(&sides[0], "check", |command| {
        command.uid(NOBODY).gid(NOBODY);
    });
    let output = child.wait_with_output().expect("an end");
    let text = String::from_utf8_lossy(&output.stdout);
    for missing in [
        "CAP_NET_ADMIN is missing",
        "CAP_NET_RAW is missing",
        "CAP_BPF is missing",
        "its queues (4) need",
        "ulimit -l",
    ] {
        assert!(text.contains(missing), "{missing} in:\n{text}");
    }
}
