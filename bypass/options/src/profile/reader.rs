//! Reads profiles: statements one after another, imports inside, the first `onload_set` wins.

use std::path::{Path, PathBuf};

use super::blocks;
use super::expand::Scope;
use super::lex::{self, Broken, Piece, Word};
use super::{search, Place, Profile, ProfileError, Setting};
use crate::nearest::unknown_option;
use crate::table;

/// Imports nested this deep count as a cycle.
const IMPORTS_MAX: usize = 16;
/// Lines that one quoted text may span.
const STATEMENT_LINES_MAX: usize = 20;
/// Fragments that are built in, because they only compute.
const PARSE_NGINX: &str = "nginx-parse-config";
const WAIT_CLUSTER: &str = "wait-old-cluster-exit";

/// Reads profiles by name or as text.
pub struct Reader<'a> {
    environment: &'a dyn Fn(&str) -> Option<String>,
    folders: Vec<PathBuf>,
    command: Vec<String>,
}

struct Reading<'a> {
    scope: Scope<'a>,
    folders: &'a [PathBuf],
    profile: Profile,
    open: Vec<String>,
}

impl<'a> Reader<'a> {
    /// A reader that sees these environment variables.
    pub fn new(environment: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            environment,
            folders: Vec::new(),
            command: Vec::new(),
        }
    }

    /// Where names are looked up, first hit wins; see [`search::folders`].
    pub fn folders(mut self, folders: Vec<PathBuf>) -> Self {
        self.folders = folders;
        self
    }

    /// The command line that the profile is for: nginx profiles look at its configuration.
    pub fn command(mut self, command: &[String]) -> Self {
        self.command = command.to_vec();
        self
    }

    /// Reads a comma-separated list of names or paths, left before right.
    pub fn read(&self, names: &str) -> Result<Profile, ProfileError> {
        let mut reading = self.begin();
        for name in names
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
        {
            reading.file(name, None)?;
        }
        Ok(reading.end())
    }

    /// Reads one text, as if it stood in a file of this name.
    pub fn read_text(&self, file: &str, text: &str) -> Result<Profile, ProfileError> {
        let mut reading = self.begin();
        reading.text(file, text)?;
        Ok(reading.end())
    }

    fn begin(&self) -> Reading<'_> {
        Reading {
            scope: Scope::new(self.environment, &self.command),
            folders: &self.folders,
            profile: Profile::default(),
            open: Vec::new(),
        }
    }
}

impl Reading<'_> {
    fn end(mut self) -> Profile {
        self.profile.notes.append(&mut self.scope.notes);
        self.profile
    }

    fn file(&mut self, name: &str, from: Option<&Place>) -> Result<(), ProfileError> {
        let fail = |text: String| ProfileError {
            place: from.cloned(),
            text,
        };
        let folders: Vec<PathBuf> = from
            .and_then(|place| Path::new(&place.file).parent().map(Path::to_owned))
            .into_iter()
            .chain(self.folders.iter().cloned())
            .collect();
        let path = search::file_name(name, &folders).map_err(fail)?;
        let file = path.display().to_string();
        if self.open.contains(&file) {
            return Err(fail(format!(
                "{name}: imports itself: {}",
                self.open.join(" → ")
            )));
        }
        if self.open.len() >= IMPORTS_MAX {
            return Err(fail(format!(
                "more than {IMPORTS_MAX} imports inside each other"
            )));
        }
        let text =
            std::fs::read_to_string(&path).map_err(|error| fail(format!("{file}: {error}")))?;
        self.open.push(file.clone());
        self.text(&file, &text)?;
        self.open.pop();
        Ok(())
    }

    fn text(&mut self, file: &str, text: &str) -> Result<(), ProfileError> {
        let lines: Vec<&str> = text.lines().collect();
        let mut index = 0;
        while index < lines.len() {
            let place = Place {
                file: file.to_owned(),
                line: index + 1,
            };
            index += self.statement(&place, &lines[index..])?;
        }
        Ok(())
    }

    /// Reads the statement that starts on the first of these lines, and returns its number of
    /// lines.
    fn statement(&mut self, place: &Place, lines: &[&str]) -> Result<usize, ProfileError> {
        let fail = |text: &str| ProfileError {
            place: Some(place.clone()),
            text: text.to_owned(),
        };
        if let Some(block) = blocks::opened_by(lines[0]) {
            let length = blocks::length(block, lines)
                .ok_or_else(|| fail("the block has no end in the file"))?;
            self.block(place, &lines[..length])?;
            return Ok(length);
        }
        for length in 1..=lines.len().min(STATEMENT_LINES_MAX) {
            if lines[length - 1].trim_end().ends_with('\\') && length < lines.len() {
                continue;
            }
            match lex::words(&lines[..length].join("\n")) {
                Ok(words) => {
                    for command in words.split(|word| *word == Word::End) {
                        self.command(place, command)?;
                    }
                    return Ok(length);
                }
                Err(Broken::Unfinished(_)) if length < lines.len().min(STATEMENT_LINES_MAX) => {}
                Err(Broken::Unfinished(what)) => return Err(fail(what)),
                Err(Broken::Wrong(what)) => return Err(fail(&what)),
            }
        }
        Err(fail(
            "the line continues beyond the end of the file (remove the backslash)",
        ))
    }

    fn block(&mut self, place: &Place, lines: &[&str]) -> Result<(), ProfileError> {
        if let Some(index) = blocks::setting_line(lines) {
            let line = place.line + index;
            let place = Some(Place {
                line,
                ..place.clone()
            });
            let text = "a setting inside a condition, loop or function: conditions are not \
                        evaluated (move it outside, or into a profile of its own)";
            return Err(ProfileError {
                place,
                text: text.to_owned(),
            });
        }
        if blocks::waits_for_cluster(lines) {
            self.profile.waits_for_cluster = true;
            self.note(place, "waits for an earlier cluster of this name, natively");
        } else {
            self.note(
                place,
                &format!("skipped: {} … ({} lines)", lines[0].trim(), lines.len()),
            );
        }
        Ok(())
    }

    fn command(&mut self, place: &Place, words: &[Word]) -> Result<(), ProfileError> {
        let fail = |text: String| ProfileError {
            place: Some(place.clone()),
            text,
        };
        let Some(Word::Plain(first)) = words.first() else {
            return match words.first() {
                None => Ok(()),
                Some(_) => Err(fail(not_understood("an operator"))),
            };
        };
        let name = plain_text(first);
        match name.as_str() {
            "onload_set" => self.set(place, arguments(&words[1..]).map_err(fail)?),
            "onload_import" => self.import(place, arguments(&words[1..]).map_err(fail)?),
            "set" | "log" | "echo" | "printf" | ":" | "true" | "shopt" => {
                self.note(place, &format!("skipped: {name}"));
                Ok(())
            }
            "export" | "local" | "readonly" | "declare" => arguments(&words[1..])
                .map_err(fail)?
                .iter()
                .try_for_each(|word| self.assign(place, word)),
            _ if assignment(first).is_some() && words.len() == 1 => self.assign(place, first),
            _ => Err(fail(not_understood(&format!("{name:?}")))),
        }
    }

    fn assign(&mut self, place: &Place, word: &[Piece]) -> Result<(), ProfileError> {
        let Some((name, value)) = assignment(word) else {
            let text = not_understood(&format!("{:?}", plain_text(word)));
            return Err(ProfileError {
                place: Some(place.clone()),
                text,
            });
        };
        self.scope.assign(&name, &value);
        Ok(())
    }

    fn set(&mut self, place: &Place, words: Vec<&[Piece]>) -> Result<(), ProfileError> {
        let fail = |text: String| ProfileError {
            place: Some(place.clone()),
            text,
        };
        let (name, value) = match words.as_slice() {
            [name, value] => (self.scope.text(name).map_err(fail)?, value.to_vec()),
            [both] => assignment(both).ok_or_else(|| fail(wants_value(both)))?,
            [] => return Err(fail("onload_set: needs a name and a value".to_owned())),
            [name, rest @ ..] => return Err(fail(too_many(name, rest))),
        };
        if name.starts_with("CI_") {
            self.note(
                place,
                &format!("skipped: {name}, a switch of another build"),
            );
            return Ok(());
        }
        let option = table::find(&name).ok_or_else(|| fail(unknown_option(&name)))?;
        let text = self
            .scope
            .text(&value)
            .map_err(|why| fail(format!("{name}: {why}")))?;
        let value = option.parse(&text).map_err(fail)?;
        if !self
            .profile
            .settings
            .iter()
            .any(|setting| setting.option.name == name)
        {
            self.scope.remember(&name, &text);
            self.profile.settings.push(Setting {
                option,
                value,
                place: place.clone(),
            });
        }
        Ok(())
    }

    fn import(&mut self, place: &Place, words: Vec<&[Piece]>) -> Result<(), ProfileError> {
        let fail = |text: String| ProfileError {
            place: Some(place.clone()),
            text,
        };
        let name = match words.as_slice() {
            [name] => self.scope.text(name).map_err(fail)?,
            [name, rest] if **rest == [Piece::Text(String::new()), Piece::Arguments] => {
                self.scope.text(name).map_err(fail)?
            }
            _ => return Err(fail("onload_import: needs one name".to_owned())),
        };
        match name.as_str() {
            PARSE_NGINX => self.scope.define_workers(),
            WAIT_CLUSTER => self.profile.waits_for_cluster = true,
            _ => return self.file(&name, Some(place)),
        }
        Ok(())
    }

    fn note(&mut self, place: &Place, text: &str) {
        self.profile.notes.push(format!("{place}: {text}"));
    }
}

fn not_understood(what: &str) -> String {
    format!("unexpected {what} (a profile has onload_set, onload_import and comments)")
}

fn wants_value(name: &[Piece]) -> String {
    format!("onload_set {}: missing value", plain_text(name))
}

/// A name that a page layout has split (`EF TCP_X 1`) has one word too many.
fn too_many(name: &[Piece], rest: &[&[Piece]]) -> String {
    let name = plain_text(name);
    if table::find(&name).is_some() {
        return format!("onload_set {name}: needs one value, not {}", rest.len());
    }
    let joined = format!("{name}_{}", plain_text(rest[0]));
    unknown_option(&joined).replacen(&joined, &joined.replacen('_', " ", 1), 1)
}

/// Words without the shell's operators, which no setting needs.
fn arguments(words: &[Word]) -> Result<Vec<&[Piece]>, String> {
    words
        .iter()
        .map(|word| match word {
            Word::Plain(pieces) => Ok(pieces.as_slice()),
            Word::Operator(letter) => Err(not_understood(&format!("{letter:?}"))),
            Word::End => Err(not_understood("the end of the line")),
        })
        .collect()
}

/// `NAME=value` in one word.
fn assignment(word: &[Piece]) -> Option<(String, Vec<Piece>)> {
    let Piece::Text(first) = word.first()? else {
        return None;
    };
    let (name, rest) = first.split_once('=')?;
    let is_name = !name.is_empty()
        && name
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    let mut value = vec![Piece::Text(rest.to_owned())];
    value.extend_from_slice(&word[1..]);
    is_name.then(|| (name.to_owned(), value))
}

fn plain_text(pieces: &[Piece]) -> String {
    let part = |piece: &Piece| match piece {
        Piece::Text(text) => text.clone(),
        Piece::Variable { name, .. } => format!("${name}"),
        Piece::Arithmetic(_) | Piece::Command(_) => "$(…)".to_owned(),
        Piece::Arguments => "$@".to_owned(),
    };
    pieces.iter().map(part).collect()
}
