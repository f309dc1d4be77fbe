//! Programs in two network namespaces of one host with a shared directory (EF_SHARE_DIR).
//!
//! Contract programs run in two namespaces, on the kernel and with both ends accelerated. Two more programs run in containers
//! (namespaces of mounts and processes of their own, too): they try networks, deaths, and directories out of reach.
//! `CONTRACT_ONLY=NAME` runs one program.

mod library;
#[path = "across/pods.rs"]
mod pods;
#[path = "contract/programs.rs"]
mod programs;
#[path = "contract/running.rs"]
mod running;
#[path = "across/services.rs"]
mod services;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bypass_stats::View;
use bypass_testkit::{require_tool, Case, Namespace};

use pods::{Client, Directory, Pods, Server, ADDRESS, ADDRESS_6, LINK_ADDRESS, PORT};
use programs::{programs, Program};
use running::{run_on, Hosts, Mode};

const CASES: &[Case] = &[
    ("containers_share_memory_over_a_bridge", || {
        let pods = Pods::bridged();
        shares(&pods, ADDRESS);
    }),
    ("containers_share_memory_over_routes", || {
        let pods = Pods::routed();
        shares(&pods, ADDRESS);
    }),
    ("translated_sources_share_memory", translated_source),
    (
        "translated_addresses_that_are_named_share_memory",
        translated_address,
    ),
    ("rejected_connections_are_refused", rejected),
    ("a_peer_without_the_library_is_the_kernels", plain_peers),
    ("a_directory_of_everybody_is_refused", open_directory),
    ("paths_that_drop_options_are_the_kernels", dropped_options),
    ("equal_addresses_are_not_mixed", || {
        equal_addresses("plain", ADDRESS, "many");
    }),
    ("equal_addresses_of_ipv6_are_not_mixed", || {
        equal_addresses("six", ADDRESS_6, "some");
    }),
    ("ipv6_shares_memory_over_a_bridge", || {
        both_families(&Pods::bridged());
    }),
    ("ipv6_shares_memory_over_routes", || {
        both_families(&Pods::routed());
    }),
    ("ipv6_without_its_mark_is_the_kernels", unmarked_ipv6),
    ("a_program_that_keeps_syns_reads_them", kept_syns),
    ("the_next_worker_is_reached_over_ipv6", || {
        let pods = Pods::bridged();
        let _server = Server::start_as(&pods, pods.accelerated(), "again");
        let client = Client::start(&pods, pods.accelerated(), ADDRESS_6, "shared");
        assert_eq!(client.end(), "shared");
    }),
    ("the_end_of_a_process_is_seen_and_leaves_nothing", killed),
    ("a_connection_ends_with_the_kernels", ended_by_the_kernel),
    ("connects_that_do_not_wait_are_reported_once_taken", || {
        goes_on("plain", "opens", "done");
    }),
    (
        "connects_that_wait_return_before_the_server_accepts",
        || {
            goes_on("plain", "opens-blocking", "done");
        },
    ),
    ("connects_that_no_process_takes_go_on_in_the_kernel", || {
        late("late", 8);
        late("late-blocking", 1);
    }),
    ("connects_end_with_their_time_or_by_a_signal", lost),
    ("other_users_share_memory_where_both_allow_it", other_users),
    ("listeners_that_share_a_port_are_not_named", shared_port),
    ("a_fork_beside_a_connect_that_waits_goes_on", || {
        goes_on("plain", "forks", "done");
    }),
    ("a_number_closed_in_connect_is_the_next_sockets", || {
        goes_on("plain", "closes", "done");
    }),
    (
        "a_worker_of_another_user_is_reached_in_its_groups_directory",
        || {
            worker(0o770, (0, NOBODY), "shared");
        },
    ),
    (
        "a_worker_that_cannot_reach_the_directory_is_the_kernels",
        || {
            worker(0o770, (0, 0), "kernel");
            worker(0o755, (0, 0), "kernel");
        },
    ),
    ("a_server_that_changes_its_user_goes_on", || {
        goes_on("setuid", "leaves", "kernel");
    }),
    ("a_server_that_changes_its_root_goes_on", || {
        goes_on("chroot", "leaves", "kernel");
    }),
    ("redis_serves_another_container", services::redis),
    (
        "nginx_serves_another_container_from_a_server_there",
        services::gateway,
    ),
    ("postgresql_serves_another_container", services::postgresql),
    ("both_ends_accelerated_do_what_the_kernel_does", compare),
];

/// The programs that are compared: what is different between namespaces is how connections begin, end and go to other
/// processes.
const COMPARED: &[&str] = &[
    "accept_nonblocking",
    "accepted_socket",
    "acceptors_killed",
    "close_range",
    "close_while_waiting",
    "connect_accept",
    "connect_after_server_closed",
    "connect_ended",
    "connect_nonblocking",
    "connect_reset",
    "connecting",
    "duplicates",
    "duplicates_early",
    "end_of_file",
    "epoll_closed_original",
    "epoll_connecting",
    "epoll_duplicated",
    "epoll_edge_closed",
    "epoll_edge_listener",
    "epoll_level",
    "epoll_lifecycle",
    "exec_fails",
    "exec_forms",
    "exec_inherit",
    "exec_replaced",
    "exec_standard_streams",
    "exec_without_proc",
    "fork_connects",
    "fork_inherit",
    "fork_per_connection",
    "fork_shutdown",
    "half_close",
    "killed_after_fork",
    "killed_peer",
    "linger",
    "prefork",
    "prefork_both",
    "reset",
    "reset_unread",
    "reuseport",
    "scm_rights",
    "scm_rights_connected",
    "scm_rights_listener",
    "scm_rights_many",
    "seccomp_child",
    "setuid_in_child",
    "shutdown",
    "spawn_actions",
    "unaccepted",
    "unaccepted_at_killed_server",
    "unaccepted_at_server",
];

const KERNEL_RUNS_MAX: usize = 4;
/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(60);
/// The user and the group of everybody else.
const NOBODY: u32 = 65_534;

fn main() {
    bypass_testkit::main(CASES)
}

/// A server and a client whose bytes are not the kernel's.
fn shares(pods: &Pods, address: &str) {
    let server = Server::start(pods, pods.accelerated());
    let client = Client::start(pods, pods.accelerated(), address, "shared");
    assert_eq!(client.end(), "shared");
    drop(server);
}

/// A server and a client that are connected by the kernel alone; the client's reasons for that.
fn stays_with_kernel(pods: &Pods, client: Command, address: &str) {
    let client = Client::start(pods, client, address, "kernel");
    assert_eq!(client.end(), "kernel");
}

fn translated_source() {
    let pods = Pods::routed();
    pods.translate();
    shares(&pods, ADDRESS);
}

fn translated_address() {
    let pods = Pods::routed();
    pods.translate();
    let server = Server::start(&pods, pods.accelerated());
    stays_with_kernel(&pods, pods.accelerated(), pods::SERVICE);
    drop(server);
    let mut command = pods.accelerated();
    command.env("EF_SHARE_AS", format!("{}:{PORT}:{PORT}", pods::SERVICE));
    let _server = Server::start(&pods, command);
    let client = Client::start(&pods, pods.accelerated(), pods::SERVICE, "shared");
    assert_eq!(client.end(), "shared");
}

/// Connections wait in the kernel of a server that does not accept, each for something else; at least so many end there.
fn late(wanted: &str, least: u64) {
    let pods = Pods::bridged();
    let _server = Server::start(&pods, pods.accelerated());
    let kept = Kept::new();
    let mut command = pods.accelerated();
    command.env(KEEP, &kept.folder);
    let client = Client::start(&pods, command, ADDRESS, wanted);
    assert_eq!(client.end(), "done");
    let given_up = kept.sum(View::fallbacks, "not-recognised");
    assert!(given_up >= least, "{given_up}");
}

fn lost() {
    require_tool("nft");
    let pods = Pods::bridged();
    let _server = Server::start(&pods, pods.accelerated());
    pods.filter(&pods.server, "tcp dport 80 drop");
    let client = Client::start(&pods, pods.accelerated(), ADDRESS, "slow");
    assert_eq!(client.end(), "done");
}

/// One listener, of both families.
fn both_families(pods: &Pods) {
    let _server = Server::start_as(pods, pods.accelerated(), "six");
    let mapped = format!("::ffff:{ADDRESS}");
    for address in [ADDRESS_6, ADDRESS, &mapped] {
        let client = Client::start(pods, pods.accelerated(), address, "shared");
        assert_eq!(client.end(), "shared", "{address}");
    }
}

/// By an address that only a link knows, from a client that may not set the option, and over a path that drops it.
fn unmarked_ipv6() {
    require_tool("nft");
    let pods = Pods::bridged();
    let _server = Server::start_as(&pods, pods.accelerated(), "six");
    stays_with_kernel(&pods, pods.accelerated(), LINK_ADDRESS);
    let mut client = pods.accelerated();
    client.args(["setpriv", "--bounding-set", "-net_raw"]);
    stays_with_kernel(&pods, client, ADDRESS_6);
    pods.filter(&pods.server, "exthdr dst exists drop");
    stays_with_kernel(&pods, pods.accelerated(), ADDRESS_6);
}

/// From then on the kernel handles its clients over IPv6.
fn kept_syns() {
    let pods = Pods::bridged();
    let _server = Server::start_as(&pods, pods.accelerated(), "six");
    assert_eq!(pods.published(), 2);
    let client = Client::start(&pods, pods.accelerated(), ADDRESS_6, "saves");
    assert_eq!(client.end(), "done");
    assert_eq!(pods.published(), 1);
    stays_with_kernel(&pods, pods.accelerated(), ADDRESS_6);
}

/// A server and a client that are neither root's nor of one user, whose directory both can write to.
fn other_users() {
    const CLIENT: u32 = 1000;
    let pods = Pods::bridged();
    pods.set_directory(0o770, (CLIENT, NOBODY));
    let any_port = "-qw net.ipv4.ip_unprivileged_port_start=0";
    pods.server.command("sysctl", any_port);
    // They may not reach the folder in which it is built.
    let library = pods.directory.path.join(library::LIBRARY);
    fs::copy(library::built(), &library).expect("ours");
    let own = || {
        let mut command = pods.accelerated();
        command.env("LD_PRELOAD", &library);
        command
    };
    let with = |user: u32| {
        let mut command = own();
        command.env("EF_SHARE_WITH", user.to_string());
        command
    };
    let ends_as = |client: Command, wanted, end| {
        let client = Client::start(&pods, client, ADDRESS, wanted);
        assert_eq!(client.end(), end);
    };
    let server = Server::start_as(&pods, own(), "other");
    ends_as(with(NOBODY), "other-kernel", "kernel");
    drop(server);
    let _server = Server::start_as(&pods, with(CLIENT), "other");
    ends_as(own(), "other-kernel", "kernel");
    ends_as(with(NOBODY), "other", "shared");
}

fn rejected() {
    require_tool("nft");
    let pods = Pods::bridged();
    let _server = Server::start(&pods, pods.accelerated());
    pods.filter(&pods.server, "tcp dport 80 reject with tcp reset");
    let client = Client::start(&pods, pods.accelerated(), ADDRESS, "refused");
    assert_eq!(client.end(), "refused");
}

fn plain_peers() {
    let pods = Pods::bridged();
    let server = Server::start(&pods, Command::new("env"));
    stays_with_kernel(&pods, pods.accelerated(), ADDRESS);
    drop(server);
    let _server = Server::start(&pods, pods.accelerated());
    stays_with_kernel(&pods, Command::new("env"), ADDRESS);
}

fn open_directory() {
    let pods = Pods::bridged();
    let mode = fs::Permissions::from_mode(0o777);
    fs::set_permissions(&pods.directory.path, mode).expect("ours");
    let _server = Server::start(&pods, pods.accelerated());
    stays_with_kernel(&pods, pods.accelerated(), ADDRESS);
    let files = fs::read_dir(&pods.directory.path).expect("readable");
    assert_eq!(files.count(), 0);
}

/// Of the answers alone, too: a server's kernel keeps the options of the SYN as long as it remembers it.
fn dropped_options() {
    require_tool("nft");
    type Pod = fn(&Pods) -> &Namespace;
    let each: [Pod; 2] = [|pods| &pods.server, |pods| &pods.client];
    for receiver in each {
        let pods = Pods::bridged();
        let _server = Server::start(&pods, pods.accelerated());
        pods.filter(receiver(&pods), "ip hdrlength > 5 drop");
        stays_with_kernel(&pods, pods.accelerated(), ADDRESS);
    }
}

/// Four networks with the same addresses, and one directory: connections that reach their own server, 10,000 over IPv4.
fn equal_addresses(how: &str, address: &str, wanted: &str) {
    let directory = Directory::new();
    let mut pods: Vec<Pods> = (0..4).map(|_| Pods::bridged()).collect();
    for (number, pair) in pods.iter_mut().enumerate() {
        pair.directory.path.clone_from(&directory.path);
        pair.name = format!("network {number}");
    }
    let servers: Vec<Server> = pods
        .iter()
        .map(|pair| Server::start_as(pair, pair.accelerated(), how))
        .collect();
    let clients = pods
        .iter()
        .map(|pair| Client::start(pair, pair.accelerated(), address, wanted));
    let clients: Vec<Client> = clients.collect();
    for client in clients {
        assert_eq!(client.end(), "shared");
    }
    drop(servers);
}

/// Either side is killed in the middle of an exchange; the other one reads the end, or a reset.
fn killed() {
    let pods = Pods::bridged();
    for round in 0..40 {
        let mut server = Server::start(&pods, pods.accelerated());
        let mut client = Client::start(&pods, pods.accelerated(), ADDRESS, "stays");
        client.await_line("shared");
        if round % 2 == 0 {
            client.kill();
            server.await_line("ended");
        } else {
            server.kill();
            client.await_line("ended");
        }
    }
    // The next server that starts removes what the killed processes have left, of which some may be ending still.
    let since = Instant::now();
    loop {
        let _server = Server::start(&pods, pods.accelerated());
        let files = fs::read_dir(&pods.directory.path).expect("readable");
        let count = files.count();
        if count < 20 {
            return;
        }
        assert!(since.elapsed() < PATIENCE, "{count} files");
    }
}

/// The connection that the kernel shows is reset: neither end goes on in memory.
fn ended_by_the_kernel() {
    require_tool("ss");
    let pods = Pods::bridged();
    let mut server = Server::start(&pods, pods.accelerated());
    let mut client = Client::start(&pods, pods.accelerated(), ADDRESS, "stays");
    client.await_line("shared");
    let filter = format!("-tn state established dport = {PORT}");
    let is_there = || pods.client.command("ss", &filter).contains(ADDRESS);
    assert!(is_there(), "the kernel shows the connection");
    pods.client.command("ss", &format!("--kill {filter}"));
    if is_there() {
        bypass_testkit::skip("this kernel ends no connections for others (INET_DIAG_DESTROY)");
    }
    client.await_line("ended");
    server.await_line("ended");
}

/// The kernel chooses among listeners that share a port, and a listener with TCP_DEFER_ACCEPT accepts a connection with its
/// first data: neither is for clients of another namespace.
fn shared_port() {
    let pods = Pods::bridged();
    let late = Server::start_as(&pods, pods.accelerated(), "late");
    assert_eq!(pods.published(), 0);
    drop(late);
    let several = Server::start_as(&pods, pods.accelerated(), "several");
    assert_eq!(pods.published(), 0);
    stays_with_kernel(&pods, pods.accelerated(), ADDRESS);
    drop(several);
    let _one = Server::start(&pods, pods.accelerated());
    assert_eq!(pods.published(), 1);
}

/// A server and a client do something unusual, and both go on.
fn goes_on(how: &str, wanted: &str, end: &str) {
    let pods = Pods::bridged();
    pods.set_directory(0o770, (0, 0));
    let _server = Server::start_as(&pods, pods.accelerated(), how);
    let client = Client::start(&pods, pods.accelerated(), ADDRESS, wanted);
    assert_eq!(client.end(), end);
}

/// As nginx does, the server opens its listener as root, and its worker becomes another user. Where the kernel handles the
/// connections, the client counts why.
fn worker(mode: u32, owner: (u32, u32), wanted: &str) {
    let pods = Pods::bridged();
    pods.set_directory(mode, owner);
    let _server = Server::start_as(&pods, pods.accelerated(), "worker");
    let kept = Kept::new();
    let mut command = pods.accelerated();
    command.env(KEEP, &kept.folder);
    let client = Client::start(&pods, command, ADDRESS, wanted);
    assert_eq!(client.end(), wanted);
    let refused = kept.sum(View::fallbacks, "not-accepting");
    assert!(wanted == "shared" || refused >= 5, "{refused}");
}

/// The setting by which a process keeps its statistics in a folder when it ends.
const KEEP: &str = "WIRESPEED_KEEP_STATS";

/// Where processes leave their statistics.
struct Kept {
    folder: PathBuf,
}

impl Kept {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kept-{number}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a new folder");
        Self { folder }
    }

    /// A number of all processes that have ended.
    fn sum(&self, of: impl Fn(&View) -> Vec<(&'static str, u64)>, name: &str) -> u64 {
        let ended = View::ended(&self.folder).expect("readable");
        let all = ended.iter().flat_map(|(_, view)| of(view));
        let named = all.filter(|(one, _)| *one == name);
        named.map(|(_, count)| count).sum()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Both roles of a program, each in a pod.
struct Between<'a> {
    pods: &'a Pods,
    kept: &'a Kept,
}

impl Hosts for Between<'_> {
    fn spawn(&self, role: &str, mut command: Command) -> io::Result<Child> {
        command
            .env("CONTRACT_ADDRESS", ADDRESS)
            .env("EF_SHARE_DIR", &self.pods.directory.path)
            .env(KEEP, &self.kept.folder);
        let pod = match role {
            "client" => &self.pods.client,
            _ => &self.pods.server,
        };
        pod.run(|| command.spawn())
    }
}

/// Programs that run at once, each between two namespaces of its own: most of them wait most of the time.
const AT_ONCE: usize = 2;

/// What a comparison has shown.
struct Compared {
    was_shared: bool,
    complaint: Option<String>,
}

fn compare() {
    let is_single = std::env::var_os("CONTRACT_ONLY").is_some();
    let is_compared = |program: &&Program| is_single || COMPARED.contains(&program.name.as_str());
    let pairs = programs().iter().filter(|program| program.is_pair);
    let left = Mutex::new(pairs.filter(is_compared));
    let compare_some = || {
        let pods = Pods::bridged();
        let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
        std::iter::from_fn(next)
            .map(|program| compare_one(&pods, program))
            .collect::<Vec<_>>()
    };
    let all: Vec<Compared> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(compare_some)).collect();
        let joined = threads.into_iter().map(|one| one.join().expect("compared"));
        joined.flatten().collect()
    });
    assert!(is_single || all.len() == COMPARED.len(), "{}", all.len());
    let complaints: Vec<&str> = all
        .iter()
        .filter_map(|one| one.complaint.as_deref())
        .collect();
    let (count, compared) = (complaints.len(), all.len());
    assert!(
        count == 0,
        "{count} of {compared} differ:\n{}",
        complaints.join("\n")
    );
    let shared = all.iter().filter(|one| one.was_shared).count();
    println!("{shared} of {compared} programs had connections in memory");
    assert!(
        is_single || shared * 4 >= compared * 3,
        "{shared} of {compared} were accelerated"
    );
}

fn compare_one(pods: &Pods, program: &Program) -> Compared {
    let kept = Kept::new();
    let hosts = Between { pods, kept: &kept };
    let said = run_on(&hosts, program, Mode::Both);
    let was_shared = kept.sum(View::counters, "connects_shm") > 0;
    let mut seen = BTreeSet::new();
    // On a loaded machine the kernel itself may do one thing or the other.
    for _ in 0..KERNEL_RUNS_MAX {
        seen.insert(run_on(&hosts, program, Mode::Kernel));
        if seen.contains(&said) {
            break;
        }
    }
    let name = &program.name;
    let complaint =
        (!seen.contains(&said)).then(|| format!("{name}:\n{said}\non the kernel:\n{seen:?}"));
    let complaint = complaint.or_else(|| is_cut(&said).then(|| format!("{name}:\n{said}")));
    Compared {
        was_shared,
        complaint,
    }
}

/// Whether a program did not come to its end.
fn is_cut(output: &str) -> bool {
    let marks = ["stopped:", "hangs", "ended with"];
    marks.iter().any(|mark| output.contains(mark))
}
