//! WIRESPEED_ONLY and WIRESPEED_EXCEPT: which of the programs that a command starts are accelerated.

mod itself;
mod library;

use std::process::Command;

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
        .args(["-c", itself::TO_ITSELF])
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
