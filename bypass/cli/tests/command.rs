//! The command as people and scripts use it, with an empty library in place of the real one.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder with the command, a library that does nothing, and profiles.
struct Bench {
    folder: PathBuf,
}

impl Bench {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("profiles")).expect("a folder");
        // No copy: a file that another test's child still has open for writing cannot be started.
        std::fs::hard_link(env!("CARGO_BIN_EXE_bypass"), folder.join("bypass")).expect("a link");
        let bench = Self { folder };
        bench.write("nothing.c", "");
        bench.compile(&["-shared", "-o", "libbypass_preload.so", "nothing.c"]);
        bench.write(
            "profiles/test.opf",
            "onload_set EF_POLL_USEC 20\nonload_set EF_UDP 0\n",
        );
        bench
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        std::fs::write(&path, text).expect("written");
        path
    }

    /// By another process: a child that another test has just forked may hold what this one has open for writing, and such
    /// a file cannot be started.
    fn write_program(&self, name: &str, text: &str) {
        let source = self.write(&format!("{name}.text"), text);
        let program = self.folder.join(name);
        let status = Command::new("cp").arg(&source).arg(&program).status();
        assert!(status.expect("cp").success(), "{name}");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(program, mode).expect("executable");
    }

    fn compile(&self, words: &[&str]) {
        let status = Command::new("cc")
            .args(words)
            .current_dir(&self.folder)
            .status();
        assert!(status.expect("cc").success(), "cc {words:?}");
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.folder.join("bypass"));
        command.args(words).current_dir(&self.folder);
        for (name, _) in std::env::vars() {
            if name.starts_with("EF_") || name.starts_with("UV_") || name == "LD_PRELOAD" {
                command.env_remove(name);
            }
        }
        command
            .env("WIRESPEED_ROOT", &self.folder)
            .env("HOME", &self.folder);
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("it starts")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn refusal(output: &Output, code: i32) -> String {
    let line = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{line}");
    assert_eq!(line.lines().count(), 1, "one line: {line}");
    line
}

#[test]
fn a_profile_and_the_library_reach_the_program_and_the_environment_wins() {
    let bench = Bench::new("export");
    let words = ["run", "--profile=test", "--", "sh", "-c", "env"];
    let output = bench
        .command(&words)
        .env("EF_UDP", "1")
        .output()
        .expect("it starts");
    let environment = text(&output.stdout);
    let library = bench.folder.join("libbypass_preload.so");
    for line in [
        "EF_POLL_USEC=20".to_owned(),
        "EF_UDP=1".to_owned(),
        "WIRESPEED_BYPASS_PROFILE=test".to_owned(),
        format!("LD_PRELOAD={}", library.display()),
    ] {
        assert!(
            environment.lines().any(|found| found == line),
            "{line} in\n{environment}"
        );
    }
}

#[test]
fn forced_profiles_and_load_env_0_keep_the_environment_out() {
    let bench = Bench::new("force");
    let words = ["run", "--force-profiles", "-p", "test", "sh", "-c", "env"];
    let output = bench
        .command(&words)
        .env("EF_UDP", "1")
        .output()
        .expect("it starts");
    assert!(text(&output.stdout).lines().any(|line| line == "EF_UDP=0"));
    let output = bench
        .command(&["run", "sh", "-c", "env"])
        .env("EF_LOAD_ENV", "0")
        .env("EF_POLL_USEC", "7")
        .output()
        .expect("it starts");
    assert!(!text(&output.stdout).contains("EF_POLL_USEC"));
}

#[test]
fn another_preloaded_library_is_kept_before_ours() {
    let bench = Bench::new("others");
    bench.compile(&["-shared", "-o", "other.so", "nothing.c"]);
    let other = bench.folder.join("other.so").display().to_string();
    let output = bench
        .command(&["run", "sh", "-c", "echo $LD_PRELOAD"])
        .env("LD_PRELOAD", &other)
        .output()
        .expect("it starts");
    assert!(text(&output.stdout)
        .trim()
        .starts_with(&format!("{other}:")));
    assert!(text(&output.stdout).ends_with("libbypass_preload.so\n"));
}

#[test]
fn a_program_with_address_sanitizer_starts() {
    let bench = Bench::new("sanitizer");
    bench.write("main.c", "int main(void) { return 0; }\n");
    bench.compile(&["-fsanitize=address", "-o", "checked", "main.c"]);
    let program = bench.folder.join("checked").display().to_string();
    let output = bench.run(&["run", &program]);
    let said = text(&output.stderr);
    assert!(!said.contains("does not come first"), "{said}");
    assert!(output.status.success(), "{said}");
}

#[test]
fn the_programs_that_are_meant_reach_the_library() {
    let bench = Bench::new("only");
    let show = "echo $WIRESPEED_ONLY $WIRESPEED_EXCEPT";
    let words = [
        "run",
        "--only",
        "nginx,wrk",
        "--only=redis-server",
        "--except",
        "sh",
    ];
    let output = bench.run(&[&words[..], &["sh", "-c", show]].concat());
    assert_eq!(text(&output.stdout).trim(), "nginx,wrk,redis-server sh");
    let output = bench.run(&["run", "sh", "-c", show]);
    assert_eq!(text(&output.stdout).trim(), "");
}

#[test]
fn a_shared_directory_reaches_the_program_if_only_its_own_users_can_write_to_it() {
    let bench = Bench::new("share");
    let folder = PathBuf::from(format!("/tmp/share-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    let set = |mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&folder, mode).expect("ours");
    };
    let path = folder.display().to_string();
    let words = ["run", "--share", &path, "sh", "-c", "echo $EF_SHARE_DIR"];
    set(0o770);
    let shared = bench.run(&words);
    set(0o777);
    let refused = bench.run(&words);
    std::fs::remove_dir(&folder).expect("empty");
    assert_eq!(text(&shared.stdout).trim(), path);
    assert!(refusal(&refused, 2).contains("every user can write to it (chmod o-w)"));
    assert!(refusal(&bench.run(&words), 2).contains("make it, with mode 770"));
}

#[test]
fn exit_code_and_signal_are_the_programs_own() {
    let bench = Bench::new("exit");
    assert_eq!(
        bench
            .run(&["run", "--", "sh", "-c", "exit 7"])
            .status
            .code(),
        Some(7)
    );
    let killed = bench
        .run(&["run", "--", "sh", "-c", "kill -TERM $$"])
        .status;
    assert_eq!(killed.signal(), Some(15));
    let output = bench.run(&["run", "--", "sh", "-c", "echo $PPID"]);
    assert_eq!(text(&output.stdout).trim(), std::process::id().to_string());
}

#[test]
fn static_programs_run_on_the_kernel_and_say_so_in_one_line() {
    let bench = Bench::new("static");
    bench.write("main.c", "int main(void) { return 5; }\n");
    bench.compile(&["-static", "-o", "static", "main.c"]);
    let line = format!("#!{}\n", bench.folder.join("static").display());
    bench.write_program("script", &line);
    let ways: [&[&str]; 3] = [
        &["run", "--", "./static"],
        &["run", "--", "taskset", "-c", "0", "./static"],
        &["run", "./script"],
    ];
    for way in ways {
        let output = bench.run(way);
        assert_eq!(output.status.code(), Some(5), "{way:?}");
        let said = text(&output.stderr);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("statically linked") && said.contains("on the kernel"));
    }
}

#[test]
fn set_uid_and_foreign_programs_are_refused_in_one_line() {
    let bench = Bench::new("refuse");
    bench.write("main.c", "int main(void) { return 0; }\n");
    bench.compile(&["-o", "dynamic", "main.c"]);
    let path = bench.folder.join("dynamic");
    assert_eq!(
        bench.run(&["run", "--", "./dynamic"]).status.code(),
        Some(0)
    );
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).expect("set-uid");
    assert!(refusal(&bench.run(&["run", "--", "./dynamic"]), 2).contains("set-uid"));
}

#[test]
fn missing_programs_have_the_shells_exit_codes() {
    let bench = Bench::new("missing");
    assert!(refusal(&bench.run(&["run", "no-such-program"]), 127).contains("not found in PATH"));
    refusal(&bench.run(&["run", "./no-such-program"]), 127);
    bench.write("plain", "text");
    refusal(&bench.run(&["run", "./plain"]), 126);
}

#[test]
fn bad_input_is_one_line_that_names_the_nearest() {
    let bench = Bench::new("input");
    bench.write("profiles/bad.opf", "# why\nonload_set EF_POL_USEC 1\n");
    let line = refusal(&bench.run(&["run", "-p", "bad", "true"]), 2);
    assert!(
        line.contains("bad.opf:2: EF_POL_USEC: unknown option (nearest: EF_POLL_USEC)"),
        "{line}"
    );
    assert!(refusal(&bench.run(&["run", "-p", "none", "true"]), 2).contains("there are bad, test"));
    let output = bench
        .command(&["run", "true"])
        .env("EF_UL_EPOL", "3")
        .output()
        .expect("it starts");
    assert!(refusal(&output, 2).contains("nearest: EF_UL_EPOLL"));
    refusal(&bench.run(&["run"]), 2);
    refusal(&bench.run(&["run", "--no-such", "true"]), 2);
    refusal(&bench.run(&["no-such"]), 2);
    refusal(&bench.run(&["stat", "--no-such"]), 2);
    refusal(&bench.run(&["options", "EF_POL_USEC"]), 2);
}

#[test]
fn node_is_configured_to_leave_io_uring_alone() {
    let bench = Bench::new("node");
    bench.write("main.c", "#include <stdio.h>\n#include <stdlib.h>\nint main(void) { puts(getenv(\"UV_USE_IO_URING\")); return 0; }\n");
    bench.compile(&["-o", "node", "main.c"]);
    let output = bench.run(&["run", "./node"]);
    assert_eq!(text(&output.stdout), "0\n");
    assert!(text(&output.stderr).contains("UV_USE_IO_URING=0"));
}

#[test]
fn check_says_what_would_happen_and_starts_nothing() {
    let bench = Bench::new("check");
    let words = [
        "run",
        "--check",
        "-p",
        "test",
        "--",
        "sh",
        "-c",
        "touch started",
    ];
    let output = bench.run(&words);
    let report = text(&output.stdout);
    assert!(report.contains("can be accelerated"), "{report}");
    assert!(report.contains("EF_POLL_USEC=20  [test.opf:1]"), "{report}");
    assert!(!bench.folder.join("started").exists());
    bench.write("main.c", "int main(void) { return 0; }\n");
    bench.compile(&["-static", "-o", "static", "main.c"]);
    let output = bench.run(&["run", "--check", "./static"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stdout).contains("nothing is accelerated"));
}

/// The unit of docs/bypass-in-production.md has the check next to EF_SHARE_WITH, and its report denied the effect.
#[test]
fn check_names_the_user_with_whom_memory_is_shared() {
    let bench = Bench::new("check-users");
    let mut command = bench.command(&["run", "--check", "-p", "test", "--", "sh"]);
    let output = command.env("EF_SHARE_WITH", "998").output();
    let report = text(&output.expect("it starts").stdout);
    let users =
        "of this user and of user 998 (EF_SHARE_WITH at both ends) in this network namespace";
    assert!(report.contains(users), "{report}");
}

#[test]
fn a_missing_library_is_said_with_the_way_to_build_it() {
    let bench = Bench::new("library");
    std::fs::remove_file(bench.folder.join("libbypass_preload.so")).expect("removed");
    assert!(refusal(&bench.run(&["run", "true"]), 1).contains("./wirespeed build bypass"));
}

#[test]
fn every_command_has_help_on_standard_output() {
    let bench = Bench::new("help");
    for words in [
        &["--help"][..],
        &[],
        &["run", "--help"],
        &["stat", "--help"],
        &["doctor", "--help"],
        &["unit", "-h"],
        &["options", "-h"],
    ] {
        let output = bench.run(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert!(
            text(&output.stdout).starts_with("usage: bypass"),
            "{words:?}"
        );
    }
}

/// The folder of a drop-in is there for no service, and the fourth capability was on the pages alone.
#[test]
fn help_shows_commands_that_work_as_they_stand_and_every_privilege() {
    let bench = Bench::new("help-texts");
    let help = text(&bench.run(&["unit", "--help"]).stdout);
    let (folder, write) = (
        help.find("mkdir -p /etc/systemd/system/nginx.service.d\n"),
        help.find("bypass unit nginx > /etc/systemd/system/nginx.service.d/"),
    );
    assert!(folder.is_some() && folder < write, "{help}");
    let help = text(&bench.run(&["run", "--help"]).stdout);
    for name in ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF", "CAP_IPC_LOCK"] {
        assert!(help.contains(name), "{name} in {help}");
    }
}

#[test]
fn stat_without_such_a_process_is_a_failure_and_json_is_one_document() {
    let bench = Bench::new("stat");
    let own = std::process::id().to_string();
    assert!(refusal(&bench.run(&["stat", &own]), 1).contains("is not accelerated"));
    let json = text(&bench.run(&["stat", "--json"]).stdout);
    assert!(
        json.starts_with("{\"schema\":\"bypass-stat/1\",") && json.ends_with("]}\n"),
        "{json}"
    );
}

#[test]
fn a_check_names_a_limit_under_which_no_memory_is_shared() {
    let bench = Bench::new("file-size");
    let own = bench.folder.join("bypass");
    let command = format!(
        "ulimit -f 1000; exec '{}' run --check -p test -- sh",
        own.display()
    );
    let mut shell = Command::new("sh");
    shell
        .env("WIRESPEED_ROOT", &bench.folder)
        .env("HOME", &bench.folder);
    let output = shell.args(["-c", &command]).output().expect("sh");
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stdout);
    assert!(
        said.contains("size of files below what a segment needs (ulimit -f): everything would"),
        "{said}"
    );
}

#[test]
fn doctor_finds_a_process_without_the_library() {
    let bench = Bench::new("doctor");
    let own = std::process::id().to_string();
    let output = bench.run(&["doctor", &own]);
    assert_eq!(output.status.code(), Some(1));
    let page = text(&output.stdout);
    assert!(
        page.contains("problem  the library is not loaded"),
        "{page}"
    );
    refusal(&bench.run(&["doctor", &u32::MAX.to_string()]), 1);
    for words in [&["doctor"][..], &["doctor", "nginx"]] {
        refusal(&bench.run(words), 2);
    }
}

/// A systemctl of the test's stands for that of the host.
#[test]
fn unit_wraps_the_command_that_systemd_knows() {
    let bench = Bench::new("unit");
    let script = "#!/bin/sh\n[ \"$*\" = 'cat -- web.service' ] || { echo \"No files found for $3.\" >&2; exit 1; }\n\
                  printf '[Service]\\nExecStart=/usr/sbin/nginx -q\\nRestrictAddressFamilies=AF_INET\\n'\n";
    bench.write_program("systemctl", script);
    let run = |words: &[&str]| {
        let path = format!("{}:/usr/bin:/bin", bench.folder.display());
        bench
            .command(words)
            .env("PATH", path)
            .output()
            .expect("it starts")
    };
    let output = run(&["unit", "-p", "test", "web"]);
    let page = text(&output.stdout);
    let wrapped = format!(
        "ExecStart=\nExecStart={}/bypass run -p test -- /usr/sbin/nginx -q\n",
        bench.folder.canonicalize().expect("a folder").display()
    );
    assert!(page.contains(&wrapped), "{page}{}", text(&output.stderr));
    assert!(
        page.contains("\nRestrictAddressFamilies=AF_UNIX AF_NETLINK"),
        "{page}"
    );
    assert!(refusal(&run(&["unit", "other"]), 1).contains("No files found for other.service"));
    for words in [
        &["unit"][..],
        &["unit", "a", "b"],
        &["unit", "--no-such"],
        &["unit", "-p"],
    ] {
        refusal(&run(words), 2);
    }
}

/// A FIFO can have the name of a page of statistics. To open it would wait for ever.
#[test]
fn stat_opens_no_fifo_that_is_called_like_a_page() {
    let path = format!("/memfd:wirespeed-stats-{}", std::process::id());
    let made = Command::new("mkfifo").arg(&path).output();
    if !made.is_ok_and(|output| output.status.success()) {
        bypass_testkit::report_skip("only root can make a file there");
        return;
    }
    let mut holder = Command::new("sh")
        .args([
            "-c",
            "exec 3<>\"$0\"; exec 4<\"$0\" 3>&-; exec sleep 600",
            &path,
        ])
        .spawn()
        .expect("sh");
    let folder = format!("/proc/{}/fd/4", holder.id());
    while std::fs::read_link(&folder).is_err() {
        std::thread::yield_now();
    }
    let bench = Bench::new("fifo");
    let words = ["stat", "-p", &holder.id().to_string()].map(str::to_owned);
    let mut stat = bench
        .command(&words.each_ref().map(String::as_str))
        .spawn()
        .expect("it starts");
    let since = std::time::Instant::now();
    let mut ended = None;
    while ended.is_none() && since.elapsed() < std::time::Duration::from_secs(120) {
        ended = stat.try_wait().expect("a child");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let _ = (stat.kill(), stat.wait(), holder.kill(), holder.wait());
    std::fs::remove_file(&path).expect("it was made");
    assert!(ended.is_some(), "bypass stat waits for the FIFO");
}

#[test]
fn only_accelerated_processes_can_be_switched_off() {
    let bench = Bench::new("switch");
    let own = std::process::id().to_string();
    let said = refusal(&bench.run(&["off", &own]), 1);
    assert!(said.contains("is not accelerated"), "{said}");
    for words in [&["off"][..], &["on", "nginx"]] {
        refusal(&bench.run(words), 2);
    }
}

#[test]
fn top_is_the_live_view_and_takes_the_same_words() {
    let bench = Bench::new("top");
    assert!(text(&bench.run(&["top", "--help"]).stdout).starts_with("usage: bypass stat"));
    assert!(refusal(&bench.run(&["top", "x"]), 2).contains("invalid process id"));
    // Not an interval of an hour.
    let own = std::process::id().to_string();
    assert!(refusal(&bench.run(&["top", &own]), 1).contains("is not accelerated"));
}

/// The command through a link of another name, next to the same library and profiles.
fn called(bench: &Bench, name: &str, words: &[&str]) -> Output {
    let link = bench.folder.join(name);
    let _ = std::os::unix::fs::symlink("bypass", &link);
    let mut command = Command::new(&link);
    command.args(words).current_dir(&bench.folder);
    command
        .env("WIRESPEED_ROOT", &bench.folder)
        .env("HOME", &bench.folder)
        .env_remove("EF_POLL_USEC")
        .env_remove("LD_PRELOAD");
    command.output().expect("it starts")
}

#[test]
fn the_name_onload_starts_a_program_as_bypass_run_does() {
    let bench = Bench::new("onload");
    let words = ["--no-app-handler", "-p", "test", "sh", "-c", "env; exit 3"];
    let output = called(&bench, "onload", &words);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stdout)
        .lines()
        .any(|line| line == "EF_POLL_USEC=20"));
    let output = called(&bench, "onload", &["-p", "no-such", "sh"]);
    assert!(refusal(&output, 2).starts_with("onload: "));
}

#[test]
fn the_name_onload_stackdump_knows_the_documents_words() {
    let bench = Bench::new("stackdump");
    let output = called(&bench, "onload_stackdump", &[]);
    assert!(text(&output.stdout).starts_with("#stack-id stack-name"));
    for words in [&["lots"][..], &["lots", "-z"], &["netstat"]] {
        let output = called(&bench, "onload_stackdump", words);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
    }
    let output = called(&bench, "onload_stackdump", &["filters"]);
    assert!(refusal(&output, 2).contains("lots, lots -z and netstat"));
}

#[test]
fn a_capture_says_in_one_line_what_keeps_it_from_beginning() {
    let bench = Bench::new("capture");
    let nobody = u32::MAX.to_string();
    for (words, code) in [
        (&["capture", &nobody][..], 1),
        (&["capture", "1", "-w", "x.pcap"], 1),
        (&["capture", "--port", "x"], 2),
        (&["capture", "--no-such"], 2),
    ] {
        refusal(&bench.run(words), code);
        assert!(!bench.folder.join("x.pcap").exists(), "{words:?}");
    }
    let output = called(&bench, "onload_tcpdump", &["udp"]);
    assert!(refusal(&output, 2).contains("port N and host A"));
    let output = called(&bench, "onload_tcpdump", &["-i", "any", "-w", "/no/such"]);
    assert!(refusal(&output, 1).contains("/no/such"));
}

#[test]
fn prometheus_text_has_a_type_for_every_sample() {
    let output = Bench::new("prometheus").run(&["stat", "--prometheus"]);
    assert_eq!(output.status.code(), Some(0));
    let page = text(&output.stdout);
    let typed = |sample: &str| {
        page.contains(&format!(
            "# TYPE {} ",
            sample.split('{').next().unwrap_or(sample)
        ))
    };
    assert!(
        page.lines()
            .filter(|line| !line.starts_with('#'))
            .all(typed),
        "{page}"
    );
}

#[test]
fn output_that_cannot_be_written_is_reported() {
    let bench = Bench::new("full");
    for words in [&["stat", "--watch=0.1"][..], &["capture", "-d", "0.1"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let mut command = bench.command(words);
        let output = command.stdout(full.expect("a full device")).output();
        let said = text(&output.expect("it starts").stderr);
        assert!(said.contains("No space left"), "{words:?}: {said}");
    }
    let words = ["capture", "-d", "0.1", "-w", "/dev/full"];
    assert!(refusal(&bench.run(&words), 1).contains("/dev/full: No space left"));
}
