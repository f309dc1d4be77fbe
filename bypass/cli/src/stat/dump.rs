//! The snapshot as `onload_stackdump` words it: stacks, counters one a line, connections as netstat.

use std::fmt::Write as _;

use bypass_stats::Connection;

use super::snapshot::{Process, Snapshot};
use super::text::printable;

/// Each process as a stack of its own, whose number is the process id.
pub(super) fn stacks(snapshot: &Snapshot) -> String {
    let mut page = "#stack-id stack-name      pids\n".to_owned();
    for process in &snapshot.processes {
        let name = printable(&process.header.cluster);
        let name = if name.is_empty() { "-" } else { &name };
        let _ = writeln!(page, "{:<9} {name:<15} {}", process.pid, process.pid);
    }
    page
}

/// Every counter and connection of each process; counters that are zero only when `zeros`.
pub(super) fn lots(snapshot: &Snapshot, zeros: bool) -> String {
    let mut page = String::new();
    for process in &snapshot.processes {
        let header = &process.header;
        let _ = writeln!(
            page,
            "============================================================\n\
             stack: {} command={} profile={} cluster={} uid={}",
            process.pid,
            printable(&header.command),
            printable(&header.profile),
            printable(&header.cluster),
            header.uid
        );
        for (name, value) in counted(process).filter(|(_, value)| zeros || *value > 0) {
            let _ = writeln!(page, "{name}: {value}");
        }
        connections(&mut page, snapshot, process);
    }
    page
}

fn counted(process: &Process) -> impl Iterator<Item = (String, u64)> + '_ {
    let plain = process
        .counters
        .iter()
        .map(|(name, value)| ((*name).to_owned(), *value));
    let reasons = process.fallbacks.iter();
    plain.chain(reasons.map(|(reason, count)| (format!("kernel_{reason}"), *count)))
}

/// Every connection of every process: bytes that wait, addresses, state, path and owner.
pub(super) fn netstat(snapshot: &Snapshot) -> String {
    let mut page = String::new();
    for process in &snapshot.processes {
        connections(&mut page, snapshot, process);
    }
    page
}

fn connections(page: &mut String, snapshot: &Snapshot, process: &Process) {
    for socket in &process.connections {
        let unread = snapshot.unread(socket).unwrap_or(0);
        let peer = if socket.peer.is_empty() {
            "*:*"
        } else {
            &socket.peer
        };
        let _ = writeln!(
            page,
            "TCP {unread:>6} {:21} {peer:21} {:11} {:6} {}:{}",
            socket.local,
            state(socket),
            socket.path,
            process.pid,
            socket.fd
        );
    }
}

/// The state as netstat names it.
fn state(socket: &Connection) -> &'static str {
    match (socket.role, socket.state) {
        ("listener", _) => "LISTEN",
        (_, "open") => "ESTABLISHED",
        (_, "half-closed") => "FIN_WAIT2",
        (_, "peer-closed") => "CLOSE_WAIT",
        _ => "CLOSE",
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::of_one;
    use super::*;

    #[test]
    fn zeros_are_left_out_on_request() {
        let snapshot = of_one("nginx", &[("reads", 7), ("resets", 0)], &[("limit", 2)]);
        assert!(lots(&snapshot, true).contains("\nresets: 0\n"));
        let short = lots(&snapshot, false);
        assert!(short.contains("\nreads: 7\nkernel_limit: 2\n") && !short.contains("resets"));
    }

    #[test]
    fn connections_are_lines_as_of_netstat() {
        let page = netstat(&of_one("nginx", &[], &[]));
        let words: Vec<_> = page.split_whitespace().collect();
        assert_eq!(
            words,
            [
                "TCP",
                "0",
                "127.0.0.1:80",
                "127.0.0.1:4000",
                "ESTABLISHED",
                "shm",
                "7:3"
            ]
        );
    }

    #[test]
    fn a_stack_is_a_process() {
        assert!(stacks(&of_one("nginx", &[], &[])).ends_with("\n7         -               7\n"));
    }
}
