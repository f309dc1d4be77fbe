//! Messages over TCP and UDP: the same loops, figures and honesty as over HTTP.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::process::Stdio;
use std::time::Duration;
use support::{count, measured, own_address, program, run, Conversation, Server};

/// Sends back what comes.
fn echo(mut conversation: Conversation) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = conversation.stream().read(&mut buffer) {
        if conversation.stream().write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}

/// A UDP server that says what to do with the n-th datagram; its address.
fn datagrams(serve: impl Fn(&UdpSocket, usize, &[u8], SocketAddr) + Send + 'static) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("bound");
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        for number in 0.. {
            // an error means that a client has gone
            if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                serve(&socket, number, &buffer[..length], from);
            }
        }
    });
    address
}

fn send(socket: &UdpSocket, bytes: &[u8], to: SocketAddr) {
    socket.send_to(bytes, to).expect("room");
}

#[test]
fn a_closed_loop_counts_each_message_once() {
    let server = Server::start(echo);
    let url = format!("tcp://{}", server.address);
    let result = measured(&format!("-t2 -c4 -n 4000 -d60s -T30s --size 100 {url}"));
    assert_eq!(count(&result, "/totals/completed"), 4000);
    assert_eq!(count(&result, "/latency/service/count"), 4000);
    assert_eq!(count(&result, "/totals/bytes_out"), 400_000);
    assert_eq!(count(&result, "/totals/bytes_in"), 400_000);
    assert_eq!(count(&result, "/totals/connects"), 4);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
    assert_eq!(count(&result, "/totals/non_2xx"), 0);
    assert_eq!(result["totals"]["status"], serde_json::json!({}));
    assert_eq!(result["breakdown"]["status"], serde_json::json!({}));
    assert_eq!(result["plan"]["raw"]["protocol"], "tcp");
    assert_eq!(result["plan"]["raw"]["message_bytes"], 100);
}

#[test]
fn a_window_of_messages_is_in_flight_at_once() {
    // answers nothing before it has four of them
    let server = Server::start(|mut conversation| {
        let mut four = [0; 4 * 64];
        while conversation.read_exact(&mut four) && conversation.send(&four) {}
    });
    let url = format!("tcp://{}", server.address);
    let result = measured(&format!("-t1 -c2 -n 800 -d60s --window 4 -T30s {url}"));
    assert_eq!(count(&result, "/totals/completed"), 800);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
    assert_eq!(count(&result, "/plan/streams"), 4);
}

#[test]
fn an_open_loop_sends_exactly_what_is_due() {
    let server = Server::start(echo);
    for url in [format!("tcp://{}", server.address), {
        let address = datagrams(|socket, _, bytes, from| send(socket, bytes, from));
        format!("udp://{address}")
    }] {
        let result = measured(&format!("-t2 -c4 -d1s -R500 --window 2 -T30s {url}"));
        assert_eq!(count(&result, "/totals/due"), 500, "{url}");
        assert_eq!(count(&result, "/totals/completed"), 500, "{url}");
        assert_eq!(count(&result, "/latency/response/count"), 500, "{url}");
        assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
    }
}

#[test]
fn a_large_message_goes_and_comes_in_pieces() {
    let server = Server::start(echo);
    let url = format!("tcp://{}", server.address);
    let result = measured(&format!("-t1 -c2 -n 40 -d60s --size 1M -T30s {url}"));
    assert_eq!(count(&result, "/totals/completed"), 40);
    assert_eq!(count(&result, "/totals/bytes_in"), 40_000_000);
}

#[test]
fn an_answer_may_have_another_size_than_the_message() {
    let server = Server::start(|mut conversation| {
        let mut ping = [0; 4];
        while conversation.read_exact(&mut ping) && conversation.send(b"+PONG\r\n") {
            assert_eq!(&ping, b"PING");
        }
    });
    let url = format!("tcp://{}", server.address);
    let result = measured(&format!("-t1 -c2 -n 50 --body PING --reply-size 7 {url}"));
    assert_eq!(count(&result, "/totals/bytes_in"), 350);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
}

#[test]
fn other_bytes_than_the_echo_are_an_error() {
    let server = Server::start(|mut conversation| {
        let mut message = [0; 64];
        while conversation.read_exact(&mut message) && conversation.send(&[0; 64]) {}
    });
    let url = format!("tcp://{}", server.address);
    let result = measured(&format!("-t1 -c1 -n 10 {url}"));
    assert_eq!(count(&result, "/errors/echo"), 10, "{}", result["errors"]);
    assert_eq!(count(&result, "/totals/completed"), 0);
    assert_eq!(count(&result, "/totals/lost"), 10);
    let warnings = result["warnings"].as_array().expect("a list");
    assert!(warnings.iter().any(|one| one["id"] == "echo-errors"));
}

#[test]
fn a_message_without_an_answer_takes_those_behind_it_along() {
    // the first connection after the test whether the server is there never answers
    let server = Server::start(|mut conversation| {
        if conversation.number() == 1 {
            let mut taken = Vec::new();
            // until it is given up
            let _ = conversation.stream().read_to_end(&mut taken);
        } else {
            echo(conversation);
        }
    });
    let url = format!("tcp://{}", server.address);
    let result = measured(&format!(
        "-t1 -c1 -n 100 -d60s --window 3 -T2s --connect-timeout 30s {url}"
    ));
    assert_eq!(count(&result, "/errors/timeout"), 3, "{}", result["errors"]);
    assert_eq!(count(&result, "/totals/lost"), 3);
    assert_eq!(count(&result, "/totals/completed"), 97);
    assert_eq!(count(&result, "/latency/service/lost"), 3);
}

#[test]
fn many_requests_in_flight_time_out_although_some_are_looked_at_at_once() {
    let server = Server::start(|mut conversation| {
        // takes everything and answers nothing
        let _ = std::io::copy(conversation.stream(), &mut std::io::sink());
    });
    let url = format!("tcp://{}", server.address);
    let result = measured(&format!(
        "-t1 -c4 -n 40000 -d60s -T300ms --connect-timeout 30s --window 5000 --size 1 {url}"
    ));
    // each of the four connections with all of its messages
    assert!(
        count(&result, "/errors/timeout") >= 20_000,
        "{}",
        result["errors"]
    );
    assert!(count(&result, "/totals/connects") >= 8);
    assert_eq!(count(&result, "/totals/completed"), 0);
}

#[test]
fn lost_datagrams_are_counted_and_stand_in_the_percentiles() {
    let address = datagrams(|socket, number, bytes, from| {
        if number % 10 != 3 {
            send(socket, bytes, from);
        }
    });
    let result = measured(&format!("-t1 -c1 -n 100 --window 16 -T5s udp://{address}"));
    assert_eq!(count(&result, "/totals/sent"), 100);
    assert_eq!(count(&result, "/totals/completed"), 90);
    assert_eq!(count(&result, "/totals/lost"), 10);
    assert_eq!(count(&result, "/errors/timeout"), 10);
    assert_eq!(count(&result, "/errors/total"), 10, "{}", result["errors"]);
    let service = &result["latency"]["service"];
    assert_eq!(count(service, "/count"), 100);
    assert_eq!(count(service, "/lost"), 10);
    // the socket stays
    assert_eq!(count(&result, "/totals/connects"), 1);
}

#[test]
fn datagrams_that_answer_nothing_are_counted_and_change_nothing() {
    let address = datagrams(|socket, _, bytes, from| {
        send(socket, b"", from);
        send(socket, b"something else", from);
        send(socket, bytes, from);
    });
    let result = measured(&format!("-t1 -c1 -n 50 -T30s udp://{address}"));
    assert_eq!(count(&result, "/totals/completed"), 50);
    assert_eq!(count(&result, "/totals/strays"), 100);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
}

#[test]
fn a_closed_port_is_an_error_and_makes_no_busy_loop() {
    let socket = UdpSocket::bind(own_address()).expect("a port");
    let address = socket.local_addr().expect("bound");
    drop(socket);
    let result = measured(&format!("-t1 -c1 -d500ms udp://{address}"));
    assert_eq!(count(&result, "/totals/completed"), 0);
    let lost = count(&result, "/totals/lost");
    // it waits for longer after each failure, up to 100 ms
    assert!(lost > 0 && lost < 200, "{lost}");
}

#[test]
fn the_echo_server_answers_both() {
    let mut server = program()
        .args(["echo", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    let output = server.stdout.take().expect("piped");
    BufReader::new(output).read_line(&mut line).expect("a line");
    let urls = line.trim_end().strip_prefix("listening on ");
    let urls = urls.and_then(|urls| urls.split_once(" and "));
    let (tcp, udp) = urls.unwrap_or_else(|| panic!("{line}"));
    for url in [tcp, udp] {
        let result = measured(&format!(
            "-t1 -c2 -n 1000 -d60s --window 8 --size 1k -T30s {url}"
        ));
        assert_eq!(count(&result, "/totals/completed"), 1000, "{url}");
        assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
    }
    server.kill().expect("ours");
    server.wait().expect("ended");
}

#[test]
fn ipv6_is_spoken_too() {
    let Ok(socket) = UdpSocket::bind("[::1]:0") else {
        support::report_skip("IPv6 is missing");
        return;
    };
    let address = socket.local_addr().expect("bound");
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a time");
    let served = std::thread::spawn(move || {
        let mut buffer = [0; 100];
        for _ in 0..20 {
            let (length, from) = socket.recv_from(&mut buffer).expect("a datagram");
            send(&socket, &buffer[..length], from);
        }
    });
    let result = measured(&format!("-t1 -c1 -n 20 udp://{address}"));
    assert_eq!(count(&result, "/totals/completed"), 20);
    served.join().expect("no panic");
}

#[test]
fn mistakes_are_named_before_anything_is_sent() {
    let server = Server::start(echo);
    let table = [
        (
            "tcp://127.0.0.1",
            "invalid URL: tcp://127.0.0.1 (a host and a port",
        ),
        ("udp://A/path", "invalid URL: "),
        ("udp://A tcp://A", "tcp:// and udp:// do not go together"),
        ("tcp://A tcp://A", "a server of tcp:// is given once"),
        ("--size 100 http://A/", "--size: is for tcp:// and udp://"),
        ("--window 2 http://A/", "--window: is for tcp:// and udp://"),
        (
            "--size 7 udp://A",
            "--size: a datagram has 8 to 65507 bytes",
        ),
        (
            "--size 70k udp://A",
            "--size: a datagram has 8 to 65507 bytes",
        ),
        ("--size 0 tcp://A", "--size: out of range"),
        (
            "--body= tcp://A",
            "--body: a message of tcp:// and udp:// has",
        ),
        (
            "--body x --size 3 tcp://A",
            "--size: does not work with --body",
        ),
        (
            "--body 123456789 udp://A",
            "--body: does not work with udp://",
        ),
        (
            "--reply-size 9 udp://A",
            "--reply-size: does not work with udp://",
        ),
        (
            "--tcp-mss 500 udp://A",
            "--tcp-mss: does not work with udp://",
        ),
        (
            "--depth 2 tcp://A",
            "--depth: does not work with tcp:// and udp:// (use --window)",
        ),
        (
            "--http2 tcp://A",
            "--http2: does not work with tcp:// and udp://",
        ),
        (
            "-H a:b tcp://A",
            "--header: does not work with tcp:// and udp://",
        ),
        (
            "--window 10k --size 1M tcp://A",
            "--window: 10000 messages of 1000000 bytes",
        ),
        (
            "--expect status=200 tcp://A",
            "--expect: of a message only the length",
        ),
    ];
    for (line, message) in table {
        let line = line.replace('A', &server.address.to_string());
        let output = run(&format!("-d1s {line}"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {errors}");
        assert!(errors.contains(message), "{line}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
    assert_eq!(server.asked(), 0);
}
