//! The result file is what its schema says: each field is there, and no other.

#[path = "support/schema.rs"]
mod schema;
mod support;

use schema::{compare, schema};
use serde_json::{json, Value};
use std::path::Path;
use support::{always, measured, program, run, temporary, Server, HELLO};

fn read(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).expect("a file");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn results_of_every_kind_are_what_the_schema_says() {
    let server = Server::start(always(HELLO));
    let schema = schema();
    assert_eq!(schema["title"], "wirespeed-load/1");
    let url = server.url();
    let lines = [
        format!("-t2 -c4 -d300ms {url} {url}other"),
        format!("-t1 -c2 -d400ms -R100..200:100 --probe 20 {url}"),
    ];
    for line in lines {
        compare(&measured(&line), &schema, &schema, "");
    }
}

#[test]
fn a_sum_is_a_result_and_holds_what_each_of_them_has() {
    let server = Server::start(always(HELLO));
    let files = [temporary("json"), temporary("json"), temporary("json")];
    let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
    let since = soon.duration_since(std::time::UNIX_EPOCH).expect("later");
    let start = |file: &Path| {
        let (file, url) = (file.display(), server.url());
        let line = format!(
            "--json {file} --start-at {:.3} -t1 -c2 -d2s -R200 {url}",
            since.as_secs_f64()
        );
        let mut command = program();
        command.args(line.split_whitespace());
        command
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("it starts")
    };
    let runs = [start(&files[0]), start(&files[1])];
    for mut each in runs {
        assert!(each.wait().expect("ended").success());
    }
    let [one, two, sum] = files.each_ref().map(|path| path.display().to_string());
    let output = run(&format!("merge {one} {two} --json {sum}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let schema = schema();
    let (parts, merged) = (files[..2].iter().map(|file| read(file)), read(&files[2]));
    compare(&merged, &schema, &schema, "");
    let parts: Vec<Value> = parts.collect();
    for path in [
        "/totals/completed",
        "/totals/bytes_in",
        "/latency/response/count",
        "/tcp/rtt/count",
        "/cpu/user_ns",
    ] {
        let figure = |one: &Value| one.pointer(path).and_then(Value::as_u64).unwrap_or(0);
        let together: u64 = parts.iter().map(figure).sum();
        assert_eq!(figure(&merged), together, "{path}");
    }
    assert_eq!(merged["plan"]["hosts"], 2);
    let max = |one: &Value| one["latency"]["response"]["max"].as_u64();
    assert_eq!(max(&merged), parts.iter().map(max).max().flatten());
    assert_eq!(merged["little"], Value::Null);
    assert_eq!(merged["episodes"], json!({}));
    files
        .iter()
        .for_each(|file| std::fs::remove_file(file).expect("ours"));
}
