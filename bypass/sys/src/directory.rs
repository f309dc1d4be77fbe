//! The directory in which processes of several network namespaces find each other (EF_SHARE_DIR).
//!
//! Abstract names of Unix sockets end at the network namespace. A process with a directory binds its sockets to files
//! there instead, whose names have the same parts. Files of processes that have ended refuse connections at once; the next
//! process that meets them removes them.

use core::ffi::CStr;
use std::ffi::CString;
use std::sync::OnceLock;

use crate::descriptor::Owned;
use crate::kernel::{self, Result};
use crate::numbers;

/// Longest path: a name in it must fit into the address of a Unix socket (unix(7)).
const PATH_MAX: usize = 60;
/// Longest path in the address of a Unix socket, with its end. The name of a listener's IPv6 address may be longer.
const SOCKET_PATH_MAX: usize = 108;

static PATH: OnceLock<CString> = OnceLock::new();

const MISSING: &str = "not a directory that can be opened (make it, with mode 770)";

/// Why a path is none where processes may meet; None when it is one.
pub fn refusal(path: &str) -> Option<&'static str> {
    if !path.starts_with('/') {
        return Some("not an absolute path (name it from / on)");
    }
    if path.len() > PATH_MAX {
        return Some(
            "longer than 60 bytes (names in it must fit into the address of a Unix socket)",
        );
    }
    let opened = CString::new(path).map_err(|_| libc::EINVAL);
    let opened = opened.and_then(|path| named(&path, libc::O_DIRECTORY));
    let Some(mode) = opened.and_then(|folder| kernel::fstat(folder.0)).ok() else {
        return Some(MISSING);
    };
    let is_open_to_all = mode.st_mode & libc::S_IWOTH != 0;
    is_open_to_all.then_some("every user can write to it (chmod o-w)")
}

/// Processes are met in this directory from now on. Once, and before the first socket with a name.
pub fn set(path: &str) {
    if let Ok(path) = CString::new(path.trim_end_matches('/')) {
        let _ = PATH.set(path);
    }
}

/// Where processes are met.
pub fn path() -> Option<&'static CStr> {
    PATH.get().map(CString::as_c_str)
}

/// Whether there is one.
pub fn is_set() -> bool {
    path().is_some()
}

/// The path of a file in it.
fn inside(name: &str) -> Result<CString> {
    let folder = path().ok_or(libc::ENOENT)?;
    let bytes = [folder.to_bytes(), b"/", name.as_bytes()].concat();
    CString::new(bytes).map_err(|_| libc::EINVAL)
}

fn named(path: &CStr, flags: i32) -> Result<Owned> {
    numbers::high(|| kernel::open(path, libc::O_PATH | flags))
}

/// The user to whom a file in it belongs.
pub fn owner(name: &str) -> Result<u32> {
    let file = named(&inside(name)?, libc::O_NOFOLLOW)?;
    kernel::fstat(file.0).map(|stat| stat.st_uid)
}

/// The names of all files in it that begin so.
pub fn names(start: &str) -> Vec<String> {
    let Some(folder) = path() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let _ = numbers::each_name(folder, |name| {
        if name.starts_with(start) && !name.starts_with('.') {
            found.push(name.to_owned());
        }
    });
    found
}

/// The mode of a socket that every user can connect to.
const OF_ALL: u32 = 0o666;

/// Every user that can reach the directory can connect, as to an abstract name: the mode of a new socket is what the
/// program's umask leaves. EPERM: whoever can write to the directory has put something else there, which may be any
/// file of this host.
pub fn open_to_users(name: &str) -> Result<()> {
    let file = named(&inside(name)?, libc::O_NOFOLLOW)?;
    let stat = kernel::fstat(file.0)?;
    if stat.st_mode & libc::S_IFMT != libc::S_IFSOCK || stat.st_nlink != 1 {
        return Err(libc::EPERM);
    }
    if stat.st_mode & OF_ALL == OF_ALL {
        return Ok(());
    }
    kernel::change_mode(file.0, OF_ALL).map(drop)
}

/// Whether this process can make sockets in the directory and connect to those there; true without one, and where the kernel
/// is too old to say (5.8).
pub fn is_reachable() -> bool {
    let how = libc::R_OK | libc::W_OK | libc::X_OK;
    path().is_none_or(|path| matches!(kernel::access(path, how), Ok(_) | Err(libc::ENOSYS)))
}

/// The same of this process with `user` as its effective user, as the kernel sees it: a thread can try.
pub fn is_reachable_by(user: u32) -> bool {
    let Ok(before) = kernel::setfsuid(user) else {
        return true;
    };
    let is_reachable = is_reachable();
    let _ = kernel::setfsuid(before as u32);
    is_reachable
}

/// Whether its path leads to the same directory where `root` is the root directory.
pub fn is_reachable_below(root: &CStr) -> bool {
    let Some(path) = path() else {
        return true;
    };
    let number = |path: &CStr| {
        let stat = named(path, libc::O_DIRECTORY).and_then(|folder| kernel::fstat(folder.0));
        stat.map(|stat| (stat.st_dev, stat.st_ino))
    };
    let below = CString::new([root.to_bytes(), path.to_bytes()].concat());
    below.is_ok_and(|below| number(&below).is_ok_and(|below| number(path) == Ok(below)))
}

/// Gives the socket `name` a second name.
pub fn link(name: &str, second: &str) -> Result<()> {
    kernel::link(&inside(name)?, &inside(second)?).map(drop)
}

/// Removes a file of this process.
pub fn remove(name: &str) {
    if let Ok(path) = inside(name) {
        let _ = kernel::unlink(&path);
    }
}

/// Removes the sockets that a process had, which has ended or is about to.
pub fn remove_of(process: u64) {
    if !is_set() {
        return;
    }
    let of_process = format!("p-{process:016x}");
    let wakers = names(&format!("w-{process:016x}"));
    wakers.iter().for_each(|name| remove(name));
    remove(&of_process);
}

/// Removes the sockets of processes that have ended.
pub fn clean() {
    for name in names("") {
        if name.as_bytes().get(1) == Some(&b'-') {
            remove_stale(&name);
        }
    }
}

/// Removes the socket `name` if no process has it any more; whether it did.
pub fn remove_stale(name: &str) -> bool {
    if !is_stale(name) {
        return false;
    }
    // Another process may just have removed it, and bound its own: what was moved is asked once more.
    let moved = format!("x-{:016x}", kernel::random());
    let (Ok(from), Ok(to)) = (inside(name), inside(&moved)) else {
        return false;
    };
    if kernel::rename(&from, &to).is_err() {
        return true;
    }
    if !is_stale(&moved) {
        let _ = kernel::link(&to, &from);
    }
    let _ = kernel::unlink(&to);
    true
}

/// A socket that some process has refuses a datagram socket by its kind, or takes it; one that no process has refuses the
/// connection.
fn is_stale(name: &str) -> bool {
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let asking = numbers::high(|| kernel::socket(libc::AF_UNIX, kind, 0));
    let asked = asking.and_then(|asking| {
        let path = inside(name)?;
        if path.as_bytes_with_nul().len() <= SOCKET_PATH_MAX {
            return connect_to(asking.0, &path);
        }
        let file = named(&path, libc::O_NOFOLLOW)?;
        let path = CString::new(format!("/proc/self/fd/{}", file.0));
        connect_to(asking.0, &path.map_err(|_| libc::EINVAL)?)
    });
    asked == Err(libc::ECONNREFUSED)
}

fn connect_to(socket: i32, path: &CStr) -> Result<usize> {
    let family = (libc::AF_UNIX as u16).to_ne_bytes();
    let address = [&family[..], path.to_bytes_with_nul()].concat();
    kernel::connect(socket, &address)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, DirBuilder, Permissions};
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};

    use super::*;
    use crate::waker::{self, Name, Waker};

    #[test]
    fn only_a_directory_that_no_other_user_can_write_is_one() {
        let path = format!("/tmp/directory-{:016x}", kernel::random());
        assert_eq!(refusal(&path), Some(MISSING));
        DirBuilder::new().mode(0o770).create(&path).expect("new");
        assert_eq!(refusal(&path), None);
        fs::set_permissions(&path, Permissions::from_mode(0o772)).expect("ours");
        assert!(refusal(&path).is_some_and(|why| why.contains("every user")));
        fs::remove_dir(&path).expect("empty");
        assert!(refusal("tmp").is_some_and(|why| why.contains("absolute")));
        let long = format!("/{}", "x".repeat(PATH_MAX));
        assert!(refusal(&long).is_some_and(|why| why.contains("60 bytes")));
    }

    /// Runs a test once more, in a process of its own with a directory: all of its names are there afterwards.
    fn with_directory(test: &str, run: impl FnOnce(&str)) {
        const CHILD: &str = "DIRECTORY_OF_TEST";
        if let Ok(path) = std::env::var(CHILD) {
            set(&path);
            return run(&path);
        }
        let path = format!("/tmp/directory-{:016x}", kernel::random());
        DirBuilder::new().mode(0o770).create(&path).expect("new");
        let own = std::env::current_exe().expect("a path");
        let status = std::process::Command::new(own)
            .arg(test)
            .env(CHILD, &path)
            .status();
        fs::remove_dir_all(&path).expect("ours");
        assert!(status.expect("started").success());
    }

    #[test]
    fn names_are_files_that_go_with_their_process() {
        with_directory("names_are_files_that_go_with_their_process", |_| {
            use_directory()
        });
    }

    /// A file that whoever can write to the directory puts in a socket's place, as a link to another one, or as such a one.
    #[test]
    fn the_mode_of_a_socket_alone_is_changed() {
        with_directory("the_mode_of_a_socket_alone_is_changed", |path| {
            let mode = |name: &str| {
                let of = fs::metadata(format!("{path}/{name}")).expect("there");
                of.permissions().mode() & 0o777
            };
            let _waker = Waker::create(7, 1).expect("a socket");
            let socket = names("w-").remove(0);
            assert_eq!(mode(&socket), 0o666);

            let others = format!("{path}/others");
            fs::write(&others, "").expect("new");
            fs::set_permissions(&others, Permissions::from_mode(0o600)).expect("ours");
            std::os::unix::fs::symlink(&others, format!("{path}/w-link")).expect("new");
            for name in ["others", "w-link"] {
                assert!(open_to_users(name).is_err());
            }
            assert_eq!(mode("others"), 0o600);
            link(&socket, "w-second").expect("ours");
            assert_eq!(open_to_users("w-second"), Err(libc::EPERM));
        });
    }

    #[test]
    fn a_directory_is_reached_by_some_users_and_below_some_roots() {
        with_directory(
            "a_directory_is_reached_by_some_users_and_below_some_roots",
            |path| {
                assert!(is_reachable());
                assert!(is_reachable_below(c"/") && is_reachable_below(c"/proc/self/root"));
                let other = CString::new(path).expect("no NUL");
                assert!(!is_reachable_below(&other));
                if kernel::geteuid() == Ok(0) {
                    assert!(!is_reachable_by(65_534));
                    std::os::unix::fs::chown(path, Some(65_534), None).expect("root");
                    assert!(is_reachable_by(65_534) && is_reachable());
                }
            },
        );
    }

    fn use_directory() {
        let sender = waker::sender().expect("a socket");
        let alive = Waker::create(7, 1).expect("a socket");
        drop(Waker::create(8, 1).expect("a socket"));
        assert_eq!(names("w-").len(), 2);
        waker::wake(sender, 7, 1).expect("a descriptor");
        waker::wake(sender, 8, 1).expect("a descriptor");
        assert!(alive.take());

        clean();
        let left = Name::of_waker(7, 1);
        let left = left.file().expect("in the directory");
        assert_eq!(names(""), [left]);
        assert!(!remove_stale(left));
        let long = format!("a-{:x<1$}-80-7", "fd00:", SOCKET_PATH_MAX);
        for second in ["a-10.0.0.1-80-7", &long] {
            link(left, second).expect("ours");
            assert!(!remove_stale(second));
            assert_eq!(names(second).len(), 1);
        }
        remove_of(7);
        assert_eq!(names("w-").len(), 0);
        drop(alive);
        assert!(remove_stale(&long));
    }
}
