//! Result of an operation.

/// Result of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The call's result.
    Done(isize),
    /// errno.
    Error(i32),
    /// The kernel is to do it: call the real function.
    Kernel,
}

impl From<Result<usize, i32>> for Outcome {
    fn from(result: Result<usize, i32>) -> Self {
        match result {
            Ok(value) => Self::Done(value as isize),
            Err(error) => Self::Error(error),
        }
    }
}
