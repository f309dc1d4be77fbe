//! Two network namespaces as containers have them, with a third one between them, and programs in containers there.

use std::ffi::OsString;
use std::fs::Permissions;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{channel, Receiver};
use std::time::{Duration, Instant};

use bypass_testkit::{require_tool, veth, Namespace};

use crate::library;

pub const ADDRESS: &str = "10.88.0.2";
/// The same server over IPv6, and by an address of its link.
pub const ADDRESS_6: &str = "fd00:88::2";
pub const LINK_ADDRESS: &str = "fe80::88:2%eth0";
/// Another name of the server for the client, where addresses are [translated](Pods::translate).
pub const SERVICE: &str = "10.88.9.9";
pub const PORT: u16 = 80;

/// A container's namespaces, except its network.
pub const CONTAINER: &str = "--mount --pid --fork --kill-child --mount-proc --uts --ipc";

/// Sends its name to each client, and then what it receives; prints the end of the connection that asked for that. Its
/// last argument says what kind of server it is.
const SERVER: &str = "
import os, selectors, socket, sys
port, name, how = int(sys.argv[1]), sys.argv[2], sys.argv[3]
SAVE_SYN, SAVED_SYN = 27, 28
is_six, saves = how in ('six', 'again'), False
def listen():
    listener = socket.socket(socket.AF_INET6 if is_six else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if how == 'several':
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(('::' if is_six else '0.0.0.0', port))
    if how == 'again':
        # The first worker ends, and the next one listens on the same socket.
        if not os.fork():
            listener.listen(128)
            os._exit(0)
        os.wait()
    listener.listen(128)
    assert listener.getsockopt(socket.IPPROTO_TCP, SAVE_SYN) == 0
    if how == 'late':
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1)
    listener.setblocking(False)
    return listener
def give_up_root():
    os.setgroups([65534])
    os.setgid(65534)
    os.setuid(65534)
def checks_syn(connection):
    # A SYN is kept for the program alone, and for no other listener than one over IPv6.
    assert bool(connection.getsockopt(socket.IPPROTO_TCP, SAVED_SYN, 256)) == saves
    assert is_six or connection.getsockopt(socket.IPPROTO_TCP, SAVE_SYN) == 0
def answer(connection, got):
    global saves
    if got == b'saves':
        listeners[0].setsockopt(socket.IPPROTO_TCP, SAVE_SYN, 1)
        assert listeners[0].getsockopt(socket.IPPROTO_TCP, SAVE_SYN) == 1
        saves = True
    if got == b'marked':
        marked.add(connection)
    if got == b'hold':
        # Accepts no connection until the client says go on.
        connection.sendall(b'held')
        connection.recv(1)
        return
    if got == b'leave':
        os.chroot('/proc') if how == 'chroot' else give_up_root()
        got = b'left'
    connection.sendall(got)
if how == 'other' and not os.getuid():
    give_up_root()
    os.execvp('python3', sys.orig_argv)
listeners = [listen() for _ in range(2 if how == 'several' else 1)]
if how == 'worker':
    if os.fork():
        os.wait()
        sys.exit()
    give_up_root()
events = selectors.DefaultSelector()
for listener in listeners:
    events.register(listener, selectors.EVENT_READ)
marked = set()
print('ready', flush=True)
while True:
    for key, _ in events.select():
        if key.fileobj in listeners:
            try:
                connection, _ = key.fileobj.accept()
            except BlockingIOError:
                continue
            checks_syn(connection)
            connection.setblocking(True)
            events.register(connection, selectors.EVENT_READ)
            try:
                connection.sendall(name.encode().ljust(20))
            except ConnectionError:
                pass
            continue
        try:
            got = key.fileobj.recv(100000)
            if got:
                answer(key.fileobj, got)
                continue
        except ConnectionError:
            pass
        events.unregister(key.fileobj)
        key.fileobj.close()
        if key.fileobj in marked:
            print('ended', flush=True)
";
/// Prints how its last connection went: refused, by the kernel, or shared, which is with few segments of TCP. The
/// first connections to a server that has just started may be the kernel's.
const CLIENT: &str = "
import errno, os, queue, select, signal, socket, struct, sys, threading, time
address, port, wanted, name = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
if wanted.startswith('other') and not os.getuid():
    os.setgroups([65534])
    os.setgid(65534)
    os.setuid(1000)
    os.execvp('python3', sys.orig_argv)
wanted = wanted.removeprefix('other-')
is_blocking = wanted.endswith('-blocking')
wanted = wanted.removesuffix('-blocking')
end = time.monotonic() + 250
def sent():
    names, values = (line.split() for line in open('/proc/net/snmp') if line.startswith('Tcp:'))
    return int(values[names.index('OutSegs')])
def exact(connection, length):
    got = b''
    while len(got) < length:
        more = connection.recv(length - len(got))
        if not more:
            raise ConnectionResetError
        got += more
    return got
def asks(connection, word, answer):
    connection.sendall(word)
    assert exact(connection, len(answer)) == answer
def echoes(connection):
    for length in [*range(1, 100), 1000, 20000, 65536]:
        asks(connection, b'%d' % (length % 10) * length, b'%d' % (length % 10) * length)
def exchange(connection):
    assert exact(connection, 20).decode().strip() == name
    echoes(connection)
def once():
    before = sent()
    try:
        with socket.create_connection((address, port), 60) as connection:
            exchange(connection)
            return 'shared' if sent() - before < 20 else 'kernel'
    except ConnectionRefusedError:
        return 'refused'
def shared():
    while time.monotonic() < end:
        before = sent()
        connection = socket.create_connection((address, port), 60)
        exchange(connection)
        if sent() - before < 20:
            connection.settimeout(None)
            return connection
        connection.close()
        time.sleep(0.05)
    sys.exit('no connection is shared')
def dial(connection):
    # Until the server has accepted it.
    try:
        connection.connect((address, port))
        connection.recv(1)
    except OSError:
        pass
def established():
    return sum(line.split()[3] == '01' for line in open('/proc/net/tcp'))
def stays():
    connection = shared()
    asks(connection, b'marked', b'marked')
    print('shared', flush=True)
    try:
        connection.recv(1)
    except ConnectionError:
        pass
    return 'ended'
def forks():
    # While a connection waits for a server that does not accept.
    first = shared()
    asks(first, b'hold', b'held')
    thread = threading.Thread(target=dial, args=[socket.socket()])
    thread.start()
    for _ in range(40):
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
    first.sendall(b'.')
    thread.join()
    echoes(first)
    return 'done'
def closes():
    # Another thread's socket in the middle of its connect, or of a read; the next one has its number.
    first = shared()
    for _ in range(20):
        asks(first, b'hold', b'held')
        before, one = established(), socket.socket()
        thread = threading.Thread(target=dial, args=[one])
        thread.start()
        while thread.is_alive() and established() == before:
            pass
        one.close()
        other = socket.socket()
        first.sendall(b'.')
        thread.join()
        other.connect((address, port))
        exchange(other)
        other.close()
    echoes(first)
    return 'done'
def begins():
    # Returns while the server does not accept: the connection is in progress, or stands where connect may block.
    one = socket.socket()
    one.setblocking(is_blocking)
    assert one.connect_ex((address, port)) == (0 if is_blocking else errno.EINPROGRESS)
    one.setblocking(False)
    return one
def by_set(flags, one):
    events = select.epoll()
    events.register(one, flags | select.EPOLLOUT)
    assert events.poll(60) == [(one.fileno(), select.EPOLLOUT)]
    if flags == select.EPOLLONESHOT:
        assert events.poll(0) == []
    events.modify(one, select.EPOLLOUT)
    assert events.poll(60) == [(one.fileno(), select.EPOLLOUT)]
    events.unregister(one)
def by_poll(one):
    events = select.poll()
    events.register(one, select.POLLOUT)
    assert events.poll(60000) == [(one.fileno(), select.POLLOUT)]
def by_select(one):
    assert select.select([], [one], [], 60)[1] == [one]
def by_duplicate(one):
    other = one.dup()
    by_set(select.EPOLLET, other)
    other.close()
def by_connect(one):
    while (how := one.connect_ex((address, port))) == errno.EALREADY:
        time.sleep(0.001)
    assert how in (0, errno.EISCONN), how
def by_fork(one):
    child = os.fork()
    if not child:
        by_poll(one)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    by_poll(one)
def comes_by_poll(one):
    events = select.poll()
    events.register(one, select.POLLIN)
    assert events.poll(60000) == [(one.fileno(), select.POLLIN)]
def comes_by_set(one):
    events = select.epoll()
    events.register(one, select.EPOLLIN)
    assert events.poll(60) == [(one.fileno(), select.EPOLLIN)]
ways = [lambda one: by_set(0, one), lambda one: by_set(select.EPOLLET, one), by_poll, by_select,
        lambda one: by_set(select.EPOLLONESHOT, one), by_duplicate, by_connect, by_fork]
def stands(one):
    assert one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    assert one.getpeername() == (address, port)
    one.setblocking(True)
    return one
def opens():
    # Each way in turn, until its connection is shared.
    shared()
    for way in ways:
        while True:
            before, one = sent(), begins()
            way(one)
            exchange(stands(one))
            one.close()
            if sent() - before < 20:
                break
            assert time.monotonic() < end
            time.sleep(0.05)
    return 'done'
def late():
    # No process accepts: the kernel gets each of them, in the middle of its wait.
    first = shared()
    asks(first, b'hold', b'held')
    begins().close()
    all = [begins() for _ in ways]
    writes, reads = begins(), begins()
    # After a connect that has returned every write is taken.
    writes.setblocking(not is_blocking)
    reads.setblocking(True)
    arrive = [begins(), begins()]
    has_read, results, arrived = queue.Queue(), queue.Queue(), queue.Queue()
    def run(results, of, *arguments):
        try:
            results.put(of(*arguments))
        except BaseException as error:
            results.put(error)
    def starts(*call):
        threading.Thread(target=run, args=call).start()
    starts(has_read, exact, reads, 20)
    for way, one in zip((comes_by_poll, comes_by_set), arrive):
        starts(arrived, way, one)
    starts(results, writes.sendall, b'1')
    for way, one in zip(ways[:-1], all):
        starts(results, way, one)
    by_fork(all[-1])
    for _ in ways:
        assert (result := results.get()) is None, repr(result)
    first.sendall(b'.')
    assert (result := has_read.get()) == name.encode().ljust(20), result
    echoes(reads)
    for _ in arrive:
        assert (result := arrived.get()) is None, repr(result)
    writes.setblocking(True)
    assert exact(writes, 21) == name.encode().ljust(20) + b'1'
    echoes(writes)
    for one in all + arrive:
        exchange(stands(one))
    echoes(first)
    return 'done'
def slow():
    # Packets to the server are lost: connect ends with its time, or by a signal.
    def connect(one):
        begun = time.monotonic()
        assert one.connect_ex((address, port)) == errno.EINPROGRESS
        return time.monotonic() - begun
    class Alarm(Exception):
        pass
    def ring(*_):
        raise Alarm
    signal.signal(signal.SIGALRM, ring)
    interrupted = socket.socket()
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        interrupted.connect((address, port))
        return 'connected'
    except Alarm:
        pass
    for wait in (0.02, 0.3):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack('ll', 0, int(wait * 1000000)))
        assert connect(one) >= wait
    return 'done'
def other():
    return 'shared' if shared() else ''
def leaves():
    first = shared()
    asks(first, b'leave', b'left')
    echoes(first)
    return once()
def saves():
    asks(shared(), b'saves', b'saves')
    return 'done'
def several():
    good = 0
    while good < 5:
        how = once()
        if wanted in ('kernel', 'refused'):
            if how != wanted:
                return how
        elif how != 'shared':
            if time.monotonic() > end:
                return f'{how}, and {good} shared'
            time.sleep(0.05)
            continue
        good += 1
    return how
def many(wanted):
    # Short connections in memory, of which the kernel sends four segments each.
    good = 0
    while good < wanted:
        before = sent()
        for _ in range(20):
            with socket.create_connection((address, port), 60) as connection:
                assert exact(connection, 20).decode().strip() == name
                for digit in b'0123456789':
                    asks(connection, bytes([digit]), bytes([digit]))
        if sent() - before < 20 * 8:
            good += 20
        elif time.monotonic() > end:
            return f'{good} shared'
        else:
            time.sleep(0.05)
    return 'shared'
special = {'stays': stays, 'forks': forks, 'closes': closes, 'leaves': leaves, 'opens': opens, 'late': late,
           'other': other, 'saves': saves, 'slow': slow, 'many': lambda: many(2500), 'some': lambda: many(500)}
print(special.get(wanted, several)(), flush=True)
";
/// Longer than the client's own longest wait.
const PATIENCE: Duration = Duration::from_secs(300);

/// A directory that ends with the test.
pub struct Directory {
    pub path: PathBuf,
    own: PathBuf,
}

impl Directory {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Short: names in it are addresses of sockets.
        let path = PathBuf::from(format!("/tmp/share-{}-{number}", std::process::id()));
        let mut builder = std::fs::DirBuilder::new();
        builder.mode(0o770).create(&path).expect("a new directory");
        // Some programs give up root, and are to reach it still.
        std::os::unix::fs::chown(&path, Some(65_534), Some(65_534)).expect("root");
        let own = path.clone();
        Self { path, own }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.own);
    }
}

pub struct Pods {
    pub client: Namespace,
    pub server: Namespace,
    host: Namespace,
    pub directory: Directory,
    /// The server's name, which it sends to each client.
    pub name: String,
}

impl Pods {
    /// Both at a bridge.
    pub fn bridged() -> Self {
        let pods = Self::unconnected();
        pods.host.ip("link add br0 type bridge");
        pods.host.ip("link set br0 up");
        for (number, pod) in [(1, &pods.client), (2, &pods.server)] {
            let end = format!("h{number}");
            veth((&pods.host, &end), (pod, "eth0"), 1);
            pods.host.ip(&format!("link set {end} master br0"));
            pod.ip(&format!("addr add 10.88.0.{number}/24 dev eth0"));
            for address in ["fd00:88::", "fe80::88:"] {
                pod.ip(&format!("addr add {address}{number}/64 dev eth0 nodad"));
            }
        }
        pods
    }

    /// Each with a route of its own, as some networks of containers have them.
    pub fn routed() -> Self {
        let pods = Self::unconnected();
        pods.host.command("sysctl", "-qw net.ipv4.ip_forward=1");
        let six = "-qw net.ipv6.conf.all.forwarding=1";
        pods.host.command("sysctl", six);
        for (number, pod) in [(1, &pods.client), (2, &pods.server)] {
            let end = format!("h{number}");
            veth((&pods.host, &end), (pod, "eth0"), 1);
            pod.ip(&format!("addr add 10.88.0.{number}/32 dev eth0"));
            pod.ip("route add 169.254.1.1 dev eth0 scope link");
            pod.ip("route add default via 169.254.1.1 dev eth0");
            pods.host.ip(&format!("addr add 169.254.1.1/32 dev {end}"));
            pods.host
                .ip(&format!("route add 10.88.0.{number} dev {end}"));
            pod.ip(&format!("addr add fd00:88::{number}/128 dev eth0 nodad"));
            pod.ip("-6 route add default via fe80::1 dev eth0");
            pods.host
                .ip(&format!("addr add fe80::1/64 dev {end} nodad"));
            pods.host
                .ip(&format!("-6 route add fd00:88::{number} dev {end}"));
        }
        pods
    }

    fn unconnected() -> Self {
        Self {
            client: Namespace::new(),
            server: Namespace::new(),
            host: Namespace::new(),
            directory: Directory::new(),
            name: "server".to_owned(),
        }
    }

    /// The server is [`SERVICE`], too, and sees the host as its client.
    pub fn translate(&self) {
        require_tool("nft");
        let rules = "add table ip n; \
            add chain ip n p { type nat hook prerouting priority -100; }; \
            add rule ip n p ip daddr 10.88.9.9 dnat to 10.88.0.2; \
            add chain ip n q { type nat hook postrouting priority 100; }; \
            add rule ip n q ip daddr 10.88.0.2 masquerade";
        self.host.command("nft", rules);
    }

    /// A rule for what a pod receives.
    pub fn filter(&self, pod: &Namespace, rule: &str) {
        let rules = format!(
            "add table inet f; \
             add chain inet f c {{ type filter hook input priority 0; }}; add rule inet f c {rule}"
        );
        pod.command("nft", &rules);
    }

    /// The directory's mode, and the user and the group that own it.
    pub fn set_directory(&self, mode: u32, owner: (u32, u32)) {
        let path = &self.directory.path;
        std::os::unix::fs::chown(path, Some(owner.0), Some(owner.1)).expect("root");
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("ours");
    }

    /// How many listeners the directory names.
    pub fn published(&self) -> usize {
        let files = std::fs::read_dir(&self.directory.path).expect("readable");
        let names = files.map(|file| file.expect("an entry").file_name());
        let is_address = |name: &OsString| name.as_encoded_bytes().starts_with(b"a-");
        names.filter(is_address).count()
    }

    /// The beginning of a command whose program is accelerated.
    pub fn accelerated(&self) -> Command {
        let mut command = Command::new("env");
        command.env("LD_PRELOAD", library::built());
        command.env("EF_SHARE_DIR", &self.directory.path);
        command
    }
}

/// A program in a container that says what it sees.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    fn start(pod: &Namespace, mut command: Command, words: &[&str]) -> Self {
        command.arg("unshare").args(CONTAINER.split_whitespace());
        command.args(["python3", "-c"]).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = pod.run(|| command.spawn()).expect("unshare and python3");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (says, lines) = channel();
        std::thread::spawn(move || {
            let heard = output.lines().map_while(Result::ok);
            heard
                .take_while(|line| says.send(line.clone()).is_ok())
                .count()
        });
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        let line = self.lines.recv_timeout(PATIENCE);
        line.expect("it says something, and in time")
    }

    fn await_line(&mut self, wanted: &str) {
        while self.line() != wanted {}
    }

    /// With all processes of the container: unshare has `--kill-child`, which a program that has changed its user
    /// outlives (prctl(2), PR_SET_PDEATHSIG).
    fn kill(&mut self) {
        let id = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        if let Some(program) = children.unwrap_or_default().split_whitespace().next() {
            let _ = Command::new("kill").args(["-9", program]).status();
            // unshare ends after its program: what listens next needs the program's port.
            let since = Instant::now();
            while matches!(self.child.try_wait(), Ok(None)) && since.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

pub struct Server(Running);

impl Server {
    pub fn start(pods: &Pods, command: Command) -> Self {
        Self::start_as(pods, command, "plain")
    }

    /// One of another kind, which the script knows.
    pub fn start_as(pods: &Pods, command: Command, how: &str) -> Self {
        let port = PORT.to_string();
        let words = [SERVER, &port, &pods.name, how];
        let mut running = Running::start(&pods.server, command, &words);
        running.await_line("ready");
        Self(running)
    }

    pub fn await_line(&mut self, wanted: &str) {
        self.0.await_line(wanted);
    }

    pub fn kill(&mut self) {
        self.0.kill();
    }
}

pub struct Client(Running);

impl Client {
    pub fn start(pods: &Pods, command: Command, address: &str, wanted: &str) -> Self {
        let port = PORT.to_string();
        let words = [CLIENT, address, &port, wanted, &pods.name];
        Self(Running::start(&pods.client, command, &words))
    }

    /// What it says last.
    pub fn end(mut self) -> String {
        let line = self.0.line();
        let status = self.0.child.wait().expect("a child of ours");
        assert!(status.success(), "{status}");
        line
    }

    pub fn await_line(&mut self, wanted: &str) {
        self.0.await_line(wanted);
    }

    pub fn kill(&mut self) {
        self.0.kill();
    }
}
