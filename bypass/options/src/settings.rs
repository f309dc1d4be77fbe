//! The options with an effect, in the types that the library uses.

use std::net::{IpAddr, SocketAddr};

use crate::definition::{networks, translations};
use crate::engine::Tcp;
use crate::messages::LogKinds;
use crate::resolve::Resolved;

/// Settings of the stack; every field is the option of the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Limit of every spin: EF_SPIN_USEC if set, else EF_POLL_USEC.
    pub spin_usec: u64,
    /// EF_SLEEP_SPIN_USEC.
    pub sleep_spin_usec: u64,
    /// EF_EPOLL_SPIN.
    pub epoll_spin: bool,
    /// EF_POLL_SPIN.
    pub poll_spin: bool,
    /// EF_TCP_RECV_SPIN.
    pub tcp_recv_spin: bool,
    /// EF_TCP_SEND_SPIN.
    pub tcp_send_spin: bool,
    /// EF_TCP_ACCEPT_SPIN.
    pub tcp_accept_spin: bool,
    /// EF_UDP: UDP sockets are accelerated over the interfaces that are named.
    pub udp: bool,
    /// EF_UDP_RECV_SPIN.
    pub udp_recv_spin: bool,
    /// EF_UL_EPOLL: 0 leaves sets, and what is in them, to the kernel.
    pub ul_epoll: u8,
    /// EF_SOCKET_CACHE_MAX.
    pub socket_cache_max: usize,
    /// EF_MAX_ENDPOINTS.
    pub max_endpoints: usize,
    /// EF_ACCEPTQ_MIN_BACKLOG.
    pub acceptq_min_backlog: u32,
    /// EF_TCP_CLIENT_LOOPBACK.
    pub tcp_client_loopback: bool,
    /// EF_TCP_SERVER_LOOPBACK.
    pub tcp_server_loopback: bool,
    /// EF_DONT_ACCELERATE, or EF_UL_EPOLL=0.
    pub dont_accelerate: bool,
    /// EF_NO_FAIL: what cannot be accelerated uses the kernel; otherwise it fails.
    pub no_fail: bool,
    /// EF_LOG.
    pub log_kinds: LogKinds,
    /// EF_LOG_FILE; empty for the system log.
    pub log_file: String,
    /// EF_LOG_TIMESTAMPS.
    pub log_timestamps: bool,
    /// EF_LOG_VIA_IOCTL: messages before the program begins go to the system log, too.
    pub log_via_system: bool,
    /// EF_CLUSTER_NAME.
    pub cluster_name: String,
    /// EF_CLUSTER_SIZE: processes that share the queues of an interface; 0 where that is not known.
    pub cluster_size: usize,
    /// EF_CLUSTER_IGNORE: they do not share them, one process uses them all.
    pub cluster_ignore: bool,
    /// EF_SHARE_WITH.
    pub share_with: ShareWith,
    /// EF_SHARE_DIR: empty for none.
    pub share_dir: String,
    /// EF_SHARE_AS: addresses by which other network namespaces reach a port of this one.
    pub share_as: Vec<(SocketAddr, u16)>,
    /// EF_INTERFACE_WHITELIST: connections to other hosts over these are accelerated.
    pub interfaces: Vec<String>,
    /// EF_ACCEPT_FROM: new connections over them are accelerated from these networks only; None: from everywhere.
    pub accept_from: Option<Vec<(IpAddr, u8)>>,
    /// Options of TCP with other hosts.
    pub tcp: Tcp,
}

/// Other users with whose processes a process accelerates connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShareWith {
    /// No other user.
    Own,
    /// This user too.
    User(u32),
    /// Every user of the host.
    Everybody,
}

impl ShareWith {
    /// Whether `uid` is among them.
    pub fn includes(self, uid: u32) -> bool {
        self == Self::Everybody || self == Self::User(uid)
    }
}

impl From<i64> for ShareWith {
    fn from(value: i64) -> Self {
        match u32::try_from(value) {
            // Root is always trusted.
            Ok(0) => Self::Own,
            Ok(uid) => Self::User(uid),
            Err(_) => Self::Everybody,
        }
    }
}

impl From<&Resolved> for Settings {
    fn from(from: &Resolved) -> Self {
        let switch = |name| from.number(name) != 0;
        let count = |name| usize::try_from(from.number(name)).unwrap_or(0);
        let spin_name = if from.is_set("EF_SPIN_USEC") {
            "EF_SPIN_USEC"
        } else {
            "EF_POLL_USEC"
        };
        Self {
            spin_usec: u64::try_from(from.number(spin_name)).unwrap_or(0),
            sleep_spin_usec: u64::try_from(from.number("EF_SLEEP_SPIN_USEC")).unwrap_or(0),
            epoll_spin: switch("EF_EPOLL_SPIN"),
            poll_spin: switch("EF_POLL_SPIN"),
            tcp_recv_spin: switch("EF_TCP_RECV_SPIN"),
            tcp_send_spin: switch("EF_TCP_SEND_SPIN"),
            tcp_accept_spin: switch("EF_TCP_ACCEPT_SPIN"),
            udp: switch("EF_UDP"),
            udp_recv_spin: switch("EF_UDP_RECV_SPIN"),
            ul_epoll: u8::try_from(from.number("EF_UL_EPOLL")).unwrap_or(1),
            socket_cache_max: count("EF_SOCKET_CACHE_MAX"),
            max_endpoints: count("EF_MAX_ENDPOINTS"),
            acceptq_min_backlog: u32::try_from(from.number("EF_ACCEPTQ_MIN_BACKLOG")).unwrap_or(1),
            tcp_client_loopback: switch("EF_TCP_CLIENT_LOOPBACK"),
            tcp_server_loopback: switch("EF_TCP_SERVER_LOOPBACK"),
            // The kernel's epoll set cannot see events on an accelerated socket.
            dont_accelerate: switch("EF_DONT_ACCELERATE") || from.number("EF_UL_EPOLL") == 0,
            no_fail: switch("EF_NO_FAIL"),
            log_kinds: LogKinds::from(from.text("EF_LOG").as_str()),
            log_file: from.text("EF_LOG_FILE"),
            log_timestamps: switch("EF_LOG_TIMESTAMPS"),
            log_via_system: from.number("EF_LOG_VIA_IOCTL") != 0,
            cluster_name: from.text("EF_CLUSTER_NAME"),
            cluster_size: count("EF_CLUSTER_SIZE"),
            cluster_ignore: switch("EF_CLUSTER_IGNORE"),
            share_with: ShareWith::from(from.number("EF_SHARE_WITH")),
            share_dir: from.text("EF_SHARE_DIR"),
            share_as: translations(&from.text("EF_SHARE_AS")).unwrap_or_default(),
            interfaces: interfaces(&from.text("EF_INTERFACE_WHITELIST")),
            accept_from: networks(&from.text("EF_ACCEPT_FROM"))
                .ok()
                .filter(|all| !all.is_empty()),
            tcp: Tcp::from(from),
        }
    }
}

/// Names separated by blanks or commas, each once.
pub fn interfaces(list: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let words = list
        .split([' ', ',', ';', '\t'])
        .filter(|name| !name.is_empty());
    for name in words {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

impl Default for Settings {
    fn default() -> Self {
        Self::from(&Resolved::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_and_mistakes_are_named() {
        let read = |text| networks(text).map(|all| all.len());
        assert_eq!(read("10.0.0.0/8, 2001:db8::/32 192.168.1.7"), Ok(3));
        assert_eq!(
            networks("::1").expect("one"),
            [("::1".parse().expect("one"), 128)]
        );
        for wrong in ["10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/", "all"] {
            assert_eq!(read(wrong), Err(wrong));
        }
        assert_eq!(Settings::default().accept_from, None);
    }

    #[test]
    fn translations_are_read_and_mistakes_are_named() {
        assert_eq!(
            translations("192.0.2.1:8080:80, 10.0.0.9:443:8443"),
            Ok(vec![
                (([192, 0, 2, 1], 8080).into(), 80),
                (([10, 0, 0, 9], 443).into(), 8443),
            ])
        );
        for wrong in [
            "8080:80",
            "10.0.0.9:443",
            "10.0.0.9:0:80",
            "[::1]:80:80",
            "a:1:2",
        ] {
            assert_eq!(translations(wrong), Err(wrong));
        }
        assert_eq!(Settings::default().share_as, []);
    }

    #[test]
    fn defaults_accelerate_and_do_not_spin() {
        let settings = Settings::default();
        assert!(settings.tcp_client_loopback && settings.tcp_server_loopback);
        assert_eq!((settings.spin_usec, settings.epoll_spin), (0, false));
        assert_eq!(settings.max_endpoints, 8192);
    }

    #[test]
    fn sharing_is_with_no_user_one_user_or_every_user() {
        let shared = |value: i64| ShareWith::from(value);
        assert!(!shared(0).includes(0) && !shared(0).includes(33));
        assert!(shared(33).includes(33) && !shared(33).includes(34));
        assert!(shared(-1).includes(0) && shared(-1).includes(33));
    }

    #[test]
    fn spin_usec_wins_over_poll_usec_but_not_its_switches() {
        let pairs = [("EF_POLL_USEC", "100"), ("EF_SPIN_USEC", "7")];
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let settings = Settings::from(&Resolved::from_environment(pairs.into_iter()));
        assert_eq!((settings.spin_usec, settings.epoll_spin), (7, true));
    }
}
