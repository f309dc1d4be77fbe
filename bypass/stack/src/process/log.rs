//! Messages to an administrator: lines in the file that EF_LOG_FILE names, else in the system log. A descriptor of the
//! program's is never written to: number 2 may be a file of its data.

use core::fmt::Write as _;
use core::sync::atomic::{AtomicU64, Ordering};
use std::ffi::CString;

use bypass_options::LogKinds;
use bypass_stats::{About, Call, Reason, REASONS};
use bypass_sys::sandbox::is_confined;
use bypass_sys::{clock, kernel, numbers};

use super::settings::settings;

/// Where syslog(3) sends its messages.
const SYSTEM_LOG: &str = "/dev/log";
/// A message of a daemon that warns, as syslog(3) counts.
const PRIORITY: u32 = 3 << 3 | 4;
/// Of messages about one reason, one is written in so many nanoseconds.
const INTERVAL_NS: u64 = 1_000_000_000;

/// Reports that something which was requested is not available.
#[cold]
pub fn warn(text: &str) {
    if settings().log_kinds.contains(LogKinds::RESOURCES) {
        say(text);
    }
}

/// Says that a socket is left to the kernel, where that is asked for, or that a call has failed. Once a second for each reason: a program can make
/// thousands.
pub fn decided(reason: Reason, about: &About) {
    let kind = match about.has_failed {
        false => LogKinds::CONNECTIONS,
        true => LogKinds::RESOURCES,
    };
    if !settings().log_kinds.contains(kind) {
        return;
    }
    static LAST_NS: [AtomicU64; REASONS.len()] = [const { AtomicU64::new(0) }; REASONS.len()];
    static UNSAID: [AtomicU64; REASONS.len()] = [const { AtomicU64::new(0) }; REASONS.len()];
    let (last, unsaid) = (&LAST_NS[reason as usize], &UNSAID[reason as usize]);
    let (now, before) = (clock::now_ns(), last.load(Ordering::Relaxed));
    let is_due = before == 0 || now.saturating_sub(before) >= INTERVAL_NS;
    let is_ours = || last.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed);
    if !is_due || is_ours().is_err() {
        unsaid.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let mut text = describe(reason, about);
    let count = unsaid.swap(0, Ordering::Relaxed);
    if count > 0 {
        let _ = write!(
            text,
            " ({count} more since the last message of this reason)"
        );
    }
    say(&text);
}

/// What is left to the kernel, and why.
pub fn describe(reason: Reason, about: &About) -> String {
    let reason = REASONS[reason as usize];
    let what = match (about.call, about.address) {
        (Call::Connect, Some(address)) => format!("connect to {address}"),
        (Call::Accept, Some(address)) => format!("connection from {address}"),
        (Call::Listen, Some(address)) => format!("listener at {address}"),
        _ => format!("socket {}", about.fd),
    };
    match about.has_failed {
        false => format!("{what} is left to the kernel: {reason}"),
        true => format!("{what} has failed, as EF_NO_FAIL=0 forbids the kernel: {reason}"),
    }
}

/// Writes a line.
fn say(text: &str) {
    if is_confined() {
        return;
    }
    let settings = settings();
    let mut line = String::new();
    if settings.log_timestamps {
        let now_ms = clock::unix_ns() / 1_000_000;
        let _ = write!(line, "{}.{:03} ", now_ms / 1000, now_ms % 1000);
    }
    let process = kernel::getpid().unwrap_or(0);
    let _ = write!(line, "bypass[{process}]: {text}");
    let is_written = !settings.log_file.is_empty() && append(&settings.log_file, &line).is_ok();
    if !is_written {
        let _ = send(&line);
    }
}

/// Appends to a file, which is open for this line only: the program may close any number, or become another user.
fn append(path: &str, line: &str) -> Result<(), i32> {
    let path = CString::new(path).map_err(|_| libc::EINVAL)?;
    // For a FIFO without a reader, return the error; do not wait for a reader.
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_NONBLOCK;
    let file = numbers::high(|| kernel::create(&path, flags | libc::O_NOCTTY, 0o640))?;
    let text = format!("{line}\n");
    // Beyond its limit on the size of files the program would be ended by SIGXFSZ.
    let length = usize::try_from(kernel::fstat(file.0)?.st_size).unwrap_or(usize::MAX);
    if length.saturating_add(text.len()) > kernel::file_size_limit() {
        return Err(libc::EFBIG);
    }
    kernel::write(file.0, text.as_bytes()).map(|_| ())
}

/// Sends to the system log, which need not be there.
fn send(line: &str) -> Result<(), i32> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let socket = numbers::high(|| kernel::socket(libc::AF_UNIX, kind, 0))?;
    let mut address = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
    address.extend(SYSTEM_LOG.as_bytes());
    address.push(0);
    kernel::connect(socket.0, &address)?;
    let message = format!("<{PRIORITY}>{line}");
    // Not write(2), which would end the program by SIGPIPE.
    kernel::send_to(socket.0, message.as_bytes(), libc::MSG_NOSIGNAL, &[]).map(|_| ())
}

/// Before the program has begun: to standard error, unless that is a file on disk, which may be data of the program that
/// started this one, or the system log is asked for.
pub fn complain(text: &str) {
    let is_file = |stat: libc::stat| stat.st_mode & libc::S_IFMT == libc::S_IFREG;
    if settings().log_via_system || kernel::fstat(libc::STDERR_FILENO).is_ok_and(is_file) {
        return warn(text);
    }
    let _ = kernel::write(libc::STDERR_FILENO, format!("bypass: {text}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_added_to_the_file() {
        let path = std::env::temp_dir().join(format!("bypass-log-{}", std::process::id()));
        let name = path.to_str().expect("UTF-8");
        append(name, "one").expect("a file");
        append(name, "two").expect("a file");
        let text = std::fs::read_to_string(&path).expect("readable");
        std::fs::remove_file(&path).expect("ours");
        assert_eq!(text, "one\ntwo\n");
        assert_eq!(append("/no/such/folder", "one"), Err(libc::ENOENT));
    }

    #[test]
    fn a_message_names_what_it_is_about() {
        let about = |call, address: Option<&str>| About {
            has_failed: false,
            call,
            fd: 7,
            address: address.map(|text| text.parse().expect("an address")),
        };
        let said = |call, address| describe(Reason::NotLocal, &about(call, address));
        let connect = said(Call::Connect, Some("10.0.0.1:80"));
        assert_eq!(
            connect,
            "connect to 10.0.0.1:80 is left to the kernel: not-local"
        );
        let other = said(Call::Other, None);
        assert_eq!(other, "socket 7 is left to the kernel: not-local");
    }
}
