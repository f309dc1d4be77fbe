//! Two hosts that are namespaces, and nginx on one of them.
#![allow(dead_code)] // each test file uses a part of it

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::ops::{Deref, DerefMut};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bypass_stats::View;
use bypass_testkit::{require_tool, skip, veth, Namespace};

use crate::library;

pub const SERVER: &str = "10.79.0.2";
pub const ENDS: [(&str, &str); 2] = [("client", "va"), ("server", "vb")];

/// Two hosts and the link between them.
pub struct Network {
    pub client: Namespace,
    pub server: Namespace,
}

impl Network {
    pub fn new() -> Self {
        Self::with_queues(1)
    }

    pub fn with_queues(queues: usize) -> Self {
        Self::made(queues)
    }

    /// The server's end has as many queues, all of which get frames: over veth in generic mode what is sent by
    /// queue N comes by queue N - 1, and that of queue 0 by queue 0 too.
    pub fn of_all_queues(queues: usize) -> Self {
        let network = Self::made(queues + 1);
        let server = &network.server;
        server.command("ethtool", &format!("-L vb rx {queues} tx {queues}"));
        network
    }

    fn made(queues: usize) -> Self {
        require_xdp();
        let (client, server) = (Namespace::new(), Namespace::new());
        let network = Self { client, server };
        network.link(queues);
        network
    }

    /// Makes the link, of which there is none.
    pub fn link(&self, queues: usize) {
        let (client, server) = (&self.client, &self.server);
        veth((client, ENDS[0].1), (server, ENDS[1].1), queues);
        client.ip("addr add 10.79.0.1/24 dev va");
        server.ip("addr add 10.79.0.2/24 dev vb");
    }

    /// The same with an index for the server's end, which it keeps as it is moved there.
    pub fn link_with_index(&self, index: u32) {
        let (client, server) = (&self.client, &self.server);
        // The kernel takes that of the second end only where the first has one too.
        let other = index + 1000;
        client.ip(&format!(
            "link add va index {other} type veth peer name vb index {index}"
        ));
        client.ip(&format!("link set vb netns {}", server.thread()));
        for (side, name, host) in [(client, "va", 1), (server, "vb", 2)] {
            side.ip(&format!("addr add 10.79.0.{host}/24 dev {name}"));
            side.ip(&format!("link set {name} up"));
        }
    }

    pub fn of(&self, role: &str) -> (&Namespace, &'static str) {
        let (name, end) = ENDS[usize::from(role != "client")];
        let namespace = if name == "client" {
            &self.client
        } else {
            &self.server
        };
        (namespace, end)
    }
}

impl Network {
    /// Starts a program on a host, with the interface there given to the library.
    pub fn start(&self, role: &str, mut command: Command) -> io::Result<Child> {
        let (namespace, end) = self.of(role);
        command
            .env("CONTRACT_ADDRESS", SERVER)
            .env("EF_UDP", "1")
            .env("EF_INTERFACE_WHITELIST", end);
        namespace.run(|| command.spawn())
    }
}

pub fn require_xdp() {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    match bypass_sys::kernel::socket(libc::AF_XDP, kind, 0) {
        Ok(fd) => drop(bypass_sys::kernel::close(fd as i32)),
        Err(error) => skip(format!("no AF_XDP socket may be made here (error {error})")),
    }
}

/// As users reload: clients go on, old workers end once theirs are served, new ones take packets.
pub fn reloads(network: &Network, folder: &Path, user: &str, workers: usize) {
    let mut master = start_nginx(network, folder, user, workers);
    let (is_over, answered) = (AtomicBool::new(false), AtomicU32::new(0));
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let end = Instant::now() + 3 * PATIENCE;
                while !is_over.load(Ordering::Relaxed) && Instant::now() < end {
                    match get(network, "/page") {
                        Ok(body) if body.len() == PAGE => {
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(body) => log(&failed, format!("{} bytes", body.len())),
                        Err(error) => log(&failed, error.to_string()),
                    }
                }
            });
        }
        // Also when one of the waits below times out.
        let _over = SetAtEnd(&is_over);
        for _ in 0..4 {
            let before = answered.load(Ordering::Relaxed);
            let known = children_of(master.id());
            let _ = bypass_sys::kernel::kill(master.id() as i32, libc::SIGHUP);
            wait_until("a new worker, and answers", || {
                let is_new = |child: &u32| !known.contains(child);
                children_of(master.id()).iter().any(is_new)
                    && answered.load(Ordering::Relaxed) > before + 50
            });
        }
    });
    wait_until("the old workers have ended", || {
        children_of(master.id()).len() == workers
    });
    if let [worker] = children_of(master.id())[..] {
        takes_packets(network, worker);
    }
    end(&mut master);
    let failed = failed.into_inner().expect("whole");
    let answered = answered.load(Ordering::Relaxed);
    assert!(failed.is_empty(), "of {answered}: {failed:?}");
}

pub struct SetAtEnd<'a>(pub &'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub fn log(failed: &Mutex<Vec<String>>, what: String) {
    failed.lock().expect("whole").push(what);
}

pub fn accepts(process: u32, path: &str) -> u64 {
    counter(process, &format!("accepts_{path}")).unwrap_or(0)
}

/// Every connection of a worker is carried by packets, once the first is that comes from now on: one that came before may have
/// been handed over by a worker that had the queue and has ended since, and until the queue is this worker's the kernel
/// serves.
pub fn takes_packets(network: &Network, worker: u32) {
    let taken = || (accepts(worker, "packets"), accepts(worker, "kernel"));
    let earlier = taken().0;
    wait_until("the worker takes packets", || {
        try_get(network, "/page").is_ok_and(|body| body.len() == PAGE) && taken().0 > earlier
    });
    let gained = undisturbed(&network.client, || {
        let before = taken();
        for _ in 0..100 {
            assert_eq!(get(network, "/page").expect("an answer").len(), PAGE);
        }
        (taken().0 - before.0, taken().1 - before.1)
    });
    assert_eq!(gained, (100, 0), "over packets, kernel");
}

/// Does `work` until the client has had to send no SYN again meanwhile. One that no process looks at for a second, because
/// the machine stands still or gives the server no time, goes to the kernel when it is sent again, as it should be: then
/// the counts say nothing.
pub fn undisturbed<T>(client: &Namespace, mut work: impl FnMut() -> T) -> T {
    let sent_again = || netstat(client, "TCPSynRetrans");
    let started = Instant::now();
    loop {
        let before = sent_again();
        let done = work();
        if sent_again() == before {
            return done;
        }
        assert!(started.elapsed() < PATIENCE, "each time a SYN is lost");
    }
}

/// A counter of the kernel's TCP in a namespace; 0 where it has none of the name.
pub fn netstat(side: &Namespace, name: &str) -> u64 {
    let read = |file: &str| fs::read_to_string(format!("/proc/thread-self/net/{file}"));
    let text = side.run(|| {
        [read("netstat"), read("snmp")]
            .map(|text| text.expect("readable"))
            .concat()
    });
    let lines: Vec<&str> = text.lines().collect();
    let found = lines.chunks(2).find_map(|two| {
        let [names, values] = two else { return None };
        let at = names.split(' ').position(|known| known == name)?;
        values.split(' ').nth(at)?.parse().ok()
    });
    found.unwrap_or(0)
}

pub fn end(master: &mut Child) {
    let _ = bypass_sys::kernel::kill(master.id() as i32, libc::SIGTERM);
    let _ = master.wait();
    let _ = fs::remove_dir_all(root());
}

pub fn root() -> PathBuf {
    std::env::temp_dir().join(format!("bypass-packets-{}", std::process::id()))
}

pub const PAGE: usize = 100_000;
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Of one connection that must come about, and of each of its answers: on a busy machine a SYN may have to be sent again
/// more than once.
pub const LIMIT: Duration = Duration::from_secs(60);
/// Of one that may be lost, as with a worker that was killed, where another is tried after it.
pub const LIMIT_OF_LOST: Duration = Duration::from_secs(2);

/// A master that ends with the test, also when this is killed.
pub struct Nginx {
    master: Child,
    watcher: Child,
}

impl Nginx {
    pub fn new(master: Child) -> Self {
        // Its standard input ends with this process.
        let watcher = Command::new("sh")
            .args(["-c", "read nothing; kill -TERM \"$0\""])
            .arg(master.id().to_string())
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn();
        let watcher = watcher.expect("a shell");
        Self { master, watcher }
    }
}

impl Deref for Nginx {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.master
    }
}

impl DerefMut for Nginx {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.master
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.watcher.kill();
        let _ = self.watcher.wait();
        if matches!(self.master.try_wait(), Ok(None)) {
            end(&mut self.master);
        }
    }
}

pub fn start_nginx(network: &Network, folder: &Path, user: &str, workers: usize) -> Nginx {
    start_nginx_with(network, folder, user, workers, &[])
}

/// The same with options of the library.
pub fn start_nginx_with(
    network: &Network,
    folder: &Path,
    user: &str,
    workers: usize,
    options: &[(&str, &str)],
) -> Nginx {
    fs::create_dir_all(folder.join("logs")).expect("a folder");
    // The user `nobody` may read it, unlike what lies in a home folder.
    let root = root();
    fs::create_dir_all(&root).expect("a folder");
    fs::write(root.join("page"), vec![b'x'; PAGE]).expect("a page");
    let configuration = folder.join("nginx.conf");
    let text = format!(
        "worker_processes {3}; daemon off; pid {0}/pid; error_log stderr; user {2};\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log off; sendfile on; server {{ listen 80; root {1}; }} }}\n",
        folder.display(),
        root.display(),
        user,
        workers
    );
    fs::write(&configuration, text).expect("a configuration");
    let mut command = Command::new("nginx");
    command.arg("-p").arg(folder).arg("-c").arg(&configuration);
    command.env("LD_PRELOAD", library::built());
    command.envs(options.iter().copied());
    let child = network.start("server", command).expect("nginx starts");
    let child = Nginx::new(child);
    wait_until("nginx answers", || try_get(network, "/page").is_ok());
    // The question above may have come before the worker was there.
    wait_until("the worker takes packets", || {
        try_get(network, "/page").is_ok_and(|body| body.len() == PAGE)
            && children_of(child.id())
                .into_iter()
                .any(|worker| accepts(worker, "packets") > 0)
    });
    child
}

pub fn connect(network: &Network) -> io::Result<TcpStream> {
    connect_within(network, LIMIT)
}

/// The same, with a limit of its own for itself and each answer.
pub fn connect_within(network: &Network, limit: Duration) -> io::Result<TcpStream> {
    let address = (SERVER.parse::<IpAddr>().expect("an address"), 80).into();
    let stream = network
        .client
        .run(|| TcpStream::connect_timeout(&address, limit))?;
    stream.set_read_timeout(Some(limit))?;
    Ok(stream)
}

/// The body of a page.
pub fn get(network: &Network, path: &str) -> io::Result<Vec<u8>> {
    ask(connect(network)?, path)
}

/// The same where the connection may be lost.
pub fn try_get(network: &Network, path: &str) -> io::Result<Vec<u8>> {
    ask(connect_within(network, LIMIT_OF_LOST)?, path)
}

pub fn ask(mut stream: TcpStream, path: &str) -> io::Result<Vec<u8>> {
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    body_of(answer)
}

/// The same, given up as soon as nothing comes for a while and `is_lost` says that nothing will.
pub fn ask_unless(
    mut stream: TcpStream,
    path: &str,
    is_lost: impl Fn() -> bool,
) -> io::Result<Vec<u8>> {
    let started = Instant::now();
    stream.set_read_timeout(Some(LIMIT_OF_LOST))?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
    let mut answer = Vec::new();
    while let Err(error) = stream.read_to_end(&mut answer) {
        let is_late = error.kind() == io::ErrorKind::WouldBlock;
        if !is_late || is_lost() || started.elapsed() > LIMIT {
            return Err(error);
        }
    }
    body_of(answer)
}

fn body_of(mut answer: Vec<u8>) -> io::Result<Vec<u8>> {
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let head = head.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(answer.split_off(head + 4))
}

pub fn child_of(process: u32) -> Option<u32> {
    children_of(process).first().copied()
}

pub fn children_of(process: u32) -> Vec<u32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let children = fs::read_to_string(path).unwrap_or_default();
    let numbers = children.split_whitespace();
    numbers.filter_map(|one| one.parse().ok()).collect()
}

pub fn counter(process: u32, name: &str) -> Option<u64> {
    let view = View::open(process).ok()??;
    let counters = view.counters();
    let found = counters.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value)
}

/// Connections of a process that went to the kernel, for whatever reason.
pub fn left_to_kernel(process: u32) -> u64 {
    let view = View::open(process).ok().flatten();
    let reasons = view.map(|view| view.fallbacks()).unwrap_or_default();
    reasons.iter().map(|(_, count)| count).sum()
}

/// A python program that serves until its standard input ends, on a network of its own kind of addresses.
pub fn serve(network: &Network, program: &str) -> Served {
    require_tool("python3");
    let mut command = Command::new("python3");
    command
        .args(["-u", "-c", program])
        .env("LD_PRELOAD", library::built())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut process = network.start("server", command).expect("python starts");
    let mut line = [0; 6];
    let output = process.stdout.as_mut().expect("a pipe");
    output.read_exact(&mut line).expect("it says ready");
    Served(process)
}

/// Ends with the test.
pub struct Served(pub Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_true() {
        assert!(started.elapsed() < PATIENCE, "waited for: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
