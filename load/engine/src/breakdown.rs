//! Latency (response time at a rate, else service time) by request and by status.
//!
//! The plain cell pays nothing for it: with one request there is one row, and answers
//! with a status of 2xx are what is left of all without the others.

use crate::latency::Latency;
use crate::plan::Target;

/// Most requests that have rows; beyond that, targets have.
const REQUESTS_MAX: usize = 100;
/// Classes of status: 1xx to 9xx by their first digit.
const CLASSES: usize = 10;
/// The class that is not entered.
const USUAL: usize = 2;

/// Which requests have rows of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Number of each target's first row; rows are its requests, or it is one row.
    first: Vec<usize>,
    by_request: bool,
    count: usize,
}

impl Rows {
    /// For the targets of a plan.
    pub fn of(targets: &[Target]) -> Rows {
        let all: usize = targets.iter().map(|target| target.requests.len()).sum();
        let by_request = all <= REQUESTS_MAX;
        let mut count = 0;
        let mut first = Vec::with_capacity(targets.len());
        for target in targets {
            first.push(count);
            count += if by_request { target.requests.len() } else { 1 };
        }
        let is_worth_it = count > 1 && count <= REQUESTS_MAX;
        Rows {
            first,
            by_request,
            count: if is_worth_it { count } else { 0 },
        }
    }

    /// The row of a request, if rows are kept.
    #[inline]
    pub fn row(&self, target: usize, request: u32) -> Option<usize> {
        if self.count == 0 {
            return None;
        }
        let within = if self.by_request { request as usize } else { 0 };
        Some(self.first[target] + within)
    }

    /// Rows of a target; empty where none are kept.
    pub fn of_target(&self, target: usize) -> std::ops::Range<usize> {
        if self.count == 0 {
            return 0..0;
        }
        let next = self.first.get(target + 1).copied();
        self.first[target]..next.unwrap_or(self.count)
    }

    /// Whether rows are requests, not whole targets.
    pub fn are_requests(&self) -> bool {
        self.by_request
    }
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its row, if rows are kept.
    pub row: Option<usize>,
    /// Its status; 0 if it was lost.
    pub status: u16,
}

/// Distributions by row and by class of status.
#[derive(Clone, Debug, Default)]
pub struct Breakdown {
    rows: Vec<Latency>,
    classes: Vec<Latency>,
}

impl Breakdown {
    /// Enters an answer, or a lost request.
    #[inline]
    pub fn record(&mut self, ended: Ended, took_ns: u64, times: u64) {
        let class = usize::from(ended.status / 100).min(CLASSES - 1);
        if ended.row.is_none() && class == USUAL {
            return;
        }
        self.enter(ended, class, took_ns, times);
    }

    #[cold]
    fn enter(&mut self, ended: Ended, class: usize, took_ns: u64, times: u64) {
        let is_lost = ended.status == 0;
        let enter = |latency: &mut Latency| {
            if is_lost {
                latency.record_lost(took_ns, times);
            } else {
                latency.record_many(took_ns, times);
            }
        };
        if let Some(row) = ended.row {
            enter(at(&mut self.rows, row));
        }
        if class != USUAL {
            enter(at(&mut self.classes, class));
        }
    }

    /// The distribution of a row.
    pub fn row(&self, row: usize) -> Option<&Latency> {
        self.rows.get(row)
    }

    /// Distributions by class of status other than 2xx, with the first digit; 0 are lost requests.
    pub fn classes(&self) -> impl Iterator<Item = (usize, &Latency)> {
        self.classes
            .iter()
            .enumerate()
            .filter(|(_, latency)| !latency.is_empty())
    }

    /// Adds those of another interval.
    pub fn add(&mut self, other: &Breakdown) {
        for (row, more) in other.rows.iter().enumerate() {
            at(&mut self.rows, row).add(more);
        }
        for (class, more) in other.classes.iter().enumerate() {
            at(&mut self.classes, class).add(more);
        }
    }

    /// Forgets everything, and keeps the memory.
    pub fn clear(&mut self) {
        let all = self.rows.iter_mut().chain(&mut self.classes);
        all.for_each(Latency::clear);
    }
}

/// An entry of a list that grows as it is needed.
fn at(list: &mut Vec<Latency>, place: usize) -> &mut Latency {
    if list.len() <= place {
        list.resize_with(place + 1, Latency::default);
    }
    &mut list[place]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_answer_of_the_one_request_is_entered_nowhere() {
        let mut breakdown = Breakdown::default();
        let ended = |row, status| Ended { row, status };
        breakdown.record(ended(None, 204), 5, 1);
        assert!(breakdown.rows.is_empty() && breakdown.classes.is_empty());
        breakdown.record(ended(Some(1), 200), 5, 1);
        breakdown.record(ended(Some(0), 503), 7, 1);
        breakdown.record(ended(Some(0), 0), 9, 2);
        let count = |row| breakdown.row(row).map(Latency::count);
        assert_eq!((count(0), count(1), count(2)), (Some(3), Some(1), None));
        let classes: Vec<_> = breakdown
            .classes()
            .map(|(class, own)| (class, own.count()))
            .collect();
        assert_eq!(classes, [(0, 2), (5, 1)]);
        assert_eq!(
            breakdown.row(0).and_then(Latency::lost).map(Latency::count),
            Some(2)
        );
    }
}
