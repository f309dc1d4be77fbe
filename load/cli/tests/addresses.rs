//! Names with several addresses, and connections to other places than those of their URLs.

mod support;

use std::net::UdpSocket;
use std::process::Stdio;
use support::{always, count, measured, own_address, run, Server, HELLO};

/// The time of day after so many seconds.
fn in_seconds(seconds: f64) -> f64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("after 1970").as_secs_f64() + seconds
}

#[test]
fn requests_keep_their_host_and_go_where_it_was_typed() {
    let server = Server::start(always(HELLO));
    let port = server.address.port();
    for options in [
        format!("--resolve shop.test:{port}:127.0.0.1 http://shop.test:{port}/"),
        format!("--connect-to shop.test:80:127.0.0.1:{port} http://shop.test/"),
    ] {
        measured(&format!("-t1 -c1 -n 5 -d60s -T30s {options}"));
        let seen = server.seen().last().cloned().expect("a request");
        let host = seen
            .headers
            .iter()
            .find(|field| field.starts_with("Host: "));
        assert!(
            host.expect("a host").starts_with("Host: shop.test"),
            "{host:?}"
        );
    }
    let output = run(&format!(
        "--resolve shop.test:{port} http://shop.test:{port}/"
    ));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn connections_are_dealt_to_all_addresses() {
    let (one, other) = support::two_addresses();
    let one = Server::start_at(one, always(HELLO));
    let other = Server::start_at(other, always(HELLO));
    let (port, first, second) = (one.address.port(), one.address.ip(), other.address.ip());
    let line = |how: &str| {
        let before = (one.accepted(), other.accepted());
        measured(&format!(
            "-t1 -c4 -d200ms -T30s --addresses {how} \
             --resolve both.test:{port}:{first},{second} http://both.test:{port}/"
        ));
        let taken = || (one.accepted() - before.0, other.accepted() - before.1);
        support::wait_until(|| taken().0 + taken().1 >= 5);
        taken()
    };
    // one more is the test whether the server is there
    assert_eq!(line("all"), (3, 2));
    assert_eq!(line("first"), (5, 0));
}

/// The first connect is the test whether the server is there; those behind it wait for the end of the
/// program's input.
const HELD_BACK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
struct sockaddr;
int connect(int fd, const struct sockaddr *a, unsigned n) {
    static int (*real)(int, const struct sockaddr *, unsigned);
    static int count;
    char byte;
    if (!real) real = (int (*)(int, const struct sockaddr *, unsigned)) dlsym(RTLD_NEXT, "connect");
    if (count++) while (read(0, &byte, 1) > 0);
    return real(fd, a, n);
}
"#;

#[test]
fn connections_move_to_the_address_that_is_there() {
    // the first takes the test whether the server is there, and is gone before the load's connections are
    // opened: the kernel would take those for a listener that is about to go, and end them
    let (gone, there) = support::two_addresses();
    let address = gone.local_addr().expect("bound");
    let there = Server::start_at(there, always(HELLO));
    let (port, first, second) = (address.port(), address.ip(), there.address.ip());
    let (library, json) = (support::c_library(HELD_BACK), support::temporary("json"));
    let line = format!(
        "-t1 -c2 -d1s -R50 -T30s --json {} \
         --resolve both.test:{port}:{first},{second} http://both.test:{port}/",
        json.display()
    );
    let mut child = support::program()
        .env("LD_PRELOAD", &library)
        .args(line.split_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    drop(gone.accept());
    drop(gone);
    drop(child.stdin.take());
    assert!(child.wait().expect("ours").success());
    let text = std::fs::read_to_string(&json).expect("a result file");
    let result = serde_json::from_str(&text).expect("JSON");
    assert_eq!(there.asked(), 50);
    assert!(count(&result, "/errors/connect/refused") > 0, "{text}");
    for file in [library, json] {
        std::fs::remove_file(file).expect("ours");
    }
}

#[test]
fn an_address_that_takes_connections_and_ends_them_is_left() {
    let (ending, there) = support::two_addresses();
    let (ending, there) = (
        Server::start_at(ending, drop),
        Server::start_at(there, always(HELLO)),
    );
    let (port, first, second) = (
        ending.address.port(),
        ending.address.ip(),
        there.address.ip(),
    );
    // connections end before the load begins, and each is opened again elsewhere
    let start = in_seconds(5.0);
    let result = measured(&format!(
        "-t1 -c2 -d1s -R50 -T30s --start-at {start} \
         --resolve both.test:{port}:{first},{second} http://both.test:{port}/"
    ));
    assert_eq!(there.asked(), 50, "{}", result["errors"]);
    // one more is the test whether the server is there
    assert_eq!((ending.accepted(), there.accepted()), (3, 2));
}

#[test]
fn datagrams_go_to_the_address_at_which_something_listens() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let (there, port) = ("127.0.0.1", socket.local_addr().expect("bound").port());
    std::thread::spawn(move || {
        let mut buffer = [0; 1000];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            // a client may be gone
            let _ = socket.send_to(&buffer[..length], from);
        }
    });
    let absent = own_address();
    let absent = absent.trim_end_matches(":0");
    let result = measured(&format!(
        "-t1 -c2 -n 50 -d60s -T30s --resolve both.test:{port}:{absent},{there} udp://both.test:{port}"
    ));
    // the first message of each socket is refused
    let completed = count(&result, "/totals/completed");
    assert!(completed >= 46, "{completed}: {}", result["errors"]);
}

#[test]
fn an_upload_is_in_memory_once() {
    const BODY_BYTES: usize = 16 << 20;
    const CONNECTIONS: usize = 16;
    // the server never reads: every connection keeps all of its upload but what the kernel takes
    let server = Server::start(|_| std::thread::sleep(std::time::Duration::from_secs(600)));
    let file = support::temporary("body");
    std::fs::write(&file, vec![b'x'; BODY_BYTES]).expect("a file");
    let mut child = support::program()
        .args([
            "-t1",
            &format!("-c{CONNECTIONS}"),
            "-d60s",
            "-T60s",
            "--body-file",
        ])
        .arg(&file)
        .arg(server.url())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    while server.accepted() <= CONNECTIONS {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("running");
    child.kill().expect("ours");
    child.wait().expect("ended");
    std::fs::remove_file(&file).expect("ours");
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let most_kib: usize = most
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .expect("a figure");
    assert!(most_kib < 8 * BODY_BYTES / 1024, "{most_kib} KiB");
}
