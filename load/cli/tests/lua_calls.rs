//! Scripts that change their mind while the run goes on, and request texts as scripts write them.

mod support;

use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::mpsc::{channel, Receiver};
use std::time::Duration;
use support::{always, c_library, own_address, program, temporary, two_addresses, wait_until};
use support::{Conversation, Seen, Server, HELLO};

/// Runs a script's text against a server; the result file, standard error and whether it succeeded.
fn play(text: &str, options: &str, url: &str) -> (Value, String, bool) {
    let (script, file) = (temporary("lua"), temporary("json"));
    std::fs::write(&script, text).expect("a file");
    let output = program()
        .args(options.split_whitespace())
        .arg("-s")
        .arg(&script)
        .arg("--json")
        .arg(&file)
        .arg(url)
        .output()
        .expect("it starts");
    let result = std::fs::read_to_string(&file).unwrap_or_default();
    for path in [&script, &file] {
        // a run that was refused has written none
        let _ = std::fs::remove_file(path);
    }
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let result = serde_json::from_str(&result).unwrap_or(Value::Null);
    (result, errors, output.status.success())
}

fn paths(seen: &[Seen]) -> Vec<&str> {
    seen.iter().map(Seen::path).collect()
}

#[test]
fn functions_that_a_script_replaces_are_called_from_then_on() {
    let server = Server::start(always(HELLO));
    let script = r#"
        request = function() return wrk.format("GET", "/login") end
        response = function(status, headers, body)
            request = function() return wrk.format("GET", "/data?" .. body) end
            response = function() wrk.thread:stop() end
        end
    "#;
    let (_, errors, is_done) = play(script, "-t1 -c1 -d10s -T30s", &server.url());
    assert!(is_done, "{errors}");
    assert_eq!(paths(&server.seen()), ["/login", "/data?hello"]);
}

#[test]
fn a_delay_that_a_script_replaces_is_the_next_one() {
    let server = Server::start(always(HELLO));
    let script = r#"
        delay = function()
            delay = function() return 600000 end
            return 0
        end
    "#;
    play(script, "-t1 -c1 -d500ms -T30s", &server.url());
    wait_until(|| server.asked() > 0);
    assert_eq!(server.asked(), 1, "the second waits for ten minutes");
}

#[test]
fn all_values_of_a_repeated_field_are_there_and_the_table_has_the_last() {
    let server = Server::start(always(
        b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nSet-Cookie: c=3\r\n\
          Content-Length: 0\r\n\r\n",
    ));
    let script = r#"
        local fields = wrk.fields
        assert(select('#', fields("Set-Cookie")) == 0)
        response = function(status, headers, body)
            local all = table.concat({ fields("Set-Cookie") }, ";")
            request = function()
                return wrk.format("GET", "/" .. all .. "/" .. headers["Set-Cookie"] .. headers["set-cookie"])
            end
            response = function() wrk.thread:stop() end
        end
        request = function() return wrk.format("GET", "/first") end
    "#;
    let (_, errors, is_done) = play(script, "-t1 -c1 -d10s -T30s", &server.url());
    assert!(is_done, "{errors}");
    assert_eq!(paths(&server.seen()), ["/first", "/a=1;b=2;c=3/c=3b=2"]);
}

#[test]
fn a_script_sends_the_user_of_its_url() {
    let server = Server::start(always(HELLO));
    let url = format!("http://me:pw@{}/", server.address);
    let script = r#"request = function() return wrk.format("GET", "/own") end"#;
    let (_, errors, is_done) = play(script, "-t1 -c1 -n 1 -T30s", &url);
    assert!(is_done, "{errors}");
    let sent = "Authorization: Basic bWU6cHc=".to_string();
    assert!(server.seen()[0].headers.contains(&sent));
}

#[test]
fn a_thread_sends_where_its_script_says() {
    let (one, other) = (Server::start(always(HELLO)), Server::start(always(HELLO)));
    let script = format!(
        "function init(args)
            wrk.thread.addr = wrk.lookup('127.0.0.1', {})[1]
        end",
        other.address.port()
    );
    let (_, errors, is_done) = play(&script, "-t1 -c2 -n 20 -d60s -T30s", &one.url());
    assert!(is_done, "{errors}");
    assert_eq!(one.asked(), 0);
    assert!(other.asked() > 0);
}

#[test]
fn connections_opened_later_go_where_the_script_wants_them_then() {
    let closing = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".as_bytes();
    let (one, other) = (Server::start(always(closing)), Server::start(always(HELLO)));
    let script = format!(
        "function response()
            wrk.thread.addr = wrk.lookup('127.0.0.1', {})[1]
        end",
        other.address.port()
    );
    let (_, errors, is_done) = play(&script, "-t1 -c1 -n 20 -d60s -T30s", &one.url());
    assert!(is_done, "{errors}");
    assert_eq!(one.asked(), 1);
    assert!(other.asked() > 0);
}

/// All bytes of the first connection that carries any, up to a length.
fn first_bytes(length: usize) -> (Server, std::sync::mpsc::Receiver<Vec<u8>>) {
    let (sender, bytes) = std::sync::mpsc::channel();
    let server = Server::start(move |mut conversation: Conversation| {
        let mut seen = vec![0; length];
        if conversation.read_exact(&mut seen) {
            // the test may have seen enough
            let _ = sender.send(seen);
            conversation.send(HELLO);
        }
    });
    (server, bytes)
}

#[test]
fn request_texts_go_out_byte_for_byte() {
    let texts = [
        "POST /a HTTP/1.1\\nHost: h\\nContent-Length: 2\\n\\nab",
        "PUT /b HTTP/1.1\\r\\nHost: h\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n5\\r\\nhello\\r\\n0\\r\\n\\r\\n",
    ];
    for text in texts {
        let plain = text.replace("\\r", "\r").replace("\\n", "\n");
        let (server, bytes) = first_bytes(plain.len());
        let script = format!("request = function() return \"{text}\" end");
        let (result, errors, is_done) = play(&script, "-t1 -c1 -n 1 -d60s -T30s", &server.url());
        assert!(is_done, "{errors}");
        let sent = bytes.try_recv().expect("a request");
        assert_eq!(String::from_utf8_lossy(&sent), plain);
        assert!(support::count(&result, "/totals/completed") > 0);
    }
}

#[test]
fn lookup_takes_no_service_and_ends_the_run_where_it_finds_nothing() {
    let server = Server::start(always(HELLO));
    let script = "print(wrk.lookup('127.0.0.1', nil)[1])";
    let (_, errors, is_done) = play(script, "-t1 -c1 -d100ms -T30s", &server.url());
    assert!(is_done, "{errors}");
    let asked = server.asked();
    for script in [
        "wrk.lookup('127.0.0.1', 'no-such-service')",
        "pcall(wrk.lookup, '127.0.0.1', 'no-such-service')",
    ] {
        let (_, errors, is_done) = play(script, "-t1 -c1 -d100ms -T30s", &server.url());
        assert!(!is_done, "{script}");
        assert!(
            errors.contains("unable to resolve 127.0.0.1:no-such-service"),
            "{errors}"
        );
    }
    assert_eq!(server.asked(), asked);
}

#[test]
fn time_us_is_the_time_of_day_as_under_wrk2() {
    let server = Server::start(always(HELLO));
    let script = "assert(math.abs(wrk.time_us() / 1e6 - os.time()) < 600)";
    let (_, errors, is_done) = play(script, "-t1 -c1 -d100ms -T30s", &server.url());
    assert!(is_done && !errors.contains("assertion failed"), "{errors}");
}

#[test]
fn blank_lines_around_a_request_text_are_skipped() {
    let server = Server::start(always(HELLO));
    let script = r#"
        local text = "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab\r\n"
        request = function() return text end
    "#;
    let (result, errors, is_done) = play(script, "-t1 -c1 -n 1 -d60s -T30s", &server.url());
    assert!(is_done, "{errors}");
    assert_eq!(support::count(&result, "/totals/completed"), 1);
    assert_eq!(paths(&server.seen())[0], "/a");
}

#[test]
fn a_head_request_behind_a_blank_line_has_no_body_in_its_answer() {
    // the end would cut off a body that is waited for
    let server = Server::start(|mut client| {
        if client.request().is_some() {
            client.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
        }
    });
    let script = r#"
        request = function() return "\r\nHEAD / HTTP/1.1\r\nHost: h\r\n\r\n" end
    "#;
    let (result, errors, is_done) = play(script, "-t1 -c1 -n 1 -d60s -T30s", &server.url());
    assert!(is_done, "{errors}");
    let completed = support::count(&result, "/totals/completed");
    assert_eq!(completed, 1, "{}", result["errors"]);
}

#[test]
fn the_url_of_a_script_may_stand_behind_the_end_of_the_options() {
    let server = Server::start(always(HELLO));
    let script = temporary("lua");
    std::fs::write(
        &script,
        "function init(args) wrk.path = '/' .. args[1] .. #args end",
    )
    .expect("a file");
    let output = program()
        .args(["-t1", "-c1", "-n", "1", "-s"])
        .arg(&script)
        .args(["--", &server.url(), "-x"])
        .output()
        .expect("it starts");
    std::fs::remove_file(&script).expect("ours");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(paths(&server.seen()), ["/-x1"]);
}

/// A name with two addresses.
const TWO_ADDRESSES: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    struct addrinfo *second, *last;
    if (!real) real = (int (*)(const char *, const char *, const struct addrinfo *, struct addrinfo **))
        dlsym(RTLD_NEXT, "getaddrinfo");
    if (!host || strcmp(host, "both.test")) return real(host, service, hints, found);
    if (real(getenv("FIRST"), service, hints, found)) return EAI_FAIL;
    if (real(getenv("SECOND"), service, hints, &second)) return EAI_FAIL;
    for (last = *found; last->ai_next; last = last->ai_next) {}
    last->ai_next = second;
    return 0;
}
"#;

#[test]
fn an_address_that_a_script_has_set_is_the_only_one() {
    let (first, second) = two_addresses();
    let (first, second) = (
        Server::start_at(first, always(HELLO)),
        Server::start_at(second, always(HELLO)),
    );
    let port = first.address.port();
    // nothing listens there
    let absent = own_address();
    let absent = absent.trim_end_matches(":0");
    let (script, library) = (temporary("lua"), c_library(TWO_ADDRESSES));
    for (place, is_reached) in [("both.test", true), (absent, false)] {
        let text = format!(
            "function init() wrk.thread.addr = wrk.lookup('{place}', {port})[2] or wrk.lookup('{place}', {port})[1] end"
        );
        std::fs::write(&script, text).expect("a file");
        let output = program()
            .env("LD_PRELOAD", &library)
            .env("FIRST", first.address.ip().to_string())
            .env("SECOND", second.address.ip().to_string())
            .args(["-t1", "-c2", "-d300ms", "-T30s", "-s"])
            .arg(&script)
            .arg(format!("http://both.test:{port}/"))
            .output()
            .expect("it starts");
        assert_eq!(output.status.success(), is_reached, "{place}: {output:?}");
    }
    assert_eq!(first.asked(), 0);
    for file in [script, library] {
        std::fs::remove_file(file).expect("ours");
    }
}

/// The first request that comes over a socket in the file system.
fn first_over(listener: UnixListener) -> Receiver<String> {
    let (sender, texts) = channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut buffer = [0; 4096];
            // the test whether a server is there says nothing
            let length = stream.read(&mut buffer).unwrap_or(0);
            if length > 0 && stream.write_all(HELLO).is_ok() {
                let _ = sender.send(String::from_utf8_lossy(&buffer[..length]).into_owned());
            }
        }
    });
    texts
}

#[test]
fn a_script_names_the_host_of_a_socket_as_a_run_without_it() {
    let path = temporary("sock");
    let texts = first_over(UnixListener::bind(&path).expect("a socket"));
    let url = format!("unix://{}:/x", path.display());
    let options = "-t1 -c1 -n 1 -d60s -T30s";
    let asked = || {
        texts
            .recv_timeout(Duration::from_secs(60))
            .expect("a request")
    };
    let line = format!("{options} {url}");
    assert!(program()
        .args(line.split(' '))
        .status()
        .expect("it starts")
        .success());
    let without = asked();
    let (_, errors, is_done) = play("", options, &url);
    std::fs::remove_file(&path).expect("ours");
    assert!(is_done, "{errors}");
    assert_eq!(asked(), without);
    assert!(without.contains("\r\nHost: localhost\r\n"), "{without}");
}

#[test]
fn a_script_leaves_the_zone_of_an_address_to_this_side() {
    let Ok(listener) = TcpListener::bind("[::1]:0") else {
        support::report_skip("IPv6 is missing");
        return;
    };
    let server = Server::start_at(listener, always(HELLO));
    let port = server.address.port();
    let url = format!("http://[::1%251]:{port}/");
    for script in ["", "request = function() return wrk.format('POST') end"] {
        let (_, errors, is_done) = play(script, "-t1 -c1 -n 1 -d60s -T30s", &url);
        assert!(is_done, "{errors}");
    }
    let hosts: Vec<_> = server
        .seen()
        .into_iter()
        .flat_map(|seen| seen.headers)
        .collect();
    let wanted = format!("Host: [::1]:{port}");
    let own = hosts.iter().filter(|header| header.starts_with("Host"));
    assert_eq!(own.collect::<Vec<_>>(), [&wanted; 2]);
}

#[test]
fn a_depth_is_the_scripts_own() {
    let server = Server::start(always(HELLO));
    let script = r#"
        local three = wrk.format("GET", "/a") .. wrk.format("GET", "/b") .. wrk.format("GET", "/c")
        request = function() return three end
    "#;
    let (result, errors, is_done) = play(script, "-t1 -c1 -n 6 -d60s -T30s", &server.url());
    assert!(is_done, "{errors}");
    assert_eq!(result["plan"]["depth"], 3);
    let (_, errors, is_done) = play("", "-t1 -c1 --depth 8 -n 6 -T30s", &server.url());
    assert!(!is_done);
    assert!(
        errors.contains("--depth: does not work with --script"),
        "{errors}"
    );
}
