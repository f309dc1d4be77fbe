//! Servers that misbehave: every fault is counted as what it is, and the run goes on.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;
use support::{
    abort, always, count, measured, own_address, temporary, unreached, Conversation, Server, HELLO,
};

/// A server that does `fault` on the first request of every third connection and is counted.
fn sometimes(
    fault: impl Fn(&mut Conversation) + Send + Sync + 'static,
) -> (Server, Arc<AtomicUsize>) {
    let faults = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&faults);
    let server = Server::start(move |mut conversation| {
        while conversation.request().is_some() {
            if conversation.number() % 3 == 1 {
                counted.fetch_add(1, Ordering::SeqCst);
                fault(&mut conversation);
                return;
            }
            if !conversation.send(HELLO) {
                return;
            }
        }
    });
    (server, faults)
}

/// Runs against it; the figure at `path` must be the number of faults, and answers must come.
fn expect(path: &str, fault: impl Fn(&mut Conversation) + Send + Sync + 'static) {
    let (server, faults) = sometimes(fault);
    let result = measured(&format!("-t1 -c3 -d500ms -R 200 -T 30s {}", server.url()));
    let happened = faults.load(Ordering::SeqCst) as u64;
    assert!(happened > 0);
    assert_eq!(count(&result, path), happened, "{}", result["errors"]);
    assert_eq!(
        count(&result, "/errors/total"),
        happened,
        "{}",
        result["errors"]
    );
    assert!(count(&result, "/totals/completed") > 0);
}

#[test]
fn a_close_instead_of_an_answer_is_a_read_error() {
    expect("/errors/read", |_| {});
}

#[test]
fn an_answer_that_breaks_off_is_an_early_end() {
    expect("/errors/malformed/early_eof", |conversation| {
        conversation.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhel");
    });
}

#[test]
fn a_head_that_breaks_off_is_an_early_end() {
    expect("/errors/malformed/early_eof", |conversation| {
        conversation.send(b"HTTP/1.1 200 OK\r\nConte");
    });
}

#[test]
fn nonsense_is_a_malformed_status_line() {
    expect("/errors/malformed/status_line", |conversation| {
        conversation.send(b"220 mail ready\r\n");
    });
}

#[test]
fn a_wrong_length_and_a_wrong_chunk_are_distinguished() {
    expect("/errors/malformed/length", |conversation| {
        conversation.send(b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n");
    });
    expect("/errors/malformed/chunk", |conversation| {
        conversation.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
    });
}

#[test]
fn a_second_answer_to_one_request_is_unasked() {
    let server = Server::start(|mut conversation| {
        let mut answers = 0;
        while conversation.request().is_some() {
            answers += 1;
            let twice = [HELLO, HELLO].concat();
            let bytes = if answers == 3 { &twice[..] } else { HELLO };
            if !conversation.send(bytes) {
                return;
            }
        }
    });
    let result = measured(&format!("-t1 -c1 -d300ms -R 100 -T 30s {}", server.url()));
    assert!(
        count(&result, "/errors/malformed/unasked") > 0,
        "{}",
        result["errors"]
    );
}

#[test]
fn a_shorter_body_is_noticed() {
    let server = Server::start(|mut conversation| {
        let mut answers = 0;
        while conversation.request().is_some() {
            answers += 1;
            let short = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhell";
            if !conversation.send(if answers == 5 { short } else { HELLO }) {
                return;
            }
        }
    });
    let result = measured(&format!("-t1 -c1 -d300ms -R 100 -T 30s {}", server.url()));
    assert_eq!(count(&result, "/errors/short_body"), 1);
    assert_eq!(count(&result, "/errors/total"), 0, "it is a whole answer");
    let warnings = result["warnings"].as_array().expect("a list");
    assert!(warnings.iter().any(|one| one["id"] == "short-bodies"));
}

#[test]
fn requests_without_an_answer_time_out_and_stay_in_the_figures() {
    let server = Server::start(|mut conversation| {
        while conversation.request().is_some() {
            if conversation.number() == 1 {
                std::thread::sleep(Duration::from_secs(600));
            }
            conversation.send(HELLO);
        }
    });
    // far longer than a machine with other work keeps the other connection waiting
    let result = measured(&format!("-t1 -c2 -d4s -T 2s {}", server.url()));
    assert_eq!(count(&result, "/errors/timeout"), 1);
    assert_eq!(count(&result, "/latency/censored/count"), 1);
    assert!(count(&result, "/latency/service/max") >= 2_000_000_000);
    assert_eq!(
        count(&result, "/totals/connects"),
        3,
        "the connection was opened again"
    );
}

#[test]
fn a_server_that_goes_away_is_refused_connections_and_never_a_hot_loop() {
    let listener = std::net::TcpListener::bind(own_address()).expect("a port");
    let address = listener.local_addr().expect("bound");
    // two connections test whether the server is there, of the command and of the script; the third
    // one is by the script itself, which waits until the port is closed
    let server = std::thread::spawn(move || (0..3).for_each(|_| drop(listener.accept())));
    let script = temporary("lua");
    let text = "function setup(thread) while wrk.connect(wrk.addrs[1]) do end end";
    std::fs::write(&script, text).expect("written");
    let line = format!("-t1 -c2 -d2s -s {} http://{address}/", script.display());
    let result = unreached(&line);
    server.join().expect("no panic");
    let warnings = result["warnings"].to_string();
    assert!(
        warnings.contains("refused (nothing listens there") && !warnings.contains("source port")
    );
    let refused = count(&result, "/errors/connect/refused");
    // 2 connections, waits of 1, 2, 4 … 100 ms: about 26 tries each, fewer on a machine with other work
    assert!((4..200).contains(&refused), "{refused}");
    assert_eq!(count(&result, "/totals/completed"), 0);
}

#[test]
fn every_form_of_a_correct_answer_is_understood() {
    let forms: [(&[u8], bool); 6] = [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", true),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\nX: y\r\n\r\n", true),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", true),
        (b"HTTP/1.1 204 None\r\n\r\n", true),
        (b"HTTP/1.1 304 Same\r\nContent-Length: 9\r\n\r\n", true),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", false),
    ];
    for (form, stays) in forms {
        let server = Server::start(move |mut conversation: Conversation| {
            while conversation.request().is_some() && conversation.send(form) && stays {}
        });
        let result = measured(&format!("-t1 -c2 -d500ms -R 100 -T 30s {}", server.url()));
        let completed = count(&result, "/totals/completed");
        let shown = String::from_utf8_lossy(form).into_owned();
        assert!(completed > 0, "{shown}");
        assert_eq!(
            count(&result, "/errors/total"),
            0,
            "{shown}: {}",
            result["errors"]
        );
        if stays {
            assert_eq!(count(&result, "/totals/connects"), 2, "{shown}");
        } else {
            assert!(count(&result, "/totals/connects") >= completed, "{shown}");
        }
    }
}

#[test]
fn answers_to_head_have_no_body() {
    let server = Server::start(always(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"));
    let result = measured(&format!(
        "-t1 -c2 -d500ms -R 100 -T 30s -X HEAD {}",
        server.url()
    ));
    assert_eq!(count(&result, "/totals/completed"), 50);
    assert_eq!(count(&result, "/errors/total"), 0);
}

#[test]
fn idle_connections_may_be_closed_at_any_time() {
    let server = Server::start(|mut conversation| {
        // one answer, then the end without a word of it
        if conversation.request().is_some() {
            conversation.send(HELLO);
        }
    });
    // the requests of a connection are one second apart
    let result = measured(&format!("-t1 -c20 -d2s -R 20 -T 30s {}", server.url()));
    // on a busy machine an end may take as long as the next request, or longer than a crossing does
    let crossed = count(&result, "/errors/stale") + count(&result, "/errors/read");
    let completed = count(&result, "/totals/completed");
    assert_eq!(completed + crossed, 40, "{}", result["errors"]);
    assert!(completed >= 30, "{crossed} of them crossed");
    assert_eq!(count(&result, "/errors/total"), crossed);
}

#[test]
fn a_server_that_ends_what_it_accepts_is_never_a_hot_loop() {
    // as a proxy does whose own server is not there
    let server = Server::start(|conversation| {
        std::thread::sleep(Duration::from_millis(1));
        drop(conversation);
    });
    let result = measured(&format!(
        "-t1 -c4 -d2s -R 20 -T 30s --drain 100ms {}",
        server.url()
    ));
    // 4 connections, waits of 1, 2, 4 … 100 ms
    let connects = count(&result, "/totals/connects");
    assert!((8..200).contains(&connects), "{connects}");
    assert!(count(&result, "/errors/total") > 0, "{}", result["errors"]);
    assert_eq!(count(&result, "/totals/completed"), 0);
}

#[test]
fn a_server_that_no_longer_waits_for_a_request_may_say_so() {
    let timed_out =
        b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let server = Server::start(move |mut conversation| {
        if conversation.request().is_some() {
            conversation.send(&[HELLO, timed_out].concat());
        }
    });
    let result = measured(&format!("-t1 -c2 -n 20 -d60s -T30s {}", server.url()));
    assert_eq!(count(&result, "/totals/status/200"), 20);
    assert_eq!(count(&result, "/totals/completed"), 20);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
    // any other response that nothing asked for is an error
    let server = Server::start(|mut conversation| {
        if conversation.request().is_some() {
            conversation.send(&[HELLO, HELLO].concat());
        }
    });
    let result = measured(&format!("-t1 -c2 -n 20 -d60s -T30s {}", server.url()));
    assert!(count(&result, "/errors/malformed/unasked") > 0);
}

#[test]
fn connections_asked_to_close_are_opened_for_every_request() {
    let server = Server::start(|mut conversation| {
        if conversation.request().is_some() {
            conversation
                .send(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx");
        }
    });
    let result = measured(&format!(
        "-t1 -c2 -d500ms -R 100 -T 30s -H Connection:close {}",
        server.url()
    ));
    assert_eq!(result["plan"]["close"], true);
    assert_eq!(count(&result, "/errors/total"), 0);
    assert!(count(&result, "/totals/connects") >= count(&result, "/totals/completed"));
}

/// A server that passes each connection with the request's body length to `serve`, and counts
/// unexpected requests.
fn heads(
    serve: impl Fn(&mut BufReader<TcpStream>, u64) + Send + Sync + 'static,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let (wrong, serve) = (Arc::new(AtomicUsize::new(0)), Arc::new(serve));
    let own = Arc::clone(&wrong);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (serve, wrong) = (Arc::clone(&serve), Arc::clone(&own));
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                loop {
                    let (mut text, mut first) = (String::new(), String::new());
                    let mut length = None;
                    while text != "\r\n" {
                        text.clear();
                        if reader.read_line(&mut text).unwrap_or(0) == 0 {
                            return;
                        }
                        let value = text.strip_prefix("Content-Length: ");
                        length = value.and_then(|value| value.trim().parse().ok()).or(length);
                        if first.is_empty() {
                            first.clone_from(&text);
                        }
                    }
                    match length.filter(|_| first == "POST / HTTP/1.1\r\n") {
                        Some(length) => serve(&mut reader, length),
                        None => {
                            wrong.fetch_add(1, Ordering::SeqCst);
                            return;
                        }
                    }
                }
            });
        }
    });
    (address, wrong)
}

/// A run that sends bodies too long for the buffers of a socket.
fn upload(line: &str, address: SocketAddr) -> serde_json::Value {
    let file = temporary("body");
    // lines that are not requests, whatever is cut off of them
    std::fs::write(&file, "x\r\n\r\n".repeat(4_000_000)).expect("a file");
    let body = file.display();
    let result = measured(&format!("{line} --body-file {body} http://{address}/"));
    std::fs::remove_file(&file).expect("ours");
    result
}

#[test]
fn an_answer_before_the_end_of_its_request_never_mixes_requests() {
    let (address, wrong) = heads(|reader, length| {
        let _ = reader.get_mut().write_all(HELLO);
        std::thread::sleep(Duration::from_millis(20));
        let _ = std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink());
    });
    let result = upload("-t1 -c2 -n 8 -d60s -T30s", address);
    assert!(count(&result, "/totals/completed") > 2);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
    assert_eq!(wrong.load(Ordering::SeqCst), 0);
}

#[test]
fn a_refusal_of_a_long_request_is_read_although_the_server_is_gone() {
    let (address, _) = heads(|reader, _| {
        let refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        let _ = reader.get_mut().write_all(refusal);
        abort(reader.get_ref());
        let _ = reader.get_ref().shutdown(std::net::Shutdown::Both);
    });
    let result = upload("-t1 -c2 -n 8 -d60s -T30s", address);
    assert!(
        count(&result, "/totals/status/413") > 2,
        "{}",
        result["errors"]
    );
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
}

#[test]
fn connections_that_end_before_the_start_are_opened_again() {
    // as servers do that give a fresh connection a second for its request; connections that are opened again
    // are given more, or on a busy machine one might end as its first request comes
    let server = Server::start(|mut conversation| {
        if conversation.number() <= 3 {
            conversation.wait_at_most(Duration::from_millis(1200));
        }
        while conversation.request().is_some() && conversation.send(HELLO) {}
    });
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let start = now.expect("after 1970").as_secs_f64() + 4.0;
    let result = measured(&format!(
        "-t1 -c3 -d300ms -R 100 -T 30s --start-at {start} {}",
        server.url()
    ));
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
    assert_eq!(count(&result, "/totals/completed"), 30);
    // three that ended, and three more
    assert!((3..=6).contains(&count(&result, "/totals/connects")));
}

/// CPU time of a process so far, in hundredths of a second.
fn ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    let fields: Vec<&str> = stat
        .rsplit(") ")
        .next()
        .expect("a line")
        .split(' ')
        .collect();
    let ticks = |field: usize| fields[field].parse::<u64>().expect("a number");
    ticks(11) + ticks(12)
}

/// A process that ends with the test, however that ends.
struct Program(std::process::Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_null_server_without_descriptors_rests_until_one_is_free() {
    let program = env!("CARGO_BIN_EXE_wirespeed-load");
    let line = format!("ulimit -n 20; exec {program} sink 127.0.0.1:0");
    let started = std::process::Command::new("sh")
        .args(["-c", &line])
        .stdout(std::process::Stdio::piped())
        .spawn();
    let mut server = Program(started.expect("a shell"));
    let mut told = String::new();
    let output = server.0.stdout.take().expect("piped");
    let mut output = BufReader::new(output);
    output.read_line(&mut told).expect("its address");
    let told = told.trim().trim_end_matches('/');
    let address = told.rsplit('/').next().expect("an address");
    let connect = || TcpStream::connect(address).expect("a place in the queue");
    let mut taken: Vec<TcpStream> = (0..30).map(|_| connect()).collect();
    // one that asks again and again uses most of each look; one look without says that it rests, since who
    // stands still on a processor has used it, too, as the kernel counts
    let rests = (0..100).any(|_| {
        let before = ticks(server.0.id());
        std::thread::sleep(Duration::from_millis(400));
        ticks(server.0.id()) - before <= 10
    });
    let mut last = taken.pop().expect("thirty");
    drop(taken);
    last.write_all(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
        .expect("open");
    last.set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a time");
    let mut answer = String::new();
    last.read_to_string(&mut answer).expect("its turn came");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(rests, "it uses its processor in each look");
}

/// A body of 1 MB, and the end of the answer cut off after so many bytes of it.
fn megabyte(conversation: &mut Conversation, cut: usize) -> bool {
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";
    conversation.send(head) && conversation.send(&vec![b'x'; 1_000_000 - cut])
}

#[test]
fn bodies_dropped_in_the_kernel_count_as_bodies_that_are_read() {
    let server =
        Server::start(
            |mut conversation| {
                while conversation.request().is_some() && megabyte(&mut conversation, 0) {}
            },
        );
    for bodies in ["read", "drop"] {
        let line = format!(
            "-t1 -c3 -n 30 -d60s -T30s --bodies {bodies} {}",
            server.url()
        );
        let result = measured(&line);
        assert_eq!(count(&result, "/totals/completed"), 30, "{bodies}");
        assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
        assert_eq!(
            count(&result, "/totals/bytes_in"),
            30 * 1_000_044,
            "{bodies}"
        );
        assert_eq!(count(&result, "/errors/short_body"), 0, "{bodies}");
    }
}

#[test]
fn a_body_that_is_dropped_and_cut_off_is_an_early_end() {
    let server = Server::start(|mut conversation| {
        if conversation.request().is_some() {
            megabyte(&mut conversation, 10);
        }
    });
    let line = format!("-t1 -c1 -n 5 -d60s -T30s --bodies drop {}", server.url());
    let result = measured(&line);
    assert_eq!(count(&result, "/errors/malformed/early_eof"), 5);
    assert_eq!(count(&result, "/totals/completed"), 0);
}
