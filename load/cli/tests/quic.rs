//! What QUIC does below HTTP/3: handshakes, versions, streams that are allowed, keys, resets.

#[path = "support/http3.rs"]
mod http3;
mod support;

use http3::{
    request, respond, respond_always, say, successors, way, Http3Server, Manners, CONTROL, HELLO,
};
use quinn::{Connection, TransportConfig};
use serde_json::Value;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use support::{c_library, count, measured, own_address, program, temporary, unreached};

/// Five writes of six find no room.
const FULL_SOCKET: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <unistd.h>
ssize_t send(int fd, const void *p, size_t n, int f) {
    static ssize_t (*real)(int, const void *, size_t, int);
    static long writes;
    if (!real) real = (ssize_t (*)(int, const void *, size_t, int)) dlsym(RTLD_NEXT, "send");
    if (++writes % 6) { errno = EAGAIN; return -1; }
    return real(fd, p, n, f);
}
"#;

#[test]
fn a_handshake_goes_on_when_there_is_room_again() {
    // by QUIC's timer alone, which doubles, the first datagram would leave after half a minute
    let (server, library, json) = (
        Http3Server::hello(),
        c_library(FULL_SOCKET),
        temporary("json"),
    );
    let output = program()
        .env("LD_PRELOAD", &library)
        .args("--http3 -t1 -c2 -n 10 -d60s -T60s --connect-timeout 20s --json".split(' '))
        .arg(&json)
        .arg(server.url())
        .output()
        .expect("it starts");
    let text = std::fs::read_to_string(&json).expect("a result file");
    let result: Value = serde_json::from_str(&text).expect("JSON");
    assert!(output.status.success(), "{}", result["notes"]);
    assert_eq!(count(&result, "/totals/completed"), 10);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
    for file in [library, json] {
        std::fs::remove_file(file).expect("ours");
    }
}

#[test]
fn connections_that_fail_together_go_to_the_next_address() {
    let server = Http3Server::hello();
    let (port, there) = (server.address.port(), server.address.ip());
    let address = own_address();
    let silent = address.trim_end_matches(":0");
    let _socket = UdpSocket::bind(format!("{silent}:{port}")).expect("a port that is free there");
    let result = measured(&format!(
        "--http3 -t1 -c2 -n 20 -d60s -T30s --connect-timeout 3s \
         --resolve both.test:{port}:{silent},{there} https://both.test:{port}/"
    ));
    assert!(count(&result, "/errors/connect/timeout") >= 2);
    let completed = count(&result, "/totals/completed");
    assert!(completed > 0, "{}", result["errors"]);
}

#[test]
fn a_server_may_ask_whether_an_address_is_the_clients() {
    let manners = Manners {
        retries: true,
        ..Manners::default()
    };
    let server = Http3Server::by_hand_as(manners, |connection, _| async move {
        let _control = say(&connection, CONTROL).await;
        respond_always(&connection).await;
    });
    let result = measured(&format!(
        "--http3 -t1 -c3 -n 30 -d60s -T30s --connect-timeout 30s {}",
        server.url()
    ));
    assert_eq!(count(&result, "/totals/completed"), 30);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
    assert_eq!(server.connections(), 3);
}

#[test]
fn a_server_of_another_version_of_quic_is_named() {
    let mut manners = Manners::default();
    manners.endpoint.supported_versions(vec![0x6b33_43cf]);
    let server = Http3Server::by_hand_as(manners, |_, _| async {});
    let result = unreached(&format!(
        "--http3 -t1 -c2 -d300ms -T30s --connect-timeout 30s {}",
        server.url()
    ));
    assert!(count(&result, "/errors/connect/other") >= 2);
    assert_eq!(count(&result, "/errors/connect/timeout"), 0);
    let notes = result["notes"].to_string();
    assert!(notes.contains("version"), "{notes}");
}

#[test]
fn a_server_that_allows_no_streams_is_reported() {
    let mut transport = TransportConfig::default();
    transport.max_concurrent_bidi_streams(0u32.into());
    let server = Http3Server::by_hand_with(transport, |connection, _| async move {
        let _control = say(&connection, CONTROL).await;
        connection.closed().await;
    });
    let result = unreached(&format!(
        "--http3 -t1 -c2 -d1500ms -T200ms --connect-timeout 30s {}",
        server.url()
    ));
    assert_eq!(count(&result, "/totals/sent"), 0);
    assert!(count(&result, "/errors/connect/other") >= 2);
    let notes = result["notes"].to_string();
    assert!(notes.contains("allows no streams"), "{notes}");
}

#[test]
fn streams_that_the_server_allows_later_are_used() {
    let mut transport = TransportConfig::default();
    transport.max_concurrent_bidi_streams(0u32.into());
    let server = Http3Server::by_hand_with(transport, |connection, _| async move {
        let _control = say(&connection, CONTROL).await;
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        connection.set_max_concurrent_bi_streams(5u32.into());
        respond_always(&connection).await;
    });
    let result = measured(&format!(
        "--http3 --streams 8 -t1 -c2 -n 100 -d60s -T30s --connect-timeout 30s {}",
        server.url()
    ));
    assert_eq!(count(&result, "/totals/completed"), 100);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
    assert_eq!(count(&result, "/totals/connects"), 2);
}

#[test]
fn keys_may_change_while_requests_are_under_way() {
    let server = Http3Server::by_hand(|connection, _| async move {
        let _control = say(&connection, CONTROL).await;
        while let Some((number, stream)) = request(&connection).await {
            if number % 5 == 4 {
                connection.force_key_update();
            }
            respond(stream, HELLO).await;
        }
    });
    let result = measured(&format!(
        "--http3 --streams 3 -t1 -c1 -n 60 -d60s -T30s {}",
        server.url()
    ));
    assert_eq!(count(&result, "/totals/completed"), 60);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
    assert_eq!(count(&result, "/totals/connects"), 1);
}

#[test]
fn a_connection_that_a_new_server_does_not_know_is_reset_and_opened_again() {
    let is_replaced = Arc::new(AtomicBool::new(false));
    let serve = |is_replaced: Arc<AtomicBool>| {
        move |connection: Connection, _: usize| {
            let is_replaced = Arc::clone(&is_replaced);
            async move {
                let _control = say(&connection, CONTROL).await;
                while let Some((_, stream)) = request(&connection).await {
                    is_replaced.store(true, Ordering::SeqCst);
                    respond(stream, HELLO).await;
                }
            }
        }
    };
    let [old, new] = successors().map(|endpoint| {
        let manners = Manners {
            endpoint,
            ..Manners::default()
        };
        Http3Server::by_hand_as(manners, serve(Arc::clone(&is_replaced)))
    });
    let (first, second) = (old.address, new.address);
    let to = move || {
        if is_replaced.load(Ordering::SeqCst) {
            second
        } else {
            first
        }
    };
    let way = way(to, |_| true);
    let result = measured(&format!(
        "--http3 -t1 -c1 -n 10 -d60s -T30s --connect-timeout 30s https://{way}/"
    ));
    // one request may be on its way to the new server
    let (completed, lost) = (
        count(&result, "/totals/completed"),
        count(&result, "/errors/read"),
    );
    assert!(lost <= 1 && completed + lost == 10, "{}", result["errors"]);
    assert_eq!(count(&result, "/errors/total"), lost);
    assert_eq!(count(&result, "/totals/connects"), 2);
    assert_eq!((old.connections(), new.connections()), (1, 1));
}
