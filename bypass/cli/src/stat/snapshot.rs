//! What all accelerated processes say about themselves at one moment.

use std::io::ErrorKind;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bypass_shm::stats::{Connection, Header, View};

use crate::failure::Failure;

/// One process.
#[derive(Debug, Clone)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) header: Header,
    pub(super) counters: Vec<(&'static str, u64)>,
    pub(super) fallbacks: Vec<(&'static str, u64)>,
    pub(super) connections: Vec<Connection>,
}

/// All of them.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    pub(super) taken: Instant,
    pub(super) unix_ns: u128,
    pub(super) processes: Vec<Process>,
}

impl Snapshot {
    /// Every process when no ids are given; an id that shows nothing is a failure with its reason.
    pub(super) fn take(pids: &[u32]) -> Result<Self, Failure> {
        let processes = if pids.is_empty() {
            let own = |(pid, view): &(u32, View)| is_own(*pid, view);
            View::list()
                .into_iter()
                .filter(own)
                .map(|(pid, view)| read(pid, &view))
                .collect()
        } else {
            pids.iter().map(|pid| one(*pid)).collect::<Result<_, _>>()?
        };
        let unix_ns = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |age| age.as_nanos());
        Ok(Self {
            taken: Instant::now(),
            unix_ns,
            processes,
        })
    }
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
    match View::open(pid) {
        Ok(Some(view)) => Ok(read(pid, &view)),
        Ok(None) => Err(Failure::failed(format!(
            "process {pid} is not accelerated: it was not started by bypass run, or it has made no \
             TCP socket yet"
        ))),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(Failure::failed(format!("there is no process {pid}")))
        }
        Err(error) => Err(Failure::failed(format!("process {pid}: {error}"))),
    }
}

/// A child that has made no socket yet still holds its parent's page, which is not about it.
/// In another pid namespace the numbers differ, so an unknown number is taken as its own.
fn is_own(pid: u32, view: &View) -> bool {
    let said = view.header().pid;
    said == pid || !std::path::Path::new(&format!("/proc/{said}")).exists()
}

fn read(pid: u32, view: &View) -> Process {
    Process {
        pid,
        header: view.header(),
        counters: view.counters(),
        fallbacks: view.fallbacks(),
        connections: view.connections(),
    }
}
