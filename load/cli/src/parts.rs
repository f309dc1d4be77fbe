//! The parts of the time that counts: by request, by target, by status. For the result file and for
//! people.

use crate::figures::quantile;
use crate::result::record::Same;
use crate::result::{BreakdownFacts, Distribution, RequestPart, TargetPart};
use load_engine::breakdown::Rows;
use load_engine::latency::Latency;
use load_engine::outcome::Outcome;
use load_engine::plan::{Plan, Target};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Requests and targets with their distributions, and distributions by class of status.
pub fn facts(plan: &Plan, outcome: &Outcome) -> BreakdownFacts {
    BreakdownFacts {
        requests: requests(plan, outcome),
        targets: targets(plan, outcome),
        status: statuses(plan, outcome),
    }
}

/// A row for each request, where requests have rows.
fn each_request<'a>(
    plan: &'a Plan,
    outcome: &'a Outcome,
) -> Vec<(&'a Target, String, &'a Latency)> {
    let rows = Rows::of(&plan.targets);
    let mut each = Vec::new();
    for (number, target) in plan.targets.iter().enumerate() {
        for (row, request) in rows.of_target(number).zip(&target.requests) {
            let latency = outcome.total.breakdown.row(row);
            if let (true, Some(latency)) = (rows.are_requests(), latency) {
                each.push((target, request.name().unwrap_or_default(), latency));
            }
        }
    }
    each
}

fn requests(plan: &Plan, outcome: &Outcome) -> Vec<RequestPart> {
    let each = each_request(plan, outcome).into_iter();
    each.map(|(target, request, latency)| RequestPart {
        target: target.url.clone(),
        request,
        latency: Distribution::of(latency),
    })
    .collect()
}

fn targets(plan: &Plan, outcome: &Outcome) -> Vec<TargetPart> {
    if plan.targets.len() < 2 {
        return Vec::new();
    }
    let rows = Rows::of(&plan.targets);
    let each = plan.targets.iter().enumerate();
    each.map(|(number, target)| {
        let mut sum = Latency::default();
        let own = rows.of_target(number);
        own.filter_map(|row| outcome.total.breakdown.row(row))
            .for_each(|latency| sum.add(latency));
        TargetPart {
            target: target.url.clone(),
            address: target.address.to_string(),
            weight: Same(target.weight.into()),
            latency: Distribution::of(&sum),
        }
    })
    .collect()
}

/// `2xx` is what is left of all without the others; `lost` are requests without an answer, with those
/// that were unfinished at the end.
fn statuses(plan: &Plan, outcome: &Outcome) -> BTreeMap<String, Distribution> {
    let all = outcome.total.times.counting(plan.open().is_some());
    let mut others = Latency::default();
    let mut found = BTreeMap::new();
    let mut enter = |name: String, latency: &Latency| {
        found.extend(Distribution::of(latency).map(|own| (name, own)));
    };
    if let Some(lost) = lost(all) {
        enter("lost".to_string(), &lost);
        others.add(&lost);
    }
    for (class, latency) in outcome.total.breakdown.classes() {
        if class > 0 {
            enter(format!("{class}xx"), latency);
            others.add(latency);
        }
    }
    if plan.protocol.is_http() {
        enter("2xx".to_string(), &all.without(&others));
    }
    found
}

/// The lower bounds among all, as a distribution of nothing else.
fn lost(all: &Latency) -> Option<Latency> {
    let mut lost = all.lost()?.clone();
    lost.set_lost(lost.clone());
    Some(lost)
}

/// A line for each request, where there are several.
pub fn lines(plan: &Plan, outcome: &Outcome) -> String {
    let mut text = String::new();
    let each = each_request(plan, outcome);
    if each.is_empty() {
        return text;
    }
    text.push_str("  By request          Count       p50       p99       Max\n");
    for (target, name, latency) in each {
        let place = if plan.targets.len() > 1 {
            &target.url
        } else {
            ""
        };
        let value = |at: f64| quantile(latency, at);
        let _ = writeln!(
            text,
            "  {:>23}{:>10}{:>10}{:>10}  {name} {place}",
            latency.count(),
            value(0.5),
            value(0.99),
            value(1.0),
        );
    }
    text
}
