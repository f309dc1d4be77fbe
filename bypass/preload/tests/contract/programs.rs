//! The contract programs: which there are, and how they are compiled.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::time::SystemTime;

use bypass_sys::kernel;

#[derive(Debug)]
pub struct Program {
    pub name: String,
    pub command: Vec<String>,
    pub is_pair: bool,
}

/// Where binaries and outputs are.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("contract");
        fs::create_dir_all(&folder).expect("a folder for the programs");
        folder
    })
}

/// Every program, compiled when it or a header is newer than what is there.
pub fn programs() -> &'static [Program] {
    static PROGRAMS: OnceLock<Vec<Program>> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
        let only = std::env::var("CONTRACT_ONLY").ok();
        let mut paths: Vec<PathBuf> = fs::read_dir(&source)
            .expect("the programs")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| {
                path.extension()
                    .is_some_and(|ending| ending == "c" || ending == "py")
            })
            .filter(|path| {
                only.as_deref()
                    .is_none_or(|only| path.file_stem().is_some_and(|stem| stem == only))
            })
            .collect();
        paths.sort();
        compile_all(&paths);
        paths.iter().map(|path| program(path)).collect()
    })
}

fn program(path: &Path) -> Program {
    let name = path
        .file_stem()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    let text = fs::read_to_string(path).expect("readable");
    let first = text.lines().next().unwrap_or("");
    let is_pair = first.contains("pair:");
    assert!(
        is_pair || first.contains("solo:"),
        "{name} does not say pair: or solo:"
    );
    let command = if path.extension().is_some_and(|ending| ending == "py") {
        vec![python().to_owned(), path.display().to_string()]
    } else {
        vec![binary(path).display().to_string()]
    };
    Program {
        name,
        command,
        is_pair,
    }
}

fn binary(source: &Path) -> PathBuf {
    folder().join(source.file_stem().expect("a name"))
}

/// A real interpreter: a shell script in its place would be accelerated, too.
fn python() -> &'static str {
    static PYTHON: OnceLock<String> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let answer = Command::new("python3")
            .args(["-c", "import sys; print(sys.executable)"])
            .output();
        let answer = answer.expect("python3 is needed for the contract programs");
        String::from_utf8_lossy(&answer.stdout).trim().to_owned()
    })
}

/// Holds off other test programs that compile the same until it is dropped.
fn lock() -> File {
    let file = File::create(folder().join("lock")).expect("a file");
    let whole = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    let asked = &raw const whole as usize;
    kernel::fcntl(file.as_raw_fd(), libc::F_OFD_SETLKW, asked).expect("a lock");
    file
}

/// Compiles with as many processes as there are cores.
fn compile_all(paths: &[PathBuf]) {
    let _lock = lock();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let stale: Vec<&PathBuf> = paths.iter().filter(|path| is_stale(path)).collect();
    for batch in stale.chunks(cores) {
        let children: Vec<(&PathBuf, Child)> =
            batch.iter().map(|path| (*path, compile(path))).collect();
        for (path, mut child) in children {
            let status = child.wait().expect("a compiler that ends");
            assert!(status.success(), "{} does not compile", path.display());
        }
    }
}

fn is_stale(path: &Path) -> bool {
    if path.extension().is_none_or(|ending| ending != "c") {
        return false;
    }
    let time = |path: &Path| path.metadata().and_then(|state| state.modified()).ok();
    let built = time(&binary(path));
    built.is_none() || built < time(path) || built < newest_header(path)
}

/// When a header next to a program was changed last.
fn newest_header(path: &Path) -> Option<SystemTime> {
    let folder = path.parent().expect("a folder");
    let entries = fs::read_dir(folder).expect("the programs").flatten();
    let headers = entries.filter(|entry| entry.path().extension().is_some_and(|end| end == "h"));
    let time = |entry: fs::DirEntry| entry.metadata().and_then(|state| state.modified()).ok();
    headers.filter_map(time).max()
}

fn compile(path: &Path) -> Child {
    Command::new("cc")
        .args([
            "-std=gnu11",
            "-D_GNU_SOURCE",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
        ])
        .args([
            "-Wno-unused-result",
            "-Wno-nonnull",
            "-Wno-stringop-overflow",
            "-pthread",
            "-o",
        ])
        .arg(binary(path))
        .arg(path)
        .spawn()
        .expect("cc is needed for the contract programs")
}
