//! Standard output and standard error, whose readers may go away: `wirespeed-load ... | head` is no
//! reason to stop, and the files are written all the same.

use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether standard output did not take something for another reason than a reader that left.
static LOST: AtomicBool = AtomicBool::new(false);

/// Writes to standard output at once.
pub fn print(text: &str) {
    let mut stdout = io::stdout().lock();
    let result = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    if let Err(error) = result {
        if error.kind() != ErrorKind::BrokenPipe && !LOST.swap(true, Ordering::Relaxed) {
            say(&format!(
                "wirespeed-load: cannot write to standard output: {error}"
            ));
        }
    }
}

/// Writes a line to standard error.
pub fn say(line: &str) {
    // if stderr is closed, no reader is left for a message about that
    let _ = writeln!(io::stderr(), "{line}");
}

/// Writes a part of a line to standard error.
pub fn show(text: &str) {
    let mut stderr = io::stderr();
    let _ = stderr
        .write_all(text.as_bytes())
        .and_then(|()| stderr.flush());
}

/// Whether results were lost on the way to standard output.
pub fn lost() -> bool {
    LOST.load(Ordering::Relaxed)
}
