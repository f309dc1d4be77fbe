//! Runs scripts and keeps what the server saw of them.
#![allow(dead_code, reason = "each test file uses a part of it")]

use super::support::{pause, Seen, Server, HELLO};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const TOKEN: &[u8] = b"HTTP/1.1 200 OK\r\nX-Token: t1\r\nContent-Length: 5\r\n\r\nhello";

/// A script of the tests.
pub fn script(name: &str) -> String {
    format!("{}/tests/scripts/{name}.lua", env!("CARGO_MANIFEST_DIR"))
}

/// Says hello, and gives a token to a login.
pub fn server() -> Server {
    Server::start(|mut conversation| {
        while let Some(seen) = conversation.request() {
            let answer = if seen.path() == "/login" {
                TOKEN
            } else {
                HELLO
            };
            pause();
            if !conversation.send(answer) {
                return;
            }
        }
    })
}

/// Runs a script; what the server saw and what was printed.
pub fn play(command: Command, name: &str, options: &str) -> (Vec<Seen>, String) {
    play_file(command, script(name).as_ref(), options)
}

/// As [`play`], with the file of a script.
pub fn play_file(mut command: Command, file: &Path, options: &str) -> (Vec<Seen>, String) {
    let server = server();
    command
        .args(options.split_whitespace())
        .arg("-s")
        .arg(file)
        .arg(server.url());
    let output = command.args(["--", "x", "y"]).output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {errors}", file.display());
    (
        server.seen(),
        String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

/// Line, fields and body of a request.
pub type Request = (String, Vec<String>, Vec<u8>);

/// The requests of one thread's connection, the port of Host left out.
pub fn requests(seen: &[Seen], connection: usize, first: usize) -> Vec<Request> {
    let own = seen
        .iter()
        .filter(|seen| seen.connection == connection)
        .take(first);
    own.map(|seen| {
        let headers = seen
            .headers
            .iter()
            .map(|header| match header.split_once(": 127.0.0.1:") {
                Some((name, _)) => format!("{name}: here"),
                None => header.clone(),
            });
        (seen.line.clone(), headers.collect(), seen.body.clone())
    })
    .collect()
}

/// The first requests of every connection that sent any, as a set: threads start in any order.
pub fn wire(seen: &[Seen]) -> BTreeSet<Vec<Request>> {
    let connections: BTreeSet<usize> = seen.iter().map(|seen| seen.connection).collect();
    connections
        .into_iter()
        .map(|connection| requests(seen, connection, 6))
        .collect()
}
