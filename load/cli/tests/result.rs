//! The result file is what its schema says: each field is there, and no other.

mod support;

use serde_json::{json, Value};
use std::path::Path;
use support::{always, measured, program, run, temporary, Server, HELLO};

fn schema() -> Value {
    let output = run("schema");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Compares a value with its schema, member by member.
fn compare(value: &Value, schema: &Value, root: &Value, place: &str) {
    if let Some(path) = schema["$ref"].as_str() {
        let name = path.rsplit('/').next().expect("a name");
        return compare(value, &root["$defs"][name], root, place);
    }
    if let Some(either) = schema["anyOf"].as_array() {
        if !value.is_null() {
            compare(value, &either[0], root, place);
        }
        return;
    }
    let is_right = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        other => panic!("{place}: {other:?}"),
    };
    assert!(is_right, "{place}: {value} is no {}", schema["type"]);
    for (number, one) in value.as_array().into_iter().flatten().enumerate() {
        compare(one, &schema["items"], root, &format!("{place}[{number}]"));
    }
    let Some(members) = value.as_object() else {
        return;
    };
    let Some(known) = schema["properties"].as_object() else {
        for (name, one) in members {
            compare(
                one,
                &schema["additionalProperties"],
                root,
                &format!("{place}.{name}"),
            );
        }
        return;
    };
    let names: Vec<&String> = members.keys().collect();
    assert_eq!(names, known.keys().collect::<Vec<_>>(), "{place}");
    for (name, one) in members {
        let text = known[name]["description"].as_str();
        assert!(text.is_some_and(|text| text.len() > 4), "{place}.{name}");
        compare(one, &known[name], root, &format!("{place}.{name}"));
    }
}

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
