//! The processes that are captured: found, read, and left when they end.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bypass_stats::capture::{Captured, Filter, Reader, Record};
use bypass_stats::View;

use crate::failure::Failure;
use crate::stat;

/// Between looks for processes that have come, gone or become another program.
const LOOK: Duration = Duration::from_millis(200);
/// Events of other processes that are at least this old have been read: then all can be put in order.
const SETTLED_NS: u64 = 20_000_000;
/// Same-host connections for which the reporting end is remembered.
const CONNECTIONS_MAX: usize = 65_536;

struct Source {
    pid: u32,
    reader: Reader,
}

/// All of them.
pub(super) struct Sources {
    /// Empty: every one.
    pids: Vec<u32>,
    filter: Filter,
    snap: usize,
    all: Vec<Source>,
    looked: Option<Instant>,
    /// Read, and perhaps later than what another process will report yet.
    held: Vec<Captured>,
    tells: HashMap<(SocketAddr, SocketAddr), bool>,
    dropped_by_gone: u64,
}

impl Sources {
    /// Begins to capture these processes; without any, [`look`](Self::look) finds all that there are.
    pub(super) fn begin(pids: &[u32], filter: Filter, snap: usize) -> Result<Self, Failure> {
        let mut sources = Self {
            pids: pids.to_vec(),
            filter,
            snap,
            all: Vec::new(),
            looked: None,
            held: Vec::new(),
            tells: HashMap::new(),
            dropped_by_gone: 0,
        };
        for pid in pids {
            let view = open(*pid)?;
            sources.add(*pid, view)?;
        }
        Ok(sources)
    }

    /// How many are captured now.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Whether there is nothing to wait for: the named processes have ended.
    pub(super) fn are_over(&self) -> bool {
        !self.pids.is_empty() && self.all.is_empty()
    }

    /// Records dropped for lack of space.
    pub(super) fn dropped(&self) -> u64 {
        let now: u64 = self.all.iter().map(|source| source.reader.dropped()).sum();
        self.dropped_by_gone + now
    }

    /// Records that have come and are settled, in order; with `is_last` all that there are.
    pub(super) fn drain(&mut self, is_last: bool) -> Vec<Captured> {
        for source in &mut self.all {
            source.reader.drain(|captured| self.held.push(captured));
        }
        if self.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            self.look();
        }
        // One process is in order already, and what it does is shown at once.
        let is_alone = self.pids.len() == 1;
        if !is_alone {
            self.held.sort_by_key(|captured| captured.unix_ns);
        }
        let settled_ns = now_unix_ns().saturating_sub(SETTLED_NS);
        let is_settled = |captured: &Captured| captured.unix_ns <= settled_ns;
        let count = match is_last || is_alone {
            true => self.held.len(),
            false => self.held.partition_point(is_settled),
        };
        let mut settled: Vec<Captured> = self.held.drain(..count).collect();
        settled.retain(|captured| self.is_told_here(&captured.record));
        settled
    }

    /// Both ends of a same-host connection report it when both processes are captured: one is enough.
    fn is_told_here(&mut self, record: &Record) -> bool {
        let Record::Segment { segment, .. } = record else {
            return true;
        };
        let ends = match segment.from < segment.to {
            true => (segment.from, segment.to),
            false => (segment.to, segment.from),
        };
        if self.tells.len() >= CONNECTIONS_MAX && !self.tells.contains_key(&ends) {
            self.tells.clear();
        }
        let by_client = *self.tells.entry(ends).or_insert(segment.by_client);
        by_client == segment.by_client
    }

    /// Leaves processes that have ended, and finds new ones.
    pub(super) fn look(&mut self) {
        self.looked = Some(Instant::now());
        let (held, dropped) = (&mut self.held, &mut self.dropped_by_gone);
        self.all.retain_mut(|source| {
            let is_there = source.reader.view().is_of(source.pid);
            if !is_there {
                // What it did last.
                source.reader.drain(|captured| held.push(captured));
                *dropped += source.reader.dropped();
            }
            is_there
        });
        let pids = match self.pids.is_empty() {
            true => View::list().into_iter().map(|(pid, _)| pid).collect(),
            false => self.pids.clone(),
        };
        for pid in pids {
            if self.all.iter().all(|source| source.pid != pid) {
                if let Ok(view) = open(pid) {
                    // Captured by another reader: said when it was named.
                    let _ = self.add(pid, view);
                }
            }
        }
    }

    fn add(&mut self, pid: u32, view: View) -> Result<(), Failure> {
        let begun = Reader::begin(view, self.filter, self.snap);
        let reader = begun.map_err(|holder| {
            Failure::failed(format!(
                "process {pid} is being captured already, by process {holder}"
            ))
        })?;
        self.all.push(Source { pid, reader });
        Ok(())
    }
}

fn now_unix_ns() -> u64 {
    bypass_sys::clock::unix_ns()
}

fn open(pid: u32) -> Result<View, Failure> {
    stat::own_page(pid, View::open_for_capture(pid))
}
