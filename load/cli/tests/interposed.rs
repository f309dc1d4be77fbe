//! A user-level stack stands in front of libc by LD_PRELOAD: the hot path must go through its
//! symbols. A small library counts the calls that pass it, or makes one of them wait.

mod support;

use std::io::Read;
use std::path::Path;
use std::time::Duration;
use support::{always, c_library, count, program, temporary, Server, HELLO};

const COUNTER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
struct epoll_event; struct sockaddr;
static long reads, writes, waits, connects, closes, waits_before, looks;
ssize_t recv(int fd, void *p, size_t n, int f) {
    static ssize_t (*real)(int, void *, size_t, int);
    if (!real) real = (ssize_t (*)(int, void *, size_t, int)) dlsym(RTLD_NEXT, "recv");
    __sync_fetch_and_add(&reads, 1); return real(fd, p, n, f);
}
ssize_t send(int fd, const void *p, size_t n, int f) {
    static ssize_t (*real)(int, const void *, size_t, int);
    if (!real) real = (ssize_t (*)(int, const void *, size_t, int)) dlsym(RTLD_NEXT, "send");
    long before = __sync_fetch_and_add(&writes, 1);
    if (before == 0) waits_before = waits;
    if (before == 599) looks = waits - waits_before;
    return real(fd, p, n, f);
}
int epoll_wait(int fd, struct epoll_event *e, int n, int t) {
    static int (*real)(int, struct epoll_event *, int, int);
    if (!real) real = (int (*)(int, struct epoll_event *, int, int)) dlsym(RTLD_NEXT, "epoll_wait");
    __sync_fetch_and_add(&waits, 1); return real(fd, e, n, t);
}
int connect(int fd, const struct sockaddr *a, unsigned n) {
    static int (*real)(int, const struct sockaddr *, unsigned);
    if (!real) real = (int (*)(int, const struct sockaddr *, unsigned)) dlsym(RTLD_NEXT, "connect");
    __sync_fetch_and_add(&connects, 1); return real(fd, a, n);
}
int close(int fd) {
    static int (*real)(int);
    if (!real) real = (int (*)(int)) dlsym(RTLD_NEXT, "close");
    __sync_fetch_and_add(&closes, 1); return real(fd);
}
__attribute__((destructor)) static void report(void) {
    dprintf(2, "counted %ld %ld %ld %ld %ld %ld\n", reads, writes, waits, connects, closes, looks);
}
"#;

/// What is sent of a long request after its beginning waits, as where other programs have the core.
const SLOW_WRITER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
ssize_t send(int fd, const void *p, size_t n, int f) {
    static ssize_t (*real)(int, const void *, size_t, int);
    static size_t longest;
    if (!real) real = (ssize_t (*)(int, const void *, size_t, int)) dlsym(RTLD_NEXT, "send");
    if (n < longest) usleep(500000); else longest = n;
    return real(fd, p, n, f);
}
"#;

/// The calls that were counted in a run: reads, writes, waits, connects, closes, and the waits between
/// the first write and the six hundredth.
fn counted(library: &Path, options: &str, url: &str) -> [usize; 6] {
    let output = program()
        .env("LD_PRELOAD", library)
        .args(options.split_whitespace())
        .arg(url)
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix("counted "));
    let figures = line.expect("the counter").split(' ');
    let figures: Vec<usize> = figures
        .map(|figure| figure.parse().expect("a number"))
        .collect();
    figures.try_into().expect("six figures")
}

#[test]
fn every_call_of_the_hot_path_passes_libc() {
    let library = c_library(COUNTER);
    let server = Server::start(always(HELLO));
    for (options, requests) in [("-n 100 -d60s", 100), ("-R 200 -d1s", 200)] {
        let line = format!("-t1 -c3 -T30s {options}");
        let calls = counted(&library, &line, &server.url());
        let [reads, writes, waits, connects, closes, _] = calls;
        assert!(
            reads >= requests && writes >= requests && waits > 0,
            "{options}: {calls:?}"
        );
        assert!(connects >= 4 && closes >= 3, "{options}: {calls:?}");
    }
    std::fs::remove_file(library).expect("ours");
}

#[test]
fn first_answers_are_looked_for_before_the_last_first_request_is_written() {
    let library = c_library(COUNTER);
    let server = Server::start(always(HELLO));
    let calls = counted(&library, "-t1 -c600 -n 1200 -d60s -T30s", &server.url());
    assert!(calls[5] > 0, "{calls:?}");
    std::fs::remove_file(library).expect("ours");
}

#[test]
fn a_refusal_that_comes_between_a_look_and_a_write_is_read() {
    // takes the beginning of a long request, refuses it, and is gone, while the client is about to write on
    let server = Server::start(|mut conversation| {
        if !conversation.read_exact(&mut [0]) {
            return;
        }
        conversation.wait_at_most(Duration::from_millis(100));
        let mut buffer = vec![0; 64 * 1024];
        while matches!(conversation.stream().read(&mut buffer), Ok(1..)) {}
        let refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        conversation.send(refusal);
        conversation.abort();
    });
    let library = c_library(SLOW_WRITER);
    let (body, json) = (temporary("body"), temporary("json"));
    std::fs::write(&body, vec![b'x'; 20_000_000]).expect("a file");
    let output = program()
        .env("LD_PRELOAD", &library)
        .args(["-t1", "-c1", "-n", "3", "-d60s", "-T30s", "--body-file"])
        .arg(&body)
        .arg("--json")
        .arg(&json)
        .arg(server.url())
        .output()
        .expect("it starts");
    assert!(output.status.success());
    let text = std::fs::read_to_string(&json).expect("a result file");
    let result: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
    assert_eq!(count(&result, "/totals/status/413"), 3);
    for file in [library, body, json] {
        std::fs::remove_file(file).expect("ours");
    }
}
