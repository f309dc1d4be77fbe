//! wrk's Lua interface: what scripts send, see and print. `lua_peers.rs` compares with wrk itself.

#[path = "support/scripts.rs"]
mod scripts;
mod support;

use scripts::{play, play_file, server, wire};
use std::collections::BTreeSet;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use support::{program, Seen, Server, HELLO};

fn ours(name: &str) -> (Vec<Seen>, String) {
    play(program(), name, "-t2 -c2 -n 40 -d60s")
}

#[test]
fn a_counter_starts_at_one_on_thread_one_and_at_zero_elsewhere() {
    let (seen, _) = ours("counter");
    let firsts: BTreeSet<String> = wire(&seen)
        .iter()
        .map(|requests| requests[0].0.clone())
        .collect();
    let expected = ["GET /0 HTTP/1.1", "GET /1 HTTP/1.1"].map(String::from);
    assert_eq!(firsts, BTreeSet::from(expected));
    let own = wire(&seen).into_iter().next().expect("a connection");
    assert!(
        own[1].1.contains(&"X-Number: 1".to_string())
            || own[1].1.contains(&"X-Number: 2".to_string())
    );
}

#[test]
fn a_token_from_an_answer_is_used_in_the_next_request() {
    let (seen, _) = ours("auth");
    let own = wire(&seen).into_iter().next().expect("a connection");
    assert!(own[0].0.starts_with("GET /login"));
    assert!(own[1].0.starts_with("GET /inside") && own[1].1.contains(&"X-Token: t1".to_string()));
}

#[test]
fn requests_in_one_text_are_a_pipeline() {
    let (seen, _) = ours("pipeline");
    let lines: Vec<String> = wire(&seen)
        .into_iter()
        .next()
        .expect("one")
        .into_iter()
        .map(|r| r.0)
        .collect();
    assert_eq!(
        lines[..3],
        [
            "GET /one HTTP/1.1",
            "GET /two HTTP/1.1",
            "GET /three HTTP/1.1"
        ]
    );
}

#[test]
fn delays_pass_before_each_request() {
    let (seen, _) = play(program(), "delay", "-t2 -c2 -d1s");
    // 2 connections, 20 ms and more each: at most 100 in a second
    assert!(seen.len() > 4 && seen.len() <= 102, "{}", seen.len());
}

#[test]
fn bodies_have_their_length_and_may_hold_anything() {
    let (seen, _) = ours("post");
    assert_eq!(
        (seen[0].line.as_str(), &seen[0].body[..]),
        ("POST / HTTP/1.1", &b"a=1&b=2"[..])
    );
    let (seen, _) = ours("large");
    assert_eq!(seen[0].body.len(), 1_000_000);
    assert!(seen[0].body.starts_with(b"x\0x\0"));
}

#[test]
fn done_sees_figures_that_agree() {
    let (_, text) = play(program(), "report", "-t2 -c2 -d1s");
    for line in ["errors 0", "ordered true", "seconds 1", "rates true"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let figure = |name: &str| -> u64 {
        let rest = text.split(name).nth(1).expect("the line");
        rest.split_whitespace()
            .next()
            .and_then(|n| n.parse().ok())
            .expect("a number")
    };
    // requests that were complete when the window ended are among both
    assert!(
        figure("\nrequests ").abs_diff(figure("samples ")) <= 2,
        "{text}"
    );
}

#[test]
fn values_go_to_threads_and_come_back() {
    let (_, text) = ours("setup");
    for line in ["thread 1 sent true args x,y", "thread 2 sent true args x,y"] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn scripts_that_print_whatever_they_get_may_look_into_it() {
    let text = "
        local function kind(value)
            local meta = getmetatable(value)
            return meta ~= nil and tostring(meta._NAME) or 'bare'
        end
        function setup(thread) print('kinds', kind(thread), kind(thread.addr), kind({})) end
        function done(summary, latency) print('figures', kind(latency), kind('text')) end
    ";
    let (_, text) = played(text, "100ms");
    assert!(text.contains("kinds\tnil\tnil\tbare"), "{text}");
    assert!(text.contains("figures\tnil\tnil"), "{text}");
}

#[test]
fn a_thread_stops_when_its_script_says_so() {
    let (seen, text) = play(program(), "stop", "-t2 -c2 -d300ms");
    assert!(seen.len() <= 24, "{}", seen.len());
    assert!(text.contains(" requests in "), "{text}");
}

/// What a server sees of a run of this length with this script, and what it prints.
fn played(text: &str, duration: &str) -> (Vec<Seen>, String) {
    let file = support::temporary("lua");
    std::fs::write(&file, text).expect("a file");
    let played = play_file(program(), &file, &format!("-t1 -c2 -d{duration}"));
    std::fs::remove_file(&file).expect("ours");
    played
}

/// The number before `name` in a report.
fn before(text: &str, name: &str) -> f64 {
    let at = text.find(name).expect(name);
    let number = text[..at].split_whitespace().last().expect("a number");
    number.parse().expect("a number")
}

#[test]
fn a_script_may_stop_its_thread_anywhere_and_the_window_lasts_on() {
    for callback in ["request", "response", "delay"] {
        let (seen, text) = played(
            &format!(
                "local n = 0\nfunction {callback}()\n  n = n + 1\n  \
             if n == 5 then wrk.thread:stop() end\n  \
             return {}\nend\n",
                if callback == "request" {
                    "wrk.format()"
                } else {
                    "1"
                }
            ),
            "1s",
        );
        assert!((1..=8).contains(&seen.len()), "{callback}: {}", seen.len());
        assert!(text.contains(" requests in 1.0"), "{callback}: {text}");
        let rate = text.split("Requests/sec:").nth(1).expect("a rate");
        let rate: f64 = rate
            .split_whitespace()
            .next()
            .expect("it")
            .parse()
            .expect("a number");
        assert!((rate - before(&text, " requests in")).abs() < 0.5, "{text}");
    }
}

#[test]
fn a_delay_may_be_nothing_or_longer_than_the_run() {
    let asked = |text: &str| played(text, "200ms").0.len();
    assert!(played("function delay() end\n", "1s").0.len() > 1);
    for nothing in ["true", "{}", "'soon'", "0/0", "-1"] {
        // the run does not fail
        asked(&format!("function delay() return {nothing} end\n"));
    }
    assert_eq!(asked("function delay() return math.huge end\n"), 0);
}

#[test]
fn a_thread_that_does_not_run_yet_cannot_be_stopped() {
    for text in [
        "function setup(thread) thread:stop() end\n",
        "function init(args) wrk.thread:stop() end\n",
    ] {
        // one that were stopped would have sent nothing
        let (seen, _) = played(text, "1s");
        assert!(seen.len() > 4, "{text}: {}", seen.len());
    }
}

#[test]
fn a_script_sees_the_fields_of_the_final_answer_alone() {
    let server = Server::start(|mut conversation| {
        while conversation.request().is_some() {
            let early = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\nX-Token: early\r\n\r\n";
            let sent = conversation.send(early) && conversation.send(HELLO);
            if !sent {
                return;
            }
        }
    });
    let file = support::temporary("lua");
    let text = "function response(status, headers)\n  \
                if headers.Link or headers['X-Token'] then error('of another answer') end\nend\n";
    std::fs::write(&file, text).expect("a file");
    let mut command = program();
    command
        .args(["-t1", "-c1", "-d300ms", "-s"])
        .arg(&file)
        .arg(server.url());
    let output = command.output().expect("it starts");
    std::fs::remove_file(&file).expect("ours");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
}

#[test]
fn a_batch_may_mix_head_and_get() {
    let server = Server::start(|mut conversation| {
        while let Some(seen) = conversation.request() {
            let head = &HELLO[..HELLO.len() - 5];
            let answer = if seen.line.starts_with("HEAD") {
                head
            } else {
                HELLO
            };
            if !conversation.send(answer) {
                return;
            }
        }
    });
    let batch = "wrk.format('HEAD') .. wrk.format('GET') .. wrk.format('HEAD')";
    for text in [
        format!(
            "function init(args)\n  local r = {batch}\n  request = function() return r end\nend\n"
        ),
        format!("function request() return {batch} end\n"),
    ] {
        let file = support::temporary("lua");
        std::fs::write(&file, text).expect("a file");
        let line = format!(
            "-t1 -c2 -n 60 -d60s -T30s -s {} {}",
            file.display(),
            server.url()
        );
        let result = support::measured(&line);
        std::fs::remove_file(&file).expect("ours");
        assert_eq!(
            support::count(&result, "/errors/total"),
            0,
            "{}",
            result["errors"]
        );
        assert!(support::count(&result, "/totals/completed") > 3);
    }
}

#[test]
fn a_batch_may_hold_more_requests_than_sixteen_bits_count() {
    let server =
        Server::start(
            |mut conversation| {
                while conversation.request().is_some() && conversation.send(HELLO) {}
            },
        );
    let file = support::temporary("lua");
    let text = "function init(args)\n  local r = string.rep(wrk.format(), 65537)\n  \
                request = function() return r end\nend\n";
    std::fs::write(&file, text).expect("a file");
    let line = format!(
        "-t1 -c1 -d1s -T60s -R65537 --drain 60s -s {} {}",
        file.display(),
        server.url()
    );
    let result = support::measured(&line);
    std::fs::remove_file(&file).expect("ours");
    assert_eq!(
        support::count(&result, "/errors/total"),
        0,
        "{}",
        result["errors"]
    );
    assert_eq!(support::count(&result, "/totals/completed"), 65537);
}

#[test]
fn addresses_are_looked_up_and_shown() {
    let (_, text) = ours("addr");
    assert_eq!(text.matches("address 127.0.0.1:").count(), 2, "{text}");
}

#[test]
fn a_fault_in_a_callback_ends_the_run_with_its_place() {
    for callback in ["setup", "init", "request", "response", "delay", "done"] {
        let file = support::temporary("lua");
        std::fs::write(
            &file,
            format!("function {callback}() error('broken') end\n"),
        )
        .expect("ok");
        let server = server();
        let output = program()
            .args(["-t1", "-c1", "-d2s", "-s"])
            .arg(&file)
            .arg(server.url())
            .output()
            .expect("it starts");
        std::fs::remove_file(&file).expect("ours");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{callback}: {text}");
        assert!(text.contains(":1: broken"), "{callback}: {text}");
    }
}

#[test]
fn a_script_that_cannot_be_loaded_is_refused_and_gone_on_without_as_wrk() {
    let server = server();
    let file = support::temporary("lua");
    for (text, message) in [
        (
            "wrk.path = '/own'\nthis is not Lua\n",
            ":2: '=' expected near 'is'\n",
        ),
        ("wrk.path = '/own'\nerror('broken')\n", ":2: broken\n"),
    ] {
        std::fs::write(&file, text).expect("ok");
        let played = |name: &str| {
            let mut command = program();
            command.arg0(name).args(["-t1", "-c1", "-d100ms", "-s"]);
            let output = command.arg(&file).arg(server.url()).output();
            let output = output.expect("it starts");
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            (output.status.code(), errors)
        };
        let (code, errors) = played("wirespeed-load");
        let place = file.display();
        assert_eq!(
            errors,
            format!("wirespeed-load: --script: {place}{message}")
        );
        assert_eq!(code, Some(2), "{errors}");
        let (code, errors) = played("wrk");
        let line = format!("{place}: {place}{message}");
        assert!(code == Some(0) && errors.starts_with(&line), "{errors}");
    }
    std::fs::remove_file(file).expect("ours");
}

#[test]
fn a_script_that_never_returns_ends_with_one_signal() {
    let server = server();
    // before the run, in it, and at the look at a response
    let scripts = [
        "function init() hang() end",
        "n = 0\nfunction request() n = n + 1 if n > 3 then hang() end return wrk.format() end",
        "function response() hang() end",
    ];
    std::thread::scope(|scope| {
        for script in scripts {
            let url = server.url();
            scope.spawn(move || {
                let (file, mark) = (support::temporary("lua"), support::temporary("mark"));
                let hang = format!(
                    "function hang() io.open('{}', 'w'):close() while true do end end",
                    mark.display()
                );
                std::fs::write(&file, format!("{hang}\n{script}\n")).expect("ok");
                let child = program()
                    .args(["-t1", "-c1", "-d600s", "-T600s", "-s"])
                    .arg(&file)
                    .arg(url)
                    .stdout(Stdio::null())
                    .stderr(Stdio::piped())
                    .spawn()
                    .expect("it starts");
                support::wait_until(|| mark.exists());
                let pid = child.id().to_string();
                let sent = Command::new("kill").arg(pid).status();
                assert!(sent.expect("kill").success());
                let output = child.wait_with_output().expect("it ends");
                [file, mark]
                    .iter()
                    .for_each(|file| std::fs::remove_file(file).expect("ours"));
                let text = String::from_utf8_lossy(&output.stderr).into_owned();
                assert_eq!(output.status.code(), Some(1), "{script}: {text}");
                assert!(text.contains("does not return"), "{script}: {text}");
            });
        }
    });
}

#[test]
fn a_done_that_never_returns_ends_with_one_signal() {
    let (file, mark) = (support::temporary("lua"), support::temporary("mark"));
    let made = format!("io.open('{}', 'w'):close()", mark.display());
    let script = format!("function done() {made} while true do end end\n");
    std::fs::write(&file, script).expect("ok");
    let server = server();
    let child = program()
        .args(["-t1", "-c1", "-d100ms", "-s"])
        .arg(&file)
        .arg(server.url())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    support::wait_until(|| mark.exists());
    let sent = Command::new("kill").arg(child.id().to_string()).status();
    assert!(sent.expect("kill").success());
    let output = child.wait_with_output().expect("it ends");
    [file, mark]
        .iter()
        .for_each(|file| std::fs::remove_file(file).expect("ours"));
    assert_eq!(output.status.signal(), Some(15), "by the signal itself");
}

#[test]
fn a_request_that_is_not_a_text_is_named() {
    // the first request is made before the run begins, the second one in it
    let later =
        "local n = 0\nfunction request() n = n + 1 return n < 2 and wrk.format() or {} end\n";
    let table = [
        ("function request() end\n", "request: returned nil"),
        (later, "request: returned table"),
    ];
    for (script, message) in table {
        let file = support::temporary("lua");
        std::fs::write(&file, script).expect("ok");
        let server = server();
        let output = program()
            .args(["-t1", "-c1", "-d2s", "-s"])
            .arg(&file)
            .arg(server.url())
            .output()
            .expect("it starts");
        std::fs::remove_file(&file).expect("ours");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        let message = format!("wirespeed-load: {message}");
        assert!(text.starts_with(&message), "{text}");
    }
}

#[test]
fn text_that_is_not_a_request_is_refused_with_its_place() {
    let file = support::temporary("lua");
    std::fs::write(
        &file,
        "function request() return 'GET / HTTP/1.1\\r\\nHost' end",
    )
    .expect("ok");
    let server = server();
    let output = program()
        .args(["-t1", "-c1", "-s"])
        .arg(&file)
        .arg(server.url())
        .output();
    let output = output.expect("it starts");
    std::fs::remove_file(&file).expect("ours");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("incomplete request at 1:1"), "{text}");
    assert_eq!(output.status.code(), Some(1));
}
