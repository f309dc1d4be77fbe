//! Other libraries whose constructors use sockets and streams.
//!
//! One that the program is linked with runs its constructor before ours; what it decides for the
//! process by its first socket must be what the environment says. One that is loaded later runs it
//! under the loader's lock, and no fork of another thread waits for that while it holds what the
//! constructor needs.

mod library;

use std::fs;
use std::path::Path;
use std::process::Command;

const EARLY: &str = r#"
#include <sys/socket.h>
#include <unistd.h>
int early = -1;
__attribute__((constructor)) static void first(void) { early = socket(AF_INET, SOCK_STREAM, 0); }
"#;
const PROGRAM: &str = r#"
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
extern int early;
int main(void) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof name;
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    if (early < 0 || bind(listening, (void *)&name, length) || listen(listening, 4)) return 1;
    getsockname(listening, (void *)&name, &length);
    if (connect(early, (void *)&name, length)) return 2;
    /* The kernel's table shows a connection that is its own. */
    char line[512], wanted[64];
    snprintf(wanted, sizeof wanted, "0100007F:%04X 01", ntohs(name.sin_port));
    FILE *table = fopen("/proc/net/tcp", "r");
    int found = 0;
    while (fgets(line, sizeof line, table)) found |= strstr(line, wanted) != NULL;
    puts(found ? "kernel" : "shared");
    return 0;
}
"#;
const OPENING: &str = r#"
#include <stdio.h>
extern void constructing(void);
__attribute__((constructor)) static void open_a_stream(void) {
    constructing();
    fclose(fopen("/dev/null", "r"));
}
"#;
const LOADING: &str = r#"
#define SOLO
#include "contract.h"
#include <dlfcn.h>
static volatile int begun, is_over;
static volatile pid_t forking;
static void fork_once(void) {
    int status = -1;
    pid_t child = fork();
    if (child == 0) _exit(0);
    need(child > 0 && waitpid(child, &status, 0) == child && status == 0, "fork");
}
static void *fork_in_thread(void *unused) {
    while (!begun) usleep(1000);
    forking = gettid();
    fork_once();
    is_over = 1;
    return unused;
}
/* The library goes on when the thread waits, or has forked. */
void constructing(void) {
    begun = 1;
    for (int looks = 0; looks < 3 && !is_over; usleep(10000))
        looks = forking && is_asleep_or_over(forking) ? looks + 1 : 0;
}
static void solo(void) {
    pthread_t thread;
    alarm(LONG_S);
    int listening = listener_on("127.0.0.1", 4), near = dial_port(port_of(listening));
    need(accept(listening, NULL, NULL) >= 0, "accept");
    fork_once();
    need(pthread_create(&thread, NULL, fork_in_thread, NULL) == 0, "thread");
    need(dlopen("./libopening.so", RTLD_NOW) != NULL, "dlopen");
    need(pthread_join(thread, NULL) == 0, "join");
    say("both are done");
    close(near);
}
"#;

#[test]
fn options_count_where_another_library_makes_the_first_socket() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("early");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("early.c"), EARLY).expect("a source");
    fs::write(folder.join("program.c"), PROGRAM).expect("a source");
    compile(
        &folder,
        &["-shared", "-fPIC", "-o", "libearly.so", "early.c"],
    );
    let linking = [
        "-o",
        "program",
        "program.c",
        "-L.",
        "-learly",
        "-Wl,-rpath,$ORIGIN",
    ];
    compile(&folder, &linking);
    assert_eq!(run(&folder, &[]), "shared");
    assert_eq!(run(&folder, &[("EF_TCP_CLIENT_LOOPBACK", "0")]), "kernel");
    assert_eq!(run(&folder, &[("EF_DONT_ACCELERATE", "1")]), "kernel");
}

#[test]
fn a_thread_forks_first_while_a_library_that_is_loaded_opens_a_stream() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("loading");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("opening.c"), OPENING).expect("a source");
    fs::write(folder.join("program.c"), LOADING).expect("a source");
    let library = ["-shared", "-fPIC", "-o", "libopening.so", "opening.c"];
    compile(&folder, &library);
    let headers = format!("-I{}/tests/programs", env!("CARGO_MANIFEST_DIR"));
    let linking = [
        "-pthread",
        "-rdynamic",
        &headers,
        "-o",
        "program",
        "program.c",
    ];
    compile(&folder, &linking);
    assert_eq!(run(&folder, &[]), "both are done");
}

fn compile(folder: &Path, words: &[&str]) {
    let status = Command::new("cc").args(words).current_dir(folder).status();
    assert!(status.expect("cc").success(), "{words:?}");
}

fn run(folder: &Path, options: &[(&str, &str)]) -> String {
    let mut command = Command::new(folder.join("program"));
    command
        .current_dir(folder)
        .env("LD_PRELOAD", library::built())
        .envs(options.iter().copied());
    let done = command.output().expect("the program");
    assert!(done.status.success(), "{done:?}");
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}
