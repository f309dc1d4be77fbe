//! Shows what happens on connections of the same host to whoever captures the process
//! (`bypass_stats::capture`). Called with the connection's lock held, before bytes are counted.

use core::sync::atomic::Ordering;

use bypass_stats::capture;
pub use bypass_stats::capture::By;
use bypass_sys::iovec::Pieces;

use super::{attaching, Stream};
use crate::process;
use crate::sys;

/// The buffers of a call as they are before it, kept as long as somebody captures.
#[inline]
pub fn before<'a>(pieces: &Pieces<'a>) -> Option<Pieces<'a>> {
    process::captured().map(|_| pieces.clone())
}

/// The connection of socket object `index` has just begun.
#[inline]
pub fn opened(index: usize) {
    if process::captured().is_some() {
        show(index, |shown| shown.opened());
    }
}

#[cold]
fn show(index: usize, what: impl FnOnce(&capture::Stream)) {
    if let Some(shown) = process::captured().and_then(|stats| stats.captured_stream(index)) {
        what(&shown);
    }
}

impl Stream {
    /// The first `count` bytes of what was kept [before] the call have passed.
    #[inline]
    pub(super) fn show_passed(&self, by: By, before: Option<Pieces>, count: usize) {
        if let Some(before) = before {
            self.show(|shown| shown.passed(by, sys::slices(before, count)));
        }
    }

    /// These bytes have passed.
    #[inline]
    pub fn show_bytes(&self, by: By, bytes: &[u8]) {
        if process::captured().is_some() {
            self.show(|shown| shown.passed(by, [bytes].into_iter()));
        }
    }

    /// The direction of these bytes has ended.
    #[inline]
    pub(super) fn show_ended(&self, by: By) {
        if process::captured().is_some() {
            self.show(|shown| shown.ended(by));
        }
    }

    /// The connection was reset.
    #[inline]
    pub(super) fn show_reset(&self, by: By) {
        if process::captured().is_some() {
            self.show(|shown| shown.reset(by));
        }
    }

    #[cold]
    fn show(&self, what: impl FnOnce(&capture::Stream)) {
        let row = process::stats().and_then(|stats| stats.row_quick(self.index));
        // A connection that a forked child has inherited: the child's page does not describe it yet.
        if row.is_some_and(|row| row.fd.load(Ordering::Relaxed) == 0) {
            attaching::take_over_row(self);
        }
        show(self.index, what);
    }
}
