//! `bypass options`: the table of options as text, or as the documents page.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::process::ExitCode;

use bypass_options::{markdown, nearest, table, unknown_option, Definition, Group};

use crate::failure::{print, Failure};

const HELP: &str = "\
usage: bypass options [--markdown] [NAME …]

  NAME         one option in full, with or without EF_
  --markdown   the documents page, docs/options.md
";

/// Prints the table, some of its rows, or the page.
pub(crate) fn command(words: &[OsString]) -> Result<ExitCode, Failure> {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let mut text = String::new();
    for word in &words {
        match word.as_ref() {
            "-h" | "--help" => return print(HELP),
            "--markdown" => return print(&markdown::page()),
            flag if flag.starts_with('-') => {
                return Err(Failure::usage(format!(
                    "options: unknown option {flag} (only --markdown)"
                )))
            }
            name => text.push_str(&one(name)?),
        }
    }
    print(if words.is_empty() {
        text.push_str(&all());
        &text
    } else {
        &text
    })
}

fn all() -> String {
    let mut text = String::new();
    for group in Group::ALL {
        let _ = writeln!(text, "{}", group.heading());
        for option in table::of(group) {
            let mark = if option.state.word() == "inert" {
                "-"
            } else {
                "*"
            };
            let _ = writeln!(text, "  {mark} {:38} {}", option.name, option.text);
        }
    }
    text.push_str(
        "\n* implemented   - accepted, changes nothing here (bypass options NAME says why)\n",
    );
    text
}

fn one(name: &str) -> Result<String, Failure> {
    let full = name.to_ascii_uppercase();
    let full = if full.starts_with("EF_") {
        full
    } else {
        format!("EF_{full}")
    };
    let option = table::find(&full).ok_or_else(|| Failure::usage(unknown_option(&full)))?;
    debug_assert_eq!(nearest(option.name), option.name);
    Ok(row(option))
}

fn row(option: &Definition) -> String {
    let Definition {
        name,
        unit,
        text,
        long,
        state,
        ..
    } = option;
    let unit = if unit.is_empty() {
        String::new()
    } else {
        format!(" {unit}")
    };
    let mut row = format!("{name}\n  {text}.\n");
    if !long.is_empty() {
        let _ = writeln!(row, "  {long}");
    }
    let _ = writeln!(
        row,
        "  type: {}{unit}; default: {}",
        option.kind_text(),
        option.default_text()
    );
    let _ = writeln!(row, "  {}: {}", state.word(), state.reason());
    row
}
