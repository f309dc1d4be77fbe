//! WIRESPEED_ONLY and WIRESPEED_EXCEPT: which of the programs that a command starts are accelerated.

mod library;

use std::process::Command;

/// Prints whether a connection of the program to itself is in the kernel's table.
const PROGRAM: &str = "
import socket
listener = socket.create_server(('127.0.0.1', 0))
listener.setblocking(False)
try:
    listener.accept()
except BlockingIOError:
    pass
port = listener.getsockname()[1]
client = socket.create_connection(('127.0.0.1', port))
remote, established = '0100007F:%04X' % port, '01'
rows = [line.split() for line in open('/proc/net/tcp')]
print('kernel' if any(row[2:4] == [remote, established] for row in rows) else 'shared')
";

fn run(variable: Option<(&str, &str)>, name: &str) -> String {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("chosen");
    std::fs::create_dir_all(&folder).expect("a folder");
    let link = folder.join(format!("{name}-{}", std::process::id()));
    let called = link
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink("/usr/bin/python3", &link).expect("a link");
    let mut command = Command::new(&link);
    command
        .args(["-c", PROGRAM])
        .env("LD_PRELOAD", library::built());
    if let Some((variable, value)) = variable {
        command.env(variable, value.replace("SELF", &called));
    }
    let output = command.output().expect("python3");
    std::fs::remove_file(&link).expect("the link");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn programs_are_accelerated_as_they_are_named() {
    assert_eq!(run(None, "any"), "shared");
    assert_eq!(
        run(Some(("WIRESPEED_ONLY", "nginx,SELF")), "only"),
        "shared"
    );
    assert_eq!(run(Some(("WIRESPEED_ONLY", "nginx")), "other"), "kernel");
    assert_eq!(run(Some(("WIRESPEED_EXCEPT", "SELF")), "except"), "kernel");
}
