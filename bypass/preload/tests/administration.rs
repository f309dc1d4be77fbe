//! Messages and settings for administrators: reports, strict mode, and what a program does where something that the
//! library needs is missing.

mod itself;
mod library;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use bypass_stats::View;
use bypass_testkit::report_skip;

use itself::TO_ITSELF;

/// A listener of the kernel's, whatever is preloaded; prints its port and waits for the end of its input.
const KERNELS: &str = "
import socket, sys
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
sys.stdin.read()
";

/// Far more than anything here takes, also on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn python(script: &str) -> Command {
    // Not the first of PATH, which may be a script.
    let mut command = Command::new("/usr/bin/python3");
    command
        .args(["-c", script])
        .env("LD_PRELOAD", library::built());
    for (name, _) in std::env::vars() {
        if name.starts_with("EF_") {
            command.env_remove(name);
        }
    }
    command
}

fn said(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&all).trim().to_owned()
}

/// A file of this test's that is not there yet.
fn file(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("administration");
    fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join(format!("{name}-{}", std::process::id()));
    let _ = fs::remove_file(&path);
    path
}

fn taken(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let _ = fs::remove_file(path);
    text
}

/// Runs `work` with the port of a listener that is handled by the kernel.
fn beside_kernels<T>(work: impl FnOnce(u16) -> T) -> T {
    let mut command = python(KERNELS);
    command
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut server = command.spawn().expect("python3");
    let mut line = String::new();
    let out = server.stdout.take().expect("a pipe");
    BufReader::new(out).read_line(&mut line).expect("a port");
    let done = work(line.trim().parse().expect("a number"));
    drop(server.stdin.take());
    server.wait().expect("an end");
    done
}

#[test]
fn a_connection_that_is_left_to_the_kernel_is_a_line_of_the_log_and_a_decision() {
    const CLIENT: &str = "
import socket, sys
client = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
print('connected', flush=True)
sys.stdin.read()
";
    let log = file("conn_drop");
    beside_kernels(|port| {
        let mut command = python(CLIENT);
        command
            .arg(port.to_string())
            .env("EF_LOG", "conn_drop")
            .env("EF_LOG_FILE", &log);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut client = command.spawn().expect("python3");
        let mut line = String::new();
        let out = client.stdout.as_mut().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("a line");
        let view = View::open(client.id()).expect("readable").expect("a page");
        let decisions = view.decisions();
        assert_eq!(decisions.len(), 1, "{decisions:?}");
        let one = &decisions[0];
        assert_eq!(
            (one.call, one.reason, one.has_failed),
            ("connect", "no-holder", false)
        );
        assert_eq!(one.address, format!("127.0.0.1:{port}"));
        drop(client.stdin.take());
        let done = client.wait_with_output().expect("an end");
        assert_eq!(done.stderr, b"");
        let text = format!("connect to 127.0.0.1:{port} is left to the kernel: no-holder\n");
        let written = taken(&log);
        assert!(
            written.starts_with("bypass[") && written.ends_with(&text),
            "{written}"
        );
    });
}

#[test]
fn a_connect_fails_where_the_kernel_is_forbidden() {
    const CLIENT: &str = "
import errno, socket, sys
def outcome(port):
    try:
        socket.create_connection(('127.0.0.1', port)).close()
    except OSError as error:
        return errno.errorcode[error.errno].replace('ENOTSUP', 'EOPNOTSUPP')
    return 'connected'
free = socket.socket()
free.bind(('127.0.0.1', 0))
print(outcome(int(sys.argv[1])), outcome(free.getsockname()[1]))
";
    let log = file("strict");
    beside_kernels(|port| {
        let run = |no_fail: &str| {
            let mut command = python(CLIENT);
            command
                .arg(port.to_string())
                .env("EF_NO_FAIL", no_fail)
                .env("EF_LOG_FILE", &log);
            said(&command.output().expect("python3"))
        };
        assert_eq!(run("1"), "connected ECONNREFUSED");
        assert_eq!(taken(&log), "");
        assert_eq!(run("0"), "EOPNOTSUPP ECONNREFUSED");
        let text = format!("connect to 127.0.0.1:{port} has failed, as EF_NO_FAIL=0 forbids the kernel: no-holder\n");
        let written = taken(&log);
        assert!(written.ends_with(&text), "{written}");
    });
}

#[test]
fn a_listen_fails_where_the_kernel_is_forbidden() {
    const SERVER: &str = "
import errno, socket
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, 29, 1)  # SO_TIMESTAMP, which only the kernel has
listener.bind(('127.0.0.1', 0))
try:
    listener.listen()
    print('listens')
except OSError as error:
    print(errno.errorcode[error.errno].replace('ENOTSUP', 'EOPNOTSUPP'))
    try:
        socket.create_connection(listener.getsockname())
    except ConnectionRefusedError:
        print('and no process listens')
";
    let run = |no_fail: &str| {
        let log = file("strict-listen");
        let mut command = python(SERVER);
        command.env("EF_NO_FAIL", no_fail).env("EF_LOG_FILE", &log);
        let done = said(&command.output().expect("python3"));
        (done, taken(&log))
    };
    assert_eq!(run("1"), ("listens".to_owned(), String::new()));
    let (done, log) = run("0");
    assert_eq!(done, "EOPNOTSUPP\nand no process listens");
    assert!(
        log.contains("listener at 127.0.0.1:") && log.ends_with(": option\n"),
        "{log}"
    );
}

/// Another file of a daemon that has closed its standard error may have that number.
#[test]
fn descriptor_2_of_a_running_program_is_never_written_to() {
    const DAEMON: &str = "
import os, socket, sys
os.close(2)
assert os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o600) == 2
listener = socket.create_server(('127.0.0.1', 0))
print('listens')
";
    let (data, log) = (file("data"), file("log"));
    let mut command = python(DAEMON);
    command
        .arg(&data)
        .env("EF_INTERFACE_WHITELIST", "no-such0")
        .env("EF_LOG_FILE", &log);
    assert_eq!(said(&command.output().expect("python3")), "listens");
    assert_eq!(taken(&data), "");
    let written = taken(&log);
    assert!(
        written.contains("no-such0: ") && written.contains("stay on the kernel"),
        "{written}"
    );
}

#[test]
fn mistakes_in_the_environment_are_written_to_no_file_of_data() {
    let (data, log) = (file("stderr"), file("complaints"));
    let run = |errors: Stdio| {
        let mut command = python("pass");
        command
            .env("EF_POL_USEC", "1")
            .env("EF_LOG_FILE", &log)
            .stderr(errors);
        let done = command.output().expect("python3");
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    let said = run(Stdio::piped());
    assert!(
        said.starts_with("bypass: EF_POL_USEC: unknown option"),
        "{said}"
    );
    assert_eq!(taken(&log), "");
    run(fs::File::create(&data).expect("a file").into());
    assert_eq!(taken(&data), "");
    assert!(taken(&log).contains("EF_POL_USEC: unknown option"));
}

/// vm.overcommit_memory=2, as a file that stands in for it: memory that is shared could end a program by SIGBUS then.
#[test]
fn nothing_is_shared_where_memory_is_not_overcommitted() {
    const SETTING: &str = "/proc/sys/vm/overcommit_memory";
    if fs::read_to_string(SETTING).is_ok_and(|text| text.trim() == "2") {
        return report_skip("vm.overcommit_memory is 2 here");
    }
    let (two, script) = (file("two"), file("script"));
    fs::write(&two, "2\n").expect("a file");
    fs::write(&script, TO_ITSELF).expect("a file");
    let mount = format!("mount --bind '{}' {SETTING}", two.display());
    let apart = |command: String| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "sh", "-c", &command]);
        unshare.output()
    };
    if !apart(mount.clone()).is_ok_and(|done| done.status.success()) {
        return report_skip("no mount can be made here");
    }
    assert_eq!(
        said(&python(TO_ITSELF).output().expect("python3")),
        "shared"
    );
    let library = library::built().display();
    let run = format!(
        "LD_PRELOAD='{library}' exec /usr/bin/python3 '{}'",
        script.display()
    );
    let done = apart(format!("{mount} && {run}")).expect("unshare");
    assert_eq!(said(&done), "kernel");
    taken(&two);
    taken(&script);
}

#[test]
fn a_connection_is_refused_by_a_set_that_is_one_too_many() {
    const SETS: u64 = 4096;
    let script = TO_ITSELF.to_owned()
        + "
import errno, resource, select
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
sets = [select.epoll() for _ in range(4096)]
sets[-1].register(client, select.EPOLLIN)
print(sets[-1].poll(0))
try:
    select.epoll().register(client, select.EPOLLIN)
except OSError as error:
    print(errno.errorcode[error.errno].replace('ENOTSUP', 'EOPNOTSUPP'))
print(select.epoll().register(0, select.EPOLLIN))
";
    let limit = Command::new("sh")
        .args(["-c", "ulimit -Hn"])
        .output()
        .expect("sh");
    let limit = String::from_utf8_lossy(&limit.stdout)
        .trim()
        .parse()
        .unwrap_or(u64::MAX);
    if limit < SETS + 200 {
        return report_skip("fewer descriptors than sets");
    }
    let mut command = python(&script);
    command.stdin(Stdio::piped());
    let done = command.output().expect("python3");
    assert_eq!(said(&done), "shared\n[]\nENOSPC\nNone");
}

/// The pool keeps closed sockets for later ones.
#[test]
fn a_listener_has_descriptors_that_the_pool_keeps() {
    const SERVER: &str = "
import os, resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
listener = socket.socket()
listener.bind(('127.0.0.1', 0))
later = [socket.socket() for _ in range(12)]
try:
    while True:
        os.dup(0)
except OSError:
    pass
for one in later:
    one.close()
listener.listen()
print('listens', flush=True)
sys.stdin.read()
";
    let mut command = python(SERVER);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = command.spawn().expect("python3");
    let mut lines = BufReader::new(server.stdout.take().expect("a pipe")).lines();
    let line = lines.next().expect("a line").expect("text");
    assert_eq!(line, "listens");
    assert_eq!(sockets_of(server.id()), [("listener", "open")]);
    drop(server.stdin.take());
    assert!(server.wait().expect("an end").success());
}

/// Runs `look` with the process of a script each time that it says so, until it ends.
fn at_each_stop(script: &str, mut look: impl FnMut(u32)) {
    let stop = "
import os, sys
def stop():
    print('at', os.getpid(), flush=True)
    sys.stdin.readline()
";
    let mut command = python(&(TO_ITSELF.to_owned() + stop + script));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("python3");
    let mut answer = child.stdin.take().expect("a pipe");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    for line in lines.map_while(Result::ok) {
        if let Some(process) = line.strip_prefix("at ") {
            look(process.parse().expect("a number"));
            writeln!(answer).expect("it waits");
        } else {
            assert_eq!(line, "shared");
        }
    }
    assert!(child.wait().expect("an end").success());
}

/// Role and state of each socket of a process.
fn sockets_of(process: u32) -> Vec<(&'static str, &'static str)> {
    let view = View::open(process).expect("readable").expect("a page");
    let mut all: Vec<_> = view
        .connections()
        .iter()
        .map(|one| (one.role, one.state))
        .collect();
    all.sort_unstable();
    all
}

#[test]
fn the_statistics_say_how_far_connections_have_ended() {
    let script = "
server = listener.accept()[0]
stop()
client.shutdown(socket.SHUT_WR)
server.recv(1)
stop()
server.close()
client.recv(1)
stop()
";
    let listener = ("listener", "open");
    let mut all = vec![
        vec![("client", "closed"), listener],
        vec![
            ("client", "half-closed"),
            listener,
            ("server", "peer-closed"),
        ],
        vec![("client", "open"), listener, ("server", "open")],
    ];
    at_each_stop(script, |process| {
        assert_eq!(sockets_of(process), all.pop().expect("three stops"));
    });
    assert!(all.is_empty());
}

#[test]
fn the_statistics_show_no_connection_that_was_left_to_the_kernel() {
    let script = "
crowded = socket.create_server(('127.0.0.1', 0), backlog=1)
crowded.setblocking(False)
try:
    crowded.accept()
except BlockingIOError:
    pass
clients = [socket.create_connection(crowded.getsockname()) for _ in range(3)]
stop()
";
    at_each_stop(script, |process| {
        let view = View::open(process).expect("readable").expect("a page");
        let decisions = view.decisions();
        let target = &decisions.last().expect("one is too many").address;
        let left = decisions.iter().filter(|one| one.address == *target);
        let connections = view.connections();
        let shown = connections.iter().filter(|one| one.peer == *target);
        // Two may wait in memory, and two in the kernel, where another one goes that is not answered in time.
        assert_eq!(left.count() + shown.count(), 3);
    });
}

/// As PostgreSQL's, which makes a child for each connection, and those of servers that become daemons once they listen.
#[test]
fn the_statistics_of_a_child_have_its_listeners_and_the_connections_that_it_uses() {
    let script = "
server = listener.accept()[0]
child = os.fork()
if child == 0:
    stop()
    server.send(b'x')
    stop()
    os._exit(0)
os.waitpid(child, 0)
";
    let mut all = vec![
        vec![("listener", "open"), ("server", "open")],
        vec![("listener", "open")],
    ];
    at_each_stop(script, |process| {
        assert_eq!(sockets_of(process), all.pop().expect("two stops"));
    });
    assert!(all.is_empty());
}

/// Waits until a file is there and has been written, not only begun. The thread writes when it has something to do, and
/// every few seconds.
fn await_written(folder: &Path) {
    let bytes = || {
        let mut files = fs::read_dir(folder).expect("a folder");
        files.next().map_or(0, |file| {
            file.and_then(|file| file.metadata())
                .map_or(0, |state| state.len())
        })
    };
    let (since, mut before) = (Instant::now(), 0);
    while before == 0 || bytes() != before {
        assert!(since.elapsed() < PATIENCE, "nothing is written");
        before = bytes();
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_counters_of_a_killed_process_are_kept_where_a_folder_is_named() {
    let folder = file("kept");
    fs::create_dir(&folder).expect("a folder");
    let script =
        TO_ITSELF.to_owned() + "\nprint('now', flush=True)\nimport time\ntime.sleep(1000)\n";
    let mut command = python(&script);
    command
        .env("WIRESPEED_KEEP_STATS", &folder)
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("python3");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line == "now")));
    await_written(&folder);
    assert_eq!(View::ended(&folder).expect("a folder").len(), 0, "it lives");
    child.kill().expect("ours");
    child.wait().expect("an end");
    let found = View::ended(&folder).expect("a folder");
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].0, found[0].1.header().pid),
        (child.id(), child.id())
    );
    fs::remove_dir_all(&folder).expect("ours");
}
