//! mlockall(2) for a program whose segments have far more pages than are in use: everything else is locked in memory.

use crate::kernel::{self, Result};
use crate::memory::POPULATED_MAX;
use crate::numbers;

/// A mapping of this process, by `/proc/self/maps`.
struct Mapped {
    start: usize,
    length: usize,
    /// Its pages can be touched.
    is_accessible: bool,
    is_segment: bool,
}

/// Does what mlockall(2) does with `flags`, and leaves segments out. [`Mapping`](crate::memory::Mapping) leaves
/// later ones out.
pub fn lock_all(flags: i32) -> Result<()> {
    let locks_now = flags & (libc::MCL_CURRENT | libc::MCL_ONFAULT) == libc::MCL_CURRENT;
    let mapped = if locks_now { all() } else { Vec::new() };
    if !mapped.iter().any(|one| one.is_segment) {
        return call(libc::SYS_mlockall, flags as usize, 0);
    }
    match flags & libc::MCL_FUTURE {
        0 => call(libc::SYS_munlockall, 0, 0)?,
        future => call(libc::SYS_mlockall, future as usize, 0)?,
    }
    let (segments, others): (Vec<_>, Vec<_>) = mapped.into_iter().partition(|one| one.is_segment);
    for one in segments {
        let _ = call(libc::SYS_munlock, one.start, one.length);
    }
    let bytes: usize = others.iter().map(|one| one.length).sum();
    let is_beyond_limit = bytes > kernel::locked_memory_limit();
    for one in others {
        let locked = call(libc::SYS_mlock, one.start, one.length);
        // mlockall(2) accepts pages that cannot be touched, too, such as those beyond the end of a file.
        if one.is_accessible && (locked == Err(libc::EPERM) || is_beyond_limit) {
            locked?;
        }
    }
    Ok(())
}

fn call(number: i64, first: usize, second: usize) -> Result<()> {
    // SAFETY: locking changes no memory and no access.
    kernel::check(unsafe { kernel::raw(number, [first, second, 0, 0, 0, 0]) }).map(|_| ())
}

/// What is mapped; nothing where /proc is not mounted.
fn all() -> Vec<Mapped> {
    let text = read().unwrap_or_default();
    text.split(|byte| *byte == b'\n')
        .filter_map(mapped)
        .collect()
}

fn read() -> Result<Vec<u8>> {
    let file =
        numbers::high(|| kernel::open(c"/proc/self/maps", libc::O_RDONLY | libc::O_CLOEXEC))?;
    let (mut text, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match kernel::read(file.0, &mut piece)? {
            0 => return Ok(text),
            count => text.extend_from_slice(&piece[..count]),
        }
    }
}

/// One line of `/proc/self/maps`.
fn mapped(line: &[u8]) -> Option<Mapped> {
    let line = core::str::from_utf8(line).ok()?;
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let number = |digits| usize::from_str_radix(digits, 16).ok();
    let start = number(start)?;
    let length = number(end)?.checked_sub(start)?;
    Some(Mapped {
        start,
        length,
        is_accessible: !rest.starts_with("---"),
        is_segment: length > POPULATED_MAX && rest.contains("/memfd:wirespeed-"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_recognized_among_mappings() {
        let lines: [(&[u8], _); 5] = [
            (b"", None),
            (b"zz-3000 r--p 0 0:0 0", None),
            (
                b"1000-3000 r--p 00000000 fe:00 12 /bin/cat",
                Some((0x1000, 0x2000, true, false)),
            ),
            (
                b"1000-3000 ---p 00000000 00:00 0",
                Some((0x1000, 0x2000, false, false)),
            ),
            (
                b"10000000-20000000 rw-s 00000000 00:01 7 /memfd:wirespeed-segment (deleted)",
                Some((0x1000_0000, 0x1000_0000, true, true)),
            ),
        ];
        for (line, expected) in lines {
            let found =
                mapped(line).map(|one| (one.start, one.length, one.is_accessible, one.is_segment));
            assert_eq!(found, expected, "{}", String::from_utf8_lossy(line));
        }
    }
}
