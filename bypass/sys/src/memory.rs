//! Memory that several processes map: sealed files without a name, passed by descriptor.

use core::ffi::CStr;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicI32, Ordering};
use std::sync::OnceLock;

use crate::descriptor::Owned;
use crate::kernel::{self, Result};
use crate::numbers;
use crate::sandbox::is_confined;

const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// A larger mapping is never locked in memory: it has far more pages than are in use.
const POPULATED_MAX: usize = 16 << 20;
/// How /proc/self/maps names a mapping of a file that this library has made.
const OWN_FILE: &[u8] = b"/memfd:wirespeed-";

/// A mapping that is undone when dropped; the descriptor stays open with it, unless it is taken.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    length: usize,
    fd: AtomicI32,
}

// SAFETY: a mapping is memory without owner; all access goes through atomics and checked copies.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Whether the kernel may end a process that touches a page of shared memory for the first time: with
/// vm.overcommit_memory=2 it counts such pages as they come, and the one that is too many is a SIGBUS.
pub fn may_be_refused_when_touched() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let mut text = [0u8; 8];
        let name = c"/proc/sys/vm/overcommit_memory";
        let read = numbers::high(|| kernel::open(name, libc::O_RDONLY))
            .and_then(|file| kernel::read(file.0, &mut text));
        read.is_ok_and(|count| counts_all(&text[..count]))
    })
}

/// Stores a value where a program may have no right to write, and no memory: then it stays as it is, without a signal.
///
/// # Safety
/// Nothing but the program may use the memory at `place`.
pub unsafe fn store_if_writable<T>(place: *mut T, value: T) {
    let to = [place as usize, size_of::<T>()];
    let from = [&raw const value as usize, size_of::<T>()];
    let itself = kernel::getpid().unwrap_or(0);
    let pieces = [&raw const from as usize, 1, &raw const to as usize, 1];
    let [from, count, to, places] = pieces;
    let words = [itself, from, count, to, places, 0];
    // SAFETY: both lists live on this frame; the kernel checks what they name.
    let copied = !is_confined()
        && match kernel::check(unsafe { kernel::raw(libc::SYS_process_vm_writev, words) }) {
            Ok(_) => true,
            Err(error) => error == libc::EFAULT,
        };
    if !copied {
        // Where the call is forbidden: nearly every program keeps what it has written here itself.
        // SAFETY: by the caller's promise.
        unsafe { place.write(value) };
    }
}

/// A file in memory with these bytes. EFBIG beyond the process's limit, where a write would end it by SIGXFSZ.
pub fn file_of(name: &CStr, bytes: &[u8]) -> Result<Owned> {
    if bytes.len() > kernel::file_size_limit() {
        return Err(libc::EFBIG);
    }
    let file = numbers::high(|| kernel::memfd_create(name))?;
    let mut written = 0;
    while written < bytes.len() {
        match kernel::write(file.0, &bytes[written..])? {
            0 => return Err(libc::ENOSPC),
            count => written += count,
        }
    }
    Ok(file)
}

fn counts_all(text: &[u8]) -> bool {
    text.trim_ascii() == b"2"
}

impl Mapping {
    /// Makes a zeroed file of `length` bytes that can never change its size.
    pub fn create(name: &CStr, length: usize) -> Result<Self> {
        if length > kernel::file_size_limit() {
            return Err(libc::EFBIG);
        }
        let fd = numbers::high(|| kernel::memfd_create(name))?.into_raw();
        let sized = kernel::ftruncate(fd, length)
            .and_then(|_| kernel::fcntl(fd, libc::F_ADD_SEALS, SEALS as usize));
        match sized {
            Ok(_) => Self::map(fd, length, true),
            Err(error) => {
                let _ = kernel::close(fd);
                Err(error)
            }
        }
    }

    /// Makes a file of these bytes that can never change.
    pub fn of_bytes(name: &CStr, bytes: &[u8]) -> Result<Self> {
        let file = file_of(name, bytes)?;
        let seals = (SEALS | libc::F_SEAL_WRITE) as usize;
        kernel::fcntl(file.0, libc::F_ADD_SEALS, seals)?;
        Self::map(file.into_raw(), bytes.len(), false)
    }

    /// Maps what a peer passed: only if the peer can no longer change its size.
    pub fn adopt(fd: i32) -> Result<Self> {
        let adopted = Self::check_seals(fd)
            .and_then(|()| kernel::fstat(fd))
            .and_then(|stat| usize::try_from(stat.st_size).map_err(|_| libc::EPROTO));
        match adopted {
            Ok(length) => Self::map(fd, length, true),
            Err(error) => {
                let _ = kernel::close(fd);
                Err(error)
            }
        }
    }

    /// Maps a file for looking only; a file that shrinks is refused by its seals.
    pub fn view(fd: i32) -> Result<Self> {
        let viewed = Self::check_seals(fd).and_then(|()| kernel::fstat(fd));
        match viewed {
            Ok(stat) => Self::map(fd, stat.st_size as usize, false),
            Err(error) => {
                let _ = kernel::close(fd);
                Err(error)
            }
        }
    }

    fn check_seals(fd: i32) -> Result<()> {
        let seals = kernel::fcntl(fd, libc::F_GET_SEALS, 0)? as i32;
        // Ordinary pages only: large ones come from a pool that may be empty when they are touched.
        if seals & SEALS == SEALS && kernel::file_system(fd)? == libc::TMPFS_MAGIC {
            Ok(())
        } else {
            Err(libc::EPROTO)
        }
    }

    fn map(fd: i32, length: usize, writable: bool) -> Result<Self> {
        let access = if writable {
            libc::PROT_READ | libc::PROT_WRITE
        } else {
            libc::PROT_READ
        };
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        // Without access at first: a program that locks all memory to come (mlockall(2)) would get every page of a file of
        // which only those in use are to be memory.
        let first = if length > POPULATED_MAX {
            libc::PROT_NONE
        } else {
            access
        };
        let arguments = [0, length, first as usize, flags as usize, fd as usize, 0];
        // SAFETY: a new mapping at an address of the kernel's choice disturbs no other memory.
        let mapped = kernel::check(unsafe { kernel::raw(libc::SYS_mmap, arguments) });
        let base = mapped.and_then(|at| Self::open_up(at, length, (first, access)));
        match base {
            Ok(base) => Ok(Self {
                base,
                length,
                fd: AtomicI32::new(fd),
            }),
            Err(error) => {
                let _ = kernel::close(fd);
                Err(error)
            }
        }
    }

    /// Leaves a new mapping out of core dumps, and gives it the access it is to have.
    fn open_up(at: usize, length: usize, (first, access): (i32, i32)) -> Result<NonNull<u8>> {
        let base = NonNull::new(at as *mut u8).ok_or(libc::ENOMEM)?;
        let call = |number, argument| {
            // SAFETY: the range is the mapping that was just made, not published yet.
            kernel::check(unsafe { kernel::raw(number, [at, length, argument, 0, 0, 0]) })
        };
        // A dump would read all of it, and make memory of what was never touched.
        let _ = call(libc::SYS_madvise, libc::MADV_DONTDUMP as usize);
        if first != access {
            let _ = call(libc::SYS_munlock, 0);
            if let Err(error) = call(libc::SYS_mprotect, access as usize) {
                let _ = call(libc::SYS_munmap, 0);
                return Err(error);
            }
        }
        Ok(base)
    }

    /// The descriptor, for passing on.
    pub fn fd(&self) -> i32 {
        self.fd.load(Ordering::Relaxed)
    }

    /// Keeps only the memory and closes the descriptor, so that it cannot be passed on.
    pub fn without_descriptor(self) -> Self {
        drop(self.take_descriptor());
        self
    }

    /// The descriptor, which the mapping is without from then on; None when it was taken before.
    pub fn take_descriptor(&self) -> Option<Owned> {
        let fd = self.fd.swap(-1, Ordering::Relaxed);
        (fd >= 0).then_some(Owned(fd))
    }

    /// Bytes mapped.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// A structure of atomics inside the mapping.
    ///
    /// # Safety
    /// `T` must consist of atomics only, for which every bit pattern is valid.
    ///
    /// # Panics
    /// When the place is outside the mapping or not aligned: offsets are computed, never received.
    pub unsafe fn at<T>(&self, offset: usize) -> &T {
        let end = offset.checked_add(size_of::<T>());
        assert!(
            end.is_some_and(|end| end <= self.length),
            "inside the mapping"
        );
        assert!(offset.is_multiple_of(align_of::<T>()), "aligned");
        // SAFETY: in bounds and aligned as just checked; atomics may be shared with anybody.
        unsafe { &*self.base.as_ptr().add(offset).cast::<T>() }
    }

    /// Address of a place that was checked before, for places that are asked for all the time.
    ///
    /// # Safety
    /// `offset` must lie inside the mapping.
    #[inline]
    pub unsafe fn address(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.length, "inside the mapping");
        // SAFETY: the caller vouches for it.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Address of `length` bytes at `offset`, for copies.
    ///
    /// # Panics
    /// When they are outside the mapping.
    pub fn bytes_at(&self, offset: usize, length: usize) -> *mut u8 {
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.length),
            "inside the mapping"
        );
        // SAFETY: in bounds as just checked.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Writes its first `length` bytes to a file, which may be changed meanwhile by others that map it.
    pub fn write_to(&self, fd: i32, length: usize) -> Result<()> {
        let mut written = 0;
        while written < length {
            let at = self.bytes_at(written, length - written) as usize;
            let arguments = [fd as usize, at, length - written, 0, 0, 0];
            // SAFETY: the kernel reads bytes of this mapping; none of ours refers to them.
            match kernel::check(unsafe { kernel::raw(libc::SYS_write, arguments) })? {
                0 => return Err(libc::ENOSPC),
                count => written += count,
            }
        }
        Ok(())
    }

    /// Gives the pages of a page-aligned range back; they read as zero afterwards.
    pub fn release(&self, offset: usize, length: usize) {
        let at = self.bytes_at(offset, length) as usize;
        // SAFETY: the range lies inside this mapping.
        let _ = unsafe {
            kernel::raw(
                libc::SYS_madvise,
                [at, length, libc::MADV_REMOVE as usize, 0, 0, 0],
            )
        };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let at = self.base.as_ptr() as usize;
        // SAFETY: this mapping is owned, and nothing borrows from it.
        let _ = unsafe { kernel::raw(libc::SYS_munmap, [at, self.length, 0, 0, 0, 0]) };
        drop(self.take_descriptor());
    }
}

/// A range of this process's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Its first address.
    pub start: usize,
    /// Its bytes.
    pub length: usize,
    /// A mapping of the library's that is never to be locked: it has far more pages than are in use.
    pub is_sparse: bool,
}

/// All ranges that are mapped in this process now.
pub fn ranges() -> Result<Vec<Range>> {
    let file = numbers::high(|| kernel::open(c"/proc/self/maps", libc::O_RDONLY))?;
    let (mut text, mut piece) = (Vec::new(), [0u8; 4096]);
    loop {
        match kernel::read(file.0, &mut piece)? {
            0 => break,
            count => text.extend_from_slice(&piece[..count]),
        }
    }
    Ok(text
        .split(|byte| *byte == b'\n')
        .filter_map(range)
        .collect())
}

/// A line of /proc/PID/maps; None for one without a range.
fn range(line: &[u8]) -> Option<Range> {
    let ends = line.split(|byte| *byte == b' ').next()?;
    let (start, end) = core::str::from_utf8(ends).ok()?.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let (start, end) = (address(start)?, address(end)?);
    let length = end.checked_sub(start)?;
    // Of all fields only the name has slashes.
    let name = line.iter().position(|byte| *byte == b'/');
    let is_own = name.is_some_and(|at| line[at..].starts_with(OWN_FILE));
    Some(Range {
        start,
        length,
        is_sparse: is_own && length > POPULATED_MAX,
    })
}

/// A page of atomics at the start of a mapping.
pub fn shared<T>(memory: &Mapping) -> &T {
    // SAFETY: used with structures of atomics only, for which every bit pattern is valid.
    unsafe { memory.at(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_strict_overcommit_is_reported() {
        assert!(counts_all(b"2\n"));
        assert!(!counts_all(b"0\n") && !counts_all(b"1\n") && !counts_all(b""));
    }

    #[test]
    fn large_mappings_of_the_library_are_sparse() {
        fn of(line: &str) -> Option<Range> {
            range(line.as_bytes())
        }
        fn sparse(line: &str) -> Option<bool> {
            of(line).map(|one| one.is_sparse)
        }
        let own =
            "7f0000000000-7f0040000000 rw-s 00000000 00:01 77   /memfd:wirespeed-segment (deleted)";
        let expected = Range {
            start: 0x7f00_0000_0000,
            length: 1 << 30,
            is_sparse: true,
        };
        assert_eq!(of(own), Some(expected));
        assert_eq!(
            sparse(&own.replace("0040000000", "0000001000")),
            Some(false)
        );
        assert_eq!(sparse(&own.replace("wirespeed-", "theirs-")), Some(false));
        assert_eq!(
            sparse("55d0c0000000-55d0c0021000 rw-p 00000000 00:00 0 [heap]"),
            Some(false)
        );
        assert_eq!(of(""), None);
    }

    #[test]
    fn a_mapping_is_among_the_ranges_of_its_process() {
        let made = Mapping::create(c"wirespeed-test", POPULATED_MAX * 2).expect("memory");
        let at = made.bytes_at(0, 1) as usize;
        let all = ranges().expect("/proc");
        let found = all.iter().find(|one| one.start == at);
        assert!(found.is_some_and(|one| one.is_sparse && one.length == POPULATED_MAX * 2));
    }

    #[test]
    fn a_file_that_could_shrink_is_refused() {
        let fd = kernel::memfd_create(c"unsealed").expect("memfd");
        kernel::ftruncate(fd, 8192).expect("size");
        assert_eq!(Mapping::adopt(fd).err(), Some(libc::EPROTO));
    }

    #[test]
    fn two_mappings_of_one_file_are_the_same_memory() {
        use core::sync::atomic::AtomicU64;
        let first = Mapping::create(c"sealed", 8192).expect("memory");
        let second = Mapping::adopt(kernel::dup(first.fd()).expect("dup") as i32).expect("memory");
        // SAFETY: an atomic.
        unsafe { first.at::<AtomicU64>(4096) }.store(7, Ordering::Relaxed);
        // SAFETY: an atomic.
        let seen = unsafe { second.at::<AtomicU64>(4096) }.load(Ordering::Relaxed);
        assert_eq!(seen, 7);
    }
}
