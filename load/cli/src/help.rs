//! Renders the option table for people and shells: help, version, completions, the page.

use crate::table::{Entry, Group, TABLE};
use std::fmt::Write;

/// Widest left column of the help.
const COLUMN: usize = 30;

/// `--help`.
pub fn help() -> String {
    let mut text = String::from(
        "Usage: wirespeed-load [options] URL... [-- script arguments]\n\
         \x20      wirespeed-load merge FILE... [--json FILE]\n\
         \x20      wirespeed-load sink [ADDRESS]\n\
         \x20      wirespeed-load echo [ADDRESS]\n\
         \x20      wirespeed-load schema\n\
         \x20      wirespeed-load completion bash|zsh|fish\n\n\
         Sends HTTP requests, or messages over WebSocket, TCP or UDP, as fast as the server responds\n\
         (closed loop) or, with -R, at a fixed rate (open loop), and reports the latencies. Called as\n\
         `wrk` or `wrk2` it acts like these.\n",
    );
    for group in Group::ALL {
        let _ = writeln!(text, "\n{}:", group.title());
        for entry in TABLE.iter().filter(|entry| entry.group == group) {
            let _ = writeln!(
                text,
                "{:<COLUMN$} {}",
                left_column(entry),
                with_default(entry)
            );
        }
    }
    text.push_str(
        "\nNumbers take k, M, G; times take us, ms, s, m, h (seconds without).\n\
         Exit status: 0 after a run, 1 if the run failed (or, with --strict, has warnings),\n\
         2 for bad usage.\n",
    );
    text
}

fn left_column(entry: &Entry) -> String {
    let short = entry
        .short
        .map_or("    ".to_string(), |letter| format!("-{letter}, "));
    let value = entry
        .value
        .map_or(String::new(), |value| format!(" {value}"));
    format!("  {short}--{}{value}", entry.long)
}

fn with_default(entry: &Entry) -> String {
    if entry.default.is_empty() {
        entry.text.to_string()
    } else {
        format!("{} [{}]", entry.text, entry.default)
    }
}

/// `--version`.
pub fn version() -> String {
    concat!("wirespeed-load ", env!("CARGO_PKG_VERSION"), " [epoll]\n").to_string()
}

/// docs/load-options.md.
pub fn page() -> String {
    let mut text = String::from(
        "# Options of wirespeed-load\n\n\
         Generated from the option table (`wirespeed-load options-page`); a test compares it.\n",
    );
    for group in Group::ALL {
        let _ = write!(
            text,
            "\n## {}\n\n| option | default | meaning |\n|---|---|---|\n",
            group.title()
        );
        for entry in TABLE.iter().filter(|entry| entry.group == group) {
            let short = entry
                .short
                .map_or(String::new(), |letter| format!("`-{letter}` "));
            let value = entry
                .value
                .map_or(String::new(), |value| format!(" {value}"));
            let meaning = entry.text.replace('|', "\\|");
            let _ = writeln!(
                text,
                "| {short}`--{}{}` | {} | {meaning} |",
                entry.long,
                value.replace('|', "\\|"),
                entry.default
            );
        }
    }
    text
}

/// A completion script for one shell; `None` for a shell that is not known.
pub fn completion(shell: &str) -> Option<String> {
    let longs = || TABLE.iter().map(|entry| format!("--{}", entry.long));
    match shell {
        "bash" => {
            let words: Vec<String> = longs().collect();
            Some(format!(
                "complete -o default -W '{} merge sink echo schema completion' wirespeed-load\n",
                words.join(" ")
            ))
        }
        "zsh" => {
            let mut text = String::from("#compdef wirespeed-load\n_arguments \\\n");
            for entry in TABLE {
                let about = entry.text.replace(['[', ']', '\'', ':'], " ");
                let value = entry.value.map_or("", |_| ":value:_files");
                let _ = writeln!(text, "  '*--{}[{about}]{value}' \\", entry.long);
            }
            text.push_str("  '*:url:_urls'\n");
            Some(text)
        }
        "fish" => Some(TABLE.iter().map(fish_line).collect()),
        _ => None,
    }
}

fn fish_line(entry: &Entry) -> String {
    let short = entry
        .short
        .map_or(String::new(), |letter| format!(" -s {letter}"));
    let value = if entry.value.is_some() { " -r" } else { "" };
    let about = entry.text.replace('\'', "\\'");
    format!(
        "complete -c wirespeed-load -l {}{short}{value} -d '{about}'\n",
        entry.long
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_page_and_completions_name_every_option() {
        let texts = [
            help(),
            page(),
            completion("bash").expect("known"),
            completion("zsh").expect("known"),
        ];
        for entry in TABLE {
            let name = format!("--{}", entry.long);
            assert!(texts.iter().all(|text| text.contains(&name)), "{name}");
        }
        assert_eq!(completion("tcsh"), None);
    }

    #[test]
    fn the_options_page_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/load-options.md");
        let written = std::fs::read_to_string(path).expect("docs/load-options.md");
        assert!(
            written == page(),
            "run: wirespeed-load options-page > docs/load-options.md"
        );
    }
}
