//! Rings of io_uring next to sockets: which of them leave a process's connections to the kernel.
//!
//! A ring through which sockets could go unseen does; one of the shared liburing, as databases have for
//! their files, does not until a socket goes through it; libuv's is refused, and libuv does without.

mod library;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bypass_testkit::{skip, Case};

const CASES: &[Case] = &[
    ("a_process_without_a_ring_is_accelerated", || {
        assert_eq!(run("plain", &["none"], &[]), "shared");
    }),
    ("a_ring_of_ones_own_leaves_sockets_to_the_kernel", || {
        assert_eq!(run("plain", &["own"], &[]), "ring kernel");
    }),
    ("libuvs_ring_is_refused_unless_it_is_asked_for", || {
        assert_eq!(run("node", &["libuv"], &[]), "no ring shared");
        let asked_for = [("UV_USE_IO_URING", "1")];
        assert_eq!(run("node", &["libuv"], &asked_for), "ring kernel");
    }),
    ("a_ring_of_liburing_for_files_excludes_no_sockets", || {
        assert_eq!(run("liburing", &["files"], &[]), "written shared");
    }),
    (
        "a_socket_in_a_ring_of_liburing_leaves_later_ones_to_the_kernel",
        || {
            assert_eq!(run("liburing", &["sockets"], &[]), "written kernel");
        },
    ),
    ("a_ring_of_liburing_that_is_gone_is_forgotten", || {
        assert_eq!(run("liburing", &["sockets", "exit"], &[]), "written shared");
    }),
    (
        "a_ring_of_liburing_with_a_polling_thread_leaves_a_servers_clients_to_the_kernel",
        || {
            assert_eq!(run("liburing", &["served"], &[]), "shared kernel");
        },
    ),
    (
        "a_client_that_waits_when_the_server_begins_to_accept_by_a_ring_is_reset",
        || {
            assert_eq!(run("liburing", &["waiting"], &[]), "shared reset");
        },
    ),
    (
        "a_ring_in_memory_of_the_programs_is_seen_as_others_of_liburing",
        || {
            assert_eq!(run("liburing", &["files", "memory"], &[]), "written shared");
        },
    ),
    ("a_library_that_a_module_alone_has_opened_is_found", || {
        let expected = "without it -38, with it -22 -7";
        assert_eq!(run("opening", &["./module.so"], &[]), expected);
    }),
    ("a_library_that_is_part_of_a_module_is_found", || {
        let expected = "without it -38, with it -22 -7";
        assert_eq!(run("opening", &["./whole.so"], &[]), expected);
    }),
];

fn main() {
    bypass_testkit::main(CASES)
}

/// The common part of both programs: connections to themselves, and whether the kernel's table shows them.
const CONNECTION: &str = r#"
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
/* Whether the kernel has a connection to this port. */
static int is_listed(int port) {
    char line[512], wanted[64];
    snprintf(wanted, sizeof wanted, "0100007F:%04X 01", port);
    FILE *table = fopen("/proc/net/tcp", "r");
    int found = 0;
    while (fgets(line, sizeof line, table)) found |= strstr(line, wanted) != NULL;
    fclose(table);
    return found;
}
static int listen_at(struct sockaddr_in *name) {
    *name = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof *name;
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listening, (void *)name, length) || listen(listening, 32)) exit(1);
    getsockname(listening, (void *)name, &length);
    return listening;
}
static int is_kernels_to(struct sockaddr_in *name) {
    int client = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(client, (void *)name, sizeof *name)) exit(2);
    int found = is_listed(ntohs(name->sin_port));
    close(client);
    return found;
}
static int is_kernels(void) {
    struct sockaddr_in name;
    int listening = listen_at(&name), found = is_kernels_to(&name);
    close(listening);
    return found;
}
/* On a busy machine a process may not answer in time, and that connection uses the kernel. */
static int say_path(void) {
    int is_shared = 0;
    for (int tries = 0; tries < 20 && !is_shared; tries++) is_shared = !is_kernels();
    puts(is_shared ? "shared" : "kernel");
    return 0;
}
"#;

const PLAIN: &str = r#"
int main(int count, char **words) {
    char parameters[120] = "";
    int entries = count > 1 && strcmp(words[1], "own") == 0 ? 8 : 256;
    if (count > 1 && strcmp(words[1], "none") != 0)
        printf("%s", syscall(SYS_io_uring_setup, entries, parameters) < 0 ? "no ring " : "ring ");
    return say_path();
}
"#;

/// Declares what it needs of liburing, whose headers are not everywhere.
const LIBURING: &str = r#"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <sys/wait.h>
struct entry { uint8_t code, flags; uint16_t priority; int32_t fd; uint64_t offset, address; uint32_t length; uint8_t rest[36]; };
struct ring {
    unsigned *head, *tail, *mask, *entries, *flags, *dropped, *array;
    struct entry *submissions;
    unsigned first, next;
    char rest[512];
};
int io_uring_queue_init(unsigned, struct ring *, unsigned);
int io_uring_queue_init_mem(unsigned, struct ring *, void *, void *, size_t);
int io_uring_submit_and_wait(struct ring *, unsigned);
void io_uring_queue_exit(struct ring *);
static void submit(struct ring *ring, int code, int fd) {
    struct entry *entry = &ring->submissions[ring->next++ & *ring->mask];
    memset(entry, 0, sizeof *entry);
    entry->code = code;
    entry->fd = fd;
    entry->address = (uint64_t)"written ";
    entry->length = 8;
    io_uring_submit_and_wait(ring, 1);
}
/* The client, a process of its own, connects until that is shared, and once more after the server has made its ring. */
static int ask(struct sockaddr_in *name, int from_server, int to_server) {
    char byte = 0;
    int is_shared = 0;
    for (int tries = 0; tries < 20 && !is_shared; tries++) is_shared = !is_kernels_to(name);
    if (write(to_server, &byte, 1) != 1 || read(from_server, &byte, 1) != 1) return 1;
    printf("%s %s\n", is_shared ? "shared" : "kernel", is_kernels_to(name) ? "kernel" : "shared");
    fflush(stdout);
    return 0;
}
static int serve(struct ring *ring) {
    enum { SQPOLL = 2 };
    struct sockaddr_in name;
    int listening = listen_at(&name), to_client[2], to_server[2], status = 1;
    char byte = 0;
    if (pipe(to_client) || pipe(to_server)) return 5;
    pid_t child = fork();
    if (child == 0) {
        close(listening);
        _exit(ask(&name, to_client[0], to_server[1]));
    }
    struct pollfd both[] = {{.fd = listening, .events = POLLIN}, {.fd = to_server[0], .events = POLLIN}};
    while (poll(both, 2, -1) > 0 && both[1].revents == 0) close(accept(listening, NULL, NULL));
    if (read(to_server[0], &byte, 1) != 1) return 6;
    if (io_uring_queue_init(8, ring, SQPOLL) != 0) return 7;
    if (write(to_client[1], &byte, 1) != 1 || waitpid(child, &status, 0) != child) return 8;
    return status;
}
/* The client connects until that is shared, and once more: that connection waits when the server makes its ring. */
static int wait_for_server(struct sockaddr_in *name, int to_server) {
    struct timeval patience = {.tv_sec = 60};
    char byte = 0;
    int is_shared = 0;
    for (int tries = 0; tries < 20 && !is_shared; tries++) is_shared = !is_kernels_to(name);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(client, (void *)name, sizeof *name)) return 1;
    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (write(to_server, &byte, 1) != 1) return 2;
    int is_reset = read(client, &byte, 1) == -1 && errno == ECONNRESET;
    printf("%s %s\n", is_shared ? "shared" : "kernel", is_reset ? "reset" : strerror(errno));
    fflush(stdout);
    return 0;
}
static int leave_waiting(struct ring *ring) {
    enum { SQPOLL = 2 };
    struct sockaddr_in name;
    int listening = listen_at(&name), to_server[2], status = 1;
    char byte = 0;
    fcntl(listening, F_SETFL, O_NONBLOCK);
    if (pipe(to_server)) return 5;
    pid_t child = fork();
    if (child == 0) {
        close(listening);
        _exit(wait_for_server(&name, to_server[1]));
    }
    accept(listening, NULL, NULL); /* from now on it is one that accepts */
    if (read(to_server[0], &byte, 1) != 1) return 6;
    if (io_uring_queue_init(8, ring, SQPOLL) != 0) return 7;
    return waitpid(child, &status, 0) == child ? status : 8;
}
int main(int count, char **words) {
    enum { WRITE = 23, SEND = 26 };
    char text[9] = "";
    static struct ring ring;
    if (strcmp(words[1], "served") == 0) return serve(&ring);
    if (strcmp(words[1], "waiting") == 0) return leave_waiting(&ring);
    if (count > 2 && strcmp(words[2], "memory") == 0) {
        static char memory[1 << 16], parameters[120];
        if (io_uring_queue_init_mem(8, &ring, parameters, memory, sizeof memory) <= 0) return 3;
        count = 0;
    } else if (io_uring_queue_init(8, &ring, 0) != 0) return 3;
    int file = open("ring.txt", O_RDWR | O_CREAT | O_TRUNC, 0600);
    submit(&ring, WRITE, file);
    if (pread(file, text, 8, 0) != 8) return 4;
    printf("%s", text);
    if (strcmp(words[1], "sockets") == 0) submit(&ring, SEND, -1);
    if (count > 2) io_uring_queue_exit(&ring);
    return say_path();
}
"#;

/// A function of later versions of liburing, which the installed one may lack: it makes the ring of a program that brings its
/// own memory, found so that no library sees how.
const LATER: &str = r#"
#include <dlfcn.h>
#include <stddef.h>
int io_uring_queue_init_mem(unsigned entries, void *ring, void *parameters, void *memory, size_t bytes) {
    int (*init)(unsigned, void *, void *) = dlsym(dlopen("liburing.so.2", RTLD_NOW), "io_uring_queue_init_params");
    int result = init(entries, ring, parameters);
    return result ? result : memory && bytes ? 4096 : -22;
}
"#;

/// A library of [`LATER`].
fn later_liburing(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("later.c"), folder.join("liblater.so"));
    fs::write(&source, LATER).expect("a source");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source);
    assert!(compiler.arg("-ldl").status().expect("cc").success());
    library
}

/// Opens a module for itself alone (RTLD_LOCAL), as Python, Ruby and Samba do. Before that no library has the function.
const OPENING: &str = r#"
#include <dlfcn.h>
int main(int count, char **words) {
    int (*first)(void *, long, void **) = dlsym(RTLD_DEFAULT, "io_submit"), (*go)(void);
    int without = first ? first(0, 0, 0) : 0;
    void *module = dlopen(words[count - 1], RTLD_NOW);
    if (!module || !(go = dlsym(module, "go"))) return 1;
    printf("without it %d, ", without);
    return go();
}
"#;
const MODULE: &str = r#"
#include <stdio.h>
int io_submit(void *, long, void **);
int io_uring_queue_init(unsigned, void *, unsigned);
int go(void) { return printf("with it %d %d\n", io_submit(0, 0, 0), io_uring_queue_init(0, 0, 0)) < 0; }
"#;
/// In the place of libaio and liburing.
const STUB: &str = r#"
int io_submit(void *context, long count, void **requests) { return context || count || requests ? 1 : -22; }
int io_uring_queue_init(unsigned entries, void *ring, unsigned flags) { return entries || ring || flags ? 1 : -7; }
"#;

/// A module with a library of [`STUB`], and one of which that is a part.
fn modules(folder: &Path) {
    let compile = |output: &str, source: &str, words: &[&str]| {
        let file = folder.join(output).with_extension("c");
        fs::write(&file, source).expect("a source");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o", output]).arg(&file);
        compiler.args(words).current_dir(folder);
        assert!(compiler.status().expect("cc").success());
    };
    compile("libstub.so", STUB, &[]);
    let with_stub = ["-L.", "-lstub", "-Wl,-rpath,$ORIGIN"];
    compile("module.so", MODULE, &with_stub);
    compile("whole.so", &format!("{STUB}{MODULE}"), &[]);
}

fn run(name: &str, words: &[&str], options: &[(&str, &str)]) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rings");
    fs::create_dir_all(&folder).expect("a folder");
    let mut linking = Vec::new();
    let text = if name == "liburing" {
        linking.push(later_liburing(&folder).display().to_string());
        linking.push(liburing().display().to_string());
        LIBURING
    } else if name == "opening" {
        modules(&folder);
        linking.push("-ldl".to_owned());
        OPENING
    } else {
        PLAIN
    };
    let source = folder.join(format!("{name}.c"));
    fs::write(&source, format!("{CONNECTION}{text}")).expect("a source");
    let mut compiler = Command::new("cc");
    compiler.arg("-o").arg(folder.join(name)).arg(&source);
    assert!(compiler.args(linking).status().expect("cc").success());
    let mut command = Command::new(folder.join(name));
    command
        .args(words)
        .current_dir(&folder)
        .env("LD_PRELOAD", library::built())
        .env_remove("UV_USE_IO_URING")
        .envs(options.iter().copied());
    let done = command.output().expect("the program");
    assert!(done.status.success(), "{done:?}");
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

/// The shared library, where it is installed.
fn liburing() -> PathBuf {
    let listed = Command::new("/sbin/ldconfig").arg("-p").output();
    let listed = listed.map_or_else(|_| Vec::new(), |done| done.stdout);
    let text = String::from_utf8_lossy(&listed).into_owned();
    let line = text.lines().find(|line| line.contains("liburing.so.2 "));
    match line.and_then(|line| line.rsplit(' ').next()) {
        Some(path) => PathBuf::from(path),
        None => skip("liburing.so.2 is not installed"),
    }
}
