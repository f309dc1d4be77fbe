//! Large numbers, odd servers, several hosts: runs as people make them, and mistakes as they make them.

mod support;

use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use support::{
    always, c_library, count, measured, own_address, program, run, temporary, wait_until, Server,
    HELLO,
};

/// A unix socket that takes one connection, the test whether it is there, and is gone.
fn fleeting() -> String {
    let path = temporary("sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a path");
    let url = format!("unix://{}:/", path.display());
    std::thread::spawn(move || {
        drop(listener.accept());
        std::fs::remove_file(path).expect("ours");
    });
    url
}

#[test]
fn connects_that_fail_at_once_leave_their_place_to_waiting_ones() {
    let opened = Arc::new(AtomicUsize::new(0));
    let own = Arc::clone(&opened);
    let server = Server::start(move |conversation| {
        own.fetch_add(1, Ordering::SeqCst);
        always(HELLO)(conversation);
    });
    let gone: Vec<String> = (0..4).map(|_| fleeting()).collect();
    // a fifth of the connections can be opened; more than 256 of them wait for their turn
    let (url, gone) = (server.url(), gone.join(" "));
    let result = measured(&format!("-t1 -c2000 -R10 -d1s -T30s {url} {gone}"));
    assert!(count(&result, "/totals/connects") >= 400);
    // and one that looked whether the server is there
    wait_until(|| opened.load(Ordering::SeqCst) >= 401);
    assert_eq!(opened.load(Ordering::SeqCst), 401);
}

#[test]
fn a_thousand_connections_share_a_schedule() {
    let result = measured("-t2 -c1000 -d1s -R 1000 -T 30s --sink");
    assert_eq!(count(&result, "/totals/connects"), 1000);
    assert_eq!(count(&result, "/totals/sent"), 1000);
    assert_eq!(count(&result, "/totals/completed"), 1000);
    assert_eq!(count(&result, "/errors/total"), 0);
}

#[test]
fn a_ramp_of_connections_keeps_the_old_ones() {
    let result = measured("-t2 -c700..2000:650 --step 3s -R 400 -T 30s --sink");
    let steps = result["steps"].as_array().expect("steps");
    let asked: Vec<_> = steps
        .iter()
        .map(|step| step["connections"].as_u64())
        .collect();
    assert_eq!(asked, [Some(700), Some(1350), Some(2000)]);
    assert_eq!(count(&result, "/totals/connects"), 2000);
    assert_eq!(count(&result, "/errors/total"), 0);
    assert!(steps
        .iter()
        .all(|step| step["completed"].as_u64() > Some(0)));
}

#[test]
fn a_ramp_downwards_closes_what_is_too_many() {
    let result = measured("-t1 -c30..10:10 --step 300ms -T 30s --sink");
    assert_eq!(count(&result, "/totals/connects"), 30);
    assert_eq!(count(&result, "/errors/total"), 0);
    assert_eq!(result["steps"].as_array().map(Vec::len), Some(3));
}

#[test]
fn hosts_started_together_are_one_load() {
    let server = Server::start(always(HELLO));
    let files: Vec<_> = (0..3).map(|_| temporary("json")).collect();
    let merged = temporary("json");
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    let start = now.as_secs_f64() + 4.0;
    let mut runs: Vec<_> = files
        .iter()
        .map(|file| {
            let mut command = program();
            command.args([
                "-t1",
                "-c4",
                "-R100..200:100",
                "--step",
                "1s",
                "-T30s",
                "--json",
            ]);
            command
                .arg(file)
                .args(["--start-at", &start.to_string()])
                .arg(server.url());
            command.spawn().expect("it starts")
        })
        .collect();
    assert!(runs
        .iter_mut()
        .all(|run| run.wait().is_ok_and(|status| status.success())));
    let output = program()
        .arg("merge")
        .args(&files)
        .arg("--json")
        .arg(&merged)
        .output();
    let output = output.expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    let document = std::fs::read_to_string(&merged).expect("written");
    let document: Value = serde_json::from_str(&document).expect("JSON");
    assert_eq!(count(&document, "/totals/due"), 900);
    assert_eq!(count(&document, "/latency/response/count"), 900);
    assert_eq!(count(&document, "/plan/hosts"), 3);
    let steps: Vec<u64> = (0..2)
        .map(|step| count(&document, &format!("/steps/{step}/response/count")))
        .collect();
    assert_eq!(steps, [300, 600]);
    assert_eq!(document["steps"][0]["connections"], 12);
    for file in files.iter().chain([&merged]) {
        std::fs::remove_file(file).expect("ours");
    }
}

#[test]
fn many_sources_carry_many_connections() {
    let server = Server::start(always(HELLO));
    let sources: Vec<String> = (2..12).map(|last| format!("127.0.0.{last}")).collect();
    measured(&format!(
        "-t2 -c40 -d500ms -R 400 -T 30s --source {} {}",
        sources.join(","),
        server.url()
    ));
    let mut used: Vec<_> = server
        .seen()
        .iter()
        .filter_map(|seen| seen.source)
        .collect();
    used.sort();
    used.dedup_by_key(|source| source.ip());
    assert_eq!(used.len(), 10);
}

#[test]
fn answers_in_single_bytes_are_whole() {
    let server = Server::start(|mut conversation| {
        while conversation.request().is_some() {
            let bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nT: x\r\n\r\n";
            for byte in bytes.chunks(1) {
                if !conversation.send(byte) {
                    return;
                }
            }
        }
    });
    let result = measured(&format!("-t1 -c2 -d500ms -R 20 -T 30s {}", server.url()));
    assert_eq!(count(&result, "/totals/completed"), 10);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
}

#[test]
fn a_pipeline_mixes_all_forms_of_answers() {
    let server = Server::start(|mut conversation| {
        let forms: [&[u8]; 4] = [
            HELLO,
            b"HTTP/1.1 204 None\r\n\r\n",
            b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        ];
        let mut number = 0;
        while conversation.request().is_some() && conversation.send(forms[number % 4]) {
            number += 1;
        }
    });
    let result = measured(&format!(
        "-t1 -c2 -d500ms --depth 4 -R 80 -T 30s {}",
        server.url()
    ));
    assert_eq!(count(&result, "/totals/completed"), 40);
    assert_eq!(count(&result, "/totals/status/204"), 10);
    assert_eq!(count(&result, "/totals/status/200"), 30);
    assert_eq!(result["errors"]["malformed"], serde_json::json!({}));
    assert_eq!(count(&result, "/errors/read"), 0);
}

#[test]
fn a_unix_socket_takes_a_fixed_rate_and_one_request_per_connection() {
    let path = temporary("sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                if stream.read(&mut buffer).is_ok_and(|n| n > 0) {
                    let answer =
                        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
                    // the client may have given up
                    let _ = stream.write(answer);
                }
            });
        }
    });
    let line = format!("-t1 -c4 -d500ms -R 100 -T 30s unix://{}:/x", path.display());
    let result = measured(&line);
    assert_eq!(
        count(&result, "/totals/completed"),
        50,
        "{}",
        result["errors"]
    );
    assert!(count(&result, "/totals/connects") >= 50);
    std::fs::remove_file(&path).expect("ours");
}

#[test]
fn a_unix_socket_with_a_full_queue_is_asked_again() {
    // slower than a client connects
    let result = twenty_connections_that_take(Duration::from_millis(1), 1);
    assert_eq!(count(&result, "/totals/connects"), 20);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
}

#[test]
fn the_time_for_which_a_full_queue_was_asked_is_connect_time() {
    // of the connections behind the queue, all but the last few wait for most of these
    let result = twenty_connections_that_take(Duration::from_millis(20), 4);
    assert_eq!(count(&result, "/totals/connects"), 20);
    assert!(
        count(&result, "/latency/connect/max") > 200_000_000,
        "{}",
        result["latency"]["connect"]
    );
}

/// Results of a load on a Unix socket whose server takes so long for each connection.
fn twenty_connections_that_take(each: Duration, seconds: u32) -> serde_json::Value {
    let path = temporary("sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    load_engine::sys::socket::set_backlog(listener.as_raw_fd(), 1).expect("listening");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::sleep(each);
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while stream.read(&mut buffer).is_ok_and(|n| n > 0)
                    && stream.write_all(HELLO).is_ok()
                {}
            });
        }
    });
    let line = format!(
        "-t1 -c20 -d{seconds}s -R 100 -T 30s unix://{}:/x",
        path.display()
    );
    let result = measured(&line);
    std::fs::remove_file(&path).expect("ours");
    result
}

#[test]
fn one_connection_needs_no_word_about_threads() {
    let server = Server::start(always(HELLO));
    let result = measured(&format!("-c1 -d100ms -R 50 -T 30s {}", server.url()));
    assert_eq!(count(&result, "/plan/threads"), 1);
    assert_eq!(count(&result, "/totals/completed"), 5);
}

#[test]
fn a_run_that_waits_for_its_start_can_be_interrupted() {
    let server = Server::start(always(HELLO));
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    let start = (now.as_secs_f64() + 3600.0).to_string();
    let mut command = program();
    command
        .args(["-t2", "-c2", "-d1s", "--start-at", &start])
        .arg(server.url());
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut banner = String::new();
    output.read_line(&mut banner).expect("what it will do");
    // one connection shows that the server is there; signals are heeded before the others
    while server.accepted() < 3 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &pid]).status();
    assert!(killed.expect("kill").success());
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("the report");
    assert_eq!(child.wait().expect("ours").code(), Some(0));
    assert!(rest.contains("  0 requests in "), "{rest}");
}

#[test]
fn mistakes_in_odd_places_are_one_line_too() {
    let list = temporary("urls");
    std::fs::write(&list, "3 http://127.0.0.1:1/a\nmany /b\n").expect("a file");
    let name = list.display().to_string();
    let table = [
        (
            "-R1..2000:1 -d60s --sink",
            "--rate: '1..2000:1' has more than 1000 steps",
        ),
        (
            "-c1..500:1 -t1 -d1s --sink",
            "--duration: leaves 2.0 ms for each of 500 steps",
        ),
        (
            "-R100 -d2s --step 1s --sink",
            "--step: needs a ramp in steps, such as -R 1k..10k:1k",
        ),
        (
            "-R100..200:50 -d2s --step 1s --sink",
            "--step: its 3 steps do not make the --duration (leave one of them out)",
        ),
        ("-R 1e3 --sink", "--rate: invalid number '1e3'"),
        ("-R -5 --sink", "--rate: invalid number '-5'"),
        ("--probe 0 --sink", "--probe: must be greater than 0"),
        (
            "--start-at tomorrow --sink",
            "--start-at: invalid time 'tomorrow'",
        ),
        ("--depth 0 --sink", "--depth: out of range (a whole number"),
        (
            "--depth 20000 --sink",
            "--depth: out of range (at most 10000)",
        ),
        ("--timeout 0 --sink", "--timeout: must be greater than 0"),
        ("-c 0 --sink", "--connections: out of range (a whole number"),
        ("--pin 4096 --sink", "--pin: core 4096 is not available"),
        (
            "--source nowhere --sink",
            "--source: invalid address 'nowhere'",
        ),
        (
            "--source 192.0.2.1 --sink",
            "--source: 192.0.2.1: Cannot assign requested address",
        ),
        (
            "--source ::1 --sink",
            "--source: ::1 cannot reach 127.0.0.1",
        ),
        (
            "127.0.0.1:1/x",
            "invalid URL: 127.0.0.1:1/x (did you mean http://127.0.0.1:1/x?",
        ),
        (
            "--live sometimes --sink",
            "--live: unknown value 'sometimes' (auto, always, never)",
        ),
        ("--headroom /none --sink", "--headroom: cannot read /none"),
        ("--json", "--json: missing value (FILE)"),
        (
            "--json - --sink",
            "--json: '-' is not a file (use /dev/stdout)",
        ),
        (
            "http://127.0.0.1:99999/",
            "invalid URL: http://127.0.0.1:99999/",
        ),
        ("http://", "invalid URL: http://"),
        ("-s /none.lua http://127.0.0.1:1/", "unable to connect"),
        (
            "--body-file /none http://127.0.0.1:1/",
            "--body-file: cannot read /none",
        ),
        (
            &format!("--urls {name}"),
            &format!("--urls: {name}, line 2"),
        ),
        (
            &format!("--urls {name} -s /none.lua"),
            "--urls: does not work with --script",
        ),
        ("merge /none /none", "merge: cannot read /none"),
        (
            &format!("merge {name} {name}"),
            &format!("merge: {name}: not a result file"),
        ),
    ];
    for (line, message) in table {
        let output = run(line);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            text.starts_with(&format!("wirespeed-load: {message}")),
            "{line}: {text}"
        );
        assert_eq!(text.lines().count(), 1, "{line}: {text}");
        let expected = if message.starts_with("unable") { 1 } else { 2 };
        assert_eq!(output.status.code(), Some(expected), "{line}");
        assert!(output.stdout.is_empty(), "{line}: nothing was run");
    }
    std::fs::remove_file(list).expect("ours");
}

#[test]
fn a_script_that_ends_the_program_in_done_costs_no_file() {
    let server = Server::start(always(HELLO));
    let (script, json) = (temporary("lua"), temporary("json"));
    std::fs::write(&script, "function done() os.exit(7) end").expect("a file");
    let line = format!(
        "-t1 -c1 -n 20 -s {} --json {} {}",
        script.display(),
        json.display(),
        server.url()
    );
    assert_eq!(run(&line).status.code(), Some(7));
    let text = std::fs::read_to_string(&json).expect("written before");
    let result: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(count(&result, "/totals/completed"), 20);
    [script, json]
        .iter()
        .for_each(|file| std::fs::remove_file(file).expect("ours"));
}

#[test]
fn an_argument_that_is_not_utf8_is_one_line_too() {
    let latin = OsStr::from_bytes(b"X: \xe4");
    let output = program().arg("-H").arg(latin).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert_eq!(
        text,
        "wirespeed-load: X: \u{fffd}: not UTF-8 (other bytes can be sent with --body-file)\n"
    );
}

#[test]
fn a_header_option_of_an_unset_variable_is_none() {
    let server = Server::start(always(HELLO));
    let output = program()
        .args(["-t1", "-c1", "-n1", "-H", "", "-H", "X-Own: 1", "-H", " "])
        .arg(server.url())
        .output()
        .expect("it starts");
    assert_eq!(output.status.code(), Some(0));
    let host = format!("Host: {}", server.address);
    assert_eq!(server.seen()[0].headers, [host.as_str(), "X-Own: 1"]);
}

#[test]
fn results_that_cannot_be_written_are_said() {
    let server = Server::start(always(HELLO));
    for option in ["--json", "--csv", "--hlog", "--hgrm", "--prometheus"] {
        let output = run(&format!(
            "-t1 -c1 -d100ms {option} /none/file {}",
            server.url()
        ));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            text.contains(&format!("{option}: cannot write /none/file")),
            "{text}"
        );
        assert_eq!(output.status.code(), Some(2));
        assert!(server.seen().is_empty(), "said before the run");
    }
    let folder = std::env::temp_dir().join(format!("load-folder-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a new name");
    for option in ["--json", "--csv"] {
        let place = folder.display();
        let line = format!("-t1 -c1 -d100ms {option} {place} {}", server.url());
        let output = run(&line);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            text.contains(&format!("{option}: cannot write {place}")),
            "{text}"
        );
        assert_eq!(output.status.code(), Some(2));
        assert!(server.seen().is_empty(), "said before the run");
    }
    std::fs::remove_dir(&folder).expect("ours");
}

#[test]
fn a_file_that_cannot_be_written_costs_no_other() {
    let server = Server::start(always(HELLO));
    let (script, hlog) = (temporary("lua"), temporary("hlog"));
    std::fs::write(&script, "function done() error('broken') end").expect("a file");
    // no program may make files there, and only trying shows it
    let line = format!(
        "-t1 -c1 -n 20 -s {} --json /proc/none --csv /proc/none --hlog {} {}",
        script.display(),
        hlog.display(),
        server.url()
    );
    let output = run(&line);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    for message in [
        ":1: broken",
        "--json: cannot write /proc/none",
        "--csv: cannot write /proc/none",
    ] {
        assert!(text.contains(message), "{message}: {text}");
    }
    assert_eq!(output.status.code(), Some(1));
    let log = std::fs::read_to_string(&hlog).expect("written all the same");
    assert!(log.contains("Tag=service"), "{log}");
    [script, hlog]
        .iter()
        .for_each(|file| std::fs::remove_file(file).expect("ours"));
}

#[test]
fn a_reader_that_leaves_does_not_stop_the_run() {
    let server = Server::start(always(HELLO));
    let place = std::env::temp_dir().join(format!("load-left-{}.json", std::process::id()));
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let other = writer.try_clone().expect("descriptors");
    drop(reader);
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_wirespeed-load"))
        .args(["-t1", "-c1", "-d100ms", "--live", "always", "--json"])
        .arg(&place)
        .arg(server.url())
        .stdout(writer)
        .stderr(other)
        .status()
        .expect("it starts");
    let text = std::fs::read_to_string(&place).expect("the result is written");
    std::fs::remove_file(&place).expect("ours");
    assert!(text.contains("wirespeed-load/1"));
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_server_that_comes_back_is_asked_again() {
    let listener = std::net::TcpListener::bind(own_address()).expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let again = address.clone();
    let server = std::thread::spawn(move || {
        // the test connection, then no listener for a while, then a server
        drop(listener.accept());
        drop(listener);
        std::thread::sleep(Duration::from_secs(2));
        Server::start_on(&again, always(HELLO))
    });
    let result = measured(&format!("-t1 -c2 -d4s -R 50 -T 30s http://{address}/"));
    let server = server.join().expect("no panic");
    assert!(count(&result, "/errors/connect/refused") > 0);
    // who was connected in the instant before the listener went was reset
    let reset = count(&result, "/errors/read") + count(&result, "/errors/write");
    assert!(reset <= 2, "{}", result["errors"]);
    let completed = count(&result, "/totals/completed");
    assert_eq!(completed + reset, 200, "{}", result["errors"]);
    assert_eq!(server.seen().len() as u64, completed);
    // requests that were due without a listener have waited, and that is in their response times
    assert!(count(&result, "/latency/response/max") > 500_000_000);
}

#[test]
fn a_null_server_inside_that_needs_more_files_than_there_are_is_refused() {
    // each connection has two ends here, the probe has connections too, and each thread has files of its own
    for options in [
        "-t1 -c600",
        "-t1 -c400 --probe 10 --probe-connections 200",
        "-t101 -c500",
    ] {
        let line = format!("ulimit -n 1024 && exec \"$0\" {options} -d1s --sink");
        let output = std::process::Command::new("sh")
            .args(["-c", &line])
            .arg(env!("CARGO_BIN_EXE_wirespeed-load"))
            .output()
            .expect("a shell");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        let message =
            "--connections: needs 1266 open files, but 1024 are allowed (raise ulimit -n)";
        assert!(errors.contains(message), "{errors}");
    }
}

/// As if the system had no room for a fourth thread.
const FEW_THREADS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
typedef int (*Create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *with) {
    static int count;
    Create real = (Create)dlsym(RTLD_NEXT, "pthread_create");
    return ++count > 3 ? EAGAIN : real(thread, how, run, with);
}
"#;

#[test]
fn a_thread_that_cannot_be_started_ends_the_run() {
    let server = Server::start(always(HELLO));
    let library = c_library(FEW_THREADS);
    for options in ["-t5 -c5", "-t3 -c3 --probe 10"] {
        let mut command = program();
        command.args(options.split(' ')).args(["-d1s", "-T30s"]);
        let output = command
            .arg(server.url())
            .env("LD_PRELOAD", &library)
            .output()
            .expect("it starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        let message = "wirespeed-load: cannot start thread 4: Resource temporarily unavailable";
        assert!(errors.starts_with(message), "{errors}");
        assert_eq!(output.status.code(), Some(1), "{errors}");
    }
    std::fs::remove_file(library).expect("ours");
}

#[test]
fn connections_and_errors_of_the_warm_up_are_reported() {
    // ends the first five connections with a request on them
    let server = Server::start(|mut conversation| {
        let is_bad = conversation.number() <= 5;
        while conversation.request().is_some() && !is_bad && conversation.send(HELLO) {}
    });
    let line = format!("-t1 -c1 --warmup 2s -d200ms -T30s {}", server.url());
    let result = measured(&line);
    // the first of them is the test whether the server is there
    assert_eq!(count(&result, "/totals/warmup_errors"), 5, "{result}");
    assert_eq!(count(&result, "/totals/connects"), 6);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
}
