//! Which users' processes share memory: by default one user's, with EF_SHARE_WITH the named ones too.
//!
//! Needs root, to start processes of two users. A connection that the
//! kernel's table does not show was accelerated.

mod library;

use bypass_testkit::report_skip;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

const NOBODY: u32 = 65534;
const SERVER: &str = "
import socket
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
connection.sendall(connection.recv(5))
connection.recv(1)
";
const CLIENT: &str = "
import socket, sys
port = int(sys.stdin.readline())
connection = socket.create_connection(('127.0.0.1', port))
connection.sendall(b'hello')
assert connection.recv(5) == b'hello'
remote, established = '0100007F:%04X' % port, '01'
rows = [line.split() for line in open('/proc/net/tcp')]
print('kernel' if any(row[2:4] == [remote, established] for row in rows) else 'shared')
";

/// A user and the value of EF_SHARE_WITH.
type Side = (u32, &'static str);

#[test]
fn memory_is_shared_with_the_own_user_and_those_who_are_named() {
    if bypass_sys::kernel::geteuid() != Ok(0) {
        return report_skip("only root can start processes of two users");
    }
    let cases: &[(Side, Side, &str)] = &[
        ((0, "0"), (0, "0"), "shared"),
        ((NOBODY, "0"), (NOBODY, "0"), "shared"),
        ((0, "0"), (NOBODY, "-1"), "kernel"),
        ((0, "1"), (NOBODY, "-1"), "kernel"),
        ((0, "65534"), (NOBODY, "0"), "shared"),
        ((0, "-1"), (NOBODY, "0"), "shared"),
        ((NOBODY, "-1"), (0, "0"), "kernel"),
        ((NOBODY, "0"), (0, "65534"), "shared"),
    ];
    for (server, client, expected) in cases {
        assert_eq!(
            meet(*server, *client),
            *expected,
            "server {server:?}, client {client:?}"
        );
    }
    assert_that_unknown_users_share_nothing();
    fs::remove_dir_all(copy().parent().expect("a folder")).expect("the copy to be there");
}

/// In a user namespace that knows nobody every user reads as the same one, the server's own included.
fn assert_that_unknown_users_share_nothing() {
    let is_possible = Command::new("unshare").args(["--user", "true"]).status();
    if !is_possible.is_ok_and(|end| end.success()) {
        eprintln!("skipped: no user namespace can be made here");
        return;
    }
    let mut apart = Command::new("unshare");
    apart.args(["--user", "/usr/bin/python3", "-c", SERVER]);
    apart.stdout(Stdio::piped()).env("LD_PRELOAD", copy());
    assert_eq!(meet_at(apart, (NOBODY, "0")), "kernel");
}

/// How the client's connection to the server was made.
fn meet(server: Side, client: Side) -> String {
    meet_at(python(SERVER, server), client)
}

fn meet_at(mut server: Command, client: Side) -> String {
    let mut server = server.stdin(Stdio::null()).spawn().expect("python3");
    let mut port = String::new();
    let out = server.stdout.take().expect("a pipe");
    BufReader::new(out).read_line(&mut port).expect("a port");
    let mut client = python(CLIENT, client)
        .stdin(Stdio::piped())
        .spawn()
        .expect("python3");
    let mut input = client.stdin.take().expect("a pipe");
    input.write_all(port.as_bytes()).expect("a reader");
    drop(input);
    let out = client.wait_with_output().expect("an end");
    server.wait().expect("an end");
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

fn python(script: &str, (user, share): Side) -> Command {
    // Not the first of PATH: that one may lie where only root can go.
    let mut command = Command::new("/usr/bin/python3");
    command
        .args(["-c", script])
        .uid(user)
        .stdout(Stdio::piped());
    command
        .env("LD_PRELOAD", copy())
        .env("EF_SHARE_WITH", share);
    command
}

/// A copy of the library in a place that every user may read.
fn copy() -> &'static Path {
    static COPY: OnceLock<PathBuf> = OnceLock::new();
    COPY.get_or_init(|| {
        let folder = PathBuf::from(format!("/tmp/bypass-users-{}", std::process::id()));
        fs::create_dir(&folder).expect("a folder");
        let readable = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755));
        readable(&folder).expect("permissions");
        let copy = folder.join(library::LIBRARY);
        fs::copy(library::built(), &copy).expect("the library to be there");
        readable(&copy).expect("permissions");
        copy
    })
}
