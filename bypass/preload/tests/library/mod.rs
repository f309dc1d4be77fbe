//! The library under test, built as it is shipped: cargo alone builds no cdylib for tests.
//!
//! The crate has no second type: cargo optimises a library across crates only where each of its types
//! allows that, and one that Rust can link does not.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub const LIBRARY: &str = "libbypass_preload.so";

/// The library of this run's profile and target, built from the sources as they are, or the one that is named: a guest with
/// another kernel builds none.
pub fn built() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        if let Some(named) = std::env::var_os("BYPASS_TEST_LIBRARY") {
            return named.into();
        }
        let own = std::env::current_exe().expect("a path");
        let folder = own.ancestors().nth(2).expect("target/profile/deps/test");
        build(folder);
        folder.join(LIBRARY)
    })
}

fn build(folder: &Path) {
    let mut command = Command::new(env!("CARGO"));
    command.args([
        "build",
        "--quiet",
        "--locked",
        "-p",
        "bypass-preload",
        "--target-dir",
    ]);
    command.arg(folder.parent().expect("a target folder"));
    if folder.ends_with("release") {
        command.arg("--release");
    }
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    let status = command.status().expect("cargo");
    assert!(status.success(), "{command:?}: {status}");
}
