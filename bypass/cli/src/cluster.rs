//! Waits until an earlier cluster of the same name is gone, as nginx profiles ask for.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use bypass_stats::View;

use crate::failure::Failure;

const WAIT_MAX: Duration = Duration::from_secs(10);
/// Bytes of a program's name that the kernel keeps.
const NAME_MAX: usize = 15;
const PAUSE: Duration = Duration::from_millis(200);
/// The exit code that the nginx profile of the documents has for this.
const STILL_THERE: u8 = 16;

/// Returns at once when the command only signals a running instance (`nginx -s reload`).
pub(crate) fn wait_until_gone(name: &str, command: &[OsString]) -> Result<(), Failure> {
    if name.is_empty() || command.iter().any(|word| word == "-s") {
        return Ok(());
    }
    let started = Instant::now();
    loop {
        let members = members(name, command);
        if members.is_empty() {
            return Ok(());
        }
        if started.elapsed() > WAIT_MAX {
            let pids: Vec<_> = members.iter().map(u32::to_string).collect();
            let text = format!(
                "cluster {name} is still running (pid {}); end it, or set EF_CLUSTER_NAME",
                pids.join(", ")
            );
            return Err(Failure::with_code(text, STILL_THERE));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Other programs may share the cluster: they do not count as earlier ones of this command.
fn members(name: &str, command: &[OsString]) -> Vec<u32> {
    let is_member = |(pid, view): (u32, View)| {
        let header = view.header();
        (header.cluster == name && is_run_by(command, &header.command)).then_some(pid)
    };
    View::list().into_iter().filter_map(is_member).collect()
}

/// Whether a command runs a program, itself or by another one as `taskset`.
fn is_run_by(command: &[OsString], program: &str) -> bool {
    let names = command
        .iter()
        .filter_map(|word| Path::new(word).file_name());
    let mut names = names.map(|name| name.as_encoded_bytes());
    names.any(|name| &name[..name.len().min(NAME_MAX)] == program.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_known_by_its_program() {
        let command = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let nginx = command("taskset -c 0 /usr/sbin/nginx -c a.conf");
        assert!(is_run_by(&nginx, "nginx"));
        assert!(!is_run_by(&nginx, "api") && !is_run_by(&nginx, "ngin"));
        let long = command("./a-server-with-a-long-name");
        assert!(is_run_by(&long, "a-server-with-a"));
    }
}
