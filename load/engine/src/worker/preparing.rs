//! What a worker makes of the plan before it starts: its targets, its schedule, its epoll.

use crate::plan::{Plan, Rendered, Target};
use crate::schedule::Schedule;
use crate::script::ThreadScript;
use crate::sys::epoll::{Epoll, Waits};
use std::io;

/// A request up to this length is one segment on any path.
const SEGMENT_BYTES: usize = 512;

/// Takes over what a script says about address and request.
pub(super) fn adopt(script: &mut ThreadScript, targets: &mut Vec<Target>) -> io::Result<()> {
    targets.truncate(1);
    let Some(target) = targets.first_mut() else {
        return Ok(());
    };
    if let Some(address) = &script.address {
        target.address = address.clone();
    }
    if !script.shape.dynamic {
        let bytes = script.request().map_err(io::Error::other)?;
        target.requests = vec![Rendered::of_text(bytes)];
        target.order = vec![0];
    }
    Ok(())
}

/// The same head means another length after HEAD than after GET.
pub(super) fn same_meaning(targets: &[Target]) -> bool {
    let requests = || targets.iter().flat_map(|target| &target.requests);
    let (mixed, heads) = (
        requests().any(|r| r.mixed.is_some()),
        requests().filter(|r| r.head_only).count(),
    );
    !mixed && (heads == 0 || heads == requests().count())
}

/// Whether each request fits a segment, so that Nagle's rule never holds a part of it back.
pub(super) fn are_short(targets: &[Target]) -> bool {
    let mut requests = targets.iter().flat_map(|target| &target.requests);
    requests.all(|request| request.bytes.len() <= SEGMENT_BYTES)
}

pub(super) fn schedule(plan: &Plan, number: usize, depth: usize) -> Option<Schedule> {
    let (curve, open) = (plan.curve(depth)?, plan.open.as_ref()?);
    Some(if open.poisson {
        Schedule::poisson(curve, number, plan.threads, open.seed)
    } else {
        Schedule::even(curve, number, plan.threads)
    })
}

/// A closed loop waits for answers; only a schedule needs exact ends of its waits.
pub(super) fn open_epoll(plan: &Plan) -> io::Result<Epoll> {
    if plan.open.is_some() {
        return Epoll::open(plan.trigger, Waits::for_due_times());
    }
    let mut epoll = Epoll::open(plan.trigger, Waits::Late)?;
    epoll.add_alarm()?;
    Ok(epoll)
}
