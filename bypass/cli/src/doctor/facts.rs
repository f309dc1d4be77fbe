//! What /proc says of a process, and of the host that it runs on.

use std::path::{Path, PathBuf};

/// Texts of files of one process. An empty one could not be read, or is empty.
#[derive(Debug, Default, Clone)]
pub(super) struct Facts {
    /// /proc/PID/status.
    pub(super) status: String,
    /// /proc/PID/stat.
    pub(super) stat: String,
    /// /proc/PID/limits.
    pub(super) limits: String,
    /// /proc/PID/maps.
    pub(super) maps: String,
    /// /proc/PID/smaps.
    pub(super) smaps: String,
    /// /proc/PID/uid_map.
    pub(super) uid_map: String,
    /// Targets of the descriptors.
    pub(super) descriptors: Vec<String>,
    /// Names of the threads.
    pub(super) threads: Vec<String>,
    /// /proc/sys/vm/overcommit_memory.
    pub(super) overcommit: String,
}

impl Facts {
    /// Of process `pid`.
    pub(super) fn read(pid: u32) -> Self {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        let links = entries(&folder.join("fd"));
        let target = |link: PathBuf| Some(std::fs::read_link(link).ok()?.display().to_string());
        let name = |task: PathBuf| {
            Some(
                std::fs::read_to_string(task.join("comm"))
                    .ok()?
                    .trim()
                    .to_owned(),
            )
        };
        let threads = entries(&folder.join("task"));
        Self {
            status: text("status"),
            stat: text("stat"),
            limits: text("limits"),
            maps: text("maps"),
            smaps: text("smaps"),
            uid_map: text("uid_map"),
            descriptors: links.into_iter().filter_map(target).collect(),
            threads: threads.into_iter().filter_map(name).collect(),
            overcommit: std::fs::read_to_string("/proc/sys/vm/overcommit_memory")
                .unwrap_or_default(),
        }
    }

    /// A line of the status, without its name.
    pub(super) fn status_of(&self, name: &str) -> Option<&str> {
        let line = self
            .status
            .lines()
            .find_map(|line| line.strip_prefix(name))?;
        Some(line.strip_prefix(':')?.trim())
    }

    /// The soft limit of this name; None for none.
    pub(super) fn limit_of(&self, name: &str) -> Option<u64> {
        let line = self
            .limits
            .lines()
            .find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    }

    /// The scheduling policy, as sched(7) numbers them.
    pub(super) fn policy(&self) -> u32 {
        const FIELD: usize = 41;
        // The second field, a name in parentheses, may have blanks.
        const BEFORE: usize = 3;
        let rest = self.stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let field = rest.split_whitespace().nth(FIELD - BEFORE);
        field.and_then(|word| word.parse().ok()).unwrap_or(0)
    }

    /// How many descriptors lead to what begins so.
    pub(super) fn count_of(&self, start: &str) -> usize {
        let begins = |target: &&String| target.starts_with(start);
        self.descriptors.iter().filter(begins).count()
    }

    /// Kilobytes of this process that lie in mappings of files whose names begin so.
    pub(super) fn resident_kilobytes(&self, file: &str) -> u64 {
        let all = self.mapped(file, "Rss:");
        let kilobytes = |rest: &str| rest.split_whitespace().next()?.parse::<u64>().ok();
        all.filter_map(kilobytes).sum()
    }

    /// Whether a mapping of such a file is locked in memory.
    pub(super) fn is_locked(&self, file: &str) -> bool {
        let mut all = self.mapped(file, "VmFlags:");
        all.any(|flags| flags.split_whitespace().any(|flag| flag == "lo"))
    }

    /// This field of each mapping of files whose names begin so, from smaps.
    fn mapped<'a>(&'a self, file: &'a str, field: &'a str) -> impl Iterator<Item = &'a str> {
        let mut is_it = false;
        self.smaps.lines().filter_map(move |line| {
            // The head of a mapping begins with its addresses.
            if line.starts_with(|first: char| first.is_ascii_digit() || first.is_ascii_lowercase())
            {
                is_it = line.contains(file);
            }
            line.strip_prefix(field).filter(|_| is_it)
        })
    }

    /// The library, as it is mapped.
    pub(super) fn library(&self) -> Option<&str> {
        let line = self
            .maps
            .lines()
            .find(|line| line.contains("/libbypass_preload.so"))?;
        line.find('/').map(|at| &line[at..])
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder).into_iter().flatten();
    all.filter_map(|entry| Some(entry.ok()?.path())).collect()
}
