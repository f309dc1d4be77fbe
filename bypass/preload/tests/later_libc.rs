//! Functions of later versions of libc, which the installed one may lack: a library in its place has them, found so that
//! the library under test sees no call of theirs but the first.

mod library;

use std::fs;
use std::path::Path;
use std::process::Command;

/// pidfd_spawn(3) of glibc 2.39, which calls posix_spawn(3) of libc itself.
const LATER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <unistd.h>
int pidfd_spawn(int *process, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attributes, char *const words[], char *const variables[]) {
    int (*spawn)(pid_t *, const char *, const void *, const void *, char *const *, char *const *) =
        dlsym(dlopen("libc.so.6", RTLD_NOW), "posix_spawn");
    pid_t child;
    int error = spawn(&child, path, actions, attributes, words, variables);
    if (!error) *process = syscall(SYS_pidfd_open, child, 0);
    return error;
}
"#;

/// A connection comes to another number, and all above are closed.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
int pidfd_spawn(int *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const *,
                char *const *);
int main(void) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof name;
    int listening = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listening, (void *)&name, length) || listen(listening, 8)) return 1;
    getsockname(listening, (void *)&name, &length);
    if (connect(client, (void *)&name, length)) return 2;
    int far = accept(listening, NULL, NULL), leaked = open("/dev/null", O_RDONLY), process = -1;
    char command[96], *words[] = {"sh", "-c", command, NULL}, *variables[] = {"PATH=/bin:/usr/bin", NULL};
    snprintf(command, sizeof command, "echo spoken >&3; readlink /proc/$$/fd/%d >&3; echo over >&3", leaked);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, client, 3);
    posix_spawn_file_actions_addclosefrom_np(&actions, 4);
    int error = pidfd_spawn(&process, "/bin/sh", &actions, NULL, words, variables);
    if (error || far < 0 || leaked < 4) return printf("pidfd_spawn: %s\n", strerror(error)), 3;
    siginfo_t end;
    if (waitid(P_PIDFD, process, &end, WEXITED)) return 4;
    close(client);
    char text[64] = "";
    for (ssize_t got; (got = read(far, text + strlen(text), sizeof text - 1 - strlen(text))) > 0;)
        ;
    printf("%s", text);
    return 0;
}
"#;

fn compile(folder: &Path, (source, text): (&str, &str), words: &[&str]) {
    fs::write(folder.join(source), text).expect("a source");
    let mut compiler = Command::new("cc");
    compiler.arg(source).args(words).current_dir(folder);
    assert!(compiler.status().expect("cc").success());
}

/// The output of the program, with the library under test or without.
fn said(folder: &Path, library: Option<&Path>) -> String {
    let mut command = Command::new(folder.join("program"));
    command.env_remove("LD_PRELOAD");
    if let Some(library) = library {
        command.env("LD_PRELOAD", library);
    }
    let done = command.output().expect("the program");
    assert!(done.status.success(), "{done:?}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

#[test]
fn a_program_that_pidfd_spawn_starts_inherits_connections_and_nothing_else() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("later_libc");
    fs::create_dir_all(&folder).expect("a folder");
    compile(
        &folder,
        ("later.c", LATER),
        &["-shared", "-fPIC", "-ldl", "-o", "liblater.so"],
    );
    let words = ["-L.", "-llater", "-Wl,-rpath,$ORIGIN", "-o", "program"];
    compile(&folder, ("program.c", PROGRAM), &words);
    let kernels = said(&folder, None);
    assert_eq!(kernels, "spoken\nover\n");
    assert_eq!(said(&folder, Some(library::built())), kernels);
}
