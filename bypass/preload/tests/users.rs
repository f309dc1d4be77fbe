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

const NOBODY: u32 = 65534;
const SERVER: &str = "
import socket
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
while True:
    with listener.accept()[0] as connection:
        connection.sendall(connection.recv(5))
        connection.recv(1)
";
/// Connects until that is shared, or so many times: on a busy machine a server may not accept from memory yet, or not
/// answer in time.
const CLIENT: &str = "
import socket, sys, time
port = int(sys.stdin.readline())
remote, established = '0100007F:%04X' % port, '01'
def path():
    with socket.create_connection(('127.0.0.1', port)) as connection:
        connection.sendall(b'hello')
        assert connection.recv(5) == b'hello'
        rows = [line.split() for line in open('/proc/net/tcp')]
        return 'kernel' if any(row[2:4] == [remote, established] for row in rows) else 'shared'
for _ in range(int(sys.argv[1])):
    found = path()
    if found == 'shared':
        break
    time.sleep(0.1)
print(found)
";
/// Connections until one is shared where it is to be, and where none is.
const TRIES: [&str; 2] = ["600", "3"];

/// A user and the value of EF_SHARE_WITH.
type Side = (u32, &'static str);

#[test]
fn memory_is_shared_with_the_own_user_and_with_users_that_are_named() {
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
    let copy = Copy::new("named");
    for (server, client, expected) in cases {
        assert_eq!(
            copy.meet(copy.python(SERVER, *server), *client, expected),
            *expected,
            "server {server:?}, client {client:?}"
        );
    }
}

/// In a user namespace without mappings every user reads as the same one, the server's own included.
#[test]
fn users_whom_a_user_namespace_does_not_know_share_nothing() {
    if bypass_sys::kernel::geteuid() != Ok(0) {
        return report_skip("only root can start processes of two users");
    }
    let is_possible = Command::new("unshare").args(["--user", "true"]).status();
    if !is_possible.is_ok_and(|end| end.success()) {
        return report_skip("no user namespace can be made here");
    }
    let copy = Copy::new("unknown");
    let mut apart = copy.command("unshare");
    apart.args(["--user", "/usr/bin/python3", "-c", SERVER]);
    assert_eq!(copy.meet(apart, (NOBODY, "0"), "kernel"), "kernel");
}

/// A copy of the library in a place that every user may read.
struct Copy {
    folder: PathBuf,
    library: PathBuf,
}

impl Copy {
    fn new(of: &str) -> Self {
        let folder = PathBuf::from(format!("/tmp/bypass-users-{}-{of}", std::process::id()));
        fs::create_dir(&folder).expect("a folder");
        let readable = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755));
        readable(&folder).expect("permissions");
        let library = folder.join(library::LIBRARY);
        fs::copy(library::built(), &library).expect("the library to be there");
        readable(&library).expect("permissions");
        Self { folder, library }
    }

    /// A command to which the copy is preloaded.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .stdout(Stdio::piped())
            .env("LD_PRELOAD", &self.library);
        command
    }

    fn python(&self, script: &str, (user, share): Side) -> Command {
        // Not the first of PATH: that one may lie where only root can go.
        let mut command = self.command("/usr/bin/python3");
        command.args(["-c", script]).uid(user);
        command.env("EF_SHARE_WITH", share);
        command
    }

    /// How the client's connection to the server was made, which is expected to be so.
    fn meet(&self, mut server: Command, client: Side, expected: &str) -> String {
        let mut server = server.stdin(Stdio::null()).spawn().expect("python3");
        let mut port = String::new();
        let out = server.stdout.take().expect("a pipe");
        BufReader::new(out).read_line(&mut port).expect("a port");
        let mut client = self
            .python(CLIENT, client)
            .arg(TRIES[usize::from(expected == "kernel")])
            .stdin(Stdio::piped())
            .spawn()
            .expect("python3");
        let mut input = client.stdin.take().expect("a pipe");
        input.write_all(port.as_bytes()).expect("a reader");
        drop(input);
        let out = client.wait_with_output().expect("an end");
        server.kill().expect("it runs until then");
        server.wait().expect("an end");
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
