//! Statistics that outlive their process: it writes the first part of its page into a file of a folder that an
//! administrator names, every few seconds and at its end. The reader removes files that are old.

use std::ffi::CString;
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use bypass_sys::memory::Mapping;
use bypass_sys::{kernel, numbers};

use crate::{Page, Stats, View, MAGIC};

/// How long a file is kept after its process has ended.
pub const KEPT: Duration = Duration::from_secs(3600);
/// Files of a folder; a process that ends when there are as many is not kept.
const FILES_MAX: usize = 1000;
const ENDING: &str = "bypass";
/// What is kept of a page: all but its sockets and its capture.
const BYTES: usize = core::mem::offset_of!(Page, rows);

impl Stats {
    /// Writes what is kept into `folder`, over what was written before.
    pub fn keep(&self, folder: &str) -> kernel::Result<()> {
        if BYTES > kernel::file_size_limit() {
            return Err(libc::EFBIG);
        }
        let page = self.page();
        let started = page.started_unix_ns.load(Ordering::Relaxed);
        let pid = page.pid.load(Ordering::Relaxed);
        let path = CString::new(format!("{folder}/{pid}-{started}.{ENDING}"));
        let path = path.map_err(|_| libc::EINVAL)?;
        // A link that another user has put there leads nowhere.
        let flags = libc::O_WRONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = match numbers::high(|| kernel::create(&path, flags, 0)) {
            Err(libc::ENOENT) if files(Path::new(folder)).count() < FILES_MAX => {
                numbers::high(|| kernel::create(&path, flags | libc::O_CREAT | libc::O_EXCL, 0o600))
            }
            opened => opened,
        }?;
        self.memory.write_to(file.0, BYTES)
    }
}

impl View {
    /// Pages that ended processes have left in `folder`, by process id. What is older than [`KEPT`] is removed.
    pub fn ended(folder: &Path) -> io::Result<Vec<(u32, Self)>> {
        std::fs::read_dir(folder)?;
        let mut found: Vec<_> = files(folder).filter_map(|path| Self::kept(&path)).collect();
        found.sort_by_key(|(pid, view)| (*pid, view.header().started_unix_ns));
        Ok(found)
    }

    fn kept(path: &Path) -> Option<(u32, Self)> {
        // Not opened where it may be a FIFO, and read as far as a page goes.
        let state = path
            .symlink_metadata()
            .ok()
            .filter(|state| state.is_file())?;
        let age = SystemTime::now().duration_since(state.modified().ok()?);
        let mut options = std::fs::OpenOptions::new();
        let file = options
            .read(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)
            .ok()?;
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(&file, BYTES as u64), &mut bytes).ok()?;
        let view = Self::of_bytes(&bytes, state.uid())?;
        let pid = view.page().pid.load(Ordering::Relaxed);
        if view.is_of(pid) {
            return None;
        }
        if age.is_ok_and(|age| age > KEPT) {
            let _ = std::fs::remove_file(path);
            return None;
        }
        Some((pid, view))
    }

    /// A page whose first part is known; None where that is none, or another user's than it says.
    fn of_bytes(bytes: &[u8], owner: u32) -> Option<Self> {
        if bytes.len() != BYTES {
            return None;
        }
        let memory = Mapping::create(c"wirespeed-kept", size_of::<Page>()).ok()?;
        kernel::write(memory.fd(), bytes)
            .ok()
            .filter(|count| *count == BYTES)?;
        let view = Self { memory };
        let page = view.page();
        let is_whole = page.magic.load(Ordering::Relaxed) == MAGIC;
        // A worker that has given up root writes as another user than it began as.
        let is_own =
            page.uid.load(Ordering::Relaxed) == 0 || page.uid.load(Ordering::Relaxed) == owner;
        (is_whole && is_own).then_some(view)
    }
}

/// The files of a folder that may hold a page.
fn files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let all = std::fs::read_dir(folder).into_iter().flatten();
    let paths = all.filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| path.extension().is_some_and(|ending| ending == ENDING))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::only::Only;
    use crate::{Counter, Reason};

    fn folder(name: &str) -> PathBuf {
        let name = format!("bypass-kept-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).expect("a folder");
        folder
    }

    #[test]
    fn what_a_process_has_left_is_read_and_what_is_old_is_removed() {
        let folder = folder("read");
        let name = folder.to_str().expect("UTF-8");
        let stats = Only::create("wrk");
        // A process that has ended.
        stats.page().pid.store(u32::MAX, Ordering::Relaxed);
        for reads in [3, 4] {
            stats.add(stats.take_stripe(), Counter::Reads, reads);
            stats.fall_back(Reason::NotLocal);
            assert_eq!(stats.keep(name), Ok(()));
        }
        let found = View::ended(&folder).expect("a folder");
        assert_eq!(found.len(), 1);
        let (pid, view) = &found[0];
        assert_eq!((*pid, view.header().profile.as_str()), (u32::MAX, "wrk"));
        assert!(view.counters().contains(&("reads", 7)));
        assert_eq!(view.fallbacks(), [("not-local", 2)]);
        assert!(view.connections().is_empty());

        let path = files(&folder).next().expect("a file");
        let file = std::fs::File::options()
            .write(true)
            .open(&path)
            .expect("ours");
        let old = SystemTime::now() - 2 * KEPT;
        file.set_modified(old).expect("ours");
        assert!(View::ended(&folder).expect("a folder").is_empty());
        assert!(!path.exists());
        std::fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn invalid_files_and_running_processes_are_left_out() {
        let folder = folder("wrong");
        let name = folder.to_str().expect("UTF-8");
        let stats = Only::create("");
        assert_eq!(stats.keep(name), Ok(()));
        std::fs::write(folder.join("a.bypass"), [0; BYTES]).expect("a file");
        std::fs::write(folder.join("b.bypass"), "short").expect("a file");
        std::os::unix::fs::symlink("/dev/zero", folder.join("c.bypass")).expect("a link");
        assert!(View::ended(&folder).expect("a folder").is_empty());
        assert!(View::ended(Path::new("/no/such")).is_err());
        assert_eq!(stats.keep("/no/such"), Err(libc::ENOENT));
        std::fs::remove_dir_all(&folder).expect("ours");
    }
}
