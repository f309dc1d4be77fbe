//! Options of sockets, and the PROXY header.

mod support;

use std::collections::HashSet;
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::sync::mpsc::channel;
use support::{always, count, measured, run, temporary, Server, HELLO};

#[test]
fn connections_begin_with_a_proxy_header_of_their_own_addresses() {
    for (version, length) in [("v1", 0), ("v2", 28)] {
        let (sender, heads) = channel();
        let server = Server::start(move |mut conversation| {
            let peer = conversation.stream().peer_addr().expect("connected");
            let mut head = vec![0; length];
            if length == 0 {
                // up to the line end
                let mut byte = [0];
                while !head.ends_with(b"\n") && conversation.read_exact(&mut byte) {
                    head.push(byte[0]);
                }
            } else if !conversation.read_exact(&mut head) {
                return;
            }
            let _ = sender.send((peer, head));
            while conversation.request().is_some() && conversation.send(HELLO) {}
        });
        let result = measured(&format!(
            "-t1 -c2 -n 10 -T30s --proxy-protocol {version} {}",
            server.url()
        ));
        assert_eq!(count(&result, "/totals/completed"), 10);
        assert_eq!(count(&result, "/errors/total"), 0, "{}", result["notes"]);
        let heads: Vec<_> = heads
            .try_iter()
            .filter(|(_, head)| !head.is_empty())
            .collect();
        assert_eq!(heads.len(), 2);
        for (peer, head) in heads {
            if version == "v1" {
                let port = server.address.port();
                let line = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {port}\r\n", peer.port());
                assert_eq!(String::from_utf8_lossy(&head), line);
            } else {
                assert_eq!(&head[12..16], b"\x21\x11\0\x0c");
                assert_eq!(head[24..26], peer.port().to_be_bytes());
            }
        }
    }
}

#[test]
fn each_thread_has_source_ports_of_its_own() {
    let probe = Server::start(always(HELLO));
    let output = run(&format!(
        "-t2 -c2 -n 2 -T30s --source-ports 40000-40999 {}",
        probe.url()
    ));
    if output.status.code() == Some(2) {
        let errors = String::from_utf8_lossy(&output.stderr);
        let refusals = [
            "--source-ports: this kernel cannot (Linux 6.3 or newer)\n",
            "--source-ports: 40000-40999 is not within ",
        ];
        let is_known = |refusal: &&str| errors.starts_with(&format!("wirespeed-load: {refusal}"));
        assert!(refusals.iter().any(is_known), "{errors}");
        return;
    }
    let server = Server::start(always(HELLO));
    let result = measured(&format!(
        "-t2 -c6 -n 60 -T30s --source-ports 40000-40999 {}",
        server.url()
    ));
    assert_eq!(count(&result, "/totals/completed"), 60);
    let seen = server.seen();
    let ports: HashSet<u16> = seen
        .iter()
        .filter_map(|seen| Some(seen.source?.port()))
        .collect();
    assert_eq!(ports.len(), 6, "{ports:?}");
    assert!(ports.iter().all(|port| (40_000..41_000).contains(port)));
    let of_first = ports.iter().filter(|port| **port < 40_500).count();
    assert_eq!(of_first, 3, "{ports:?}");
}

#[test]
fn busy_polling_is_set_or_refused_in_one_line() {
    let server = Server::start(always(HELLO));
    for pace in ["", "-R200 -d60s"] {
        let line = format!(
            "-t1 -c2 -n 40 -T30s --busy-poll 50us {pace} {}",
            server.url()
        );
        let output = run(&line);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() == Some(2) {
            let refusal = "wirespeed-load: --busy-poll: this kernel cannot (Linux 6.9 or newer)\n";
            assert_eq!(errors, refusal);
        } else {
            assert_eq!(output.status.code(), Some(0), "{errors}");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(text.contains("  40 requests in"), "{text}");
        }
    }
}

#[test]
fn options_are_set_on_the_sockets() {
    let (sender, sizes) = channel();
    let server = Server::start(move |mut conversation| {
        let stream = conversation.stream();
        // what a client sets is not seen on this side: that the kernel took it is what counts
        let info = load_engine::sys::tcp_info::tcp_info(stream.as_raw_fd());
        if info.is_some() && conversation.request().is_some() {
            let _ = sender.send(());
            conversation.send(HELLO);
            while conversation.request().is_some() && conversation.send(HELLO) {}
        }
    });
    let result = measured(&format!(
        "-t1 -c2 -n 10 -T30s --tcp-congestion reno --tcp-mss 600 --send-buffer 20k \
         --receive-buffer 20k --dscp 10 --device lo {}",
        server.url()
    ));
    assert_eq!(count(&result, "/totals/completed"), 10);
    assert_eq!(sizes.try_iter().count(), 2);
    for (options, message) in [
        ("--tcp-congestion nonsense", "--tcp-congestion: "),
        ("--dscp 64", "--dscp: must be a whole number from 0 to 63"),
        ("--device no-such-one", "--device: "),
        (
            "--source-ports 5-4",
            "--source-ports: invalid range '5-4' (for example 40000-49999)",
        ),
        ("--source-ports 1-9", "--source-ports: 1-9 is not within "),
        (
            "-t2 -c2 --source-ports 40000-40000",
            "--source-ports: fewer ports than threads",
        ),
        ("--busy-poll 2s", "--busy-poll: must be from 1us to 1s"),
        (
            "--proxy-protocol v3",
            "--proxy-protocol: unknown value 'v3' (v1, v2)",
        ),
    ] {
        let output = run(&format!("{options} {}", server.url()));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{options}: {errors}");
        assert!(errors.contains(message), "{errors}");
    }
}

/// The address of a server that ends once it was found to be there.
fn short_lived() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        let (mut found, _) = listener.accept().expect("a client");
        // who closes first keeps its port for a minute
        let _ = found.read(&mut [0]);
    });
    address
}

#[test]
fn a_connection_to_itself_is_none() {
    for scheme in ["http", "tcp"] {
        let (address, file) = (short_lived(), temporary("json"));
        // nothing listens any more, and the kernel may choose this port alone for the other end
        let port = address.port();
        let output = run(&format!(
            "-t1 -c1 -n 5 -d60s -T30s --source-ports {port}-{port} --json {} {scheme}://{address}/",
            file.display()
        ));
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() == Some(2) {
            assert!(
                errors.contains("--source-ports: this kernel cannot"),
                "{errors}"
            );
            return;
        }
        let text = std::fs::read_to_string(&file).expect("written");
        std::fs::remove_file(&file).expect("ours");
        let result: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let refused = &result["errors"]["connect"]["refused"];
        assert!(refused.as_u64() > Some(0), "{scheme}: {}", result["errors"]);
        assert_eq!(count(&result, "/totals/sent"), 0, "{scheme}");
        assert_eq!(output.status.code(), Some(1), "{errors}");
    }
}
