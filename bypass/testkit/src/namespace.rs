//! Network namespaces without a name: each lives as long as the thread that created it.

use std::process::Command;
use std::sync::mpsc::{channel, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bypass_sys::descriptor::Owned;
use bypass_sys::{kernel, network};

use crate::skip;

/// The kernel takes at most a second or two.
const UP_MAX: Duration = Duration::from_secs(60);

/// A network namespace; it ends with this and every process in it.
pub struct Namespace {
    fd: Owned,
    thread: i32,
    // Dropped first: the thread that holds the namespace then ends.
    stop: Option<Sender<()>>,
    holder: Option<JoinHandle<()>>,
}

impl Namespace {
    /// Creates one with its loopback up; skips the test if that is not allowed.
    #[allow(clippy::new_without_default, reason = "it can end the test")]
    pub fn new() -> Self {
        let (stop, stopped) = channel::<()>();
        let (say, said) = channel();
        let holder = thread::spawn(move || {
            let made = network::unshare(libc::CLONE_NEWNET)
                .and_then(|_| kernel::open(c"/proc/thread-self/ns/net", libc::O_RDONLY));
            let is_made = made.is_ok();
            let thread = kernel::gettid().unwrap_or(0) as i32;
            say.send(made.map(|fd| (fd, thread))).ok();
            if is_made {
                stopped.recv().ok();
            }
        });
        let (fd, thread) = match said.recv().expect("the thread answers") {
            Ok(made) => made,
            Err(error) => skip(format!(
                "no network namespace may be made here (error {error}; needs CAP_SYS_ADMIN)"
            )),
        };
        let namespace = Self {
            fd: Owned(fd),
            thread,
            stop: Some(stop),
            holder: Some(holder),
        };
        namespace.ip("link set lo up");
        namespace
    }

    /// Moves the calling thread, and processes that it starts from now on, into the namespace.
    pub fn enter(&self) {
        network::set_namespace(self.fd.0, libc::CLONE_NEWNET).expect("allowed, as it was made");
    }

    /// Runs `work` inside, in a separate thread.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                self.enter();
                work()
            });
            inside
                .join()
                .unwrap_or_else(|error| std::panic::resume_unwind(error))
        })
    }

    /// Runs `ip` with these words inside; returns its output.
    pub fn ip(&self, words: &str) -> String {
        self.command("ip", words)
    }

    /// Runs a command inside; returns its output. It must succeed.
    pub fn command(&self, program: &str, words: &str) -> String {
        self.try_command(program, words)
            .unwrap_or_else(|error| panic!("{program} {words}: {error}"))
    }

    /// The same; None if it fails.
    pub fn may(&self, program: &str, words: &str) -> Option<String> {
        self.try_command(program, words).ok()
    }

    fn try_command(&self, program: &str, words: &str) -> Result<String, String> {
        let done = self.run(|| {
            Command::new(program)
                .args(words.split_whitespace())
                .output()
        });
        let done = done.unwrap_or_else(|error| skip(format!("{program} cannot be run: {error}")));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match done.status.success() {
            true => Ok(text(&done.stdout)),
            false => Err(text(&done.stderr)),
        }
    }

    /// The thread that holds the namespace, for `ip link set … netns`.
    pub fn thread(&self) -> i32 {
        self.thread
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(holder) = self.holder.take() {
            holder.join().ok();
        }
    }
}

/// Connects two namespaces by a veth pair of `queues` queues each way, both ends up.
pub fn veth(a: (&Namespace, &str), b: (&Namespace, &str), queues: usize) {
    let queued = format!("numrxqueues {queues} numtxqueues {queues}");
    a.0.ip(&format!(
        "link add {} {queued} type veth peer name {} {queued}",
        a.1, b.1
    ));
    if a.0.thread != b.0.thread {
        a.0.ip(&format!("link set {} netns {}", b.1, b.0.thread));
    }
    a.0.ip(&format!("link set {} up", a.1));
    b.0.ip(&format!("link set {} up", b.1));
    await_up(a.0, a.1);
    await_up(b.0, b.1);
}

/// A thread of the kernel's notices somewhat later that both ends are up: until then it drops what is sent, and IPv6 does
/// not begin.
fn await_up(side: &Namespace, name: &str) {
    let started = Instant::now();
    loop {
        let shown = side.ip(&format!("-o link show {name}"));
        if shown.contains(" state UP ") {
            return;
        }
        assert!(started.elapsed() < UP_MAX, "not up: {shown}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Skips the test if a program is not installed.
pub fn require_tool(program: &str) {
    let is_there = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    });
    if !is_there {
        skip(format!("{program} is not installed"));
    }
}
