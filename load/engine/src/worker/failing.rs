//! Requests that failed: counted, and their connection opened again.

use super::Worker;
use crate::transport::Transport;
use load_http1::Malformed;
use std::io;

/// Why a request on a connection failed.
pub(super) enum Failure {
    Read(io::Error),
    /// Closed by the server before an answer began.
    Closed,
    Write(io::Error),
    Timeout,
    Malformed(Malformed),
}

impl<T: Transport> Worker<'_, T> {
    /// A request on a connection has failed: counted, closed, opened again a little later.
    #[cold]
    pub(super) fn fail(&mut self, index: usize, failure: Failure, now: u64) {
        if self.running && self.recorder.is_over(now) {
            self.rotate(now);
        }
        let errors = &mut self.recorder.now.counts.errors;
        let text = match failure {
            Failure::Read(error) => {
                errors.read += 1;
                format!("read: {error}")
            }
            Failure::Closed => {
                errors.read += 1;
                "read: closed by the server before the answer".to_string()
            }
            Failure::Write(error) => {
                errors.write += 1;
                format!("write: {error}")
            }
            Failure::Timeout => {
                errors.timeout += 1;
                self.censor(index, now);
                "no answer in time".to_string()
            }
            Failure::Malformed(class) => {
                errors.malformed[class as usize] += 1;
                format!("malformed answer: {}", class.name())
            }
        };
        self.recorder.note(|| text);
        self.connections[index].failures = self.connections[index].failures.saturating_add(1);
        self.close(index);
        self.reopen_later(index, now);
    }
}
