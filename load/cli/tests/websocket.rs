//! WebSocket: the same loops, figures and honesty as over HTTP, against servers of another maker.

mod support;

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::{abort, count, measured, pause, run, temporary, unreached, wait_until};
use support::{Conversation, Server};
use tungstenite::protocol::frame::coding::{Data, OpCode};
use tungstenite::protocol::frame::Frame;
use tungstenite::{accept, Message, WebSocket};

/// The messages that a server received on all connections.
type Log = Arc<Mutex<Vec<Message>>>;

/// A server of tungstenite's on a free port; each connection is handed to `serve`.
fn serving(serve: impl Fn(WebSocket<TcpStream>, Log) + Send + Sync + 'static) -> (SocketAddr, Log) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let (log, serve) = (Log::default(), Arc::new(serve));
    let own = Arc::clone(&log);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (log, serve) = (Arc::clone(&own), Arc::clone(&serve));
            std::thread::spawn(move || {
                stream.set_nodelay(true).expect("a socket");
                // the test whether a server listens is not a client
                if let Ok(socket) = accept(stream) {
                    serve(socket, log);
                }
            });
        }
    });
    (address, log)
}

/// The next message, in the log, too; `None` at the end.
fn next(socket: &mut WebSocket<TcpStream>, log: &Log) -> Option<Message> {
    let message = socket.read().ok()?;
    log.lock().expect("no panic").push(message.clone());
    Some(message)
}

fn echo(mut socket: WebSocket<TcpStream>, log: Log) {
    while let Some(message) = next(&mut socket, &log) {
        let is_data = message.is_text() || message.is_binary();
        pause();
        if is_data && socket.send(message).is_err() {
            return;
        }
    }
}

/// The data messages that the server received.
fn data(log: &Log) -> Vec<Message> {
    let log = log.lock().expect("no panic");
    let data = log.iter().filter(|said| said.is_text() || said.is_binary());
    data.cloned().collect()
}

/// Waits for messages that a server receives at the end.
fn await_in(log: &Log, wanted: impl Fn(&Message) -> bool, times: usize) {
    let end = Instant::now() + Duration::from_secs(60);
    let seen = || {
        log.lock()
            .expect("no panic")
            .iter()
            .filter(|said| wanted(said))
            .count()
    };
    while seen() < times {
        assert!(
            Instant::now() < end,
            "{:?}",
            log.lock().expect("no panic").last()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn runs_of_the_same_messages_have_the_same_plan() {
    let (address, _) = serving(echo);
    let plan = |options: &str| {
        let line = format!("-t1 -c1 -n 2 -d60s -T30s {options} ws://{address}/");
        measured(&line)["plan"].clone()
    };
    let first = plan("--body hello");
    assert_eq!(plan("--body hello"), first);
    for options in ["--body hallo", "--body hello -H Cookie:a"] {
        assert_ne!(plan(options)["requests"], first["requests"], "{options}");
    }
}

#[test]
fn a_closed_loop_counts_the_messages_that_the_server_counts() {
    let (address, log) = serving(echo);
    let result = measured(&format!(
        "-t2 -c4 -d2s -T30s --body hello ws://{address}/chat"
    ));
    let (sent, completed) = (
        count(&result, "/totals/sent"),
        count(&result, "/totals/completed"),
    );
    assert!(completed > 0);
    assert_eq!(completed + count(&result, "/totals/unfinished"), sent);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
    assert_eq!(count(&result, "/totals/connects"), 4);
    assert_eq!(count(&result, "/latency/service/count"), completed);
    assert_eq!(result["totals"]["status"], serde_json::json!({}));
    assert_eq!(result["plan"]["websocket"], true);
    await_in(&log, Message::is_close, 4);
    let told = data(&log);
    assert!(told.len() as u64 >= completed && told.len() as u64 <= sent);
    assert!(told.iter().all(|said| *said == Message::text("hello")));
    let residual = result["little"]["residual"].as_f64().expect("a figure");
    // what is in flight while the machine stands still at the end is in no sum
    assert!(residual.abs() < 0.45, "N = rate x time: {residual}");
}

#[test]
fn an_open_loop_sends_exactly_what_is_due() {
    let (address, log) = serving(echo);
    let result = measured(&format!(
        "-t2 -c4 -d1s -R500 --depth 5 -T30s ws://{address}/"
    ));
    assert_eq!(
        count(&result, "/totals/completed"),
        500,
        "{}",
        result["errors"]
    );
    assert_eq!(count(&result, "/latency/response/count"), 500);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
    let told = data(&log);
    assert_eq!(told.len(), 500);
    assert!(told.iter().all(|said| *said == Message::text("")));
}

/// Asks before it answers, and answers in pieces with a question between them.
fn ask_and_answer_in_pieces(mut socket: WebSocket<TcpStream>, log: Log) {
    while let Some(message) = next(&mut socket, &log) {
        if !message.is_binary() {
            continue;
        }
        let payload = message.into_data();
        let (one, two) = (payload.slice(..100), payload.slice(100..));
        let frames = [
            Frame::ping("are you there?"),
            Frame::message(one, OpCode::Data(Data::Binary), false),
            Frame::ping(""),
            Frame::message(two, OpCode::Data(Data::Continue), true),
        ];
        for frame in frames {
            if socket.send(Message::Frame(frame)).is_err() {
                return;
            }
        }
    }
}

#[test]
fn large_messages_in_pieces_and_pings_between_them_are_understood() {
    let (address, log) = serving(ask_and_answer_in_pieces);
    let file = temporary("body");
    std::fs::write(&file, vec![0xfe; 200_000]).expect("a file");
    let result = measured(&format!(
        "-t1 -c3 -d1s -R30 -T30s --body-file {} ws://{address}/",
        file.display()
    ));
    std::fs::remove_file(&file).expect("ours");
    assert_eq!(
        count(&result, "/totals/completed"),
        30,
        "{}",
        result["errors"]
    );
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
    await_in(
        &log,
        |said| *said == Message::Pong("are you there?".into()),
        30,
    );
    await_in(&log, |said| *said == Message::Pong("".into()), 30);
    assert!(data(&log).iter().all(|said| said.len() == 200_000));
}

#[test]
fn a_connection_that_is_asked_by_ping_while_it_is_idle_answers() {
    let (address, log) = serving(|mut socket, log| {
        let _ = socket.send(Message::Ping("first".into()));
        echo(socket, log);
    });
    let result = measured(&format!("-t1 -c2 -d1s -R4 -T30s ws://{address}/"));
    assert_eq!(count(&result, "/totals/completed"), 4);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
    await_in(&log, |said| *said == Message::Pong("first".into()), 2);
}

#[test]
fn a_server_that_says_goodbye_is_answered_and_asked_again() {
    let (address, log) = serving(|mut socket, log| {
        for _ in 0..10 {
            match next(&mut socket, &log) {
                Some(message) if !message.is_close() => drop(socket.send(message)),
                _ => return,
            }
        }
        let _ = socket.close(None);
        while next(&mut socket, &log).is_some() {}
    });
    let result = measured(&format!(
        "-t1 -c2 -n 100 -d60s -T30s --body x ws://{address}/"
    ));
    let (sent, completed, lost) = (
        count(&result, "/totals/sent"),
        count(&result, "/totals/completed"),
        count(&result, "/totals/lost"),
    );
    assert!(completed >= 20, "{result}");
    assert!(count(&result, "/totals/connects") > 2);
    assert_eq!(
        completed + lost + count(&result, "/totals/unfinished"),
        sent
    );
    let errors = count(&result, "/errors/read") + count(&result, "/errors/stale");
    assert_eq!(errors, lost, "{}", result["errors"]);
    assert_eq!(count(&result, "/latency/service/count"), completed + lost);
    await_in(&log, Message::is_close, 2);
}

#[test]
fn messages_that_are_lost_stand_in_the_percentiles() {
    let (address, _) = serving(|mut socket, log| {
        for answered in 0.. {
            let Some(message) = next(&mut socket, &log) else {
                return;
            };
            if answered == 5 {
                std::thread::sleep(Duration::from_millis(300));
                abort(socket.get_ref());
                return;
            }
            let _ = socket.send(message);
        }
    });
    let result = measured(&format!(
        "-t1 -c1 -n 18 -d60s -T30s --body x ws://{address}/"
    ));
    let lost = count(&result, "/totals/lost");
    assert!(lost >= 2, "{result}");
    assert_eq!(count(&result, "/errors/read"), lost, "{}", result["errors"]);
    assert!(count(&result, "/latency/service/max") >= 290_000_000);
}

#[test]
fn a_message_without_an_answer_times_out() {
    let (address, _) = serving(|mut socket, log| while next(&mut socket, &log).is_some() {});
    let result = measured(&format!(
        "-t1 -c2 -n 6 -d60s -T300ms --connect-timeout 30s --body x ws://{address}/"
    ));
    assert_eq!(count(&result, "/totals/completed"), 0);
    assert_eq!(count(&result, "/errors/timeout"), 6, "{result}");
    assert_eq!(count(&result, "/totals/lost"), 6);
}

/// Answers the upgrade as it should be.
fn upgraded(conversation: &mut Conversation) {
    let Some(asked) = conversation.request() else {
        // the test whether a server listens is not a client
        return;
    };
    let prefix = "Sec-WebSocket-Key: ";
    let key = asked
        .headers
        .iter()
        .find_map(|line| line.strip_prefix(prefix));
    let accept = load_websocket::upgrade::accept(key.expect("a key"));
    conversation.send(
        format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {accept}\r\n\r\n"
        )
        .as_bytes(),
    );
}

#[test]
fn a_server_that_breaks_the_rules_is_named_and_left() {
    for (bytes, name) in [
        (&b"\x81\x81\0\0\0\0x"[..], "a masked frame"),
        (b"\xc1\x01x", "reserved bits are set"),
        (b"\x81\x01x\x81\x01y", "a message without a request"),
    ] {
        let server = Server::start(move |mut conversation| {
            upgraded(&mut conversation);
            conversation.send(bytes);
            std::thread::sleep(Duration::from_secs(2));
        });
        let result = measured(&format!(
            "-t1 -c1 -d1500ms -T30s --body x ws://{}/",
            server.address
        ));
        assert!(count(&result, "/errors/websocket") > 0, "{name}: {result}");
        let notes = result["notes"].to_string();
        assert!(notes.contains(name), "{name}: {notes}");
    }
}

#[test]
fn an_upgrade_that_is_refused_is_an_error_to_connect() {
    for (answer, name) in [
        (
            &b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"[..],
            "answered 403",
        ),
        (
            b"HTTP/1.1 101 Up\r\nSec-WebSocket-Accept: x\r\n\r\n",
            "Sec-WebSocket-Accept is wrong",
        ),
        (
            b"SSH-2.0-OpenSSH\r\n\r\n",
            "malformed response to the upgrade",
        ),
    ] {
        let server = Server::start(support::always(answer));
        let result = unreached(&format!("-t1 -c1 -d300ms -T30s ws://{}/", server.address));
        let failed = count(&result, "/errors/connect/other");
        assert!(failed > 0 && failed < 300, "{result}");
        assert_eq!(count(&result, "/totals/completed"), 0);
        let notes = result["notes"].to_string();
        assert!(notes.contains(name), "{name}: {notes}");
    }
}

#[test]
fn fields_and_path_are_those_of_the_upgrade() {
    let server = Server::start(|mut conversation| {
        upgraded(&mut conversation);
        // until the client ends it: a connection that ends before its first request is an error
        let _ = conversation.stream().read_to_end(&mut Vec::new());
    });
    let url = format!("ws://{}/chat?room=1", server.address);
    let output = support::program()
        .args([
            "-t1",
            "-c1",
            "-d1s",
            "-H",
            "Sec-WebSocket-Protocol: chat",
            &url,
        ])
        .output()
        .expect("it starts");
    assert!(output.status.success());
    let seen = &server.seen()[0];
    assert_eq!(seen.line, "GET /chat?room=1 HTTP/1.1");
    for line in [
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Protocol: chat",
    ] {
        assert!(seen.headers.iter().any(|own| own == line), "{seen:?}");
    }
}

#[test]
fn what_does_not_go_with_websocket_is_refused() {
    let (address, _) = serving(echo);
    for (line, mistake) in [
        ("--http2 ws://A/", "--http2: does not work with ws://"),
        ("--grpc ws://A/", "--grpc: does not work with ws://"),
        ("-X PUT ws://A/", "--method: does not work with ws://"),
        (
            "--rx-timestamps ws://A/",
            "--rx-timestamps: does not work with ws://",
        ),
        (
            "-H Connection:close ws://A/",
            "'Connection: close' does not work with ws://",
        ),
        (
            "-H sec-websocket-extensions:permessage-deflate ws://A/",
            "'Sec-WebSocket-Extensions' does not work with ws://",
        ),
        ("ws://A/a ws://A/b", "a server of ws:// is given once"),
        ("ws://A/ http://A/", "do not go together"),
    ] {
        let output = run(&line.replace('A', &address.to_string()));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{line}: {text}");
        assert!(text.contains(mistake), "{line}: {text}");
    }
}

/// Stops or continues a process.
fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(sent.expect("a command of every system").success());
}

/// Whether a process is stopped.
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| rest.starts_with(" T"))
}

#[test]
fn a_message_lost_to_a_close_and_a_reset_is_lost_once() {
    const ANSWER: &[u8] = b"\x81\x01x";
    let client = Arc::new(AtomicU32::new(0));
    let own = Arc::clone(&client);
    let server = Server::start(move |mut conversation| {
        upgraded(&mut conversation);
        let mut message = [0; 7];
        while conversation.read_exact(&mut message) && conversation.send(ANSWER) {
            // the first connection tests whether a server is there
            if conversation.number() != 1 {
                continue;
            }
            // the next message lies unread when this side closes, which sends RST behind the frame; the client
            // shall see both at once
            let _ = conversation.stream().peek(&mut [0]);
            wait_until(|| own.load(Ordering::Acquire) != 0);
            let pid = own.load(Ordering::Acquire);
            signal(pid, "-STOP");
            wait_until(|| is_stopped(pid));
            conversation.send(b"\x88\x02\x03\xf5");
            drop(conversation);
            signal(pid, "-CONT");
            return;
        }
    });
    let file = temporary("json");
    let mut child = support::program()
        .args("-t1 -c1 -n 4 -d60s -T30s --body x --json".split(' '))
        .arg(&file)
        .arg(format!("ws://{}/", server.address))
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    client.store(child.id(), Ordering::Release);
    assert!(child.wait().expect("it ends").success());
    let text = std::fs::read_to_string(&file).expect("written");
    std::fs::remove_file(&file).expect("ours");
    let result: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let errors = &result["errors"];
    assert_eq!(count(errors, "/total"), 1, "{errors}");
    assert_eq!(count(&result, "/totals/completed"), 3);
    assert_eq!(count(&result, "/latency/service/lost"), 1);
}
