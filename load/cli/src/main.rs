//! The command `wirespeed-load`.

mod help;
mod human;
mod json;
mod options;
mod setup;
mod spectrum;
mod units;

use load_engine::plan::Plan;
use load_engine::run::{run, Outcome};
use load_engine::sys::signal;
use load_engine::transport::Plain;
use load_engine::warnings::{self, Warning};
use options::Typed;
use setup::Refusal;
use std::path::Path;
use std::process::ExitCode;

/// A measurement failed.
const FAILED: u8 = 1;
/// Bad input.
const BAD_USAGE: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match start(&arguments) {
        Ok(code) => ExitCode::from(code),
        Err(Refusal::Usage(text)) => {
            eprintln!("wirespeed-load: {text}");
            ExitCode::from(BAD_USAGE)
        }
        Err(Refusal::Target(text)) => {
            eprintln!("wirespeed-load: {text}");
            ExitCode::from(FAILED)
        }
    }
}

fn start(arguments: &[String]) -> Result<u8, Refusal> {
    let typed = options::parse(&arguments[1..]).map_err(Refusal::Usage)?;
    if typed.has("help") || typed.has("version") {
        print!("{}", if typed.has("help") { help::help() } else { help::version() });
        return Ok(0);
    }
    if let Some(text) = page_or_completion(&typed)? {
        print!("{text}");
        return Ok(0);
    }
    let plan = setup::plan(&typed)?;
    let connections = plan.connections_max().to_string();
    print!("{}", human::banner(&plan, &typed.words[0], &connections));
    signal::watch();
    let outcome = run(&plan, &|| Plain, &mut |_| {})
        .map_err(|error| Refusal::Target(format!("cannot run: {error}")))?;
    let found = warnings::find(&plan, &outcome);
    finish(&typed, &plan, &outcome, &found, arguments)
}

/// The words that print something about the options instead of running.
fn page_or_completion(typed: &Typed) -> Result<Option<String>, Refusal> {
    let words: Vec<&str> = typed.words.iter().map(String::as_str).collect();
    match words[..] {
        ["options-page"] => Ok(Some(help::page())),
        ["completion", shell] => help::completion(shell).map(Some).ok_or_else(|| {
            Refusal::Usage(format!("completion: '{shell}' is none of bash, zsh, fish"))
        }),
        _ => Ok(None),
    }
}

fn finish(
    typed: &Typed,
    plan: &Plan,
    outcome: &Outcome,
    found: &[Warning],
    arguments: &[String],
) -> Result<u8, Refusal> {
    let parts = human::Parts { latency: typed.has("latency"), uncorrected: false };
    print!("{}", human::report(plan, outcome, parts));
    for warning in found {
        eprintln!("warning: {}", warning.text);
    }
    if let Some(path) = typed.last("json") {
        let document = json::document(plan, outcome, found, arguments);
        json::write(Path::new(path), &document)
            .map_err(|error| Refusal::Target(format!("--json: cannot write {path}: {error}")))?;
    }
    Ok(0)
}
