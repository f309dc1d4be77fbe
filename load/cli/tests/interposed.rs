//! A user-level stack stands in front of libc by LD_PRELOAD: the hot path must go through its
//! symbols. A small library counts the calls that pass it.

mod support;

use std::process::Command;
use support::{always, program, temporary, Server, HELLO};

const COUNTER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
struct epoll_event; struct sockaddr;
static long reads, writes, waits, connects, closes;
ssize_t recv(int fd, void *p, size_t n, int f) {
    static ssize_t (*real)(int, void *, size_t, int);
    if (!real) real = (ssize_t (*)(int, void *, size_t, int)) dlsym(RTLD_NEXT, "recv");
    __sync_fetch_and_add(&reads, 1); return real(fd, p, n, f);
}
ssize_t send(int fd, const void *p, size_t n, int f) {
    static ssize_t (*real)(int, const void *, size_t, int);
    if (!real) real = (ssize_t (*)(int, const void *, size_t, int)) dlsym(RTLD_NEXT, "send");
    __sync_fetch_and_add(&writes, 1); return real(fd, p, n, f);
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
    dprintf(2, "counted %ld %ld %ld %ld %ld\n", reads, writes, waits, connects, closes);
}
"#;

#[test]
fn every_call_of_the_hot_path_passes_libc() {
    let (source, library) = (temporary("c"), temporary("so"));
    std::fs::write(&source, COUNTER).expect("a file");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .status()
        .expect("a C compiler, which building LuaJIT needed too");
    assert!(compiled.success());
    let server = Server::start(always(HELLO));
    for options in ["", "-R 200"] {
        let output = program()
            .env("LD_PRELOAD", &library)
            .args(["-t1", "-c3", "-d1s", "-T30s"])
            .args(options.split_whitespace())
            .arg(server.url())
            .output()
            .expect("it starts");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = text
            .lines()
            .find(|line| line.starts_with("counted"))
            .expect("the counter");
        let calls: Vec<usize> = line
            .split(' ')
            .skip(1)
            .map(|figure| figure.parse().expect("a number"))
            .collect();
        let requests = if options.is_empty() { 10 } else { 200 };
        let [reads, writes, waits, connects, closes] = calls[..] else {
            panic!("{line}")
        };
        assert!(
            reads >= requests && writes >= requests && waits > 0,
            "{options}: {line}"
        );
        assert!(connects >= 4 && closes >= 3, "{options}: {line}");
    }
    for file in [source, library] {
        std::fs::remove_file(file).expect("ours");
    }
}
