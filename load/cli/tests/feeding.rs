//! Rows of data, think times, and rates from a file.

mod support;

use std::collections::HashSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use support::{always, count, measured, program, run, slow, temporary, Server, HELLO};

fn file(text: &str) -> PathBuf {
    let path = temporary("txt");
    std::fs::write(&path, text).expect("a file");
    path
}

#[test]
fn rows_fill_path_fields_and_body_one_after_the_other() {
    let server = Server::start(always(HELLO));
    let rows = file("user,text\nann b,\"x, y\"\nbob,\"{\"\n");
    let line = [
        "-t1",
        "-c1",
        "-n",
        "6",
        "-H",
        "X-User: {user}",
        "--body",
        "{\"t\":\"{text}\"}",
        "--data",
    ];
    let output = support::program()
        .args(line)
        .arg(&rows)
        .arg(format!("{}{{user}}/{{none}}", server.url()))
        .output()
        .expect("it starts");
    std::fs::remove_file(&rows).expect("ours");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let seen = server.seen();
    let told: Vec<_> = seen
        .iter()
        .map(|seen| {
            let user = seen
                .headers
                .iter()
                .find(|field| field.starts_with("X-User"));
            let body = String::from_utf8_lossy(&seen.body).into_owned();
            (
                seen.path().to_string(),
                user.cloned().unwrap_or_default(),
                body,
            )
        })
        .collect();
    let ann = (
        "/ann%20b/{none}".into(),
        "X-User: ann b".into(),
        r#"{"t":"x, y"}"#.into(),
    );
    let bob = (
        "/bob/{none}".into(),
        "X-User: bob".into(),
        r#"{"t":"{"}"#.into(),
    );
    assert_eq!(told, [&ann, &bob, &ann, &bob, &ann, &bob].map(Clone::clone));
}

#[test]
fn a_script_has_the_body_of_a_file_that_can_be_read_once() {
    let (server, script) = (
        Server::start(always(HELLO)),
        file("-- sends what was typed"),
    );
    let mut command = program();
    command.args("-t1 -c1 -n 1 -d60s -T30s --body-file /dev/stdin -s".split(' '));
    command.arg(&script).arg(server.url());
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().expect("it starts");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(b"hello").expect("room");
    drop(input);
    assert!(child.wait().expect("it ends").success());
    std::fs::remove_file(&script).expect("ours");
    let seen = server.seen();
    assert_eq!((seen.len(), &seen[0].body[..]), (1, &b"hello"[..]));
}

#[test]
fn users_who_think_ask_less_often() {
    let server = Server::start(always(HELLO));
    let line = format!("-t1 -c5 -d1s --think 100ms..300ms {}", server.url());
    let result = measured(&line);
    let completed = count(&result, "/totals/completed");
    // five users, each with a pause of 100 ms at least before each request
    assert!(completed > 0 && completed <= 50, "{completed}");
    assert_eq!(result["plan"]["think_s"], serde_json::json!([0.1, 0.3]));
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
}

#[test]
fn users_who_think_when_their_step_ends_send_no_more() {
    let server = Server::start(always(HELLO));
    // each sends after 400 ms, and three of four are not wanted any more after 500 ms, long before they would
    // send again
    let line = format!(
        "-t1 -c4..1:3 --step 500ms --think 400ms -T30s {}",
        server.url()
    );
    let result = measured(&line);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
    let seen = server.seen();
    let of = |number| seen.iter().filter(|seen| seen.connection == number).count();
    let numbers: HashSet<usize> = seen.iter().map(|seen| seen.connection).collect();
    let busy = numbers.iter().filter(|number| of(**number) > 1).count();
    assert!(busy <= 1, "{busy} users went on");
}

#[test]
fn a_rate_from_a_file_is_sent_exactly() {
    let server = Server::start(always(HELLO));
    // 100 at 200/s, 50 on the way down, none, then 20 at once at 100/s
    let curve = file("0s 200\n500ms 200\n1s 0\n1200ms 0 # a pause\n1200ms 100\n1400ms 100\n");
    let line = format!("-t2 -c8 -T30s -R @{} {}", curve.display(), server.url());
    let result = measured(&line);
    std::fs::remove_file(&curve).expect("ours");
    assert_eq!(
        count(&result, "/totals/completed"),
        170,
        "{}",
        result["errors"]
    );
    assert_eq!(result["plan"]["duration_s"], 1.4);
    assert_eq!(result["plan"]["rates"].as_array().map(Vec::len), Some(4));
}

/// Lines of a log in the combined format.
fn log_of(lines: &[(u32, &str)]) -> PathBuf {
    let each = lines.iter().map(|(second, request)| {
        format!(
            "10.1.2.3 - - [05/Mar/2026:10:00:{second:02} +0100] \"{request}\" 200 5 \"-\" \"x\"\n"
        )
    });
    file(&each.collect::<String>())
}

#[test]
fn a_log_is_replayed_in_its_order_at_its_times() {
    let server = Server::start(|mut conversation| {
        while let Some(seen) = conversation.request() {
            let is_head = seen.line.starts_with("HEAD");
            let length = if is_head {
                HELLO.len() - 5
            } else {
                HELLO.len()
            };
            if !conversation.send(&HELLO[..length]) {
                return;
            }
        }
    });
    let log = log_of(&[
        (0, "GET /a HTTP/1.1"),
        (0, "GET /b?x=1 HTTP/1.1"),
        (1, "POST /write HTTP/1.1"),
        (2, "HEAD /c HTTP/1.1"),
        (1, "GET /a HTTP/1.1"),
    ]);
    let url = format!("{}ignored", server.url());
    let line = format!(
        "-t1 -c1 -T30s --replay {} -H X-Replayed:1 {url}",
        log.display()
    );
    let result = measured(&line);
    let lines: Vec<String> = server.seen().into_iter().map(|seen| seen.line).collect();
    let expected = ["GET /a", "GET /b?x=1", "GET /a", "HEAD /c"];
    assert_eq!(lines, expected.map(|line| format!("{line} HTTP/1.1")));
    // the last one is due two seconds after the first, which may be late itself
    let took = server.seen()[3].at - server.seen()[0].at;
    assert!(took.as_millis() >= 1000, "{took:?}");
    assert_eq!(result["plan"]["arrival"], "recorded");
    assert_eq!(count(&result, "/totals/due"), 4);
    assert_eq!(count(&result, "/totals/completed"), 4);
    let fast = measured(&format!(
        "-t2 -c4 -T30s --speed 10 --replay {} {url}",
        log.display()
    ));
    std::fs::remove_file(&log).expect("ours");
    assert_eq!(count(&fast, "/totals/completed"), 4);
    assert_eq!(fast["plan"]["duration_s"], 0.201);
}

#[test]
fn a_line_that_is_not_sent_moves_no_later_line() {
    // the first answer comes when the two lines after it are too late in either way
    let server = slow(Duration::from_millis(1500));
    let log = file("0.0 GET /a\n0.0 GET /b\n0.0 GET /c\n4.0 GET /d\n");
    for (options, name) in [("--late drop", "dropped"), ("--deadline 1s", "shed")] {
        let before = server.asked();
        let line = format!(
            "-t1 -c1 -T30s {options} --replay {} {}",
            log.display(),
            server.url()
        );
        let result = measured(&line);
        assert_eq!(count(&result, &format!("/totals/{name}")), 2, "{options}");
        let seen = server.seen();
        let paths: Vec<_> = seen[before..].iter().map(|seen| seen.path()).collect();
        assert_eq!(paths, ["/a", "/d"], "{options}");
    }
    std::fs::remove_file(&log).expect("ours");
}

#[test]
fn mistakes_are_named_before_anything_is_sent() {
    let server = Server::start(always(HELLO));
    let (rows, curve) = (file("id\n1\n"), file("0s 5\n"));
    let log = file("0 GET /\n9 GET /\n");
    let table = [
        ("--data ROWS URL", "--data: http://"),
        ("--data /none URL{id}", "--data: cannot read /none"),
        (
            "--data CURVE URL{id}",
            "it has no rows below the names of the columns",
        ),
        ("--data ROWS tcp://HOST", "--data: is for requests of HTTP"),
        (
            "--data ROWS --grpc URL{id}",
            "--data: does not work with --grpc",
        ),
        ("--think soon URL", "--think: invalid time 'soon'"),
        ("--think 2s..1s URL", "--think: invalid time '2s..1s'"),
        ("--think 1s -R5 URL", "--think: is for a closed loop"),
        ("--replay /none URL", "--replay: cannot read /none"),
        (
            "--replay ROWS URL",
            "has no line with a time and a GET, HEAD or OPTIONS request",
        ),
        (
            "--replay ROWS -R5 URL",
            "--rate: does not work with --replay",
        ),
        (
            "--replay LOG --speed 0.000000001 URL",
            "--speed: makes LOG last longer than 100 years",
        ),
        ("--speed 2 URL", "--speed: needs --replay"),
        ("-R @/none URL", "--rate: cannot read /none"),
        ("-R @CURVE URL", "no stretch of time with a rate above 0"),
        (
            "-R @CURVE -d 5s URL",
            "no stretch of time with a rate above 0",
        ),
    ];
    for (line, message) in table {
        let log = log.display().to_string();
        let (line, message) = (line.replace("LOG", &log), message.replace("LOG", &log));
        let line = line
            .replace("ROWS", &rows.display().to_string())
            .replace("CURVE", &curve.display().to_string())
            .replace("URL", &server.url())
            .replace("HOST", &server.address.to_string());
        let output = run(&line);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {errors}");
        assert!(errors.contains(&message), "{line}: {errors}");
    }
    [rows, curve, log]
        .iter()
        .for_each(|file| std::fs::remove_file(file).expect("ours"));
    assert_eq!(server.asked(), 0);
}
