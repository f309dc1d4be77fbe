//! TCP connections of a process that the kernel carries: its descriptors, among the sockets of its network namespace.

use std::collections::{HashMap, HashSet};
use std::fs;

/// States of /proc/net/tcp without a connection: closed, and listening.
const NO_CONNECTION: [&str; 2] = ["07", "0A"];

/// Numbers of connected sockets, by network namespace: many processes share one.
#[derive(Debug, Default)]
pub(super) struct Connected(HashMap<String, HashSet<u64>>);

impl Connected {
    /// The connected sockets that process `pid` holds, each once however many descriptors mean it; none where it cannot be looked at.
    pub(super) fn of(&mut self, pid: u32) -> HashSet<u64> {
        let namespace = fs::read_link(format!("/proc/{pid}/ns/net"));
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd"));
        let (Ok(namespace), Ok(descriptors)) = (namespace, descriptors) else {
            return HashSet::new();
        };
        let namespace = namespace.to_string_lossy().into_owned();
        let connected = self.0.entry(namespace).or_insert_with(|| read(pid));
        let links = descriptors.flatten().map(|one| fs::read_link(one.path()));
        let sockets = links.flatten().filter_map(|link| {
            let text = link.to_str()?.strip_prefix("socket:[")?;
            text.strip_suffix(']')?.parse::<u64>().ok()
        });
        sockets.filter(|one| connected.contains(one)).collect()
    }
}

fn read(pid: u32) -> HashSet<u64> {
    let tables = ["tcp", "tcp6"].map(|name| fs::read_to_string(format!("/proc/{pid}/net/{name}")));
    tables
        .iter()
        .flatten()
        .flat_map(|table| connected(table))
        .collect()
}

/// The numbers (inodes) of the connected sockets in a table of /proc/net.
fn connected(table: &str) -> impl Iterator<Item = u64> + '_ {
    table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace().skip(3);
        let state = fields.next()?;
        let number = fields.nth(5)?;
        (!NO_CONNECTION.contains(&state)).then(|| number.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn number(socket: &impl AsFd) -> u64 {
        let twin = socket.as_fd().try_clone_to_owned().expect("a duplicate");
        fs::File::from(twin).metadata().expect("a socket").ino()
    }

    #[test]
    fn both_ends_of_a_connection_are_found_and_its_listener_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("a name");
        let client = TcpStream::connect(address).expect("a connection");
        let (served, _) = listener.accept().expect("its other end");
        let found = Connected::default().of(std::process::id());
        assert!(found.contains(&number(&client)) && found.contains(&number(&served)));
        assert!(!found.contains(&number(&listener)));
    }

    #[test]
    fn the_number_is_the_tenth_field_of_a_connected_socket() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:0019 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0\n\
            1: 0100007F:0019 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 22 1 0 20 4 30 10 -1\n\
            2: 0100007F:9C40 0100007F:0019 06 00000000:00000000 03:00000000 00000000     0        0 0 3 0\n";
        assert_eq!(connected(table).collect::<Vec<_>>(), [22, 0]);
    }
}
