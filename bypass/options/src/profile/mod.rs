//! Profiles: `.opf` files read as data. Nothing in a profile is ever executed.
//!
//! A profile is written in a few shell forms: `onload_set NAME VALUE`, `onload_import NAME`,
//! comments, quotes, variables and whole-number arithmetic. What scripts around nginx compute with
//! shell and perl, the worker count, is recognised and computed here. A line that is none of these
//! is an error with its place, because half a profile would be worse than none.

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

/// One `onload_set` that counts.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The row of the table.
    pub option: &'static Definition,
    /// Checked against it.
    pub value: Value,
    /// Where it was said.
    pub place: Place,
}

/// What a profile, or a list of them, says.
#[derive(Debug, Clone, Default)]
pub struct Profile {
    /// The first setting of each option.
    pub settings: Vec<Setting>,
    /// What was skipped or assumed, one line each, for `--check`.
    pub notes: Vec<String>,
    /// The profile waits until no process of its cluster is left.
    pub waits_for_cluster: bool,
}

/// Why a profile cannot be used: one line, with the place when there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileError {
    /// The line, or none when no file was found.
    pub place: Option<Place>,
    /// What is wrong and what to do.
    pub text: String,
}

impl std::fmt::Display for ProfileError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(place) = &self.place {
            write!(out, "{place}: ")?;
        }
        // A name from the file may hold line ends, which would make two lines of one.
        self.text.chars().try_for_each(|letter| match letter {
            _ if letter.is_control() => write!(out, "{}", letter.escape_default()),
            _ => write!(out, "{letter}"),
        })
    }
}

impl std::error::Error for ProfileError {}

/// What must hold for any text at all; the fuzz target and the replay of its corpus call it.
///
/// # Panics
/// When a text is read into a setting that its own option would not accept, or when an error is
/// more than one line.
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
