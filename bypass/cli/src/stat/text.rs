//! The snapshot as text for people.

use std::fmt::Write as _;

use super::snapshot::{Process, Snapshot};

pub(super) const NONE: &str =
    "no accelerated process: start one with bypass run, and let it open a TCP socket\n";

/// One block for each process.
pub(super) fn page(snapshot: &Snapshot, connections: bool) -> String {
    if snapshot.processes.is_empty() {
        return NONE.to_owned();
    }
    let mut page = String::new();
    for process in &snapshot.processes {
        block(&mut page, process, snapshot.unix_ns);
        if connections {
            sockets(&mut page, snapshot, process);
        }
    }
    page
}

fn block(page: &mut String, process: &Process, unix_ns: u128) {
    let header = &process.header;
    let age_s = unix_ns.saturating_sub(u128::from(header.started_unix_ns)) / 1_000_000_000;
    let _ = write!(
        page,
        "{} {}  {}",
        process.pid,
        printable(&header.command),
        age(age_s)
    );
    if !header.profile.is_empty() {
        let _ = write!(page, "  profile {}", printable(&header.profile));
    }
    if !header.cluster.is_empty() {
        let _ = write!(page, "  cluster {}", printable(&header.cluster));
    }
    let ended = if process.has_ended { "  ended" } else { "" };
    let _ = writeln!(page, "  uid {}{ended}", header.uid);
    let _ = writeln!(
        page,
        "  sockets    shm {}, packets {}, kernel {}, listeners {}",
        process.sockets("shm"),
        process.sockets("packets"),
        process.sockets("kernel"),
        process.listeners()
    );
    let shown: Vec<_> = process
        .counters
        .iter()
        .filter(|(_, value)| *value > 0)
        .map(|(name, value)| format!("{} {}", name.replace('_', " "), grouped(*value)))
        .collect();
    for (index, line) in shown.chunks(4).enumerate() {
        let label = if index == 0 { "counters" } else { "" };
        let _ = writeln!(page, "  {label:10} {}", line.join(", "));
    }
    let reasons: Vec<_> = process
        .fallbacks
        .iter()
        .map(|(reason, count)| format!("{reason} {}", grouped(*count)))
        .collect();
    let reasons = if reasons.is_empty() {
        "none".to_owned()
    } else {
        reasons.join(", ")
    };
    let _ = writeln!(page, "  to kernel  {reasons}");
}

fn sockets(page: &mut String, snapshot: &Snapshot, process: &Process) {
    let mut sorted = process.connections.clone();
    sorted.sort_by_key(|socket| socket.fd);
    for socket in &sorted {
        let peer = if socket.peer.is_empty() {
            "*"
        } else {
            &socket.peer
        };
        let unread = match snapshot.unread(socket) {
            Some(bytes) => format!(" unread {}", grouped(bytes)),
            None => String::new(),
        };
        let _ = writeln!(
            page,
            "  fd {:<6} {:8} {:6} {:21} {peer:21} {:11} in {} out {}{unread}",
            socket.fd,
            socket.role,
            socket.path,
            socket.local,
            socket.state,
            grouped(socket.bytes_in),
            grouped(socket.bytes_out)
        );
    }
}

/// 1234567 as 1 234 567.
pub(crate) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Another process wrote these texts: nothing in them may move the cursor.
pub(super) fn printable(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_control() { '?' } else { letter })
        .collect()
}

fn age(seconds: u128) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_numbers_are_grouped() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(1_234_567), "1 234 567");
        assert_eq!(grouped(123_456), "123 456");
    }

    #[test]
    fn a_hostile_name_cannot_move_the_cursor() {
        assert_eq!(printable("a\x1b[2Jb"), "a?[2Jb");
    }
}
