//! The result file for people and programs: a page, and a JSON Schema.

use super::record::{Definitions, Field};
use super::{Measured, SCHEMA};
use serde_json::{json, Value};
use std::fmt::Write;

/// The JSON Schema.
pub fn schema() -> Value {
    let (root, definitions) = described();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        "$ref": root["$ref"],
        "$defs": definitions,
    })
}

fn described() -> (Value, Definitions) {
    let mut definitions = Definitions::new();
    let root = Measured::schema(&mut definitions);
    (root, definitions)
}

/// docs/load-results.md.
pub fn page() -> String {
    let mut text = String::from(
        "# The result file of wirespeed-load\n\n\
         `--json FILE` writes it, `wirespeed-load merge` adds several of them. Generated from its definition\n\
         (`wirespeed-load results-page`); a test compares it. `wirespeed-load schema` prints the same as a JSON\n\
         Schema. Times are nanoseconds unless a name has another unit. Fields may be added within a version;\n\
         readers ignore unknown ones.\n",
    );
    for (name, record) in described().1 {
        let about = record["description"].as_str().unwrap_or_default();
        let _ = write!(
            text,
            "\n## {name}\n\n{about}\n\n| field | type | meaning |\n|---|---|---|\n"
        );
        for (field, one) in record["properties"].as_object().into_iter().flatten() {
            let meaning = one["description"].as_str().unwrap_or_default();
            let _ = writeln!(text, "| `{field}` | {} | {meaning} |", kind(one));
        }
    }
    text
}

/// A type as people read it.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"]
        .as_str()
        .and_then(|path| path.rsplit('/').next())
    {
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(either) = schema["anyOf"].as_array() {
        return format!("{} or null", kind(&either[0]));
    }
    match schema["type"].as_str() {
        Some("array") => format!("list of {}", kind(&schema["items"])),
        Some("object") => format!("by name: {}", kind(&schema["additionalProperties"])),
        Some("integer") => "whole number".to_string(),
        Some("string") => "text".to_string(),
        other => other.unwrap_or("anything").to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_that_of_the_definition() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/load-results.md");
        let written = std::fs::read_to_string(path).expect("docs/load-results.md");
        assert!(
            written == page(),
            "run: wirespeed-load results-page > docs/load-results.md"
        );
    }
}
