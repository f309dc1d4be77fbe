//! Programs over packets: two namespaces joined by a veth pair, one host each.
//!
//! The contract programs that have two roles run on the kernel, which is the oracle, and with one or
//! both ends accelerated over AF_XDP. Programs that the kernel itself cannot run between two hosts, because both
//! roles listen or share files, are left out. `CONTRACT_ONLY=NAME` runs one program.

mod between;
mod library;
#[path = "contract/programs.rs"]
mod programs;
#[path = "contract/running.rs"]
mod running;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bypass_stats::View;
use bypass_testkit::{require_tool, Case};

use between::{
    accepts, ask, child_of, children_of, connect, end, get, left_to_kernel, netstat, reloads,
    require_xdp, root, serve, start_nginx, takes_packets, undisturbed, wait_until, Network, LIMIT,
    LIMIT_OF_LOST, PAGE, PATIENCE, SERVER,
};
use programs::{programs, Program};
use running::{run_on, Hosts, Mode};

const CASES: &[Case] = &[
    ("an_accelerated_server_does_what_the_kernel_does", || {
        compare(Mode::Server)
    }),
    ("an_accelerated_client_does_what_the_kernel_does", || {
        compare(Mode::Client)
    }),
    ("both_ends_accelerated_do_what_the_kernel_does", || {
        compare(Mode::Both)
    }),
    ("nginx_answers_over_packets_and_leaves_the_interface", nginx),
    ("nginx_reloads_under_load_without_losing_a_request", || {
        nginx_reloads("root")
    }),
    (
        "nginx_reloads_under_load_with_workers_of_another_user",
        || nginx_reloads("nobody nogroup"),
    ),
    (
        "a_client_that_is_started_anew_comes_back_to_what_its_server_keeps",
        restarted_clients,
    ),
    (
        "a_new_worker_follows_one_that_was_killed",
        a_worker_follows_another,
    ),
    (
        "a_new_binary_that_inherits_the_listener_goes_on_over_packets",
        || upgraded(1),
    ),
    ("a_new_binary_goes_on_over_every_queue", || upgraded(4)),
    (
        "connections_of_every_queue_are_carried_and_reach_every_worker",
        || many_workers(4, 8),
    ),
    ("sixteen_workers_share_one_queue", || many_workers(1, 16)),
    (
        "answers_to_connections_that_are_opened_come_on_any_queue",
        opens_over_queues,
    ),
    (
        "a_connect_does_not_read_the_kernels_tables_again",
        connects_without_netlink,
    ),
    ("a_server_of_both_families_answers_in_both", both_families),
    (
        "programs_that_share_a_port_each_get_connections",
        shared_port,
    ),
    (
        "a_server_that_gives_up_root_before_it_listens_takes_packets",
        gives_up_root,
    ),
    (
        "options_that_guard_connections_keep_them_on_the_kernel",
        guarded,
    ),
    (
        "a_server_that_forbids_itself_sockets_goes_on_when_its_neighbour_is_forgotten",
        confined,
    ),
    ("connections_beyond_the_limit_are_the_kernels", || {
        assert!(crowd(1000, 1500, 2, "connections_beyond_the_limit"));
    }),
    (
        "more_connections_than_a_segment_has_places_are_carried",
        || assert!(!crowd(32_768, 17_000, 1, "more_than_a_segment")),
    ),
];

/// Programs that are not compared, and why; docs/internals/limits/packets.md says the same in words.
const LEFT_OUT: &[(&str, &str)] = &[
    ("address_form", "dials mapped addresses of the loopback"),
    (
        "buffer_refused",
        "how much a connection takes at once depends on the link",
    ),
    ("bound_client", "binds to an address of the loopback"),
    ("bound_without_port", "binds to addresses of the loopback"),
    ("ipv6", "listens on ::1"),
    ("wildcard", "dials several addresses of the loopback"),
    (
        "exit_handlers",
        "the engine ends before handlers that were registered earlier, and destructors",
    ),
    (
        "exec_standard_streams",
        "its connections go through exec twice; not tried between hosts",
    ),
    (
        "entered_namespace",
        "the client goes to the server's namespace, which is another host's here",
    ),
    ("same_port", "dials several addresses of the loopback"),
    (
        "connect_reset",
        "connects a socket again whose connection was reset: over packets the next one is reset, too",
    ),
    (
        "connect_beside_stopped",
        "its client listens at the server's address, too",
    ),
    (
        "inherited_closed",
        "its client listens at the server's address, too",
    ),
    (
        "seccomp_no_poll",
        "its client listens at the server's address, too",
    ),
    ("option_sweep", "asks for what the loopback knows"),
    ("option_sweep_ipv6", "listens on ::1"),
    ("options_set_late", "listens on ::1"),
    (
        "clients_of_stopped_worker",
        "the worker that it stops is the one whose engine would answer",
    ),
    (
        "bytes_outlive_writer",
        "the peer of a killed process is not notified",
    ),
    (
        "accept_as_segment_comes",
        "the peer of a killed process is not notified",
    ),
    ("core_dump", "the peer of a killed process is not notified"),
    (
        "unaccepted_at_killed_server",
        "the peer of a killed process is not notified",
    ),
    (
        "client_killed_anywhere",
        "the peer of a killed process is not notified",
    ),
    (
        "server_killed_anywhere",
        "the peer of a killed process is not notified",
    ),
    ("locked_later", "an engine's frames are resident"),
    ("locked_within_limit", "an engine's frames are locked memory"),
    ("spinning_on_one_core", "an engine spends CPU time of its own"),
    (
        "left_at_exit",
        "the peer of a killed process is not notified",
    ),
    (
        "outlives_parent",
        "the peer of a killed process is not notified",
    ),
    (
        "child_outlives_workers",
        "the peer of a killed process is not notified",
    ),
    (
        "acceptors_killed",
        "the listener outlives the process that uses the interface",
    ),
    ("bulk_transfer", "large_transfer sends enough between hosts"),
    ("write_to_closed", "relies on how much the loopback holds"),
    ("buffer_sizes", "relies on how much the loopback holds"),
    (
        "send_buffer_raised",
        "relies on how much the loopback holds",
    ),
    ("random_calls", "both roles listen, and send urgent data"),
    ("urgent", "urgent data is not carried"),
    ("urgent_edges", "urgent data is not carried"),
    ("receive_edges", "urgent data is not carried"),
    ("urgent_in_line", "urgent data is not carried"),
    (
        "epoll_edge_listener",
        "counts arrivals, of which one may still be on its way",
    ),
    (
        "full_ring",
        "what is sent empties a full buffer at any time",
    ),
    (
        "exec_replaced",
        "a process that becomes another program loses its connections",
    ),
    (
        "exec_without_unix_sockets",
        "a process that becomes another program loses its connections",
    ),
    (
        "killed_peer",
        "the peer of a killed process is not notified",
    ),
    ("fork_many", "the peer of a killed process is not notified"),
    ("prefork_many", "listens at the loopback alone"),
    (
        "exec_without_proc",
        "its connection goes through exec; not tried between hosts",
    ),
    (
        "send_file_signals",
        "between hosts sendfile waits for room only, as on one host",
    ),
    (
        "local_ports",
        "the kernel's ports of one host and the engines' numbers are kept apart otherwise",
    ),
    (
        "limit_of_nothing",
        "who drives an engine waits for its interface in poll",
    ),
    (
        "epoll_oneshot_kinds",
        "epoll_oneshot_listener says the same between hosts",
    ),
    (
        "accept_under_signals",
        "accept waits the same way between hosts",
    ),
    (
        "scm_rights_exit",
        "the listener outlives the process that uses the interface",
    ),
    (
        "epoll_exclusive_interrupted",
        "the listener outlives the process that uses the interface",
    ),
    (
        "fork_first_burst",
        "the listener outlives the process that uses the interface",
    ),
    (
        "epoll_after_unheard",
        "its thousand connections are announced the same way between hosts",
    ),
    (
        "epoll_closed_while_waiting",
        "a wait over packets ends when its set is closed",
    ),
    (
        "poll_set_without_bell",
        "sets are looked at the same way between hosts",
    ),
    (
        "epoll_first_burst",
        "asks whether the kernel handles connections",
    ),
    (
        "scm_rights_churn",
        "the listener outlives the process that uses the interface",
    ),
    (
        "scm_rights_peeked",
        "the process that uses the interface ends first",
    ),
    (
        "scm_rights_confined",
        "an engine makes calls that its filter forbids",
    ),
    (
        "scm_rights_to_program",
        "the process that uses the interface ends without exit",
    ),
    (
        "exec_listener_options",
        "exec ends the connections of its process",
    ),
    (
        "dissolved_options",
        "urgent data is not carried",
    ),
    (
        "urgent_thrown_away",
        "urgent data is not carried",
    ),
    (
        "duplicate_shut",
        "duplicates of a listener accept after shutdown",
    ),
    (
        "listen_queue",
        "TCP_INFO has no queue of a listener",
    ),
    (
        "seccomp_refused",
        "the peer of a killed process is not notified",
    ),
    (
        "exit_held_anywhere",
        "the thread that it holds drives the engine",
    ),
];

/// Fewer programs than this between hosts: the comparison would say little.
const PROGRAMS_MIN: usize = 50;
const KERNEL_RUNS_MAX: usize = 4;
/// A program whose run on the kernel did not come to its end is tried once more: the machine may have been busy.
const KERNEL_TRIES: usize = 2;

fn main() {
    bypass_testkit::main(CASES)
}

impl Hosts for Network {
    fn spawn(&self, role: &str, command: Command) -> io::Result<Child> {
        self.start(role, command)
    }
}

/// Without the library's own lines, which say why connections stay on the kernel.
fn without_notices(output: &str) -> String {
    let is_program = |line: &&str| !line.contains(": bypass: ");
    let lines = output.lines().filter(is_program);
    lines.map(|line| format!("{line}\n")).collect()
}

/// Programs that run at once, each between two hosts of its own: most of them wait most of the time.
const AT_ONCE: usize = 3;

fn compare(mode: Mode) {
    require_xdp();
    let is_compared = |program: &&Program| LEFT_OUT.iter().all(|(name, _)| *name != program.name);
    let pairs = programs().iter().filter(|program| program.is_pair);
    let left = Mutex::new(pairs.filter(is_compared));
    let compare_some = || {
        let network = Network::new();
        let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
        std::iter::from_fn(next)
            .map(|program| complaint(&network, program, mode))
            .collect::<Vec<_>>()
    };
    let outcomes: Vec<Option<String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(compare_some)).collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().expect("compared"));
        joined.flatten().collect()
    });
    let compared = outcomes.len();
    let complaints: Vec<String> = outcomes.into_iter().flatten().collect();
    let is_single = std::env::var_os("CONTRACT_ONLY").is_some();
    assert!(
        compared >= PROGRAMS_MIN || is_single,
        "{compared} programs run between hosts"
    );
    let count = complaints.len();
    let all = complaints.join("\n");
    assert!(
        count == 0,
        "{count} of {compared} differ ({mode:?}):\n{all}"
    );
}

/// The difference from the kernel, if there is one. A program that the kernel cannot run between two hosts is to be left
/// out by name: its run may last until the limit of time, and compares nothing.
fn complaint(network: &Network, program: &Program, mode: Mode) -> Option<String> {
    let Some(expected) = first_on_the_kernel(network, program) else {
        let name = &program.name;
        return Some(format!(
            "== {name} does not run to its end on the kernel (name it in LEFT_OUT)"
        ));
    };
    let actual = without_notices(&run_on(network, program, mode));
    let is_same = matches(network, program, expected, &actual);
    (!is_same).then(|| actual_and_expected(network, program, &actual))
}

/// Made once for all modes.
fn first_on_the_kernel(network: &Network, program: &Program) -> Option<String> {
    static RUNS: Mutex<BTreeMap<String, Option<String>>> = Mutex::new(BTreeMap::new());
    let runs = || RUNS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = runs().get(&program.name) {
        return known.clone();
    }
    let first = (0..KERNEL_TRIES).find_map(|_| on_the_kernel(network, program));
    runs().insert(program.name.clone(), first.clone());
    first
}

/// None if the run did not come to its end.
fn on_the_kernel(network: &Network, program: &Program) -> Option<String> {
    let output = run_on(network, program, Mode::Kernel);
    let marks = ["stopped:", "hangs", "ended with"];
    (!marks.iter().any(|mark| output.contains(mark))).then_some(output)
}

/// On a loaded machine the kernel itself may do one thing or the other.
fn matches(network: &Network, program: &Program, first: String, actual: &str) -> bool {
    first == actual
        || (1..KERNEL_RUNS_MAX)
            .any(|_| on_the_kernel(network, program).is_some_and(|expected| expected == actual))
}

fn actual_and_expected(network: &Network, program: &Program, actual: &str) -> String {
    let expected = on_the_kernel(network, program).unwrap_or_default();
    let lines = expected.lines().zip(actual.lines());
    let differing = lines
        .filter(|(kernel, here)| kernel != here)
        .take(4)
        .map(|(kernel, here)| format!("  kernel {kernel:?}, here {here:?}"));
    // Where one role has stopped because the other one has ended, the end of that one says why.
    let says_why = |line: &&str| {
        [": stopped: ", ": ended with "]
            .iter()
            .any(|why| line.contains(why))
    };
    let stopped = actual.lines().filter(says_why);
    let differing: Vec<String> = differing
        .chain(stopped.map(|line| format!("  {line}")))
        .collect();
    let (kernel, here) = (expected.lines().count(), actual.lines().count());
    let last = actual.lines().last().unwrap_or("");
    format!(
        "== {} ({kernel} lines, here {here}, the last {last:?})\n{}",
        program.name,
        differing.join("\n")
    )
}

/// nginx as users start it: a master with privileges, a worker without, on port 80. Killed, it leaves
/// the interface to the kernel.
fn nginx() {
    require_tool("nginx");
    let network = Network::new();
    let folder = programs::folder().join("nginx-packets");
    let mut master = start_nginx(&network, &folder, "nobody nogroup", 1);
    let worker = child_of(master.id()).expect("a worker");
    let accepted = undisturbed(&network.client, || {
        let before = accepts(worker, "packets");
        for _ in 0..50 {
            let body = get(&network, "/page").expect("an answer");
            assert_eq!(body.len(), PAGE);
        }
        accepts(worker, "packets") - before
    });
    // Killed at once: neither can tidy up.
    for process in [master.id(), worker] {
        let _ = bypass_sys::kernel::kill(process as i32, libc::SIGKILL);
    }
    let _ = master.wait();
    let _ = fs::remove_dir_all(root());
    assert_eq!(accepted, 50, "connections over packets");
    wait_until("the kernel to have the interface back", || {
        !network.server.ip("link show vb").contains("xdp")
    });
    let mut after = None;
    wait_until("the port is free", || {
        after = network.server.run(|| TcpListener::bind((SERVER, 80))).ok();
        after.is_some()
    });
    let after = after.expect("bound");
    let mut client = connect(&network).expect("the kernel answers");
    let (mut server, _) = after.accept().expect("a connection");
    client.write_all(b"after").expect("sent");
    let mut bytes = [0; 5];
    server.read_exact(&mut bytes).expect("received");
    assert_eq!(&bytes, b"after");
}

fn nginx_reloads(user: &str) {
    require_tool("nginx");
    reloads(
        &Network::new(),
        &programs::folder().join("nginx-reloads"),
        user,
        1,
    );
}

/// nginx's master starts another worker: the interface is that one's, as it was left.
fn a_worker_follows_another() {
    require_tool("nginx");
    let network = Network::new();
    let folder = programs::folder().join("nginx-followed");
    let mut master = start_nginx(&network, &folder, "nobody nogroup", 1);
    for _ in 0..3 {
        let worker = child_of(master.id()).expect("a worker");
        let _ = bypass_sys::kernel::kill(worker as i32, libc::SIGKILL);
        wait_until("another worker", || {
            child_of(master.id()).is_some_and(|child| child != worker)
        });
        takes_packets(&network, child_of(master.id()).expect("a worker"));
    }
    end(&mut master);
}

/// More workers than queues, or fewer: every answer is right, none is handled by the kernel, and no worker goes
/// without connections.
fn many_workers(queues: usize, workers: usize) {
    require_tool("nginx");
    let network = Network::with_queues(queues);
    let folder = programs::folder().join(format!("nginx-{workers}-on-{queues}"));
    let mut master = start_nginx(&network, &folder, "nobody nogroup", workers);
    let sum = |path| -> u64 {
        let workers = children_of(master.id()).into_iter();
        workers.map(|worker| accepts(worker, path)).sum()
    };
    let is_idle = |worker: &u32| accepts(*worker, "packets") == 0;
    let (asked, counted) = undisturbed(&network.client, || {
        let (packets, kernel) = (sum("packets"), sum("kernel"));
        let mut asked = 0;
        // At first a few workers may be fast enough for all.
        let started = Instant::now();
        while asked < 200 || children_of(master.id()).iter().any(is_idle) {
            assert!(started.elapsed() < PATIENCE, "a worker without connections");
            let asking: Vec<_> = (0..2 * workers)
                .map(|_| connect(&network).expect("a connection"))
                .collect();
            asked += asking.len() as u64;
            for stream in asking {
                assert_eq!(ask(stream, "/page").expect("an answer").len(), PAGE);
            }
        }
        (asked, (sum("packets") - packets, sum("kernel") - kernel))
    });
    let overruns = network.server.ip("-s link show vb");
    let said: u64 = children_of(master.id())
        .into_iter()
        .map(left_to_kernel)
        .sum();
    let left = sum("kernel");
    end(&mut master);
    assert_eq!(counted, (asked, 0), "over packets, kernel; {overruns}");
    // All but one of them share what comes over another's interface.
    assert!(
        said <= left,
        "{said} left to the kernel, of {left} that are"
    );
}

/// Each connection has another port, so another queue; the kernel handles the server's side.
fn opens_over_queues() {
    require_tool("python3");
    let network = Network::with_queues(4);
    let listener = network.server.run(|| TcpListener::bind((SERVER, 0)));
    let listener = listener.expect("a listener");
    let port = listener.local_addr().expect("an address").port();
    let program = format!(
        "import socket\nall = []\nfor _ in range({CONNECTS}):\n s = socket.socket(); s.settimeout(60)\n \
         s.connect(('{SERVER}', {port})); all.append(s)\nfor s in all: assert s.recv(2) == b'ok'"
    );
    let mut command = Command::new("python3");
    command
        .args(["-c", &program])
        .env("LD_PRELOAD", library::built());
    let mut client = network.spawn("client", command).expect("python starts");
    let mut kept = Vec::new();
    for _ in 0..CONNECTS {
        let (mut server, _) = listener.accept().expect("a connection");
        server.write_all(b"ok").expect("sent");
        kept.push(server);
    }
    assert!(client.wait().expect("an end").success());
}

/// One connection a request: what the kernel knows of the network was read with the first.
fn connects_without_netlink() {
    require_tool("strace");
    require_tool("python3");
    let network = Network::new();
    let listener = network.server.run(|| TcpListener::bind((SERVER, 0)));
    let listener = listener.expect("a listener");
    let port = listener.local_addr().expect("an address").port();
    let calls = root().join("calls");
    fs::create_dir_all(root()).expect("a folder");
    let program = format!(
        "import socket\nfor _ in range({CONNECTS}):\n s = socket.socket(); s.connect(('{SERVER}', {port}))\n \
         assert s.recv(2) == b'ok'; s.close()"
    );
    let mut command = Command::new("strace");
    command.args(["-f", "-e", "trace=bind", "-o"]).arg(&calls);
    let library = library::built();
    command
        .arg("-E")
        .arg(format!("LD_PRELOAD={}", library.display()));
    command.args(["python3", "-c", &program]);
    let mut client = network.spawn("client", command).expect("python starts");
    for _ in 0..CONNECTS {
        let (mut server, _) = listener.accept().expect("a connection");
        server.write_all(b"ok").expect("sent");
    }
    assert!(client.wait().expect("an end").success());
    let calls = fs::read_to_string(&calls).expect("what was called");
    let _ = fs::remove_dir_all(root());
    let asked = calls.lines().filter(|call| call.contains("AF_NETLINK"));
    let asked = asked.count();
    assert!(calls.contains("AF_XDP"), "over packets");
    assert!(asked < CONNECTS / 4, "{asked} netlink sockets");
}

/// The server has closed first and keeps the connection, whose ends the next client has too: its numbers are later, so the
/// server lets it in at once.
fn restarted_clients() {
    require_tool("python3");
    let network = Network::new();
    network.client.run(|| {
        let place = "/proc/sys/net/ipv4/ip_local_port_range";
        fs::write(place, "40000 40001").expect("a namespace of our own");
    });
    let listener = network.server.run(|| TcpListener::bind((SERVER, 0)));
    let listener = listener.expect("a listener");
    let port = listener.local_addr().expect("an address").port();
    let program = format!(
        "import socket\ns = socket.socket(); s.connect(('{SERVER}', {port})); assert s.recv(2) == b''"
    );
    for _ in 0..10 {
        let mut command = Command::new("python3");
        command
            .args(["-c", &program])
            .env("LD_PRELOAD", library::built());
        let mut client = network.start("client", command).expect("python starts");
        listener.accept().expect("a connection");
        assert!(client.wait().expect("an end").success());
    }
    let refused = ["PAWSEstab", "PAWSTimewait"].map(|name| netstat(&network.server, name));
    assert_eq!(refused, [0; 2]);
    assert_eq!(netstat(&network.client, "ActiveOpens"), 0, "over packets");
}

/// What a server at `address` says first.
fn said(network: &Network, address: &str) -> io::Result<String> {
    said_within(network, address, LIMIT)
}

fn said_within(network: &Network, address: &str, limit: Duration) -> io::Result<String> {
    let address = address.parse().expect("an address");
    let connect = || TcpStream::connect_timeout(&address, limit);
    let mut stream = network.client.run(connect)?;
    stream.set_read_timeout(Some(limit))?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said)
}

/// Two sockets of one port, as nginx opens them with `listen 80; listen [::]:80;`.
fn both_families() {
    let network = Network::new();
    for (side, name, host) in [(&network.client, "va", 1), (&network.server, "vb", 2)] {
        side.ip(&format!("addr add fd79::{host}/64 dev {name} nodad"));
    }
    let server = serve(
        &network,
        &format!("{SAYS_ITS_NUMBER}serve('0.0.0.0', '::')"),
    );
    let taken = || accepts(server.0.id(), "packets");
    for address in ["10.79.0.2:8000", "[fd79::2]:8000"] {
        // The very first may be faster than the server's first wait.
        wait_until("packets", || {
            let before = taken();
            said(&network, address).expect(address);
            taken() > before
        });
        let gained = undisturbed(&network.client, || {
            let before = taken();
            for _ in 0..20 {
                said(&network, address).expect(address);
            }
            taken() - before
        });
        assert_eq!(gained, 20, "{address}");
    }
}

/// Started one by one, the second one while the first one uses the interface.
fn shared_port() {
    let network = Network::new();
    let program = format!("{SAYS_ITS_NUMBER}serve('0.0.0.0')");
    let first = serve(&network, &program);
    let all = "10.79.0.2:8000";
    wait_until("packets", || {
        said(&network, all).expect("an answer");
        accepts(first.0.id(), "packets") > 0
    });
    let second = serve(&network, &program);
    let number = second.0.id().to_string();
    wait_until("the second one is asked too", || {
        said(&network, all).expect("an answer") == number
    });
    drop(second);
    let before = accepts(first.0.id(), "packets");
    wait_until("the first one has the port for itself again", || {
        // One that the second had accepted no more may be reset, or lost.
        let _ = said_within(&network, all, LIMIT_OF_LOST);
        accepts(first.0.id(), "packets") > before
    });
}

/// As memcached and mariadbd do: another user's process could not open the interface.
fn gives_up_root() {
    for way in ["setuid(65534)", "setresuid(65534, 65534, 65534)"] {
        let network = Network::new();
        let server = format!(
            "{SAYS_ITS_NUMBER}os.setgroups([])\nos.setgid(65534)\nos.{way}\nserve('0.0.0.0')"
        );
        let server = serve(&network, &server);
        let taken = |path| accepts(server.0.id(), path);
        let gained = undisturbed(&network.client, || {
            let before = (taken("packets"), taken("kernel"));
            for _ in 0..5 {
                said(&network, "10.79.0.2:8000").expect("an answer");
            }
            (taken("packets") - before.0, taken("kernel") - before.1)
        });
        assert_eq!(gained, (5, 0), "{way}: over packets, kernel");
    }
}

/// As nginx at SIGUSR2: the master starts the next one, which inherits the listener and serves by a worker of its own,
/// in parallel with that of the former one, which ends.
fn upgraded(queues: usize) {
    let network = Network::with_queues(queues);
    let first = serve(&network, UPGRADES);
    let ask = || said(&network, "10.79.0.2:8000").expect("an answer");
    let mut master = first.0.id();
    let worker = children_of(master)[0];
    wait_until("the first worker has the interface", || {
        ask();
        accepts(worker, "packets") > 0
    });
    for _ in 0..3 {
        signal("USR2", master);
        let mut next = ask();
        wait_until("the next master's worker answers", || {
            next = ask();
            next != master.to_string()
        });
        signal("TERM", master);
        master = next.parse().expect("a number");
        let worker = children_of(master)[0];
        let taken = |path| accepts(worker, path);
        wait_until("the former one has ended, and left the interface", || {
            let before = taken("packets");
            let said = || said_within(&network, "10.79.0.2:8000", LIMIT_OF_LOST);
            (0..4).all(|_| said().is_ok_and(|one| one == next)) && taken("packets") == before + 4
        });
        let gained = undisturbed(&network.client, || {
            let before = (taken("packets"), taken("kernel"));
            for _ in 0..20 {
                assert_eq!(ask(), next);
            }
            (taken("packets") - before.0, taken("kernel") - before.1)
        });
        assert_eq!(gained, (20, 0), "over packets, kernel");
    }
    signal("TERM", master);
}

fn signal(name: &str, process: u32) {
    let process = process.to_string();
    let sent = Command::new("kill").args(["-s", name, &process]).status();
    assert!(sent.is_ok_and(|status| status.success()), "{name}");
}

const UPGRADES: &str = "
import os, select, signal, socket, sys
if len(sys.argv) > 1:
    listener = socket.socket(fileno=int(sys.argv[1]))
else:
    listener = socket.create_server(('0.0.0.0', 8000))
    listener.set_inheritable(True)
def upgrade(*_):
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:4], str(listener.fileno())])
def leave(*_):
    os.kill(worker, signal.SIGKILL)
    os._exit(0)
# Before a worker answers: then both may come.
signal.signal(signal.SIGUSR2, upgrade)
signal.signal(signal.SIGTERM, leave)
worker = os.fork()
if worker == 0:
    listener.setblocking(False)
    waiting = select.epoll()
    waiting.register(listener, select.EPOLLIN)
    while True:
        waiting.poll()
        try:
            accepted = listener.accept()[0]
        except BlockingIOError:
            continue
        accepted.sendall(str(os.getppid()).encode())
        accepted.close()
if len(sys.argv) == 1:
    print('ready')
while True:
    signal.pause()
";

const SAYS_ITS_NUMBER: &str = "
import os, selectors, socket
def serve(*addresses):
    waiting = selectors.DefaultSelector()
    for address in addresses:
        family = socket.AF_INET6 if ':' in address else socket.AF_INET
        one = socket.socket(family)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind((address, 8000))
        one.listen(100)
        waiting.register(one, selectors.EVENT_READ)
    waiting.select(0)
    print('ready')
    while True:
        for key, _ in waiting.select():
            accepted = key.fileobj.accept()[0]
            accepted.sendall(str(os.getpid()).encode())
            accepted.close()
";

const CONNECTS: usize = 100;

/// As many connections at once as `limit` allows are over packets; others are served by the kernel, none is
/// reset, and what they leave is used again in the next round. Whether a connection was left to the kernel.
fn crowd(limit: usize, count: usize, rounds: usize, name: &str) -> bool {
    require_tool("python3");
    let network = Network::new();
    let ready = programs::folder().join(name);
    let _ = fs::remove_file(&ready);
    let script = |role: &str| {
        let mut command = Command::new("python3");
        command.args(["-c", CROWD, role, &count.to_string(), &rounds.to_string()]);
        command.arg(&ready);
        command
    };
    let mut server = script("serve");
    server
        .env("LD_PRELOAD", library::built())
        .env("EF_MAX_ENDPOINTS", limit.to_string());
    let mut server = network.spawn("server", server).expect("python starts");
    wait_until("the server listens", || ready.exists());
    let mut client = network
        .client
        .run(|| script("ask").spawn())
        .expect("python starts");
    let is_served = client.wait().expect("an end").success();
    let accepted = ["packets", "kernel"].map(|path| accepts(server.id(), path));
    let left = View::open(server.id()).ok().flatten();
    let left = left.map_or(Vec::new(), |view| view.fallbacks());
    let is_left = left.iter().any(|(reason, _)| *reason == "limit");
    let _ = server.kill();
    let _ = server.wait();
    let _ = fs::remove_file(&ready);
    assert!(is_served, "over packets, kernel: {accepted:?}");
    assert_eq!(accepted[0] + accepted[1], (rounds * count) as u64);
    // In the second round some of the first may not be over yet, and the very first connection may have
    // been faster than the server's first wait.
    let carried = (rounds * limit.min(count)) as u64;
    let is_used_again = accepted[0] > carried * 3 / 4;
    assert!(is_used_again, "over packets, kernel: {accepted:?}");
    is_left
}

const CROWD: &str = "
import os, resource, selectors, socket, sys
role, count, rounds, ready = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
address = (os.environ.get('CONTRACT_ADDRESS', '10.79.0.2'), 8000)
if role == 'serve':
    listener = socket.create_server(address, backlog=4096)
    listener.setblocking(False)
    waiting = selectors.DefaultSelector()
    waiting.register(listener, selectors.EVENT_READ)
    open(ready, 'w').close()
    while True:
        for key, _ in waiting.select():
            if key.fileobj is listener:
                try:
                    while True:
                        one = listener.accept()[0]
                        one.setblocking(False)
                        waiting.register(one, selectors.EVENT_READ)
                except BlockingIOError:
                    continue
            elif bytes := key.fileobj.recv(100):
                key.fileobj.send(bytes)
            else:
                waiting.unregister(key.fileobj)
                key.fileobj.close()
for round in range(rounds):
    held = []
    while len(held) < count:
        batch = [socket.socket() for _ in range(min(200, count - len(held)))]
        for one in batch:
            one.setblocking(False)
            one.connect_ex(address)
        for one in batch:
            one.settimeout(120)
            one.sendall(b'%d' % len(held))
            held.append(one)
    for number, one in enumerate(held):
        assert one.recv(100) == b'%d' % number, number
    while held and rounds > 1:
        batch, held = held[:200], held[200:]
        for one in batch:
            one.shutdown(socket.SHUT_WR)
        for one in batch:
            assert one.recv(100) == b''
            one.close()
";

/// TCP-MD5, a least number of hops and an IPsec policy of the socket, set before and after listen(2): a client that the
/// kernel does not hear is not heard here either.
fn guarded() {
    const SERVER_PROGRAM: &str = "
import socket, struct, sys
MD5SIG, MINTTL, XFRM_POLICY = 14, 21, 17
blocks = struct.pack('<40xHBBB3xiI96xIIBBBB4x', socket.AF_INET, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0)
md5 = struct.pack('<HHI120xBBHI80s', socket.AF_INET, 0, int.from_bytes(socket.inet_aton('10.79.0.1'), 'little'), 0, 0, 3, 0, b'key')
options = {
    'none': None,
    'md5': (socket.IPPROTO_TCP, MD5SIG, md5),
    'policy': (socket.IPPROTO_IP, XFRM_POLICY, blocks),
    'hops': (socket.IPPROTO_IP, MINTTL, 255),
}
name, _, when = 'WHICH'.partition(' ')
option = options[name]
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(('0.0.0.0', 80))
if option and when == 'before':
    listener.setsockopt(*option)
listener.listen()
listener.settimeout(0.2)
try:
    listener.accept()
except TimeoutError:
    pass
if option and when == 'after':
    listener.setsockopt(*option)
listener.settimeout(None)
print('ready')
while True:
    connection, _ = listener.accept()
    connection.sendall(b'served')
    connection.close()
";
    let network = Network::new();
    for which in [
        "none",
        "hops before",
        "hops after",
        "md5 before",
        "md5 after",
        "policy before",
        "policy after",
    ] {
        let program = SERVER_PROGRAM.replace("WHICH", which);
        let server = serve(&network, &program);
        let at = SocketAddr::new(SERVER.parse().expect("an address"), 80);
        let connect = |limit| {
            let connect = || TcpStream::connect_timeout(&at, limit);
            network.client.run(connect)
        };
        let packets = || accepts(server.0.id(), "packets");
        if which == "none" {
            wait_until("it is accepted over packets", || {
                connect(LIMIT).expect("heard");
                packets() > 0
            });
            continue;
        }
        let connected = connect(Duration::from_millis(1500));
        assert!(connected.is_err(), "{which}: {connected:?}");
        assert_eq!(packets(), 0, "{which}");
    }
}

/// The engine has the kernel look for a neighbour that was dropped, which needs a socket: the thread that its filter would
/// end for one leaves that to the library's.
fn confined() {
    const SERVER_PROGRAM: &str = "
import ctypes, platform, socket
listener = socket.create_server(('0.0.0.0', 80))
print('ready', flush=True)
NO_NEW_PRIVS, SECCOMP, FILTER, KILL, ALLOW = 38, 22, 2, 0x80000000, 0x7fff0000
CALL = {'x86_64': 41, 'aarch64': 198}[platform.machine()]
class Instruction(ctypes.Structure):
    _fields_ = [('code', ctypes.c_uint16), ('yes', ctypes.c_uint8), ('no', ctypes.c_uint8), ('k', ctypes.c_uint32)]
class Program(ctypes.Structure):
    _fields_ = [('length', ctypes.c_uint16), ('code', ctypes.POINTER(Instruction))]
code = (Instruction * 4)((0x20, 0, 0, 0), (0x15, 0, 1, CALL), (0x06, 0, 0, KILL), (0x06, 0, 0, ALLOW))
program = Program(4, code)
prctl = ctypes.CDLL(None).prctl
prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
while True:
    connection, _ = listener.accept()
    while wanted := connection.recv(1):
        if wanted == b'c':
            assert prctl(NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            assert prctl(SECCOMP, FILTER, ctypes.addressof(program), 0, 0) == 0
        connection.sendall(wanted)
";
    /// Engine and kernel take turns in who is first to notice.
    const ROUNDS: u8 = 40;
    let network = Network::new();
    let server = serve(&network, SERVER_PROGRAM);
    let echo = |mut stream: &TcpStream, byte: u8| {
        stream.write_all(&[byte]).expect("sent");
        let mut back = [0];
        let read = stream.read_exact(&mut back);
        read.unwrap_or_else(|error| panic!("{} does not come back: {error}", byte as char));
        assert_eq!(back, [byte]);
    };
    let mut found = None;
    wait_until("a connection over packets", || {
        let before = accepts(server.0.id(), "packets");
        let stream = connect(&network).expect("a connection");
        echo(&stream, b'n');
        found = (accepts(server.0.id(), "packets") > before).then_some(stream);
        found.is_some()
    });
    let stream = found.expect("one over packets");
    echo(&stream, b'c');
    for round in 0..ROUNDS {
        network.server.may("ip", "neigh del 10.79.0.1 dev vb");
        if round % 2 == 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        echo(&stream, b'0' + round);
    }
}
