//! What a worker makes of the plan before it starts: its targets and its schedule.

use super::dispatch::Dispatch;
use crate::plan::{self, Plan, Rendered, Target};
use crate::schedule::Schedule;
use crate::script::ThreadScript;
use std::io;
use std::sync::Arc;

/// A request up to this length is one segment on any path.
const SEGMENT_BYTES: usize = 512;

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

/// Whether each request fits a segment, so that Nagle's rule never holds a part of it back.
pub(super) fn are_short(targets: &[Target]) -> bool {
    let mut requests = targets.iter().flat_map(|target| &target.requests);
    requests.all(|request| request.bytes.len() <= SEGMENT_BYTES)
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

pub(super) fn dispatch(
    plan: &Plan,
    number: usize,
    targets: &[Target],
    target_of: &[usize],
) -> Dispatch {
    let Some(open) = plan.open() else {
        return Dispatch::new(plan::Dispatch::Any, &[], &[], 0);
    };
    let seed = open.seed ^ (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Dispatch::new(open.dispatch, targets, target_of, seed)
}

/// The requests of a thread, whole batches of them.
pub(super) fn own_requests(plan: &Plan, number: usize, depth: usize) -> u64 {
    let Some(all) = plan.requests else {
        return u64::MAX;
    };
    let batches = all.div_ceil(depth as u64);
    let (threads, number) = (plan.threads as u64, number as u64);
    (batches / threads + u64::from(number < batches % threads)) * depth as u64
}

/// Whether each request has a due time of its own.
pub(super) fn is_recorded(plan: &Plan) -> bool {
    let open = plan.open();
    open.is_some_and(|open| open.recorded.is_some())
}

/// Where each request has a due time, each thread has its own part of both lists.
pub(super) fn deal_recorded(plan: &Plan, number: usize, targets: &mut [Target]) {
    if is_recorded(plan) {
        for target in targets {
            let own = target.order.iter().skip(number).step_by(plan.threads);
            target.order = own.copied().collect();
        }
    }
}

/// Where a thread begins in the order of a target: threads begin at different places, unless each has an
/// order of its own.
pub(super) fn first_request(plan: &Plan, number: usize, target: &Target) -> u32 {
    if is_recorded(plan) {
        return 0;
    }
    (target.order.len() * number / plan.threads) as u32
}

pub(super) fn schedule(plan: &Plan, number: usize, depth: usize) -> Option<Schedule> {
    let (curve, open) = (plan.curve(depth)?, plan.open()?);
    if let Some(times_ns) = &open.recorded {
        return Some(Schedule::recorded(
            Arc::clone(times_ns),
            number,
            plan.threads,
        ));
    }
    Some(if open.poisson {
        Schedule::poisson(curve, number, plan.threads, open.seed)
    } else {
        Schedule::even(curve, number, plan.threads)
    })
}
