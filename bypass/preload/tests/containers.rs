//! Programs in containers: each in mount, process, host name, IPC and user namespaces of its own. Those of one network
//! namespace, as the containers of a pod are, share memory; those of two use the kernel.

mod library;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use bypass_testkit::{skip, veth, Case, Namespace};

const CASES: &[Case] = &[
    ("containers_of_one_pod_share_memory", one_pod),
    (
        "containers_in_two_network_namespaces_use_the_kernel",
        two_pods,
    ),
];

const SERVER: &str = "
import socket
listener = socket.create_server(('0.0.0.0', 0))
print(listener.getsockname()[1], flush=True)
while True:
    connection, _ = listener.accept()
    while got := connection.recv(100):
        connection.sendall(got)
";
/// Says what the kernel's TCP of its network namespace has sent for the last of so many connections, or for the first for
/// which that was nothing: a server that has just started may not accept from memory yet.
const CLIENT: &str = "
import socket, sys, time
def sent():
    names, values = (line.split() for line in open('/proc/net/snmp') if line.startswith('Tcp:'))
    return int(values[names.index('OutSegs')])
port = int(sys.stdin.readline())
for _ in range(int(sys.argv[2])):
    before = sent()
    with socket.create_connection((sys.argv[1], port)) as connection:
        for turn in range(100):
            connection.sendall(b'%d' % turn)
            assert connection.recv(100) == b'%d' % turn
        count = sent() - before
    if count == 0:
        break
    time.sleep(0.05)
print(count)
";
/// Connections until one is in memory.
const PATIENCE: &str = "1000";

/// A container's namespaces, except its network; in the second the user is root by a mapping.
const CONTAINER: &str = "--mount --pid --fork --kill-child --mount-proc --uts --ipc";
const ROOTLESS: &str =
    "--user --map-root-user --mount --pid --fork --kill-child --mount-proc --uts";

fn main() {
    bypass_testkit::main(CASES)
}

fn python(pod: &Namespace, container: &str, words: &[&str]) -> Child {
    let mut command = Command::new("unshare");
    if container.is_empty() {
        command = Command::new("env");
    }
    command.args(container.split_whitespace());
    command.args(["python3", "-c"]).args(words);
    command.env("LD_PRELOAD", library::built());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    pod.run(|| command.spawn()).expect("unshare and python3")
}

/// Whether the namespaces of a container may be made here.
fn require(container: &str) {
    let mut command = Command::new("unshare");
    command.args(container.split_whitespace()).arg("true");
    if !command.status().is_ok_and(|end| end.success()) {
        skip(format!("unshare {container} fails here"));
    }
}

/// How many segments the kernel has sent for an exchange between two programs, the last of so many.
fn segments(server: (&Namespace, &str), client: (&Namespace, &str), to: [&str; 2]) -> u64 {
    let mut serving = python(server.0, server.1, &[SERVER]);
    let mut port = String::new();
    let out = serving.stdout.take().expect("a pipe");
    BufReader::new(out).read_line(&mut port).expect("a port");
    let mut asking = python(client.0, client.1, &[CLIENT, to[0], to[1]]);
    let mut input = asking.stdin.take().expect("a pipe");
    input.write_all(port.as_bytes()).expect("a reader");
    drop(input);
    let out = asking.wait_with_output().expect("an end");
    serving.kill().expect("it runs until then");
    serving.wait().expect("an end");
    let said = String::from_utf8_lossy(&out.stdout);
    said.trim().parse().expect("a number of segments")
}

fn one_pod() {
    require(CONTAINER);
    require(ROOTLESS);
    for (server, client) in [
        (CONTAINER, CONTAINER),
        (ROOTLESS, CONTAINER),
        (ROOTLESS, ROOTLESS),
        ("", CONTAINER),
    ] {
        let pod = Namespace::new();
        let sent = segments((&pod, server), (&pod, client), ["127.0.0.1", PATIENCE]);
        assert_eq!(sent, 0, "server {server:?}, client {client:?}");
    }
}

fn two_pods() {
    require(CONTAINER);
    let pods = [Namespace::new(), Namespace::new()];
    veth((&pods[0], "va"), (&pods[1], "vb"), 1);
    for (pod, link, number) in [(&pods[0], "va", 1), (&pods[1], "vb", 2)] {
        pod.ip(&format!("addr add 10.9.0.{number}/24 dev {link}"));
    }
    let to = ["10.9.0.1", "1"];
    let sent = segments((&pods[0], CONTAINER), (&pods[1], CONTAINER), to);
    assert!(sent >= 100, "{sent} segments");
}
