//! The table of requirements names tests that exist, each requirement at least one or a reason.

use std::path::Path;

fn sources() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = String::new();
    for folder in ["src", "src/wire", "tests"] {
        for entry in std::fs::read_dir(root.join(folder)).expect("a folder of this crate") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|ending| ending == "rs") {
                all += &std::fs::read_to_string(path).expect("a source file");
            }
        }
    }
    all
}

/// The text behind `key = ` in an entry.
fn value<'a>(entry: &'a str, key: &str) -> Option<&'a str> {
    let lines = entry.lines();
    lines
        .filter_map(|line| line.strip_prefix(key)?.trim().strip_prefix('='))
        .next()
        .map(str::trim)
}

#[test]
fn every_requirement_names_tests_that_exist_or_a_reason() {
    let table = include_str!("rfc.toml");
    let sources = sources();
    let entries: Vec<&str> = table.split("[[requirement]]").skip(1).collect();
    assert!(entries.len() > 30, "only {} requirements", entries.len());
    for entry in entries {
        let id = value(entry, "id").expect("an id");
        assert!(value(entry, "text").is_some(), "{id} has no text");
        let names = value(entry, "tests")
            .expect("tests")
            .trim_matches(['[', ']']);
        let names: Vec<&str> = names
            .split(',')
            .map(|name| name.trim().trim_matches('"'))
            .filter(|name| !name.is_empty())
            .collect();
        assert!(
            !names.is_empty() || value(entry, "reason").is_some(),
            "{id} has neither test nor reason"
        );
        for name in names {
            let is_test = sources.contains(&format!("#[test]\n    fn {name}()"))
                || sources.contains(&format!("#[test]\nfn {name}()"));
            assert!(is_test, "{id} names {name}, which is not a test");
        }
    }
}
