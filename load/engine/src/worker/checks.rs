//! Checks of responses: the properties that `--expect` names, and their lengths.

use super::recorder::Recorder;
use crate::plan::{Expect, Plan, Shape, Target};
use crate::sys::is_preloaded;

/// The length of an answer that has not come yet.
const UNKNOWN: u64 = u64::MAX;

/// The checks of a thread's answers.
pub(super) struct Checks<'p> {
    expect: &'p Expect,
    /// Answers are kept until they are complete: a script or an expectation looks at them.
    pub keeps_answers: bool,
    /// Only status or length of answers are expected, which takes no copy.
    compares: bool,
    /// Bodies that neither a script nor an expectation needs are dropped in the kernel.
    pub drops_bodies: bool,
    /// Body length of the first answer to each request of each target.
    lengths: Vec<Vec<u64>>,
}

impl<'p> Checks<'p> {
    /// Of answers to these targets' requests.
    pub fn new(plan: &'p Plan, shape: Option<Shape>, targets: &[Target]) -> Checks<'p> {
        let expect = &plan.expect;
        let keeps_answers = expect.body.is_some() || shape.is_some_and(|shape| shape.wants_answers);
        let lengths = targets.iter().map(|t| vec![UNKNOWN; t.requests.len()]);
        Checks {
            expect,
            keeps_answers,
            compares: expect.body.is_none() && expect.is_any(),
            drops_bodies: plan.protocol.drops_bodies() && !keeps_answers && !is_preloaded(),
            lengths: lengths.collect(),
        }
    }

    /// Compares an answer of which only status and length are known with what is expected.
    #[inline]
    pub fn compare(&self, status: u16, length: u64, recorder: &mut Recorder) {
        if self.compares {
            self.expect_of(status, length, None, recorder);
        }
    }

    /// Compares an answer that was kept with what is expected.
    pub fn compare_kept(&self, status: u16, length: u64, body: &[u8], recorder: &mut Recorder) {
        if self.expect.body.is_some() {
            self.expect_of(status, length, Some(body), recorder);
        }
    }

    /// Counts an answer that is not as expected.
    #[cold]
    fn expect_of(&self, status: u16, length: u64, body: Option<&[u8]>, recorder: &mut Recorder) {
        if let Some(fault) = self.expect.fault(status, length, body) {
            recorder.now.counts.errors.unexpected += 1;
            recorder.note(|| format!("unexpected: {fault}"));
        }
    }

    /// Whether a body is shorter than the first one to the same request.
    #[inline]
    pub fn is_short(&mut self, target: usize, request: u32, bytes: u64, status: u16) -> bool {
        let Some(expected) = self.lengths[target].get_mut(request as usize) else {
            return false;
        };
        if *expected == bytes || status >= 300 {
            return false;
        }
        if *expected == UNKNOWN {
            *expected = bytes;
            return false;
        }
        bytes < *expected
    }
}
