//! Runs that end by a number of requests or by a condition, and responses that must be as expected.

#[path = "support/http2.rs"]
mod http2;
mod support;

use http2::Http2Server;
use std::collections::HashSet;
use std::io::Read;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use support::{
    always, count, measured, measured_or_not, own_address, program, run, temporary, unreached,
    wait_until, Server, HELLO,
};

#[test]
fn as_many_requests_as_asked_for_are_sent() {
    for options in [
        "-c1",
        "-t2 -c5",
        "-c4 --depth 5",
        "-R2000",
        "-R2000 --dispatch any",
    ] {
        let server = Server::start(always(HELLO));
        let result = measured(&format!("-n 100 {options} -T30s {}", server.url()));
        assert_eq!(count(&result, "/totals/completed"), 100, "{options}");
        assert_eq!(server.asked(), 100, "{options}");
        assert!(count(&result, "/window/length_ns") < 30_000_000_000);
    }
    let server = Http2Server::hello();
    measured(&format!(
        "-n 100 --http2 --streams 8 -c3 -T30s {}",
        server.url()
    ));
    assert_eq!(server.seen().len(), 100);
}

#[test]
fn nothing_falls_due_after_the_last_request() {
    let server = Server::start(|mut conversation| {
        while conversation.request().is_some() {
            // a hundred more would fall due at this rate
            std::thread::sleep(Duration::from_millis(100));
            conversation.send(HELLO);
        }
    });
    let result = measured(&format!("-n 20 -t1 -c20 -R1000 -T30s {}", server.url()));
    assert_eq!(count(&result, "/totals/completed"), 20);
    assert_eq!(count(&result, "/totals/due"), 20);
    assert_eq!(count(&result, "/totals/unfinished"), 0);
    assert_eq!(count(&result, "/latency/response/count"), 20);
}

#[test]
fn requests_that_no_connection_takes_end_the_run_too() {
    // no handshake succeeds
    let server = Server::start(|_| {});
    let url = format!("https://{}/", server.address);
    for (options, path) in [
        ("", "/latency/service/lost"),
        ("-R1000", "/latency/response/lost"),
        ("-R1000 --dispatch any", "/latency/response/lost"),
    ] {
        let line = format!("-n 20 -d60s -t2 -c4 -T500ms {options} {url}");
        let result = unreached(&line);
        assert_eq!(count(&result, path), 20, "{options}");
        assert!(count(&result, "/window/length_ns") < 50_000_000_000);
    }
    let output = run(&format!("-n 20 -d60s -t2 -c4 -T500ms {url}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let expected = "Without a response: 0 lost, 0 unfinished, 20 without a connection; ≥ marks";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn lost_batches_do_not_hide_requests_without_a_connection() {
    // where no other test can take the port that is closed
    let listener = TcpListener::bind(own_address()).expect("a port");
    let address = listener.local_addr().expect("its address");
    let server = thread::spawn(move || {
        // the first connection only finds out whether there is a server
        drop(listener.accept().expect("a client"));
        let (mut client, _) = listener.accept().expect("a client");
        let _ = client.read(&mut [0; 4096]);
        // first the listener: who is cut off comes again at once, and must find no listener
        drop(listener);
        drop(client);
    });
    let output = run(&format!(
        "-n 8 -d60s -t1 -c1 --depth 4 -T30s http://{address}/"
    ));
    server.join().expect("the server");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let expected = "Without a response: 4 lost, 0 unfinished, 4 without a connection";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn connections_that_the_server_ends_while_users_think_end_the_run_too() {
    let server = Server::start(|_| {});
    let line = format!("-n 10 -d60s -t1 -c2 --think 300ms {}", server.url());
    let (result, _) = measured_or_not(&line);
    assert_eq!(count(&result, "/latency/service/lost"), 10);
    assert!(count(&result, "/window/length_ns") < 50_000_000_000);
}

#[test]
fn users_think_on_where_the_server_ends_idle_connections_sooner() {
    const IDLE: Duration = Duration::from_millis(1200);
    let server = Server::start(|mut conversation| {
        conversation.wait_at_most(IDLE);
        while conversation.request().is_some() && conversation.send(HELLO) {}
    });
    let http2 = Http2Server::start(&[], |mut side, _| {
        side.wait_at_most(IDLE);
        while let Some(asked) = side.request() {
            side.answer(asked.stream, "200", b"hello");
        }
    });
    for (options, url) in [
        ("", server.url()),
        ("--http2", http2.url()),
        ("--http2 --streams 2", http2.url()),
    ] {
        let line = format!("-t1 -c1 -n 2 -d60s --think 2s -T30s {options} {url}");
        let result = measured(&line);
        assert_eq!(count(&result, "/totals/completed"), 2, "{options}");
        assert!(count(&result, "/window/length_ns") < 50_000_000_000);
    }
}

#[test]
fn each_user_of_streams_thinks_on_where_the_server_ends_an_idle_connection() {
    let server = Http2Server::start(&[], |mut side, log| {
        side.wait_at_most(Duration::from_millis(1200));
        while let Some(asked) = side.request() {
            log(&asked);
            side.answer(asked.stream, "200", b"hello");
        }
    });
    let line = "-t1 -c1 -n 4 -d60s --think 3s -T30s --http2 --streams 4";
    let result = measured(&format!("{line} {}", server.url()));
    assert_eq!(count(&result, "/totals/completed"), 4);
    let connections = server.seen().into_iter().map(|asked| asked.connection);
    let connections: HashSet<usize> = connections.collect();
    assert_eq!(connections.len(), 1, "all ask together");
}

#[test]
fn connections_carry_as_many_requests_as_asked_for() {
    let server = Server::start(always(HELLO));
    let result = measured(&format!(
        "-t1 -c2 -n 60 --requests-per-connection 10 -T30s {}",
        server.url()
    ));
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["notes"]);
    let seen = server.seen();
    let on = |number| seen.iter().filter(|seen| seen.connection == number).count();
    let used: Vec<_> = (0..server.accepted()).map(on).filter(|&n| n > 0).collect();
    assert!(
        used.iter().all(|&n| n <= 10) && used.iter().sum::<usize>() == 60,
        "{used:?}"
    );
    let server = Http2Server::hello();
    measured(&format!(
        "-t1 --http2 --streams 2 -c1 -n 30 --requests-per-connection 1 -T30s {}",
        server.url()
    ));
    let mut connections: Vec<_> = server.seen().iter().map(|seen| seen.connection).collect();
    connections.dedup();
    assert!(connections.len() >= 15, "{connections:?}");
}

#[test]
fn responses_that_are_not_as_expected_are_errors() {
    let server = Server::start(always(HELLO));
    let failing = |expect: &str| {
        let result = measured(&format!(
            "-t1 -c2 -n 20 -T30s --expect {expect} {}",
            server.url()
        ));
        (
            count(&result, "/errors/unexpected"),
            result["notes"].to_string(),
        )
    };
    assert_eq!(failing("status=200,length=5,body~ell").0, 0);
    for (expect, note) in [
        ("status=201", "status 200 instead of 201"),
        ("length=6", "5 bytes instead of 6"),
        ("body~bye", "a body without 'bye'"),
        ("status=201,body~bye", "status 200 instead of 201"),
    ] {
        let (count, notes) = failing(expect);
        assert_eq!(count, 20, "{expect}");
        assert!(notes.contains(note), "{notes}");
    }
    let server = Http2Server::hello();
    let line = |expect: &str| {
        format!(
            "--http2 -t1 -c1 -n 10 -T30s --expect {expect} {}",
            server.url()
        )
    };
    assert_eq!(count(&measured(&line("body~ell")), "/errors/unexpected"), 0);
    assert_eq!(count(&measured(&line("body~x")), "/errors/unexpected"), 10);
    assert_eq!(
        count(
            &measured(&line("status=500,body~ell")),
            "/errors/unexpected"
        ),
        10
    );
    assert_eq!(
        count(&measured(&line("status=500")), "/errors/unexpected"),
        10
    );
}

#[test]
fn requests_that_are_too_late_are_shed_and_stand_in_the_percentiles() {
    let server = Server::start(|mut conversation| {
        while conversation.request().is_some() {
            std::thread::sleep(Duration::from_millis(50));
            conversation.send(HELLO);
        }
    });
    let result = measured(&format!(
        "-t1 -c1 -d1s -R100 -T30s --drain 30s --deadline 100ms {}",
        server.url()
    ));
    let (shed, completed) = (
        count(&result, "/totals/shed"),
        count(&result, "/totals/completed"),
    );
    assert_eq!(
        (shed + completed, count(&result, "/totals/due")),
        (100, 100)
    );
    assert!(shed >= 60, "{shed}");
    assert_eq!(count(&result, "/latency/response/count"), 100);
    assert_eq!(count(&result, "/latency/censored/count"), shed);
    assert!(count(&result, "/latency/censored/min") > 100_000_000);
}

#[test]
fn requests_that_are_too_late_by_the_generators_own_doing_are_shed_too() {
    for dispatch in ["pinned", "any"] {
        let server = Server::start(always(HELLO));
        let file = temporary("json");
        let mut command = program();
        let line = "-t1 -c64 -d4s -R300 -T30s --deadline 100ms --dispatch";
        command.args(line.split(' ')).arg(dispatch);
        command.arg("--json").arg(&file).arg(server.url());
        let mut child = command.stdout(Stdio::null()).spawn().expect("it starts");
        let signal = |name: &str| {
            let pid = child.id().to_string();
            let sent = Command::new("kill").args([name, &pid]).status();
            assert!(sent.expect("kill").success());
        };
        // the first 100 of 1200
        wait_until(|| server.asked() >= 100);
        signal("-STOP");
        std::thread::sleep(Duration::from_millis(1000));
        signal("-CONT");
        assert!(child.wait().expect("it ends").success());
        let text = std::fs::read_to_string(&file).expect("written");
        std::fs::remove_file(&file).expect("ours");
        let result: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        // 300 fell due meanwhile, the last 30 of them in time
        let shed = count(&result, "/totals/shed");
        assert!(shed >= 250, "{dispatch}: {shed}");
        let sent = count(&result, "/totals/sent");
        assert_eq!((shed + sent, count(&result, "/totals/due")), (1200, 1200));
        assert_eq!(count(&result, "/latency/response/count"), 1200);
        let late = result["latency"]["lateness"]["max"].as_u64();
        assert!(late.is_some_and(|ns| ns > 500_000_000), "{late:?}");
    }
}

#[test]
fn a_run_ends_when_a_condition_is_met() {
    let slow = Server::start(|mut conversation| {
        while conversation.request().is_some() {
            std::thread::sleep(Duration::from_millis(30));
            conversation.send(HELLO);
        }
    });
    let output = run(&format!(
        "-t1 -c2 -d60s -T30s --stop-when p50>20ms {}",
        slow.url()
    ));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("ended early: p50>20ms"), "{errors}");
    let output = program()
        .args(["-t1", "-c1", "-d1s", "--stop-when", "errors>0,p50>60s"])
        .arg(slow.url())
        .output()
        .expect("it starts");
    assert!(output.status.success());
}

#[test]
fn a_condition_ends_a_run_in_which_a_thread_has_sent_all_of_its_requests() {
    let fast = Server::start(always(HELLO));
    let slow = support::slow(Duration::from_millis(300));
    let began = Instant::now();
    let output = run(&format!(
        "-t2 -c2 -n 1000 -d60s -T30s --stop-when p50>200ms {} {}",
        fast.url(),
        slow.url()
    ));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("ended early: p50>200ms"), "{errors}");
    assert!(began.elapsed().as_secs() < 50);
}

#[test]
fn mistakes_are_named() {
    for (options, message) in [
        ("-n 0", "--requests: must be a whole number"),
        ("-n 5 --warmup 1s", "--requests: is not for --warmup"),
        ("--deadline 1s", "--deadline: is for an open loop"),
        ("--late drop", "--late: is for an open loop"),
        ("--arrival poisson", "--arrival: is for an open loop"),
        ("--expect x=1", "--expect: invalid 'x=1'"),
        ("--stop-when p99", "--stop-when: invalid 'p99'"),
        (
            "--requests-per-connection 70000",
            "--requests-per-connection: must be at most 65535",
        ),
    ] {
        let server = Server::start(always(HELLO));
        let output = run(&format!("{options} {}", server.url()));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(message), "{errors}");
    }
}

#[test]
fn a_strict_run_that_is_interrupted_does_not_pass() {
    let server = Server::start(always(HELLO));
    let mut child = program()
        .args(["-t1", "-c2", "-d60s", "-R50", "--strict"])
        .arg(server.url())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    while server.asked() < 3 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let kill = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(kill.expect("a command of every system").success());
    assert_eq!(child.wait().expect("ended").code(), Some(3));
}
