//! `bypass stat --why`: the latest sockets that each process has left to the kernel, and what the reasons mean.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use bypass_stats::Decision;

use super::snapshot::{Process, Snapshot};
use super::text;

/// One block for each process, the latest decision last.
pub(super) fn page(snapshot: &Snapshot) -> String {
    if snapshot.processes.is_empty() {
        return text::NONE.to_owned();
    }
    let mut page = String::new();
    for process in &snapshot.processes {
        block(&mut page, process, snapshot.unix_ns);
    }
    page
}

fn block(page: &mut String, process: &Process, unix_ns: u128) {
    let command = text::printable(&process.header.command);
    let _ = writeln!(page, "{} {command}", process.pid);
    if process.decisions.is_empty() {
        let _ = writeln!(page, "  left to the kernel: nothing");
    }
    for decision in &process.decisions {
        let _ = writeln!(page, "{}", line(decision, unix_ns));
    }
    let reasons = process.decisions.iter().map(|decision| decision.reason);
    for reason in reasons.collect::<BTreeSet<_>>() {
        let _ = writeln!(page, "  {reason}: {}", meaning(reason));
    }
}

fn line(decision: &Decision, unix_ns: u128) -> String {
    let age_ms = unix_ns.saturating_sub(u128::from(decision.unix_ns)) / 1_000_000;
    let address = match decision.address.as_str() {
        "" => "-",
        address => address,
    };
    let path = match decision.has_failed {
        true => "failed",
        false => "kernel",
    };
    format!(
        "  {:>6}.{:03} s ago  {:8} fd {:<6} {address:21} {path}  {}",
        age_ms / 1000,
        age_ms % 1000,
        decision.call,
        decision.fd,
        decision.reason
    )
}

/// What a reason means, and what to do.
pub(crate) fn meaning(reason: &str) -> &'static str {
    match reason {
        "no-holder" => "no accelerated process listens there (start the server with bypass run too)",
        "not-local" => {
            "another host or network namespace, to which no named interface (--interface) or shared directory (--share) leads"
        }
        "other-user" => "the two ends run as different users (EF_SHARE_WITH at both)",
        "sandbox" => {
            "the kernel or a filter forbids what is needed (AF_UNIX, AF_NETLINK, memfd_create)"
        }
        "option" => "an option of the socket that only the kernel has (docs/internals/limits/bypass.md)",
        "bound-to-device" => "the listener is bound to an interface (SO_BINDTODEVICE)",
        "limit" => "a bound is reached: connections, processes, descriptors or memory (ulimit -n)",
        "backlog-full" => {
            "more connections waited than the backlog of listen allows (EF_ACCEPTQ_MIN_BACKLOG)"
        }
        "name-squatted" => "another user has taken the name of the listener's rendezvous socket",
        "version" => "the two ends run different builds of the library (restart both)",
        "switched-off" => "an administrator (bypass on) or an option has switched acceleration off",
        "io_uring" => "the process uses sockets through io_uring or Linux AIO",
        "stdio" => "fdopen was called before the socket was connected",
        "no-answer" => {
            "the process at the other end did not answer in time: stopped, or overloaded"
        }
        "peer-protocol" => "the process at the other end broke the protocol: look at it",
        "interface" => {
            "the interface cannot be used (bypass run --check says why), another program uses it, or a policy rule decides"
        }
        "bound-address" => "the socket was bound before connect",
        "namespace" => "the process has entered another network namespace",
        "not-accepting" => "the other end had not accepted yet, or another program accepts for it",
        "not-recognised" => {
            "the connection reached another server than the shared directory names, or it accepted late"
        }
        _ => "unknown to this version of bypass",
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::of_one;
    use super::*;

    #[test]
    fn every_reason_has_a_meaning() {
        for reason in bypass_stats::REASONS {
            assert!(!meaning(reason).starts_with("unknown"), "{reason}");
        }
    }

    #[test]
    fn a_decision_is_a_line_and_its_reason_is_explained_once() {
        let mut snapshot = of_one("nginx", &[], &[]);
        snapshot.unix_ns = 5_250_000_000;
        let decision = Decision {
            unix_ns: 3_000_000_000,
            call: "connect",
            has_failed: false,
            fd: 9,
            address: "10.0.0.1:80".to_owned(),
            reason: "not-local",
        };
        let failed = Decision {
            has_failed: true,
            address: String::new(),
            ..decision.clone()
        };
        snapshot.processes[0].decisions = vec![decision, failed];
        let page = page(&snapshot);
        let lines: Vec<&str> = page.lines().collect();
        assert_eq!(lines.len(), 4, "{page}");
        assert_eq!(
            lines[1],
            "       2.250 s ago  connect  fd 9      10.0.0.1:80           kernel  not-local"
        );
        assert!(lines[2].contains(" -  ") && lines[2].ends_with("failed  not-local"));
        assert!(lines[3].starts_with("  not-local: another host or network namespace"));
    }

    /// The same reason is kept where an interface was named that does not lead to the address.
    #[test]
    fn another_host_is_explained_whether_an_interface_was_named_or_not() {
        let text = meaning("not-local");
        assert!(!text.contains("no interface is named"), "{text}");
        assert!(
            text.contains("--interface") && text.contains("--share"),
            "{text}"
        );
    }

    #[test]
    fn a_process_that_has_left_nothing_says_so() {
        assert_eq!(
            page(&of_one("nginx", &[], &[])),
            "7 nginx\n  left to the kernel: nothing\n"
        );
    }
}
