//! Senders that never pause: what else is due keeps its time.

mod support;

use std::time::{Duration, Instant};
use support::{count, measured, Server, HELLO};

/// Endless answers, as fast as the kernel takes them.
fn endless() -> Server {
    Server::start(|mut conversation| {
        if conversation.request().is_none() {
            return;
        }
        conversation.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000000000\r\n\r\n");
        let file = support::temporary("hole");
        let mut hole = std::fs::File::create_new(&file).expect("a file");
        std::fs::remove_file(&file).expect("ours");
        hole.set_len(1 << 42).expect("a hole needs no room");
        // by sendfile, without copies on this side; the client ends it
        let _ = std::io::copy(&mut hole, conversation.stream());
    })
}

#[test]
fn an_endless_body_keeps_neither_other_requests_nor_the_end_waiting() {
    let (endless, short) = (endless(), Server::start(support::always(HELLO)));
    let began = Instant::now();
    let result = measured(&format!(
        "-t1 -c2 -d2s -R200 -T1s --drain 100ms {} {}",
        endless.url(),
        short.url()
    ));
    let took = began.elapsed();
    // a flood that kept the end waiting would last for days
    assert!(took < Duration::from_secs(60), "{took:?}");
    // 200 are due; on a busy machine many are still waiting when the run ends, but behind a flood all would
    assert!(short.asked() >= 30, "{}", short.asked());
    assert!(
        count(&result, "/errors/timeout") > 0,
        "{}",
        result["errors"]
    );
}
