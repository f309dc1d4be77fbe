//! The file through which another program holds this one back and reads its counters.
//!
//! Both sides map it. All words are in the machine's own byte order and naturally aligned:
//!
//! | offset | size | written by | meaning |
//! |---:|---:|---|---|
//! | 0 | 8 | generator | `wsload1` and a zero byte |
//! | 8 | 4 | generator | number of threads |
//! | 12 | 4 | controller | 0 go, 1 hold; the generator waits on this word (futex) |
//! | 16 | 8 | controller | until when a hold lasts at most, in ns of CLOCK_MONOTONIC |
//! | 64 + 64 i | 64 | generator | the slot of thread i |
//!
//! | in a slot | size | meaning |
//! |---:|---:|---|
//! | 0 | 4 | 0 starting, 1 sending, 2 held with nothing in flight, 3 ended |
//! | 8 | 8 | requests sent |
//! | 16 | 8 | responses |
//! | 24 | 8 | errors |
//! | 32 | 8 | responses that are not 2xx; as of when the state became 2 or 3 |
//! | 40 | 8 | bytes of responses |
//! | 48 | 8 | requests in flight (batches with `--depth`) |
//!
//! docs/internals/load.md has the same table for authors of controllers.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

const MAGIC: &[u8; 8] = b"wsload1\0";
const THREADS_AT: usize = 8;
const WANTED_AT: usize = 12;
const UNTIL_AT: usize = 16;
const SLOTS_AT: usize = 64;
const SLOT_BYTES: usize = 64;
const HOLD: u32 = 1;

/// What a thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// It sends.
    Sending = 1,
    /// It is held, and nothing is in flight.
    Held = 2,
    /// It has ended.
    Ended = 3,
}

/// What a thread has counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests sent.
    pub sent: u64,
    /// Responses.
    pub completed: u64,
    /// Errors.
    pub errors: u64,
    /// Responses that are not 2xx.
    pub non_2xx: u64,
    /// Bytes of responses.
    pub bytes_in: u64,
}

/// The mapped file.
#[derive(Debug)]
pub struct Control {
    base: NonNull<u8>,
    length: usize,
    threads: usize,
}

// SAFETY: the mapping lives as long as the value, and every access to it is an atomic one.
unsafe impl Send for Control {}
// SAFETY: as above.
unsafe impl Sync for Control {}

impl Control {
    /// Puts a file for so many threads in place, whole: a controller that finds it can use it.
    pub fn create(path: &Path, threads: usize) -> io::Result<Control> {
        let length = SLOTS_AT + SLOT_BYTES * threads;
        let beside = path.with_extension("part");
        let made = write_new(&beside, threads, length)
            .and_then(|file| Control::map(&file, length, threads))
            .and_then(|control| std::fs::rename(&beside, path).map(|()| control));
        made.inspect_err(|_| drop(std::fs::remove_file(&beside)))
    }

    fn map(file: &File, length: usize, threads: usize) -> io::Result<Control> {
        // SAFETY: a new mapping of a file that is `length` bytes long.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Control {
            base,
            length,
            threads,
        })
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at + 4 <= self.length && at.is_multiple_of(4));
        // SAFETY: inside the mapping and aligned; other processes too are to use whole words only.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    fn long(&self, at: usize) -> &AtomicU64 {
        assert!(at + 8 <= self.length && at.is_multiple_of(8));
        // SAFETY: as for `word`.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// Until when (monotonic) requests are to be held back; `None` where they are not.
    #[inline]
    pub fn hold_until_ns(&self) -> Option<u64> {
        let wanted = self.word(WANTED_AT).load(Ordering::Acquire);
        (wanted == HOLD).then(|| self.long(UNTIL_AT).load(Ordering::Relaxed))
    }

    /// Waits until the controller wants something else, or for so long.
    pub fn wait(&self, longest: Duration) {
        let time = libc::timespec {
            tv_sec: longest.as_secs() as libc::time_t,
            tv_nsec: longest.subsec_nanos() as libc::c_long,
        };
        // SAFETY: word and time are valid for the call. The caller looks at the word again after
        // every return, also after an error.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.word(WANTED_AT).as_ptr(),
                libc::FUTEX_WAIT,
                HOLD,
                &time,
            )
        };
    }

    /// Stores what a thread has counted, and then what it is doing.
    #[inline]
    pub fn publish(&self, thread: usize, tally: &Tally, in_flight: u64, state: State) {
        assert!(thread < self.threads);
        let slot = SLOTS_AT + SLOT_BYTES * thread;
        let words = [
            tally.sent,
            tally.completed,
            tally.errors,
            tally.non_2xx,
            tally.bytes_in,
            in_flight,
        ];
        for (place, word) in words.into_iter().enumerate() {
            self.long(slot + 8 + 8 * place)
                .store(word, Ordering::Relaxed);
        }
        self.word(slot).store(state as u32, Ordering::Release);
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

fn write_new(path: &Path, threads: usize, length: usize) -> io::Result<File> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?;
    let mut bytes = vec![0; length];
    bytes[..MAGIC.len()].copy_from_slice(MAGIC);
    bytes[THREADS_AT..THREADS_AT + 4].copy_from_slice(&(threads as u32).to_ne_bytes());
    file.write_all(&bytes)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_stands_where_the_table_says() {
        let path = std::env::temp_dir().join(format!("load-control-{}", std::process::id()));
        let control = Control::create(&path, 2).expect("made");
        let tally = Tally {
            sent: 7,
            completed: 6,
            errors: 1,
            non_2xx: 2,
            bytes_in: 600,
        };
        control.publish(1, &tally, 3, State::Held);
        let bytes = std::fs::read(&path).expect("there");
        std::fs::remove_file(&path).expect("ours");
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        assert_eq!(&bytes[..8], MAGIC);
        assert_eq!(bytes.len(), 64 + 2 * 64);
        assert_eq!(word(8), 2, "threads, and go");
        assert_eq!((64..128).step_by(8).map(word).sum::<u64>(), 0);
        let slot: Vec<u64> = (128..184).step_by(8).map(word).collect();
        assert_eq!(slot, [2, 7, 6, 1, 2, 600, 3]);
    }
}
