//! Statistics of all accelerated processes at one moment.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bypass_stats::{Connection, Decision, Header, View};

use super::kernel::Connected;
use crate::failure::Failure;

/// One process.
#[derive(Debug, Clone)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) has_ended: bool,
    pub(super) header: Header,
    pub(super) counters: Vec<(&'static str, u64)>,
    pub(super) fallbacks: Vec<(&'static str, u64)>,
    pub(super) decisions: Vec<Decision>,
    pub(super) connections: Vec<Connection>,
    /// Connections that the kernel carries; the process does not count those.
    pub(super) kernel_connections: usize,
}

/// All of them.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    pub(super) taken: Instant,
    pub(super) unix_ns: u128,
    pub(super) processes: Vec<Process>,
    sent: HashMap<(String, String), u64>,
}

impl Snapshot {
    /// Every process when no ids are given; an id that shows nothing is a failure with its reason.
    pub(super) fn take(pids: &[u32]) -> Result<Self, Failure> {
        let mut processes: Vec<Process> = if pids.is_empty() {
            let own = |(pid, view): &(u32, View)| is_own(*pid, view);
            View::list()
                .into_iter()
                .filter(own)
                .map(|(pid, view)| read(pid, &view))
                .collect()
        } else {
            pids.iter().map(|pid| one(*pid)).collect::<Result<_, _>>()?
        };
        let sent = if pids.is_empty() {
            sent_by(&processes)
        } else {
            sent_by(&Self::take(&[])?.processes)
        };
        let mut connected = Connected::default();
        for process in &mut processes {
            process.kernel_connections = connected.of(process.pid).len();
        }
        Ok(Self::of(processes, sent))
    }

    /// The processes that have left their statistics in a folder and ended; only those with these ids, where some are given.
    pub(super) fn ended(folder: &Path, pids: &[u32]) -> Result<Self, Failure> {
        let found = View::ended(folder);
        let failure = |error| Failure::failed(format!("{}: {error}", folder.display()));
        let mut processes: Vec<_> = found
            .map_err(failure)?
            .iter()
            .map(|(pid, view)| read(*pid, view))
            .collect();
        processes.retain(|process| pids.is_empty() || pids.contains(&process.pid));
        for process in &mut processes {
            process.has_ended = true;
        }
        Ok(Self::of(processes, HashMap::new()))
    }

    fn of(processes: Vec<Process>, sent: HashMap<(String, String), u64>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            taken: Instant::now(),
            unix_ns: now.map_or(0, |age| age.as_nanos()),
            processes,
            sent,
        }
    }

    /// Bytes that wait in the ring toward this end: what the other end has sent and this one has
    /// not read. None when the other end does not report it, as another user's or namespace's.
    pub(super) fn unread(&self, socket: &Connection) -> Option<u64> {
        if socket.path != "shm" || socket.role == "listener" {
            return None;
        }
        let other_end = (socket.peer.clone(), socket.local.clone());
        let sent = self.sent.get(&other_end)?;
        Some(sent.saturating_sub(socket.bytes_in))
    }
}

/// (local, peer) → bytes sent. Processes that share a connection by fork each report it.
fn sent_by(processes: &[Process]) -> HashMap<(String, String), u64> {
    let mut sent = HashMap::new();
    let all = processes.iter().flat_map(|process| &process.connections);
    for socket in all.filter(|socket| socket.path == "shm") {
        let ends = (socket.local.clone(), socket.peer.clone());
        let bytes: &mut u64 = sent.entry(ends).or_default();
        *bytes = socket.bytes_out.max(*bytes);
    }
    sent
}

impl Process {
    /// A counter by its name; 0 when this version does not have it.
    pub(super) fn counter(&self, name: &str) -> u64 {
        self.counters
            .iter()
            .find(|(known, _)| *known == name)
            .map_or(0, |(_, value)| *value)
    }

    /// Sockets of a path, listeners not counted.
    pub(super) fn sockets(&self, path: &str) -> usize {
        if path == "kernel" {
            return self.kernel_connections;
        }
        let on_path = |socket: &&Connection| socket.path == path && socket.role != "listener";
        self.connections.iter().filter(on_path).count()
    }

    /// How many listeners it has.
    pub(super) fn listeners(&self) -> usize {
        self.connections
            .iter()
            .filter(|socket| socket.role == "listener")
            .count()
    }

    /// Connections left to the kernel, for any reason.
    pub(super) fn fallback_count(&self) -> u64 {
        self.fallbacks.iter().map(|(_, count)| count).sum()
    }
}

fn one(pid: u32) -> Result<Process, Failure> {
    own_page(pid, View::open(pid)).map(|view| read(pid, &view))
}

/// The page that was found of a process, if it is about that process.
pub(crate) fn own_page(pid: u32, found: io::Result<Option<View>>) -> Result<View, Failure> {
    let why = match found {
        Ok(Some(view)) if is_own(pid, &view) => return Ok(view),
        Ok(Some(view)) => format!(
            "process {pid} is not accelerated itself: {}",
            of_parent(&view)
        ),
        Ok(None) => format!(
            "process {pid} is not accelerated: it was not started by bypass run, or it has made no \
             TCP socket yet"
        ),
        Err(error) if error.kind() == ErrorKind::NotFound => format!("process {pid} not found"),
        Err(error) => format!("process {pid}: {error}"),
    };
    Err(Failure::failed(why))
}

/// The reason for a process that has this page, which is not about it.
pub(crate) fn of_parent(view: &View) -> String {
    let parent = view.header().pid;
    format!(
        "it has the statistics of process {parent}, as it has made no TCP socket yet, or came by \
         clone3 or _Fork, which are not followed"
    )
}

/// A child that has made no socket yet still holds its parent's page, which is not about it.
/// In another pid namespace the numbers differ, so an unknown number is taken as its own.
pub(crate) fn is_own(pid: u32, view: &View) -> bool {
    let said = view.header().pid;
    said == pid || !std::path::Path::new(&format!("/proc/{said}")).exists()
}

fn read(pid: u32, view: &View) -> Process {
    Process {
        pid,
        has_ended: false,
        header: view.header(),
        counters: view.counters(),
        fallbacks: view.fallbacks(),
        decisions: view.decisions(),
        connections: view.connections(),
        kernel_connections: 0,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// One process, number 7, that has counted this.
    pub(in super::super) fn of_one(
        command: &str,
        counters: &[(&'static str, u64)],
        fallbacks: &[(&'static str, u64)],
    ) -> Snapshot {
        let header = Header {
            pid: 7,
            uid: 0,
            started_unix_ns: 0,
            profile: String::new(),
            cluster: String::new(),
            command: command.to_owned(),
        };
        let connections = vec![socket("127.0.0.1:80", "127.0.0.1:4000", 5, 9)];
        let process = Process {
            pid: 7,
            has_ended: false,
            header,
            counters: counters.to_vec(),
            fallbacks: fallbacks.to_vec(),
            decisions: Vec::new(),
            connections,
            kernel_connections: 0,
        };
        Snapshot {
            taken: Instant::now(),
            unix_ns: 0,
            processes: vec![process],
            sent: HashMap::new(),
        }
    }

    fn socket(local: &str, peer: &str, bytes_in: u64, bytes_out: u64) -> Connection {
        Connection {
            fd: 3,
            role: "client",
            path: "shm",
            local: local.to_owned(),
            peer: peer.to_owned(),
            bytes_in,
            bytes_out,
            state: "open",
        }
    }

    fn told_by(other_end: &Connection) -> Snapshot {
        let ends = (other_end.local.clone(), other_end.peer.clone());
        Snapshot {
            taken: Instant::now(),
            unix_ns: 0,
            processes: Vec::new(),
            sent: HashMap::from([(ends, other_end.bytes_out)]),
        }
    }

    #[test]
    fn bytes_that_the_other_end_sent_and_this_one_has_not_read_wait() {
        let snapshot = told_by(&socket("a:1", "b:2", 0, 10_000));
        let own = socket("b:2", "a:1", 100, 0);
        assert_eq!(snapshot.unread(&own), Some(9_900));
    }

    #[test]
    fn an_end_that_read_on_between_the_two_looks_has_nothing_waiting() {
        let snapshot = told_by(&socket("a:1", "b:2", 0, 100));
        assert_eq!(snapshot.unread(&socket("b:2", "a:1", 164, 0)), Some(0));
    }

    #[test]
    fn an_end_whose_other_end_reports_nothing_is_not_guessed() {
        let snapshot = told_by(&socket("a:1", "b:2", 0, 100));
        assert_eq!(snapshot.unread(&socket("b:3", "a:1", 0, 0)), None);
        let kernel = Connection {
            path: "kernel",
            ..socket("b:2", "a:1", 0, 0)
        };
        assert_eq!(snapshot.unread(&kernel), None);
    }
}
