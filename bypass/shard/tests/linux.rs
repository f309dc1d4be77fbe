//! Shards against Linux's own TCP, over veth by AF_XDP and over TAP, in namespaces made here.

mod support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use bypass_device::impaired::{Faults, Impaired};
use bypass_device::pcap::{Capture, Tee};
use bypass_sys::clock;
use bypass_testkit::{require_tool, Case};
use bypass_xdp::{Mode, Settings};

use support::{content, echo_through, Link, Running, PORT};

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
    ("connections_outlive_their_listener", outlived),
    ("hostile_frames_cost_others_nothing", hostile),
    ("tshark_finds_nothing_wrong", judged),
    ("addresses_that_come_and_go_are_followed", addresses),
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

/// Of several addresses the one beside the gateway is taken, and of IPv6 not that of the link alone.
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
    // The port is the kernel's again.
    let refused = link
        .linux()
        .run(|| TcpStream::connect_timeout(&link.own_address(PORT), Duration::from_secs(2)));
    assert_eq!(
        refused.err().map(|error| error.kind()),
        Some(std::io::ErrorKind::ConnectionRefused)
    );
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
    drop(stream);
    // Then the port is the kernel's, which refuses.
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
    server.end();
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
        let _ = sender.send(length, Default::default(), fill);
        if round % 500 == 0 {
            echo_through(&mut steady, round as u8, 20_000);
        }
    }
    echo_through(&mut server.connect(), 9, 20_000);
    server.end();
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
