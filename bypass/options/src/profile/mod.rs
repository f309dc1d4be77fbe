//! Profiles: `.opf` files read as data. Nothing in a profile is ever executed.
//!
//! A profile is written in a few shell forms: `onload_set NAME VALUE`, `onload_import NAME`,
//! comments, quotes, variables and whole-number arithmetic. Scripts around nginx compute the worker
//! count with shell and perl; the reader recognises these and computes it here. Any other line is
//! an error with its place, because half a profile would be worse than none.

mod arithmetic;
mod blocks;
mod expand;
mod lex;
mod reader;
mod search;
mod workers;

use crate::definition::{Definition, Value};

pub use reader::Reader;
pub use search::{file_name, folders};

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file as it was found.
    pub file: String,
    /// Counted from 1.
    pub line: usize,
}

impl std::fmt::Display for Place {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}:{}", self.file, self.line)
    }
}

/// One effective `onload_set`.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The row of the table.
    pub option: &'static Definition,
    /// The value, checked against the option.
    pub value: Value,
    /// The line that sets it.
    pub place: Place,
}

/// The content of a profile, or of a list of them.
#[derive(Debug, Clone, Default)]
pub struct Profile {
    /// The first setting of each option.
    pub settings: Vec<Setting>,
    /// Skipped or assumed parts, one line each, for `--check`.
    pub notes: Vec<String>,
    /// The profile waits until no process of its cluster is left.
    pub waits_for_cluster: bool,
}

/// Why a profile cannot be used: one line, with the place if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileError {
    /// The line, or none when no file was found.
    pub place: Option<Place>,
    /// The error and its remedy.
    pub text: String,
}

impl std::fmt::Display for ProfileError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(place) = &self.place {
            write!(out, "{place}: ")?;
        }
        // A name from the file may contain line ends, which would make two lines of one.
        self.text.chars().try_for_each(|letter| match letter {
            _ if letter.is_control() => write!(out, "{}", letter.escape_default()),
            _ => write!(out, "{letter}"),
        })
    }
}

impl std::error::Error for ProfileError {}

/// Properties that hold for any text; the fuzz target and the replay of its corpus call this.
///
/// # Panics
/// If a text yields a setting that its own option would not accept, or if an error is more than one
/// line.
pub fn check_reading(text: &str) {
    let nothing = |_: &str| None;
    match Reader::new(&nothing).read_text("fuzz.opf", text) {
        Ok(profile) => {
            for setting in &profile.settings {
                let again = setting.option.parse(&setting.value.to_string());
                assert_eq!(again, Ok(setting.value.clone()), "{}", setting.option.name);
            }
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
}
