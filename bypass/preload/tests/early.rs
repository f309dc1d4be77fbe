//! The options count in a process whose other libraries use sockets before ours was started.
//!
//! A library that the program is linked with runs its constructor first; what it decides for the
//! process by its first socket must be what the environment says.

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

fn compile(folder: &Path, words: &[&str]) {
    let status = Command::new("cc").args(words).current_dir(folder).status();
    assert!(status.expect("cc").success(), "{words:?}");
}

fn run(folder: &Path, options: &[(&str, &str)]) -> String {
    let mut command = Command::new(folder.join("program"));
    command
        .env("LD_PRELOAD", library::built())
        .envs(options.iter().copied());
    let done = command.output().expect("the program");
    assert!(done.status.success(), "{done:?}");
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}
