//! Programs that use onload/extensions.h, linked with the library of stubs in each way: accelerated they learn and choose
//! what the header says, and without the preloaded library they run on the kernel.

mod library;

use std::path::{Path, PathBuf};
use std::process::Command;

/// The output of the program under bypass.
const ACCELERATED: &str = "\
present 1
the listener: accelerated
the client: accelerated
the server: accelerated
standard input: the kernel's
no descriptor: the kernel's
without a place 1
moved 0, not the kernel's -1
warm sends 0
an unknown feature -95
a warm send 0
the server has anything to read: 0
save 0
not accelerated 0
a new socket: the kernel's
a new socket of another thread: accelerated
restore 0
a new socket: accelerated
all threads 0
a new socket of another thread: the kernel's
a new socket: the kernel's
save 0
a name 0
a new socket: accelerated
no change 0
a new socket: the kernel's
a new socket of another thread: the kernel's
save 0
all threads again 0
a new socket of another thread: accelerated
restore twice 0 0
a new socket of another thread: the kernel's
nothing kept -22
no change of this thread -1 EINVAL
a wrong scope -1 EINVAL
no spin 0
poll takes a quarter of the time: 0
spins of none 0
spins of poll 200
poll spins: 1
a wrong type -22
";
/// Its output without.
const ON_THE_KERNEL: &str = "\
present 0
the listener: the kernel's
the client: the kernel's
the server: the kernel's
standard input: the kernel's
no descriptor: the kernel's
without a place 0
moved 0, not the kernel's 0
warm sends -38
an unknown feature -38
the server has anything to read: 0
save 0
not accelerated 0
a new socket: the kernel's
a new socket of another thread: the kernel's
restore 0
a new socket: the kernel's
all threads 0
a new socket of another thread: the kernel's
a new socket: the kernel's
save 0
a name 0
a new socket: the kernel's
no change 0
a new socket: the kernel's
a new socket of another thread: the kernel's
save 0
all threads again 0
a new socket of another thread: the kernel's
restore twice 0 0
a new socket of another thread: the kernel's
nothing kept 0
no change of this thread 0 0
a wrong scope 0 0
no spin 0
poll takes a quarter of the time: 0
a wrong type 0
";

fn own(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn compile(words: &[&str]) {
    let mut command = Command::new("cc");
    command.args([
        "-std=gnu11",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pthread",
    ]);
    command.args([
        "-Wno-unused-result",
        "-Wno-nonnull",
        "-Wno-stringop-overflow",
    ]);
    command.arg("-I").arg(own("../onload/include")).args(words);
    let status = command.status().expect("cc");
    assert!(status.success(), "{command:?}: {status}");
}

/// The program, linked in each way; the folder has both forms of the library.
fn programs(folder: &Path) -> Vec<PathBuf> {
    let source = own("../onload/onload_ext.c").display().to_string();
    let program = own("tests/extensions/program.c").display().to_string();
    let at = |name: &str| folder.join(name).display().to_string();
    let soname = "-Wl,-soname,libonload_ext.so.2";
    compile(&[
        "-shared",
        "-fPIC",
        soname,
        "-o",
        &at("libonload_ext.so.2"),
        &source,
    ]);
    let rpath = format!("-Wl,-rpath,{}", folder.display());
    compile(&[
        "-o",
        &at("shared"),
        &program,
        &at("libonload_ext.so.2"),
        &rpath,
    ]);
    compile(&["-c", "-o", &at("onload_ext.o"), &source]);
    let archived = Command::new("ar")
        .args(["rcs", &at("libonload_ext.a"), &at("onload_ext.o")])
        .status();
    assert!(archived.expect("ar").success());
    compile(&["-o", &at("static"), &program, &at("libonload_ext.a")]);
    // Its own definitions are found by everything, the other form of the library included.
    compile(&[
        "-rdynamic",
        "-o",
        &at("exported"),
        &program,
        &at("libonload_ext.a"),
        "-Wl,--no-as-needed",
        &at("libonload_ext.so.2"),
        &rpath,
    ]);
    ["shared", "static", "exported"]
        .map(|name| folder.join(name))
        .to_vec()
}

fn printed(mut command: Command) -> String {
    let output = command.output().expect("the program");
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn programs_run_with_and_without_the_preloaded_library() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("extensions");
    std::fs::create_dir_all(&folder).expect("a folder");
    for program in programs(&folder) {
        let mut plain = Command::new(&program);
        plain
            .env_remove("LD_PRELOAD")
            .stdin(std::process::Stdio::null());
        assert_eq!(printed(plain), ON_THE_KERNEL, "{program:?}");
        let mut accelerated = Command::new(&program);
        accelerated
            .stdin(std::process::Stdio::null())
            .env("LD_PRELOAD", library::built())
            .env("EF_POLL_USEC", "1000000");
        assert_eq!(printed(accelerated), ACCELERATED, "{program:?}");
    }
}
