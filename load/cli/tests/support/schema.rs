//! Compares result files with their schema.
#![allow(dead_code, reason = "each test file uses a part of it")]

use super::support::run;
use serde_json::Value;

/// The schema that the command prints.
pub fn schema() -> Value {
    let output = run("schema");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Compares a value with its schema, member by member.
pub fn compare(value: &Value, schema: &Value, root: &Value, place: &str) {
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
