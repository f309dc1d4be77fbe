//! Settings from the environment, read once.

use std::path::PathBuf;
use std::sync::OnceLock;

use bypass_options::{programs, Resolved, Settings, KEEP_VARIABLE, PROFILE_VARIABLE};
use bypass_sys::{directory, kernel};

static SETTINGS: OnceLock<Settings> = OnceLock::new();
/// Errors found in the environment.
static COMPLAINTS: OnceLock<Vec<String>> = OnceLock::new();
static PROFILE: OnceLock<String> = OnceLock::new();
const RING_BYTES_VARIABLE: &str = "WIRESPEED_RING_BYTES";
static RING_BYTES: OnceLock<usize> = OnceLock::new();
static KEPT_FOLDER: OnceLock<String> = OnceLock::new();

/// Reads the environment; at the start, because programs such as nginx forget it later. A socket that
/// another library's constructor makes may have asked before.
pub fn read_environment() {
    settings();
    // A process that changes its root directory later finds no /proc.
    is_ambiguous(0);
}

fn resolve() -> Settings {
    let resolved = Resolved::from_environment(std::env::vars());
    let _ = PROFILE.set(std::env::var(PROFILE_VARIABLE).unwrap_or_default());
    let _ = KEPT_FOLDER.set(std::env::var(KEEP_VARIABLE).unwrap_or_default());
    let bytes = std::env::var(RING_BYTES_VARIABLE)
        .ok()
        .and_then(|text| text.parse().ok());
    let _ = RING_BYTES.set(
        bytes
            .filter(|n: &usize| n.is_power_of_two())
            .unwrap_or(16_384),
    );
    let mut settings = Settings::from(&resolved);
    settings.dont_accelerate |= !is_included();
    let complaint = meet_in(&settings);
    let complaints = resolved.complaints.iter().cloned().chain(complaint);
    let _ = COMPLAINTS.set(complaints.collect());
    settings
}

/// Before the first socket that others find by its name. A complaint: the directory is not used.
fn meet_in(settings: &Settings) -> Option<String> {
    let path = settings.share_dir.as_str();
    if path.is_empty() || settings.dont_accelerate {
        return None;
    }
    let refusal = directory::refusal(path);
    if refusal.is_none() {
        directory::set(path);
    }
    refusal
        .map(|why| format!("EF_SHARE_DIR: {path}: {why}; other network namespaces are not reached"))
}

/// Whether this program is to be accelerated.
fn is_included() -> bool {
    let list = |name| std::env::var(name).unwrap_or_default();
    let (only, except) = (
        list(programs::ONLY_VARIABLE),
        list(programs::EXCEPT_VARIABLE),
    );
    if only.is_empty() && except.is_empty() {
        return true;
    }
    let called = std::env::args_os().next().map(PathBuf::from);
    let paths = [std::env::current_exe().ok(), called];
    let name = |path: PathBuf| Some(path.file_name()?.to_string_lossy().into_owned());
    let names: Vec<String> = paths.into_iter().flatten().filter_map(name).collect();
    programs::is_included(&only, &except, &names)
}

/// Errors found in the environment, one per line.
pub fn complaints() -> &'static [String] {
    COMPLAINTS.get().map_or(&[], Vec::as_slice)
}

/// Values of the options.
pub fn settings() -> &'static Settings {
    SETTINGS.get_or_init(resolve)
}

/// The profile's name as the environment has it; empty when it names none.
pub fn profile() -> &'static str {
    PROFILE.get().map_or("", String::as_str)
}

/// Where the statistics are kept that are to outlive the process; empty for nowhere.
pub fn kept_folder() -> &'static str {
    KEPT_FOLDER.get().map_or("", String::as_str)
}

/// Size of one direction's ring.
pub fn ring_bytes() -> usize {
    let (min, max) = (
        bypass_shm::layout::RING_BYTES_MIN,
        bypass_shm::layout::RING_BYTES_MAX,
    );
    RING_BYTES.get().copied().unwrap_or(16_384).clamp(min, max)
}

/// Whether this process runs as `uid` now: a worker may have changed its user since the start.
pub fn is_own(uid: u32) -> bool {
    kernel::geteuid().is_ok_and(|own| own as u32 == uid) && !is_ambiguous(uid)
}

/// Whether memory may be shared with a process of `uid`: root can read ours anyway, others must be us
/// or be named by the options.
pub fn may_share_with(uid: u32) -> bool {
    uid == 0 || is_own(uid) || settings().share_with.includes(uid) && !is_ambiguous(uid)
}

/// Whether `uid` is what every user reads as that the user namespace of this process does not know.
pub fn is_ambiguous(uid: u32) -> bool {
    static UNKNOWN: OnceLock<Option<u32>> = OnceLock::new();
    *UNKNOWN.get_or_init(unknown_user) == Some(uid)
}

/// The number of users that the user namespace does not know; None in one that knows all of them (user_namespaces(7)).
fn unknown_user() -> Option<u32> {
    const OVERFLOW: u32 = 65_534;
    let read = |name: &str| std::fs::read_to_string(name).unwrap_or_default();
    let all = ["0", "0", "4294967295"];
    if read("/proc/self/uid_map").split_whitespace().eq(all) {
        return None;
    }
    let number = read("/proc/sys/kernel/overflowuid").trim().parse();
    Some(number.unwrap_or(OVERFLOW))
}
