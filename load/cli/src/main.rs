//! The command `wirespeed-load`.

mod addresses;
mod conditions;
mod console;
mod curve;
mod data;
mod figures;
mod file;
mod headroom;
mod help;
mod http3;
mod human;
mod json;
mod live;
mod measure;
mod merge;
mod options;
mod parts;
mod prometheus;
mod raw;
mod refusal;
mod replay;
mod result;
mod scheme;
mod series;
mod setup;
mod sockets;
mod spectrum;
mod table;
mod targets;
mod units;
mod values;
mod watchdog;

use console::{print, say};
use load_engine::sink::Sink;
use load_engine::sys::signal;
use measure::Compat;
use refusal::{usage, Failure, Mistake, Refusal, Wrong};
use std::io;
use std::process::ExitCode;
use table::{Args, Entry};

/// A measurement failed.
const FAILED: u8 = 1;
/// Bad input.
const BAD_USAGE: u8 = 2;

fn main() -> ExitCode {
    let (arguments, wrong) = arguments();
    let compat = Compat::of(arguments.first().map_or("", String::as_str));
    let done = wrong.map_or_else(|| start(&arguments, compat), usage);
    match done {
        Ok(0) if console::lost() => ExitCode::from(FAILED),
        Ok(code) => ExitCode::from(code),
        Err(refusal) => ExitCode::from(refuse(refusal, compat)),
    }
}

/// The command line, and what is wrong with it if it is not UTF-8.
fn arguments() -> (Vec<String>, Option<Mistake>) {
    let mut wrong = None;
    let each = std::env::args_os().map(|argument| {
        argument.into_string().unwrap_or_else(|bytes| {
            let shown = bytes.to_string_lossy().into_owned();
            wrong = Some(Mistake::NotUtf8(shown.clone()));
            shown
        })
    });
    (each.collect(), wrong)
}

/// Says why nothing was measured. As wrk the usage goes to standard output and the code is 1.
fn refuse(refusal: Refusal, compat: Compat) -> u8 {
    match refusal {
        Refusal::Absent(failure) if compat == Compat::Own => {
            say(&format!("wirespeed-load: {failure}"));
            FAILED
        }
        Refusal::Absent(failure) => {
            say(&failure.to_string());
            FAILED
        }
        Refusal::Usage(mistake) if compat == Compat::Own => {
            say(&format!("wirespeed-load: {}", mistake.with_hint()));
            BAD_USAGE
        }
        Refusal::Usage(mistake) => {
            say(&mistake.to_string());
            if !matches!(mistake, Mistake::NoUrl(_)) {
                print(&help::help());
            }
            FAILED
        }
    }
}

fn start(arguments: &[String], compat: Compat) -> Result<u8, Refusal> {
    let mut typed =
        options::parse(arguments.get(1..).unwrap_or_default(), compat).map_err(Refusal::Usage)?;
    if compat != Compat::Own {
        // wrk sends no field without a space behind its first colon, and goes on
        let has_space = |text: &str| {
            let value = text.split_once(':').map(|(_, value)| value);
            value.is_some_and(|value| value.starts_with(' '))
        };
        let is_sent = |(entry, text): &(&Entry, String)| entry.long != "header" || has_space(text);
        typed.options.retain(is_sent);
    }
    if typed.has("version") {
        print(&help::version());
        if typed.words.is_empty() && compat == Compat::Own {
            return Ok(0);
        }
    }
    // as wrk, to which the version alone is a command line without a URL
    if typed.has("help") || (typed.has("version") && typed.words.is_empty()) {
        print(&help::help());
        return Ok(if compat == Compat::Own { 0 } else { FAILED });
    }
    let words: Vec<&str> = typed.words.iter().map(String::as_str).collect();
    match words.first().copied() {
        Some("merge") => {
            let args = Args::read(&typed)?;
            merge::merge(&typed.words[1..], args.json.as_deref()).map(|()| 0)
        }
        Some("sink") => sink(&words[1..]).map(|()| 0),
        Some("echo") => echo(&words[1..]).map(|()| 0),
        Some("completion") => completion(&words[1..]).map(|()| 0),
        Some("schema") => {
            print(&format!("{:#}\n", result::page::schema()));
            Ok(0)
        }
        Some("results-page") => {
            print(&result::page::page());
            Ok(0)
        }
        Some("options-page") => {
            print(&help::page());
            Ok(0)
        }
        _ => measure::measure(&Args::read(&typed)?, &typed, arguments, compat),
    }
}

fn completion(words: &[&str]) -> Result<(), Refusal> {
    match words.first().and_then(|shell| help::completion(shell)) {
        Some(text) => {
            print(&text);
            Ok(())
        }
        None => {
            let why = Wrong::Because("unknown shell (bash, zsh or fish)".into());
            usage(Mistake::Command("completion", why))
        }
    }
}

/// A null server until a signal comes.
fn sink(words: &[&str]) -> Result<(), Refusal> {
    let sink = started("sink", words, Sink::start)?;
    print(&format!("listening on http://{}/\n", sink.address()));
    sink.wait();
    Ok(())
}

/// An echo server until a signal comes.
fn echo(words: &[&str]) -> Result<(), Refusal> {
    let sink = started("echo", words, Sink::echo)?;
    let address = sink.address();
    print(&format!(
        "listening on tcp://{address} and udp://{address}\n"
    ));
    sink.wait();
    Ok(())
}

fn started(
    name: &'static str,
    words: &[&str],
    start: fn(&str) -> io::Result<Sink>,
) -> Result<Sink, Refusal> {
    let address = words.first().copied().unwrap_or("127.0.0.1:0");
    signal::watch();
    let why = |error| format!("cannot listen on {address}: {error}");
    start(address).map_err(|error| Refusal::Absent(Failure::Command(name, why(error))))
}
