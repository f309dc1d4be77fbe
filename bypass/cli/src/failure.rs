//! Why the command ends without doing what was asked, and with which exit code.

use std::io::Write as _;
use std::process::ExitCode;

/// One line for the user, and the exit code that goes with it.
#[derive(Debug)]
pub(crate) struct Failure {
    text: String,
    code: u8,
}

impl Failure {
    /// Bad input: exit code 2.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            code: 2,
        }
    }

    /// Something did not work: exit code 1.
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            code: 1,
        }
    }

    /// A code that scripts know, such as 127 for a program that is not there.
    pub(crate) fn with_code(text: impl Into<String>, code: u8) -> Self {
        Self {
            text: text.into(),
            code,
        }
    }

    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.text)
    }
}

/// Prints to standard output; a reader that has gone away (`bypass options | head`) does not count as a failure.
pub(crate) fn print(text: &str) -> Result<ExitCode, Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("standard output: {error}")))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}
