//! What a worker makes of the plan before it starts: its targets, and which connections go to them.

use crate::plan::{self, Plan, Rendered, Target};
use crate::script::ThreadScript;
use std::io;

/// Takes over what a script says about address and request.
pub(super) fn adopt(script: &mut ThreadScript, targets: &mut Vec<Target>) -> io::Result<()> {
    targets.truncate(1);
    let Some(target) = targets.first_mut() else {
        return Ok(());
    };
    if let Some(address) = script.new_address() {
        target.address = address;
    }
    if !script.shape.dynamic {
        let bytes = script.request().map_err(io::Error::other)?;
        target.requests = vec![Rendered::of_text(bytes)];
        target.order = vec![0];
    }
    Ok(())
}

/// The target of each connection of a thread. In an open loop each thread has its own connections to
/// every target, as its requests are due on all of them; in a closed loop they are dealt over all
/// threads.
pub(super) fn target_of_connections(plan: &Plan, number: usize, targets: &[Target]) -> Vec<usize> {
    let weights: Vec<u32> = targets.iter().map(|target| target.weight).collect();
    let own = plan.share(plan.connections_max(), number);
    if plan.open().is_some() {
        return plan::dealt(&weights, own);
    }
    let all = plan::dealt(&weights, plan.connections_max());
    let mine = all.into_iter().skip(number).step_by(plan.threads);
    mine.take(own).collect()
}
