//! Shards against Linux's own TCP, over veth by AF_XDP and over TAP, in namespaces made here.

mod support;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bypass_device::impaired::{Faults, Impaired};
use bypass_device::pcap::{Capture, Tee};
use bypass_device::{Capabilities, Counters, Device, Error as DeviceError, Frame, Offload};
use bypass_netlink::Tables;
use bypass_shard::tcp::{Config, Error};
use bypass_shard::Shard;
use bypass_sys::{clock, kernel};
use bypass_testkit::{require_tool, Case};
use bypass_xdp::{Mode, Settings};

use support::{content, echo_through, Link, Running, PATIENCE, PORT};

const CASES: &[Case] = &[
    ("linux_talks_to_a_shard_over_veth_native", || {
        talk(&Link::veth(1500, Mode::Native))
    }),
    ("linux_talks_to_a_shard_over_veth_generic", || {
        talk(&Link::veth(1500, Mode::Generic))
    }),
    ("linux_talks_to_a_shard_over_tap", || talk(&Link::tap())),
    ("a_shard_opens_connections_to_linux", opens),
    (
        "connections_leave_from_the_kernels_choice_of_addresses",
        sources,
    ),
    ("large_frames_and_trains_carry_the_same_bytes", large),
    (
        "bytes_arrive_under_loss_duplication_reordering_corruption",
        faults,
    ),
    ("the_kernel_keeps_what_is_not_claimed", beside),
    (
        "a_client_that_the_kernel_served_before_is_served_from_the_same_port",
        followed,
    ),
    (
        "a_client_that_came_back_from_what_the_kernel_keeps_outlives_the_listener",
        followed_and_outlived,
    ),
    (
        "a_client_of_the_kernels_that_closes_last_ends_in_order",
        parted,
    ),
    ("connections_outlive_their_listener", outlived),
    (
        "segments_of_connections_that_are_over_are_reset_where_others_use_the_port",
        given_up,
    ),
    (
        "segments_of_no_connection_are_reset_behind_a_closed_listener",
        unheard,
    ),
    ("hostile_frames_cost_others_nothing", hostile),
    (
        "a_frame_with_a_wrong_checksum_is_dropped_in_every_mode",
        damaged,
    ),
    ("tshark_finds_nothing_wrong", judged),
    (
        "ports_of_connections_that_are_over_are_the_kernels_again",
        returned,
    ),
    (
        "connections_of_link_local_addresses_are_the_kernels_and_others_are_refused",
        link_local,
    ),
    ("addresses_that_come_and_go_are_followed", addresses),
    (
        "clients_behind_a_table_of_a_policy_rule_are_answered_and_rules_obeyed",
        policy,
    ),
    ("ipsec_policies_leave_new_connections_to_the_kernel", ipsec),
    (
        "a_shard_that_sleeps_hears_of_policies_before_it_answers",
        ipsec_asleep,
    ),
    (
        "a_host_of_the_addresss_prefix_is_behind_the_router_that_its_route_names",
        not_on_link,
    ),
    (
        "a_changed_mtu_and_link_address_of_the_interface_are_followed",
        changed,
    ),
    ("a_peer_that_moves_without_a_word_is_found_again", moved),
    (
        "a_neighbour_that_the_kernel_drops_is_used_on",
        dropped_neighbour,
    ),
    ("a_client_that_waited_too_long_has_one_answer", late),
    (
        "a_client_that_waited_too_long_for_a_round_to_go_on_has_one_answer",
        late_in_a_round,
    ),
    (
        "nothing_leaves_from_an_address_that_was_removed",
        removed_address,
    ),
    (
        "segments_of_a_connection_arrive_in_order_behind_a_slow_queue",
        in_order,
    ),
];

fn main() {
    bypass_testkit::main(CASES)
}

/// Twenty clients of Linux's at once, half a megabyte each way.
fn talk(link: &Link) {
    let server = link.echo(|device| device);
    std::thread::scope(|scope| {
        for number in 0..20 {
            let server = &server;
            scope.spawn(move || echo_through(&mut server.connect(), number, 500_000));
        }
    });
    // One connection a request.
    for number in 0..200 {
        echo_through(&mut server.connect(), number, 100);
    }
    server.end();
}

/// Connections from a shard to an echo server of Linux's.
fn opens() {
    let link = Link::veth(1500, Mode::Native);
    let listener = link
        .linux()
        .run(|| TcpListener::bind(link.linux_address()).expect("a port"));
    let remote = listener.local_addr().expect("bound");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..20 {
                let (mut stream, _) = listener.accept().expect("a connection");
                scope.spawn(move || {
                    let mut reader = stream.try_clone().expect("a duplicate");
                    std::io::copy(&mut reader, &mut stream).expect("an echo");
                });
            }
        });
        link.connect_and_check(remote, 20, 300_000);
    });
}

/// Of several addresses the one in the gateway's network is taken, and of IPv6 not that of the link alone.
fn sources() {
    let link = Link::veth(1500, Mode::Native);
    for (side, name, host) in [(link.linux(), "va", 1), (link.own(), "vb", 9)] {
        side.ip(&format!("addr add 10.88.0.{host}/24 dev {name}"));
        side.ip(&format!("addr add fd88::{host}/64 dev {name} nodad"));
    }
    link.linux().ip("addr add 10.99.0.1/32 dev lo");
    link.linux().ip("addr add fd99::1/128 dev lo nodad");
    link.own().ip("route add 10.99.0.0/24 via 10.88.0.1");
    link.own().ip("-6 route add fd99::/64 via fd88::1");
    for (server, client) in [("10.99.0.1", "10.88.0.9"), ("fd99::1", "fd88::9")] {
        let at = SocketAddr::new(server.parse().expect("an address"), 0);
        let listener = link.linux().run(|| TcpListener::bind(at).expect("a port"));
        let remote = listener.local_addr().expect("bound");
        std::thread::scope(|scope| {
            let accepting = scope.spawn(move || {
                let (mut stream, from) = listener.accept().expect("a connection");
                let mut reader = stream.try_clone().expect("a duplicate");
                std::io::copy(&mut reader, &mut stream).expect("an echo");
                from.ip().to_string()
            });
            link.connect_and_check(remote, 1, 1000);
            assert_eq!(accepting.join().expect("a client"), client);
        });
    }
}

fn large() {
    for (mtu, packet_sender) in [(9000, false), (1500, true)] {
        let settings = Settings {
            packet_sender,
            ..Settings::default()
        };
        let link = Link::veth_with(mtu, Mode::Native, settings);
        let server = link.echo(|device| device);
        echo_through(&mut server.connect(), 1, 5_000_000);
        server.end();
    }
}

fn faults() {
    let link = Link::veth(1500, Mode::Native);
    // Complete checksums: what is damaged must be noticed.
    link.linux().command("ethtool", "-K va tx off");
    let faults = Faults {
        loss: 0.02,
        duplication: 0.02,
        reordering: 0.03,
        corruption: 0.01,
    };
    let server = link.echo(|device| Box::new(Impaired::new(device, 1, faults)));
    std::thread::scope(|scope| {
        for number in 0..4 {
            let server = &server;
            scope.spawn(move || echo_through(&mut server.connect(), number, 200_000));
        }
    });
    server.end();
}

/// A server of the kernel's, on the same interface and address.
fn beside() {
    let link = Link::veth(1500, Mode::Native);
    let server = link.echo(|device| device);
    let listener = link
        .own()
        .run(|| TcpListener::bind(link.own_address(PORT + 1)).expect("a port"));
    let mut client = link
        .linux()
        .run(|| TcpStream::connect(link.own_address(PORT + 1)).expect("connected"));
    let (mut kernels, _) = listener.accept().expect("a connection");
    echo_through(&mut server.connect(), 7, 10_000);
    client.write_all(b"for the kernel").expect("sent");
    let mut bytes = [0; 14];
    kernels.read_exact(&mut bytes).expect("received");
    assert_eq!(&bytes, b"for the kernel");
    server.end();
    // The kernel handles the port again.
    let refused = link
        .linux()
        .run(|| TcpStream::connect_timeout(&link.own_address(PORT), PATIENCE));
    assert_eq!(
        refused.err().map(|error| error.kind()),
        Some(std::io::ErrorKind::ConnectionRefused)
    );
}

/// The kernel's server has closed the client's connection first, so its TIME_WAIT is there still, and serves
/// another client meanwhile.
fn followed() {
    let link = Link::veth(1500, Mode::Native);
    let at = link.own_address(PORT);
    let listener = link.own().run(|| TcpListener::bind(at).expect("a port"));
    let connect = || {
        let client = link.linux().run(|| TcpStream::connect(at));
        let (server, _) = listener.accept().expect("a connection");
        (client.expect("connected"), server)
    };
    let (mut other, mut others) = connect();
    link.linux().run(|| {
        let ports = "/proc/sys/net/ipv4/ip_local_port_range";
        std::fs::write(ports, "40000 40000").expect("a namespace of our own")
    });
    let (mut client, served) = connect();
    drop(served);
    assert_eq!(client.read(&mut [0]).expect("the end"), 0);
    drop(client);
    let server = link.echo(|device| device);
    let mut stream = server.connect();
    assert_eq!(stream.local_addr().expect("an address").port(), 40_000);
    echo_through(&mut stream, 1, 10_000);
    other.write_all(b"more").expect("sent");
    let mut bytes = [0; 4];
    others.read_exact(&mut bytes).expect("received");
    assert_eq!(&bytes, b"more", "what the kernel has stays its own");
    server.end();
}

/// The same, but the kernel has nothing else at the port.
fn followed_and_outlived() {
    let link = Link::veth(1500, Mode::Native);
    link.linux().run(|| {
        let ports = "/proc/sys/net/ipv4/ip_local_port_range";
        std::fs::write(ports, "40000 40000").expect("a namespace of our own")
    });
    drop(closed_by_kernel(&link));
    let server = link.echo(|device| device);
    std::thread::sleep(Duration::from_millis(100));
    let mut stream = server.connect();
    echo_through(&mut stream, 1, 10_000);
    server.stop_listening();
    std::thread::sleep(Duration::from_millis(100));
    echo_through(&mut stream, 2, 10_000);
    server.end();
}

/// The kernel's server has closed before the shard listens, the client closes afterwards.
fn parted() {
    let link = Link::veth(1500, Mode::Native);
    let client = closed_by_kernel(&link);
    let server = link.echo(|device| device);
    echo_through(&mut server.connect(), 1, 1000);
    client.shutdown(Shutdown::Write).expect("open");
    let path = "/proc/thread-self/net/tcp";
    Running::until(|| {
        let error = client.take_error().expect("a socket");
        assert!(error.is_none(), "{error:?}");
        let sockets = link.own().run(|| std::fs::read_to_string(path));
        let lines = sockets
            .expect("proc")
            .lines()
            .map(str::to_string)
            .collect::<Vec<_>>();
        let is_over = |line: &String| line.contains(":1B58 ") && line.contains(" 06 ");
        lines.iter().any(is_over).then_some(())
    });
    server.end();
}

/// A client whose connection the kernel's server has closed.
fn closed_by_kernel(link: &Link) -> TcpStream {
    let at = link.own_address(PORT);
    let listener = link.own().run(|| TcpListener::bind(at).expect("a port"));
    let connected = link.linux().run(|| TcpStream::connect(at));
    let mut client = connected.expect("connected");
    drop(listener.accept().expect("a connection"));
    assert_eq!(client.read(&mut [0]).expect("the end"), 0);
    client
}

/// As an old worker of a server that reloads: no listener, and connections to the end.
fn outlived() {
    let link = Link::veth(1500, Mode::Native);
    let server = link.echo(|device| device);
    let mut stream = server.connect();
    echo_through(&mut stream, 1, 1000);
    server.stop_listening();
    std::thread::sleep(Duration::from_millis(100));
    echo_through(&mut stream, 2, 100_000);
    // The kernel, on which no socket listens either, refuses new ones.
    let refused = Running::until(|| {
        let to = link.own_address(PORT);
        let tried = link
            .linux()
            .run(|| TcpStream::connect_timeout(&to, Duration::from_millis(500)));
        tried
            .err()
            .filter(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
    });
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    echo_through(&mut stream, 3, 100_000);
    server.end();
}

/// The peer keeps its end open, for longer than FIN_WAIT_2 lasts, and writes then. The port stays reserved as long as
/// another one of its batch is in use.
fn given_up() {
    let engine = Config {
        fin_wait_us: 100_000,
        ..Config::default()
    };
    let settings = bypass_shard::Settings {
        engine,
        ..Default::default()
    };
    let link = Link::veth(1500, Mode::Native).with(settings);
    let at = link.linux_address();
    let listener = link.linux().run(|| TcpListener::bind(at).expect("a port"));
    let remote = listener.local_addr().expect("bound");
    let accept = move || [(); 2].map(|()| listener.accept().expect("a connection"));
    let accepting = std::thread::spawn(accept);
    link.own().run(|| {
        let mut shard = link.shard(|device| device);
        let [_kept, closed] = [(); 2].map(|()| shard.connect(None, remote).expect("begun"));
        let own = shard.engine().local_addr(closed).expect("an address");
        let drive = |shard: &mut bypass_shard::Shard| {
            shard.drive();
            while shard.next_event().is_some() {}
            shard.finish();
            shard.sleep(Duration::from_millis(1));
        };
        while !accepting.is_finished() {
            drive(&mut shard);
        }
        let mut accepted = accepting.join().expect("accepted").into_iter();
        let (mut peer, _) = accepted.find(|(_, from)| *from == own).expect("ours");
        shard.close(closed).expect("it is open");
        Running::until(|| {
            drive(&mut shard);
            (shard.engine().counts().connections == 1).then_some(())
        });
        peer.set_read_timeout(Some(Duration::from_secs(10)))
            .expect("a time");
        let writing = std::thread::spawn(move || {
            assert_eq!(peer.read(&mut [0]).expect("the end"), 0);
            peer.write_all(b"late").expect("sent");
            Running::until(|| {
                peer.take_error().expect("a socket").or_else(|| {
                    std::thread::sleep(Duration::from_millis(1));
                    let waited = peer.read(&mut [0]).err();
                    waited.filter(|error| error.kind() != std::io::ErrorKind::Interrupted)
                })
            })
        });
        while !writing.is_finished() {
            drive(&mut shard);
        }
        let error = writing.join().expect("no panic");
        let reset = [
            std::io::ErrorKind::ConnectionReset,
            std::io::ErrorKind::BrokenPipe,
        ];
        assert!(reset.contains(&error.kind()), "{error}");
    });
}

/// A handshake whose last segment is under way while the server closes its listener, and not yet all its connections.
fn unheard() {
    let link = Link::veth(1500, Mode::Native);
    let server = link.echo(|device| device);
    let mut steady = server.connect();
    echo_through(&mut steady, 0, 1000);
    server.stop_listening();
    std::thread::sleep(Duration::from_millis(100));
    let mut frame = vec![0; 54];
    link.dress(&mut frame, true);
    frame[6] = 2;
    frame[34..36].copy_from_slice(&1001u16.to_be_bytes());
    frame[46..50].copy_from_slice(&[0x50, 0x10, 0xff, 0xff]);
    frame[50..52].copy_from_slice(&support::pseudo_sum(20));
    let fill = &mut |place: &mut [u8]| place.copy_from_slice(&frame);
    let sent = link
        .packet_sender()
        .send(frame.len(), [&[], &[]], Default::default(), fill);
    sent.expect("sent");
    echo_through(&mut steady, 1, 1000);
    drop(steady);
    assert_eq!(server.end().out_rsts, 1);
}

/// Whole and cut segments of any content to the claimed port, while others are served.
fn hostile() {
    let link = Link::veth(1500, Mode::Native);
    let server = link.echo(|device| device);
    let mut steady = server.connect();
    echo_through(&mut steady, 0, 1000);
    let mut sender = link.packet_sender();
    let mut state = 5u64;
    let mut random = move || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as usize
    };
    for round in 0..5_000 {
        let length = 14 + random() % 200;
        let mut frame: Vec<u8> = (0..length).map(|_| random() as u8).collect();
        link.dress(&mut frame, round % 3 != 0);
        let fill = &mut |place: &mut [u8]| place.copy_from_slice(&frame);
        let _ = sender.send(length, [&[], &[]], Default::default(), fill);
        if round % 500 == 0 {
            echo_through(&mut steady, round as u8, 20_000);
        }
    }
    echo_through(&mut server.connect(), 9, 20_000);
    server.end();
}

/// A SYN with its sum complete, left to a device, and damaged on its way, as a veth hands over what a card, a bridge
/// or a tunnel of the host has forwarded.
fn damaged() {
    for mode in [Mode::Native, Mode::Generic] {
        let link = Link::veth(1500, mode);
        let mut sender = link.packet_sender();
        link.own().run(|| {
            let mut shard = link.shard(|device| device);
            shard.listen(link.own_address(PORT), 8).expect("a listener");
            let mut send = |sum: [u8; 2], port: u16| {
                let mut frame = vec![0; 54];
                link.dress(&mut frame, true);
                frame[6] = 2;
                frame[34..36].copy_from_slice(&port.to_be_bytes());
                frame[46..50].copy_from_slice(&[0x50, 2, 0xff, 0xff]);
                frame[50..52].copy_from_slice(&sum);
                let fill = &mut |place: &mut [u8]| place.copy_from_slice(&frame);
                let sent = sender.send(frame.len(), [&[], &[]], Default::default(), fill);
                sent.expect("sent");
                frame
            };
            let pseudo = support::pseudo_sum(20);
            // Each frame is answered or counted as damaged; what the kernel's end resets then is neither.
            let seen = |shard: &mut bypass_shard::Shard, sent: u64| {
                Running::until(|| {
                    shard.drive();
                    shard.finish();
                    let stats = shard.engine().stats();
                    let both = (stats.out_segs, stats.in_errs);
                    (both.0 + both.1 >= sent).then_some(both)
                })
            };
            send(pseudo, 1001);
            assert_eq!(seen(&mut shard, 1), (1, 0), "left to a device");
            // One's complement of the sum over the rest of this segment.
            let rest = [1002, u32::from(PORT), 0x5002, 0xffff];
            let sum = rest.iter().sum::<u32>() + u32::from(u16::from_be_bytes(pseudo));
            let whole = !(((sum & 0xffff) + (sum >> 16)) as u16);
            send(whole.to_be_bytes(), 1002);
            assert_eq!(seen(&mut shard, 2), (2, 0), "complete");
            send((whole ^ 0x10).to_be_bytes(), 1002);
            assert_eq!(seen(&mut shard, 3), (2, 1), "damaged");
        });
    }
}

fn judged() {
    require_tool("tshark");
    let path = std::env::temp_dir().join(format!("bypass-shard-{}.pcap", std::process::id()));
    let link = Link::veth(1500, Mode::Native);
    let file = std::fs::File::create(&path).expect("a file");
    let capture = Capture::new(std::io::BufWriter::new(file)).expect("written");
    let server = link.echo(|device| Box::new(Tee::new(device, capture, clock::unix_ns)));
    for number in 0..20 {
        echo_through(&mut server.connect(), number, 50_000);
    }
    server.end();
    let found = |filter: &str| {
        let output = Command::new("tshark")
            .args([
                "-r".as_ref(),
                path.as_os_str(),
                "-o".as_ref(),
                "tcp.check_checksum:TRUE".as_ref(),
            ])
            .args([
                "-o",
                "ip.check_checksum:TRUE",
                "-d",
                "tcp.port==7000,echo",
                "-Y",
                filter,
            ])
            .output()
            .expect("tshark runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let all = found("tcp");
    // What Linux sent over veth has no complete checksum: that is its sender's affair.
    let own = format!("ip.src == {}", link.own_address(PORT).ip());
    // Retransmissions are none of it: on a busy machine either side may be late.
    let wrong = found(&format!(
        "{own} && (tcp.checksum.status == 0 || ip.checksum.status == 0 || tcp.flags.reset == 1 || \
         tcp.analysis.ack_lost_segment || _ws.malformed || _ws.expert.severity == error)"
    ));
    std::fs::remove_file(&path).ok();
    assert!(
        all.lines().count() > 1000,
        "{} packets",
        all.lines().count()
    );
    assert!(wrong.is_empty(), "{wrong}");
}

/// The server's port on an address that was added while it ran.
fn addresses() {
    let link = Link::veth(1500, Mode::Native);
    let server = link.echo(|device| device);
    link.own().ip("addr add 10.77.0.9/24 dev vb");
    let late: SocketAddr = ([10, 77, 0, 9], PORT).into();
    let mut stream = Running::until(|| {
        link.linux()
            .run(|| TcpStream::connect_timeout(&late, Duration::from_millis(200)).ok())
    });
    echo_through(&mut stream, 3, 10_000);
    drop(stream);
    link.own().ip("addr del 10.77.0.9/24 dev vb");
    echo_through(&mut server.connect(), 4, 10_000);
    assert_eq!(content(4, 3).len(), 3);
    server.end();
}

/// The host's default route is by another interface; what leaves from this one's address has a table of its own.
fn policy() {
    let link = Link::veth(1500, Mode::Native);
    let other = bypass_testkit::Namespace::new();
    bypass_testkit::veth((link.own(), "vc"), (&other, "vd"), 1);
    link.own().ip("addr add 10.88.0.2/24 dev vc");
    link.own().ip("route add default via 10.88.0.1 dev vc");
    link.own()
        .ip("route add default via 10.77.0.1 dev vb table 7");
    link.own()
        .ip("rule add from 10.77.0.2 lookup 7 priority 100");
    link.linux().ip("addr add 10.99.0.1/32 dev lo");
    link.linux().ip("route add 10.77.0.2 dev va src 10.99.0.1");
    let server = link.echo(|device| device);
    let mut stream = server.connect();
    let own = stream.local_addr().expect("an address").ip();
    assert_eq!(own.to_string(), "10.99.0.1");
    echo_through(&mut stream, 1, 100_000);
    // Without the rule the answers would leave by the other interface: what is open lives, what is new is left.
    link.own().ip("rule del priority 100");
    echo_through(&mut stream, 2, 10_000);
    Running::until(|| {
        let at = link.own_address(PORT);
        let limit = Duration::from_millis(200);
        let refused = link
            .linux()
            .run(|| TcpStream::connect_timeout(&at, limit))
            .is_err();
        refused.then_some(())
    });
    server.end();
    link.own().ip("rule add to 10.77.0.1 prohibit");
    link.own().run(|| {
        let mut shard = link.shard(|device| device);
        let opened = shard.connect(None, ([10, 77, 0, 1], 9).into());
        assert_eq!(opened, Err(Error::NetworkUnreachable));
    });
}

/// What is open lives; a new connection goes to the kernel, which drops it as the policy says.
fn ipsec() {
    let link = Link::veth(1500, Mode::Native);
    let server = link.echo(|device| device);
    let mut stream = server.connect();
    echo_through(&mut stream, 1, 100_000);
    let limit = Duration::from_millis(300);
    // A pause, for the kernel keeps the port of each client that closes first.
    let connect = || {
        std::thread::sleep(Duration::from_millis(20));
        let at = link.own_address(PORT);
        let client = link.linux().run(|| TcpStream::connect_timeout(&at, limit));
        client.map_err(|error| error.kind())
    };
    let block = "src 10.77.0.1 dst 10.77.0.2 proto tcp dir in";
    link.own()
        .ip(&format!("xfrm policy add {block} action block"));
    let is_dropped = || matches!(connect(), Err(std::io::ErrorKind::TimedOut));
    Running::until(|| (0..3).all(|_| is_dropped()).then_some(()));
    echo_through(&mut stream, 2, 100_000);
    link.own().ip(&format!("xfrm policy del {block}"));
    Running::until(|| connect().is_ok().then_some(()));
    server.end();
    // The kernel knows no other way to send them than encrypted.
    link.own()
        .ip("xfrm policy add src 0.0.0.0/0 dst 10.77.0.1 dir out tmpl proto esp mode transport");
    link.own().run(|| {
        let mut shard = link.shard(|device| device);
        let opened = shard.connect(None, ([10, 77, 0, 1], 9).into());
        assert_eq!(opened, Err(Error::NetworkUnreachable));
    });
}

/// Nothing has looked since before the policy came, when the SYN comes.
fn ipsec_asleep() {
    let link = &Link::veth(1500, Mode::Native);
    let at = link.own_address(PORT);
    link.own().run(|| {
        let mut shard = link.shard(|device| device);
        shard.listen(at, 16).expect("a listener");
        shard.drive();
        shard.finish();
        let has_news = |shard: &Shard| {
            let news = shard.poll_fds().into_iter().skip(1).flatten();
            let mut news: Vec<libc::pollfd> = news
                .map(|fd| libc::pollfd {
                    fd,
                    events: libc::POLLIN,
                    revents: 0,
                })
                .collect();
            kernel::poll(&mut news, Some(Duration::ZERO), None) == Ok(1)
        };
        assert!(!has_news(&shard));
        link.own()
            .ip("xfrm policy add src 10.77.0.1 dst 10.77.0.2 proto tcp dir in action block");
        assert!(has_news(&shard));
        let limit = Duration::from_millis(300);
        let refused = link
            .linux()
            .run(|| TcpStream::connect_timeout(&at, limit))
            .map_err(|error| error.kind());
        assert_eq!(refused.err(), Some(std::io::ErrorKind::TimedOut));
        shard.drive();
        shard.finish();
        let counts = shard.engine().counts();
        assert!(shard.counters().received > 0, "the SYN has come");
        assert!(shard.has_policies() && !has_news(&shard));
        assert_eq!((counts.half_open, counts.connections), (0, 0));
    });
}

/// Ports of a switch that are isolated from each other, and IPv6 networks without an on-link prefix.
fn not_on_link() {
    let link = Link::veth(1500, Mode::Native);
    link.linux().ip("addr add 10.88.0.1/32 dev va");
    link.linux().ip("addr add 10.88.0.77/32 dev lo");
    link.linux().ip("route add 10.88.0.2 dev va src 10.88.0.77");
    // Without a request by which the other end would learn where the client is.
    link.linux()
        .ip("neigh add 10.88.0.2 lladdr 02:00:00:00:00:77 dev va");
    link.linux()
        .command("sysctl", "-q -w net.ipv4.conf.va.arp_ignore=1");
    link.own().ip("addr add 10.88.0.2/24 dev vb noprefixroute");
    link.own().ip("route add 10.88.0.1 dev vb");
    link.own().ip("route add default via 10.88.0.1");
    let server = link.echo(|device| device);
    let at = SocketAddr::from(([10, 88, 0, 2], PORT));
    let client = link
        .linux()
        .run(|| TcpStream::connect_timeout(&at, Duration::from_secs(20)));
    let mut stream = client.expect("the router takes the answer");
    assert_eq!(
        stream.local_addr().expect("an address").ip().to_string(),
        "10.88.0.77"
    );
    echo_through(&mut stream, 1, 100_000);
    server.end();
}

/// Frames above the MTU of the end that they arrive at do not: veth drops them.
fn changed() {
    let link = Link::veth(1500, Mode::Native);
    let captured = Captured::default();
    let capture = Capture::new(captured.clone()).expect("in memory");
    let server = link.echo(|device| Box::new(Tee::new(device, capture, clock::unix_ns)));
    let mut before = server.connect();
    echo_through(&mut before, 1, 100_000);
    link.own().ip("link set vb mtu 1200");
    // As large as the shard's SYN/ACK says.
    let has_segments_of = |bytes| {
        let stream = server.connect();
        let size = kernel::option_int(stream.as_raw_fd(), libc::SOL_TCP, libc::TCP_MAXSEG);
        (size == Ok(bytes)).then_some(stream)
    };
    let mut small = Running::until(|| has_segments_of(1148));
    echo_through(&mut small, 2, 100_000);
    link.linux().ip("link set va mtu 1200");
    echo_through(&mut before, 3, 100_000);
    link.own().ip("link set vb mtu 1500");
    link.linux().ip("link set va mtu 1500");
    let mut large = Running::until(|| has_segments_of(1448));
    echo_through(&mut large, 4, 100_000);
    link.own().ip("link set vb address 02:00:00:00:77:99");
    Running::until(|| {
        echo_through(&mut large, 5, 1_000);
        let from_there = [2, 0, 0, 0, 0x77, 0x99, 8, 0];
        let bytes = captured.0.lock().expect("whole");
        bytes
            .windows(8)
            .any(|eight| eight == from_there)
            .then_some(())
    });
    server.end();
}

/// A capture in memory.
#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("whole").extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The client's link address changes without an announcement, and the client has nothing to ask for: only a host that
/// sends there and receives nothing can notice.
fn moved() {
    let impatient = bypass_shard::Settings {
        engine: Config {
            neighbour_reachable_us: 200_000,
            ..Config::default()
        },
        ..Default::default()
    };
    let link = Link::veth(1500, Mode::Native).with(impatient);
    for (name, value) in [
        ("base_reachable_time_ms", 100),
        ("delay_first_probe_time", 1),
        ("retrans_time_ms", 100),
        ("ucast_solicit", 1),
    ] {
        let path = format!("/proc/sys/net/ipv4/neigh/vb/{name}");
        let set = || std::fs::write(&path, value.to_string());
        link.own().run(set).expect("a namespace of our own");
    }
    let server = link.echo(|device| device);
    let mut stream = server.connect();
    echo_through(&mut stream, 1, 1_000);
    // For its last acknowledgment.
    std::thread::sleep(Duration::from_millis(300));
    let shown = link.own().ip("-o link show vb");
    let own = shown.split("link/ether ").nth(1).expect("an address");
    let own = own.split(' ').next().expect("an address");
    link.linux().ip("link set va address 02:00:00:00:77:01");
    let known = format!("neigh replace 10.77.0.2 lladdr {own} dev va nud permanent");
    link.linux().ip(&known);
    echo_through(&mut stream, 2, 1_000);
    server.end();
}

/// As neighbour garbage collection does, and who flushes the table.
fn dropped_neighbour() {
    let sender = Settings {
        packet_sender: true,
        ..Settings::default()
    };
    let link = Link::veth_with(1500, Mode::Generic, sender);
    let server = link.echo(|device| device);
    let mut stream = server.connect();
    echo_through(&mut stream, 1, 100_000);
    for number in 0..30 {
        link.own().may("ip", "neigh del 10.77.0.1 dev vb");
        echo_through(&mut stream, number, 100_000);
    }
    // Each time would be one of a segment that waited for its neighbour; some may be due to a busy machine.
    let timeouts = server.end().timeouts;
    assert!(timeouts < 10, "{timeouts} in 30 exchanges");
}

/// The process was stopped, or its machine busy: the client's first SYN waits for the shard, and the next one was the
/// kernel's, whose listener has answered it.
fn late() {
    let link = Link::veth(1500, Mode::Native);
    let at = link.own_address(PORT);
    link.own().run(|| {
        let kernels = TcpListener::bind(at).expect("a port");
        let mut shard = link.shard(|device| device);
        shard.listen(at, 16).expect("a listener");
        shard.drive();
        shard.finish();
        let limit = PATIENCE;
        let connect = || TcpStream::connect_timeout(&at, limit);
        let client = link.linux().run(connect).expect("the kernel answers");
        shard.drive();
        shard.finish();
        let counts = shard.engine().counts();
        assert_eq!((counts.half_open, counts.connections), (0, 0));
        let (_, from) = kernels.accept().expect("a connection");
        assert_eq!(client.local_addr().expect("bound"), from);
        // The shard takes what comes from now on.
        let second = std::thread::scope(|scope| {
            let second = scope.spawn(|| link.linux().run(connect));
            while !second.is_finished() {
                shard.drive();
                shard.finish();
            }
            second.join().expect("no panic").expect("connected")
        });
        Running::until(|| {
            shard.drive();
            shard.finish();
            (shard.engine().counts().connections == 1).then_some(())
        });
        drop(second);
    });
}

/// Says that a round stands still, and waits for its going on.
type Pause = Arc<Mutex<Option<(Sender<()>, Receiver<()>)>>>;

/// A device whose thread stands still before it reads, where there is a pause.
struct Pausing(Box<dyn Device>, Pause);

impl Device for Pausing {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn receive(&mut self, most: usize, take: &mut dyn FnMut(Frame)) -> Result<usize, DeviceError> {
        let pause = self.1.lock().expect("whole").take();
        if let Some((begins, ends)) = pause {
            begins.send(()).expect("somebody waits");
            ends.recv().expect("it ends");
        }
        self.0.receive(most, take)
    }

    fn send(
        &mut self,
        length: usize,
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), DeviceError> {
        self.0.send(length, offload, fill)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.0.flush()
    }

    fn has_unsent(&self) -> bool {
        self.0.has_unsent()
    }

    fn arm(&mut self) -> bool {
        self.0.arm()
    }

    fn poll_fd(&self) -> Option<i32> {
        self.0.poll_fd()
    }

    fn counters(&self) -> Counters {
        self.0.counters()
    }
}

/// The same where the machine gives the thread no turn between the begin of a round and its frames: the client's SYN, and
/// the one that the kernel answers, come in between.
fn late_in_a_round() {
    let link = &Link::veth(1500, Mode::Native);
    let at = link.own_address(PORT);
    let ((begins, begun), (end, ends)) = (channel(), channel());
    let pause = Pause::default();
    std::thread::scope(|scope| {
        let client = scope.spawn(move || {
            begun.recv().expect("a round");
            let connect = || TcpStream::connect_timeout(&at, PATIENCE);
            let client = link.linux().run(connect).expect("the kernel answers");
            end.send(()).expect("the round waits");
            client
        });
        link.own().run(|| {
            let kernels = TcpListener::bind(at).expect("a port");
            let mut shard = link.shard(|device| Box::new(Pausing(device, pause.clone())));
            shard.listen(at, 16).expect("a listener");
            shard.drive();
            shard.finish();
            *pause.lock().expect("whole") = Some((begins, ends));
            shard.drive();
            shard.finish();
            let counts = shard.engine().counts();
            assert!(shard.counters().received > 0, "the SYN has come");
            assert_eq!((counts.half_open, counts.connections), (0, 0));
            let (_, from) = kernels.accept().expect("a connection");
            let client = client.join().expect("no panic");
            assert_eq!(client.local_addr().expect("bound"), from);
        });
    });
}

/// Another host may have it now, as with VRRP. The kernel's connections wait as well, and go on when it is back.
fn removed_address() {
    let link = Link::veth(1500, Mode::Native);
    let sent = Sent::default();
    let capture = Capture::new(sent.clone()).expect("in memory");
    link.own().ip("addr add 10.77.0.9/24 dev vb");
    let server = link.echo(|device| Box::new(Tee::new(device, capture, clock::unix_ns)));
    let at: SocketAddr = ([10, 77, 0, 9], PORT).into();
    let mut stream = Running::until(|| {
        let limit = Duration::from_millis(200);
        link.linux()
            .run(|| TcpStream::connect_timeout(&at, limit).ok())
    });
    echo_through(&mut stream, 1, 10_000);
    let sent = || sent.0.load(Ordering::Relaxed);
    let content = content(2, 8_000_000);
    std::thread::scope(|scope| {
        let mut writer = stream.try_clone().expect("a duplicate");
        let bytes = &content;
        scope.spawn(move || writer.write_all(bytes).expect("sent"));
        // Nobody reads: in the end only probes of the client's window leave.
        Running::until(|| {
            let before = sent();
            std::thread::sleep(Duration::from_millis(300));
            (before > 20 && sent() - before <= 2).then_some(())
        });
        // News come in order: an engine that serves the new address knows the state of the other.
        let is_known_with = |last: u8| {
            link.own().ip(&format!("addr add 10.77.0.{last}/24 dev vb"));
            let at: SocketAddr = ([10, 77, 0, last], PORT).into();
            Running::until(|| {
                let limit = Duration::from_secs(1);
                let connect = || TcpStream::connect_timeout(&at, limit).ok();
                link.linux().run(connect)
            });
        };
        link.own().ip("addr del 10.77.0.9/24 dev vb");
        is_known_with(10);
        let before = sent();
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(sent(), before);
        // Until the engine knows of the address again, the kernel resets what comes for it.
        link.linux().ip("route add blackhole 10.77.0.9/32");
        link.own().ip("addr add 10.77.0.9/24 dev vb");
        is_known_with(11);
        link.linux().ip("route del blackhole 10.77.0.9/32");
        let mut received = vec![0; content.len()];
        stream.read_exact(&mut received).expect("it goes on");
        assert!(received == content, "other bytes came back");
    });
    server.end();
}

/// Counts frames from 10.77.0.9 in a capture.
#[derive(Clone, Default)]
struct Sent(Arc<AtomicI32>);

impl std::io::Write for Sent {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let is_from_there = bytes.get(26..30) == Some(&[10, 77, 0, 9]);
        self.0
            .fetch_add(i32::from(is_from_there), Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Segments that Linux's end has received behind a hole.
fn out_of_order(link: &Link) -> u64 {
    let text = link
        .linux()
        .run(|| std::fs::read_to_string("/proc/thread-self/net/netstat"));
    let text = text.expect("readable");
    let mut lines = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let at = names.iter().position(|name| *name == "TCPOFOQueue");
    values[at.expect("a counter")].parse().expect("a number")
}

/// GSO segments leave through the interface's queue, which tbf makes slow, single frames past it.
fn in_order() {
    let sender = Settings {
        packet_sender: true,
        ..Settings::default()
    };
    let link = Link::veth_with(1500, Mode::Generic, sender);
    let slow = "qdisc add dev vb root tbf rate 200mbit burst 20kb limit 20mb";
    if link.own().may("tc", slow).is_none() {
        bypass_testkit::skip("this kernel has no tbf");
    }
    let server = link.echo(|device| device);
    let mut stream = server.connect();
    let (mut in_order, mut number) = (0, 0);
    let begun = Instant::now();
    // Each of the ends used to overtake. A frame that the veth drops puts those behind it out of order, too, so some
    // transfers may fail.
    while in_order < 5 {
        assert!(
            begun.elapsed() < PATIENCE,
            "{in_order} of {number} transfers came in order"
        );
        let before = out_of_order(&link);
        // Odd sizes end in a segment of their own.
        echo_through(&mut stream, number as u8, 400_001 + number % 10 * 777);
        in_order += usize::from(out_of_order(&link) == before);
        number += 1;
    }
    server.end();
}

/// Open descriptors of the shard's that take a number.
static OPEN: AtomicI32 = AtomicI32::new(0);

/// More connections than ports wait together; Linux's end is the first to close, so nothing is left of them
/// here.
fn returned() {
    const COUNT: usize = 70;
    let settings = bypass_shard::Settings {
        notice: |_, is_open| {
            let one = if is_open { 1 } else { -1 };
            OPEN.fetch_add(one, Ordering::Relaxed);
        },
        ..Default::default()
    };
    let link = Link::veth(1500, Mode::Native).with(settings);
    let at = link.linux_address();
    let listener = link.linux().run(|| TcpListener::bind(at).expect("a port"));
    let remote = listener.local_addr().expect("bound");
    let accepting = std::thread::spawn(move || {
        let accept = |_| listener.accept().expect("a connection");
        let accepted: Vec<_> = (0..COUNT).map(accept).collect();
        accepted.into_iter().map(|(_, from)| from).collect()
    });
    link.own().run(|| {
        let mut shard = link.shard(|device| device);
        for _ in 0..COUNT {
            shard.connect(None, remote).expect("begun");
        }
        let waiting = OPEN.load(Ordering::Relaxed);
        assert!(waiting < 10, "{waiting} descriptors");
        let mut drive_until = |is_over: &mut dyn FnMut(&mut bypass_shard::Shard) -> bool| {
            let deadline = Instant::now() + PATIENCE;
            while !is_over(&mut shard) {
                assert!(Instant::now() < deadline);
                shard.drive();
                while let Some(event) = shard.next_event() {
                    if shard.receive(event.handle, &mut [0]) == Ok(0) {
                        shard.close(event.handle).expect("it is open");
                    }
                }
                shard.finish();
                shard.sleep(Duration::from_millis(20));
            }
        };
        drive_until(&mut |_| accepting.is_finished());
        let used: Vec<SocketAddr> = accepting.join().expect("accepted");
        drive_until(&mut |shard| shard.engine().counts().connections == 0);
        drive_until(&mut |_| OPEN.load(Ordering::Relaxed) == 0);
        for own in used {
            let kernels = TcpListener::bind(own).expect("a free port");
            let connect = || TcpStream::connect_timeout(&own, PATIENCE);
            link.linux().run(connect).expect("the kernel answers");
            kernels.accept().expect("a connection");
        }
    });
}

/// They mean a host only on a link that is named with them.
fn link_local() {
    let link = Link::veth(1500, Mode::Native);
    for (side, name, host) in [(link.linux(), "va", 1), (link.own(), "vb", 2)] {
        side.ip(&format!("addr add fe80::{host}/64 dev {name} nodad"));
        side.ip(&format!("addr add fd77::{host}/64 dev {name} nodad"));
    }
    let number = |name| {
        let tables = Tables::new().expect("tables");
        tables.link(name).expect("the link").index
    };
    let at = |host: &str, link| {
        let ip = host.parse().expect("an address");
        SocketAddr::from(SocketAddrV6::new(ip, PORT, 0, link))
    };
    let server = link.echo(|device| device);
    let listener = link
        .own()
        .run(|| TcpListener::bind(at("fe80::2", number("vb"))));
    let listener = listener.expect("a port");
    let connect = |to| TcpStream::connect_timeout(&to, PATIENCE).expect("connected");
    let kept = link.linux().run(|| connect(at("fe80::2", number("va"))));
    let (_, from) = listener.accept().expect("a connection");
    assert_eq!(Some(from.ip()), kept.local_addr().ok().map(|own| own.ip()));
    // Nobody listens at the port in IPv6.
    let refused = link
        .linux()
        .run(|| TcpStream::connect_timeout(&at("fd77::2", 0), PATIENCE).err());
    let refused = refused.map(|error| error.kind());
    assert_eq!(refused, Some(std::io::ErrorKind::ConnectionRefused));
    server.end();
    link.own().run(|| {
        let mut shard = link.shard(|device| device);
        let opened = shard.connect(None, at("fe80::1", number("vb")));
        assert_eq!(opened, Err(Error::NetworkUnreachable));
    });
}
