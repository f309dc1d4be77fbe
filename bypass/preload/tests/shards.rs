//! Several processes on one interface, each with an engine and queues of its own.

mod between;
mod library;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bypass_shm::link::VERSION;
use bypass_testkit::{require_tool, Case};

use between::{
    accepts, ask, ask_unless, children_of, connect, connect_within, counter, end, log, reloads,
    root, start_nginx, start_nginx_with, try_get, undisturbed, wait_until, Network, SetAtEnd,
    LIMIT, LIMIT_OF_LOST, PAGE, PATIENCE, SERVER,
};

const CASES: &[Case] = &[
    ("two_workers_on_two_queues_have_an_engine_each", || {
        engines(2, 2)
    }),
    ("four_workers_on_four_queues_have_an_engine_each", || {
        engines(4, 4)
    }),
    ("eight_workers_share_the_engines_of_four", || engines(4, 8)),
    (
        "a_worker_that_is_killed_under_load_is_followed",
        killed_under_load,
    ),
    (
        "workers_with_engines_reload_without_losing_a_request",
        || reload(2, "reloads"),
    ),
    (
        "workers_that_give_queues_back_reload_without_losing_a_request",
        || reload(4, "reloads-with-more-queues"),
    ),
    ("who_comes_later_is_given_a_queue", given_back),
    ("connections_go_on_when_their_queue_changes", moved),
    (
        "who_closes_its_listener_leaves_the_port_to_the_others",
        closed_by_one,
    ),
    (
        "each_process_opens_connections_whose_answers_come_by_any_queue",
        opened_by_each,
    ),
    (
        "a_master_that_only_holds_a_listener_leaves_the_queues_to_its_workers",
        held_by_master,
    ),
    ("one_process_has_all_queues_where_nobody_else_can", alone),
    (
        "children_of_one_that_has_all_queues_serve_connections",
        forked_by_one,
    ),
    (
        "programs_of_a_cluster_share_a_port_and_the_queues",
        shared_by_programs,
    ),
    (
        "programs_of_a_cluster_have_ports_of_their_own",
        ports_of_programs,
    ),
    (
        "a_program_joins_workers_that_have_dropped_their_privileges",
        joins_workers,
    ),
    (
        "strangers_at_the_name_of_a_cluster_keep_nobody_out",
        strangers,
    ),
    (
        "a_cluster_whose_name_a_stranger_has_is_on_the_kernel",
        name_taken,
    ),
];

fn main() {
    bypass_testkit::main(CASES)
}

fn require_tools() {
    for tool in ["nginx", "ethtool", "python3"] {
        require_tool(tool);
    }
}

/// Two workers.
fn reload(queues: usize, name: &str) {
    require_tools();
    let network = Network::of_all_queues(queues);
    reloads(&network, &folder(name), "nobody nogroup", 2);
}

fn folder(name: &str) -> PathBuf {
    root().join(name)
}

fn engine(process: u32) -> u64 {
    counter(process, "accepts_engine").unwrap_or(0)
}

fn sum(processes: &[u32], name: &str) -> u64 {
    let each = processes.iter().map(|one| counter(*one, name));
    each.map(Option::unwrap_or_default).sum()
}

/// As many connections at once, each with an answer.
fn ask_all(network: &Network, count: usize) {
    let asking: Vec<_> = (0..count)
        .map(|_| connect(network).expect("a connection"))
        .collect();
    for stream in asking {
        assert_eq!(ask(stream, "/page").expect("an answer").len(), PAGE);
    }
}

/// Of connections that come to these workers, how many the kernel has.
fn gone_to_kernel(network: &Network, all: &[u32]) -> u64 {
    undisturbed(&network.client, || {
        let before = sum(all, "accepts_kernel");
        (0..10).for_each(|_| ask_all(network, 8));
        sum(all, "accepts_kernel") - before
    })
}

/// As many workers as can have one have an engine, by which connections come; what comes by the engine of a worker
/// is accepted by that one, or by a worker that has none.
fn engines(queues: usize, workers: usize) {
    require_tools();
    let network = Network::of_all_queues(queues);
    let name = format!("nginx-{workers}-on-{queues}");
    let mut master = start_nginx(&network, &folder(&name), "nobody nogroup", workers);
    let all = children_of(master.id());
    assert_eq!(all.len(), workers);
    let with_engine = || all.iter().filter(|worker| engine(**worker) > 0).count();
    let is_idle = |worker: &u32| accepts(*worker, "packets") == 0;
    wait_until(
        "every queue has its engine, every worker connections",
        || {
            ask_all(&network, 4 * workers);
            with_engine() == queues.min(workers) && !all.iter().any(is_idle)
        },
    );
    let of = |worker: &u32| (engine(*worker), accepts(*worker, "packets"));
    let asked = 20 * 4 * workers as u64;
    let measure = || {
        let before: Vec<_> = all.iter().map(of).collect();
        let kernel = sum(&all, "accepts_kernel");
        (0..20).for_each(|_| ask_all(&network, 4 * workers));
        let after = all.iter().map(of);
        let gains = before.iter().zip(after);
        let gains = gains.map(|(a, b)| (b.0 - a.0, b.1 - a.1));
        let gains: Vec<(u64, u64)> = gains.collect();
        (gains, sum(&all, "accepts_kernel") - kernel)
    };
    let started = Instant::now();
    let (gains, kernel) = loop {
        let (gains, kernel) = undisturbed(&network.client, measure);
        // A worker that gets no time may leave some to the others: then it is looked again.
        let is_even = workers != queues || own_of(&gains) * 10 >= asked * 7;
        if is_even || kernel > 0 || started.elapsed() > PATIENCE {
            break (gains, kernel);
        }
    };
    end(&mut master);
    assert_eq!(kernel, 0, "{gains:?}");
    let sums = gains
        .iter()
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert_eq!(sums, (asked, asked), "{gains:?}");
    let served = gains.iter().filter(|(engine, _)| *engine > 0);
    assert_eq!(served.count(), queues.min(workers), "{gains:?}");
    if workers == queues {
        assert!(own_of(&gains) * 10 >= asked * 7, "each time {gains:?}");
    }
}

/// Of what came by each worker's engine, what at most it accepted itself.
fn own_of(gains: &[(u64, u64)]) -> u64 {
    let each = gains.iter().map(|(engine, accepted)| engine.min(accepted));
    each.sum()
}

/// Connections of the dead worker alone fail; later clients are answered.
fn killed_under_load() {
    require_tools();
    let network = Network::of_all_queues(2);
    let mut master = start_nginx(&network, &folder("killed"), "nobody nogroup", 2);
    let (is_over, answered) = (AtomicBool::new(false), AtomicU32::new(0));
    let (is_tolerant, killed) = (AtomicBool::new(false), AtomicU32::new(0));
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    // In this order: whoever knows of the last one killed knows that it may be lost.
                    let known = killed.load(Ordering::SeqCst);
                    let could_fail = is_tolerant.load(Ordering::SeqCst);
                    let is_lost = || could_fail || killed.load(Ordering::SeqCst) != known;
                    let asked = connect_within(&network, LIMIT)
                        .and_then(|stream| ask_unless(stream, "/page", is_lost));
                    match asked {
                        Ok(body) if body.len() == PAGE => {
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                        _ if is_lost() => {}
                        other => log(&failed, format!("{:?}", other.map(|body| body.len()))),
                    }
                }
            });
        }
        let _over = SetAtEnd(&is_over);
        for round in 0..4 {
            let known = children_of(master.id());
            let before = answered.load(Ordering::Relaxed);
            wait_until("answers", || answered.load(Ordering::Relaxed) > before + 50);
            // A request that has begun by then may be lost: its client gives it up once nothing comes for a while.
            is_tolerant.store(true, Ordering::SeqCst);
            killed.fetch_add(1, Ordering::SeqCst);
            let _ = bypass_sys::kernel::kill(known[round % 2] as i32, libc::SIGKILL);
            std::thread::sleep(Duration::from_millis(2500));
            is_tolerant.store(false, Ordering::SeqCst);
            wait_until("another worker", || {
                let all = children_of(master.id());
                all.len() == 2 && all != known
            });
            let before = answered.load(Ordering::Relaxed);
            wait_until("answers to all", || {
                answered.load(Ordering::Relaxed) > before + 100
            });
        }
    });
    let all = children_of(master.id());
    wait_until("every worker takes part again", || {
        ask_all(&network, 8);
        all.iter().all(|worker| accepts(*worker, "packets") > 0)
    });
    let left = gone_to_kernel(&network, &all);
    end(&mut master);
    let failed = failed.into_inner().expect("whole");
    assert!(failed.is_empty() && left == 0, "{left}; {failed:?}");
}

/// The worker that is left takes all queues over, and gives its successor a share of them.
fn given_back() {
    require_tools();
    let network = Network::of_all_queues(4);
    let mut master = start_nginx(&network, &folder("given-back"), "nobody nogroup", 2);
    for round in 0..3 {
        let known = children_of(master.id());
        wait_until("both have an engine", || {
            ask_all(&network, 8);
            known.len() == 2 && known.iter().all(|worker| engine(*worker) > 0)
        });
        let mut kept: Vec<_> = (0..16)
            .map(|_| connect(&network).expect("a connection"))
            .collect();
        kept.iter_mut().for_each(ask_again);
        let (left, killed) = (known[round % 2], known[1 - round % 2]);
        // So that its successor finds no queue free.
        let signal = |process: u32, signal| bypass_sys::kernel::kill(process as i32, signal);
        let _ = signal(master.id(), libc::SIGSTOP);
        let _ = signal(killed, libc::SIGKILL);
        std::thread::sleep(Duration::from_millis(300));
        let _ = signal(master.id(), libc::SIGCONT);
        wait_until("another worker with an engine", || {
            // Connections of the one that was killed fail.
            let _ = try_get(&network, "/page");
            let all = children_of(master.id());
            let mut new = all.iter().filter(|worker| !known.contains(worker));
            new.any(|worker| engine(*worker) > 0)
        });
        let lost = |stream: &mut TcpStream| {
            let limit = stream.set_read_timeout(Some(LIMIT_OF_LOST));
            limit.expect("a limit");
            let asked = write!(stream, "GET /page HTTP/1.1\r\nHost: a\r\n\r\n");
            asked.is_err() || stream.read(&mut [0]).unwrap_or(0) == 0
        };
        let survivors = kept.iter_mut().map(lost).filter(|is_lost| !is_lost).count();
        assert!(survivors > 0 && accepts(left, "packets") >= survivors as u64);
    }
    let all = children_of(master.id());
    assert_eq!(gone_to_kernel(&network, &all), 0);
    end(&mut master);
}

/// A request on a connection that is kept.
fn ask_again(stream: &mut TcpStream) {
    write!(stream, "GET /page HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    let (mut answer, mut piece) = (Vec::new(), [0; 65_536]);
    let is_whole = |answer: &[u8]| {
        let head = answer.windows(4).position(|four| four == b"\r\n\r\n");
        head.is_some_and(|head| answer.len() - head - 4 >= PAGE)
    };
    while !is_whole(&answer) {
        let count = stream.read(&mut piece).expect("more of the answer");
        assert!(count > 0, "the answer ends after {}", answer.len());
        answer.extend_from_slice(&piece[..count]);
    }
}

/// The client's kernel sends by other queues than before: frames come by another worker's.
fn moved() {
    require_tools();
    let network = Network::of_all_queues(4);
    let mut master = start_nginx(&network, &folder("moved"), "nobody nogroup", 4);
    let all = children_of(master.id());
    wait_until("every queue has its engine", || {
        ask_all(&network, 16);
        all.iter().all(|worker| engine(*worker) > 0)
    });
    let mut kept: Vec<_> = (0..24)
        .map(|_| connect(&network).expect("a connection"))
        .collect();
    kept.iter_mut().for_each(ask_again);
    let resets = sum(&all, "resets");
    for queues in [2, 5, 3, 5] {
        let (before_given, before_taken) = (sum(&all, "frames_given"), sum(&all, "frames_taken"));
        let words = format!("-L va tx {queues}");
        network.client.command("ethtool", &words);
        for _ in 0..3 {
            kept.iter_mut().for_each(ask_again);
        }
        if queues == 2 {
            // Counted once a second.
            wait_until("frames are handed on and taken", || {
                kept.iter_mut().for_each(ask_again);
                sum(&all, "frames_given") > before_given && sum(&all, "frames_taken") > before_taken
            });
        }
    }
    let lost = sum(&all, "frames_lost_in");
    assert_eq!((sum(&all, "resets"), lost), (resets, 0));
    end(&mut master);
}

/// A program that ends with its standard input, and so with the test.
struct Python(Child);

impl Python {
    fn ends_well(mut self) -> bool {
        drop(self.0.stdin.take());
        self.0.wait().expect("an end").success()
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        std::thread::sleep(Duration::from_millis(100));
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program in Python.
fn start_python(network: &Network, role: &str, text: &str) -> Python {
    let mut command = Command::new("python3");
    command
        .args(["-c", text])
        .env("LD_PRELOAD", library::built())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    Python(network.start(role, command).expect("python starts"))
}

/// Each worker answers what it accepts with its number; the first one closes when it is asked to.
const WORKERS: &str = "
import os, select, signal, socket, sys, time
def serve(listener, number):
    closes = []
    signal.signal(signal.SIGUSR1, lambda *_: closes.append(1))
    kept = []
    listener.setblocking(False)
    while True:
        watched = [] if listener.fileno() < 0 else [listener]
        try: ready = select.select(watched + kept, [], [], 0.05)[0]
        except InterruptedError: continue
        if closes and listener.fileno() >= 0:
            listener.close(); continue
        for one in ready:
            if one is listener:
                try: kept.append(one.accept()[0])
                except BlockingIOError: pass
            else:
                got = one.recv(100)
                if got: one.send(b'%d' % number)
                else: kept.remove(one); one.close()
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(('0.0.0.0', 80)); listener.listen(100)
for number in (1, 2):
    if os.fork() == 0: serve(listener, number)
listener.close()
sys.stdin.read()
for child in map(int, open('/proc/self/task/%d/children' % os.getpid()).read().split()): os.kill(child, 9)
";

fn say(stream: &mut TcpStream) -> u8 {
    answer(stream).expect("an answer")
}

/// The number of the process that answers; an error where its listener closes at this moment.
fn answer(stream: &mut TcpStream) -> std::io::Result<u8> {
    stream.write_all(b"?")?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    Ok(answer[0] - b'0')
}

fn closed_by_one() {
    require_tools();
    let network = Network::of_all_queues(2);
    let program = start_python(&network, "server", WORKERS);
    let workers = || children_of(program.0.id());
    wait_until("the server answers", || {
        workers().len() == 2 && connect(&network).is_ok()
    });
    let all = workers();
    let mut kept = Vec::new();
    wait_until("both have connections by their queues", || {
        let mut new = connect(&network).expect("a connection");
        let number = say(&mut new);
        kept.push((new, number));
        all.iter().all(|one| engine(*one) > 0) && (1..3).all(|one| kept.iter().any(|k| k.1 == one))
    });
    let _ = bypass_sys::kernel::kill(all[0] as i32, libc::SIGUSR1);
    wait_until("the other one accepts", || {
        let connect = || connect_within(&network, LIMIT_OF_LOST);
        let next = || connect().and_then(|mut new| answer(&mut new));
        (0..10).all(|_| next().is_ok_and(|number| number == 2))
    });
    let left = undisturbed(&network.client, || {
        let kernel = sum(&all, "accepts_kernel");
        let ask = || {
            let mut new = connect(&network).expect("a connection");
            assert_eq!(say(&mut new), 2, "the other one accepts");
        };
        (0..60).for_each(|_| ask());
        // For longer than it takes until a port is given up.
        let end = Instant::now() + Duration::from_millis(2500);
        while Instant::now() < end {
            ask();
            std::thread::sleep(Duration::from_millis(20));
        }
        sum(&all, "accepts_kernel") - kernel
    });
    for (stream, number) in &mut kept {
        assert_eq!(say(stream), *number, "connections go on");
    }
    assert_eq!(left, 0, "on the kernel");
    assert!(program.ends_well());
}

/// Three processes connect at once; the kernel handles the servers' side.
fn opened_by_each() {
    require_tools();
    let network = Network::with_queues(4);
    let listener = network
        .server
        .run(|| std::net::TcpListener::bind((SERVER, 81)));
    let listener = listener.expect("a listener");
    std::fs::create_dir_all(root()).expect("a folder");
    // One that comes late, when others have every queue, is given one soon, and connects by the kernel until then.
    let [have_all, may_open] = ["have-all", "may-open"].map(|name| root().join(name));
    let text = format!(
        "
import os, socket, sys, time
opened = socket.socket(); opened.bind(('0.0.0.0', 82)); opened.listen(1)
def connected():
    one = socket.socket(); one.settimeout(60); one.connect(('{SERVER}', 81))
    return one
def say(what): sys.stdout.write(what); sys.stdout.flush()
children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        while not os.path.exists('{}'):
            one = connected()
            assert one.recv(2) == b'ok'
            one.close(); time.sleep(0.05)
        say('r')
        while not os.path.exists('{}'): time.sleep(0.01)
        all = [connected() for _ in range({CONNECTS})]
        for one in all: assert one.recv(2) == b'ok'
        say('.')
        os.read(0, 1)
        os._exit(0)
    children.append(child)
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
",
        have_all.display(),
        may_open.display()
    );
    let is_over = AtomicBool::new(false);
    listener.set_nonblocking(true).expect("set");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut kept = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((mut server, _)) => {
                        let _ = server.write_all(b"ok");
                        kept.push(server);
                        // Of connections that were only to be opened once.
                        if kept.len() > 4 * CONNECTS {
                            kept.remove(0);
                        }
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(1)),
                }
            }
        });
        let _over = SetAtEnd(&is_over);
        let mut program = start_python(&network, "client", &text);
        let mut output = program.0.stdout.take().expect("piped");
        let process = program.0.id();
        let opened = || -> Vec<u64> {
            let count = |one: &u32| counter(*one, "connects_packets").unwrap_or(0);
            children_of(process).iter().map(count).collect()
        };
        wait_until("each has opened connections over packets", || {
            opened().iter().filter(|count| **count > 0).count() == 3
        });
        std::fs::write(&have_all, "").expect("written");
        output.read_exact(&mut [0; 3]).expect("each is ready");
        let before = opened();
        std::fs::write(&may_open, "").expect("written");
        output
            .read_exact(&mut [0; 3])
            .expect("each has its answers");
        let gains: Vec<u64> = opened().iter().zip(before).map(|(b, a)| b - a).collect();
        assert!(program.ends_well());
        assert_eq!(gains, vec![CONNECTS as u64; 3]);
    });
    let _ = std::fs::remove_dir_all(root());
}

const CONNECTS: usize = 60;

/// Without a child that a queue could be left to, all are taken at once.
fn alone() {
    require_tools();
    let network = Network::of_all_queues(4);
    let text = "
import os, socket, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
listener = socket.socket(); listener.bind(('0.0.0.0', 80)); listener.listen(100)
while True:
    one = listener.accept()[0]
    while one.recv(100): one.send(b'7')
";
    let program = start_python(&network, "server", text);
    let process = program.0.id();
    // The first ones may come before it waits for them.
    wait_until("the server answers over packets", || {
        connect(&network).is_ok_and(|mut new| say(&mut new) == 7) && accepts(process, "packets") > 0
    });
    let taken = || (accepts(process, "packets"), accepts(process, "kernel"));
    let gained = undisturbed(&network.client, || {
        let before = taken();
        for _ in 0..40 {
            assert_eq!(say(&mut connect(&network).expect("a connection")), 7);
        }
        (taken().0 - before.0, taken().1 - before.1)
    });
    assert_eq!(gained, (40, 0), "over packets, kernel");
    assert_eq!(counter(process, "frames_given"), Some(0));
    assert!(program.ends_well());
}

/// What a process that was alone no longer uses is not among the descriptors that its children close.
fn forked_by_one() {
    require_tools();
    let network = Network::of_all_queues(4);
    let text = "
import os, signal, socket, sys, threading
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
listener = socket.socket(); listener.bind(('0.0.0.0', 80)); listener.listen(100)
forks, server = False, os.getpid()
while True:
    one = listener.accept()[0]
    if forks and os.fork(): one.close(); continue
    while True:
        got = one.recv(100)
        if not got: break
        one.send(b'7')
        forks = forks or got == b'f'
    if os.getpid() != server: os._exit(0)
    one.close()
";
    let program = start_python(&network, "server", text);
    let process = program.0.id();
    wait_until("the server answers over packets", || {
        connect(&network).is_ok_and(|mut new| say(&mut new) == 7) && accepts(process, "packets") > 0
    });
    let mut last = connect(&network).expect("a connection");
    last.write_all(b"f").expect("sent");
    last.read_exact(&mut [0]).expect("an answer");
    drop(last);
    let mut kept = Vec::new();
    for _ in 0..20 {
        let mut new = connect(&network).expect("a connection");
        assert_eq!(say(&mut new), 7);
        kept.push(new);
    }
    assert!(kept.iter_mut().all(|one| say(one) == 7));
    drop(kept);
    assert!(program.ends_well());
}

/// Answers with its number.
const PROGRAM: &str = "
import os, select, socket, sys
port, number = map(int, os.environ['PROGRAM'].split())
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
listener.bind(('0.0.0.0', port)); listener.listen(100); listener.setblocking(False)
watched = select.epoll()
kept = {}
for fd in (0, listener.fileno()): watched.register(fd, select.EPOLLIN)
while True:
    for fd, _ in watched.poll():
        if fd == 0: os._exit(0)
        if fd == listener.fileno():
            try: one = listener.accept()[0]
            except BlockingIOError: continue
            kept[one.fileno()] = one; watched.register(one.fileno(), select.EPOLLIN)
            continue
        got = kept[fd].recv(100)
        if got: kept[fd].send(b'%d' % number)
        else: watched.unregister(fd); kept.pop(fd).close()
";

/// A program of its own in addition to others of the same cluster.
fn start_in_cluster(network: &Network, port: u16, number: u8) -> Python {
    let mut command = Command::new("python3");
    command
        .args(["-c", PROGRAM])
        .env("LD_PRELOAD", library::built())
        .env("PROGRAM", format!("{port} {number}"))
        .env("EF_CLUSTER_NAME", "webs")
        .env("EF_CLUSTER_SIZE", "2")
        .stdin(Stdio::piped());
    Python(network.start("server", command).expect("python starts"))
}

fn answer_at(network: &Network, port: u16) -> Option<u8> {
    let at = SocketAddr::new(SERVER.parse().expect("an address"), port);
    let connect = || TcpStream::connect_timeout(&at, LIMIT);
    let mut new = network.client.run(connect).ok()?;
    new.set_read_timeout(Some(LIMIT)).expect("a limit");
    Some(say(&mut new))
}

fn shared_by_programs() {
    require_tools();
    let network = Network::of_all_queues(4);
    let mut programs = [1, 2].map(|number| start_in_cluster(&network, 80, number));
    // Alternately one is ended, and started again after the other has taken all queues.
    for round in 0..3 {
        let all = [0, 1].map(|at: usize| programs[at].0.id());
        wait_until("both have an engine", || {
            let answered = connect(&network).is_ok_and(|mut new| (1..3).contains(&say(&mut new)));
            answered && all.iter().all(|one| engine(*one) > 0)
        });
        // While one does not know the other, connections still go through the kernel: for a second,
        // longer on a busy machine.
        wait_until("no connection goes through the kernel", || {
            let before = sum(&all, "accepts_kernel");
            (0..20).all(|_| connect(&network).is_ok_and(|mut new| say(&mut new) > 0))
                && sum(&all, "accepts_kernel") == before
        });
        let (left, mut kept) = undisturbed(&network.client, || {
            let kernel = sum(&all, "accepts_kernel");
            let mut kept = Vec::new();
            for _ in 0..60 {
                let mut new = connect(&network).expect("a connection");
                let number = say(&mut new);
                kept.push((new, number));
            }
            (sum(&all, "accepts_kernel") - kernel, kept)
        });
        assert_eq!(left, 0, "on the kernel");
        assert!((1..3).all(|number| kept.iter().any(|one| one.1 == number)));
        let ended = round % 2;
        kept.retain(|one| usize::from(one.1) != ended + 1);
        // Its connections end here.
        let other = start_in_cluster(&network, 81, 3);
        assert!(std::mem::replace(&mut programs[ended], other).ends_well());
        for (stream, number) in &mut kept {
            assert_eq!(say(stream), *number, "connections go on");
        }
        wait_until("the other one has all connections", || {
            (0..20).all(|_| {
                connect(&network).is_ok_and(|mut new| usize::from(say(&mut new)) == 2 - ended)
            })
        });
        let new = start_in_cluster(&network, 80, ended as u8 + 1);
        assert!(std::mem::replace(&mut programs[ended], new).ends_well());
    }
    assert!(programs.into_iter().all(Python::ends_well));
}

fn ports_of_programs() {
    require_tools();
    let network = Network::of_all_queues(2);
    let programs = [80, 81].map(|port| start_in_cluster(&network, port, (port - 79) as u8));
    let all = [0, 1].map(|at: usize| programs[at].0.id());
    let ask = |port| answer_at(&network, port);
    wait_until("each has an engine, and answers", || {
        let answers = [ask(80), ask(81)];
        answers == [Some(1), Some(2)] && all.iter().all(|one| engine(*one) > 0)
    });
    let left = undisturbed(&network.client, || {
        let kernel = sum(&all, "accepts_kernel");
        for _ in 0..60 {
            assert_eq!([ask(80), ask(81)], [Some(1), Some(2)]);
        }
        sum(&all, "accepts_kernel") - kernel
    });
    assert_eq!(left, 0, "on the kernel");
    assert!(programs.into_iter().all(Python::ends_well));
}

fn joins_workers() {
    require_tools();
    let network = Network::of_all_queues(4);
    let options = [("EF_CLUSTER_NAME", "webs")];
    let folder = folder("joined");
    let mut master = start_nginx_with(&network, &folder, "nobody nogroup", 2, &options);
    for _ in 0..3 {
        let program = start_in_cluster(&network, 81, 2);
        let process = program.0.id();
        wait_until("the program has an engine, and answers", || {
            ask_all(&network, 8);
            (0..8).all(|_| answer_at(&network, 81) == Some(2)) && engine(process) > 0
        });
        let workers = children_of(master.id());
        let all: Vec<u32> = workers.iter().copied().chain([process]).collect();
        let left = undisturbed(&network.client, || {
            let kernel = sum(&all, "accepts_kernel");
            for _ in 0..20 {
                ask_all(&network, 8);
                assert_eq!(answer_at(&network, 81), Some(2));
            }
            sum(&all, "accepts_kernel") - kernel
        });
        assert_eq!(left, 0, "on the kernel");
        let _ = bypass_sys::kernel::kill(master.id() as i32, libc::SIGHUP);
        wait_until("new workers with engines", || {
            ask_all(&network, 8);
            let all = children_of(master.id());
            let mut new = all.iter().filter(|one| !workers.contains(one));
            all.len() == 2 && new.clone().count() == 2 && new.all(|one| engine(*one) > 0)
        });
        assert_eq!(answer_at(&network, 81), Some(2));
        assert!(program.ends_well());
    }
    end(&mut master);
}

/// The address of its rendezvous socket.
fn cluster_name(network: &Network) -> String {
    let read = || std::fs::read_to_string("/proc/thread-self/net/unix");
    let unix = network.server.run(read).expect("readable");
    let mut words = unix.split_whitespace();
    let name = words.find(|word| word.starts_with("@wirespeed/c/"));
    name.expect("a rendezvous socket")[1..].to_owned()
}

/// They say nothing, send garbage, or ask and do not take the answers.
fn strangers() {
    require_tools();
    let network = Network::of_all_queues(2);
    let first = start_in_cluster(&network, 80, 1);
    let process = first.0.id();
    wait_until("it has an engine", || {
        answer_at(&network, 80) == Some(1) && engine(process) > 0
    });
    let text = format!(
        "
import socket, sys
def link():
    one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.settimeout(60); one.connect('\\0{}')
    return one
kept = []
for number in range(300):
    one = link()
    try:
        if number % 3 == 1: one.send(bytes([number % 256] * number))
        if number % 3 == 2: one.send((12).to_bytes(8, 'little') + ({VERSION}).to_bytes(8, 'little') + bytes(32))
    except BrokenPipeError: pass # the oldest that says nothing goes
    kept.append(one)
print('.', end='', flush=True)
sys.stdin.read()
",
        cluster_name(&network)
    );
    let mut crowd = start_python(&network, "server", &text);
    let output = crowd.0.stdout.as_mut().expect("piped");
    output.read_exact(&mut [0]).expect("all have connected");
    let second = start_in_cluster(&network, 81, 2);
    wait_until("the second one has an engine", || {
        answer_at(&network, 81) == Some(2) && engine(second.0.id()) > 0
    });
    assert_eq!(answer_at(&network, 80), Some(1));
    assert!(crowd.ends_well() && first.ends_well() && second.ends_well());
}

fn name_taken() {
    require_tools();
    let network = Network::of_all_queues(2);
    let first = start_in_cluster(&network, 80, 1);
    wait_until("it answers", || answer_at(&network, 80) == Some(1));
    let name = cluster_name(&network);
    assert!(first.ends_well());
    let text = format!(
        "
import socket, sys
one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); one.bind('\\0{name}'); one.listen(9)
print('.', end='', flush=True)
sys.stdin.read()
"
    );
    let mut stranger = start_python(&network, "server", &text);
    let output = stranger.0.stdout.as_mut().expect("piped");
    output.read_exact(&mut [0]).expect("it has the name");
    let program = start_in_cluster(&network, 80, 1);
    let process = program.0.id();
    wait_until("it is served by the kernel", || {
        answer_at(&network, 80) == Some(1)
    });
    assert_eq!(
        (accepts(process, "packets"), accepts(process, "kernel") > 0),
        (0, true)
    );
    assert!(stranger.ends_well() && program.ends_well());
}

/// The master waits for other things, as those of many servers do.
fn held_by_master() {
    require_tools();
    let network = Network::of_all_queues(2);
    let text = "
import os, select, socket, sys
def serve(listener):
    kept = [listener]
    while True:
        for one in select.select(kept, [], [])[0]:
            if one is listener:
                try: kept.append(one.accept()[0])
                except BlockingIOError: pass
                continue
            if one.recv(100): one.send(b'7')
            else: kept.remove(one); one.close()
listener = socket.socket()
listener.bind(('0.0.0.0', 80)); listener.listen(100); listener.setblocking(False)
waits = select.epoll(); waits.register(0, select.EPOLLIN); waits.poll(0.1)
for _ in range(2):
    if os.fork() == 0: waits.close(); serve(listener)
while not waits.poll(0.05): pass
for child in map(int, open('/proc/self/task/%d/children' % os.getpid()).read().split()): os.kill(child, 9)
";
    let program = start_python(&network, "server", text);
    let master = program.0.id();
    wait_until("each worker has an engine", || {
        let asked = connect(&network).map(|mut new| say(&mut new));
        let all = children_of(master);
        asked.is_ok_and(|answer| answer == 7)
            && all.len() == 2
            && all.iter().all(|one| engine(*one) > 0)
    });
    assert_eq!(engine(master), 0);
    assert!(program.ends_well());
}
