//! The snapshot as JSON, schema `bypass-stat/1`: written by hand, because it is one small tree.

use std::fmt::Write as _;

use super::snapshot::{Process, Snapshot};
use bypass_stats::{Connection, Decision};

/// The whole document; keys keep their order and meaning within a schema version.
pub(super) fn page(snapshot: &Snapshot) -> String {
    let processes: Vec<_> = snapshot
        .processes
        .iter()
        .map(|one| process(snapshot, one))
        .collect();
    format!(
        "{{\"schema\":\"bypass-stat/1\",\"unix_ns\":{},\"processes\":[{}]}}\n",
        snapshot.unix_ns,
        processes.join(",")
    )
}

fn process(snapshot: &Snapshot, process: &Process) -> String {
    let header = &process.header;
    let connections: Vec<_> = process
        .connections
        .iter()
        .map(|socket| connection(snapshot, socket))
        .collect();
    let decisions: Vec<_> = process.decisions.iter().map(decision).collect();
    format!(
        "{{\"pid\":{},\"has_ended\":{},\"uid\":{},\"started_unix_ns\":{},\"command\":{},\"profile\":{},\
         \"cluster\":{},\"sockets\":{{\"shm\":{},\"packets\":{},\"kernel\":{},\"listeners\":{}}},\"counters\":{},\
         \"fallbacks\":{},\"decisions\":[{}],\"connections\":[{}]}}",
        process.pid,
        process.has_ended,
        header.uid,
        header.started_unix_ns,
        quoted(&header.command),
        quoted(&header.profile),
        quoted(&header.cluster),
        process.sockets("shm"),
        process.sockets("packets"),
        process.sockets("kernel"),
        process.listeners(),
        object(&process.counters),
        object(&process.fallbacks),
        decisions.join(","),
        connections.join(",")
    )
}

fn decision(decision: &Decision) -> String {
    format!(
        "{{\"unix_ns\":{},\"call\":{},\"fd\":{},\"address\":{},\"reason\":{},\"has_failed\":{}}}",
        decision.unix_ns,
        quoted(decision.call),
        decision.fd,
        quoted(&decision.address),
        quoted(decision.reason),
        decision.has_failed
    )
}

fn connection(snapshot: &Snapshot, socket: &Connection) -> String {
    let unread = snapshot.unread(socket);
    let unread = unread.map_or_else(|| "null".to_owned(), |bytes| bytes.to_string());
    format!(
        "{{\"fd\":{},\"role\":{},\"path\":{},\"local\":{},\"peer\":{},\"bytes_in\":{},\
         \"bytes_out\":{},\"bytes_unread\":{unread},\"state\":{}}}",
        socket.fd,
        quoted(socket.role),
        quoted(socket.path),
        quoted(&socket.local),
        quoted(&socket.peer),
        socket.bytes_in,
        socket.bytes_out,
        quoted(socket.state)
    )
}

fn object(pairs: &[(&'static str, u64)]) -> String {
    let members: Vec<_> = pairs
        .iter()
        .map(|(name, value)| format!("{}:{value}", quoted(name)))
        .collect();
    format!("{{{}}}", members.join(","))
}

/// Another process wrote these texts: control letters must not break the document.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            _ if u32::from(letter) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            _ => out.push(letter),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_other_processes_cannot_break_the_document() {
        assert_eq!(quoted("a\"b\\c\n\u{1}é"), "\"a\\\"b\\\\c\\u000a\\u0001é\"");
    }
}
