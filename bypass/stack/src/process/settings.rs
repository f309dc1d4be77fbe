//! What the environment says, read once.

use std::sync::OnceLock;

use bypass_options::{Resolved, Settings, PROFILE_VARIABLE};
use bypass_sys::kernel;

static SETTINGS: OnceLock<Settings> = OnceLock::new();
static PROFILE: OnceLock<String> = OnceLock::new();
const RING_BYTES_VARIABLE: &str = "WIRESPEED_RING_BYTES";
static RING_BYTES: OnceLock<usize> = OnceLock::new();

/// Reads the environment; at the start, because programs such as nginx forget it later. A socket that
/// another library's constructor makes may have asked before.
pub fn read_environment() {
    settings();
}

fn resolve() -> Settings {
    let resolved = Resolved::from_environment(std::env::vars());
    for complaint in &resolved.complaints {
        let _ = kernel::write(2, format!("bypass: {complaint}\n").as_bytes());
    }
    let _ = PROFILE.set(std::env::var(PROFILE_VARIABLE).unwrap_or_default());
    let bytes = std::env::var(RING_BYTES_VARIABLE)
        .ok()
        .and_then(|text| text.parse().ok());
    let _ = RING_BYTES.set(
        bytes
            .filter(|n: &usize| n.is_power_of_two())
            .unwrap_or(16_384),
    );
    Settings::from(&resolved)
}

/// What the options say.
pub fn settings() -> &'static Settings {
    SETTINGS.get_or_init(resolve)
}

/// The profile's name as the environment has it; empty when it names none.
pub fn profile() -> &'static str {
    PROFILE.get().map_or("", String::as_str)
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
    kernel::geteuid().is_ok_and(|own| own as u32 == uid)
}

/// Whether memory may be shared with a process of `uid`: root can read ours anyway, others must be us
/// or be named by the options.
pub fn may_share_with(uid: u32) -> bool {
    uid == 0 || is_own(uid) || settings().share_with.includes(uid)
}
