//! Waits until an earlier cluster of the same name is gone, as nginx profiles ask for.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use bypass_stats::View;

use crate::failure::Failure;

const WAIT_MAX: Duration = Duration::from_secs(10);
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
        let members = members(name);
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

fn members(name: &str) -> Vec<u32> {
    let is_member = |(pid, view): (u32, View)| (view.header().cluster == name).then_some(pid);
    View::list().into_iter().filter_map(is_member).collect()
}
