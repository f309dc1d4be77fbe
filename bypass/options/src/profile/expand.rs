//! Expands words into text: variables, defaults and arithmetic, but never a command.

use std::collections::HashMap;

use super::arithmetic;
use super::lex::Piece;
use super::workers;

/// The text of a variable, or the reason why it has none.
type Known = Result<String, String>;

/// Variables and arguments to which a profile's text may refer.
pub(super) struct Scope<'a> {
    environment: &'a dyn Fn(&str) -> Option<String>,
    command: &'a [String],
    own: HashMap<String, Known>,
    /// Assumptions on the way, for `--check`.
    pub(super) notes: Vec<String>,
}

impl<'a> Scope<'a> {
    pub(super) fn new(
        environment: &'a dyn Fn(&str) -> Option<String>,
        command: &'a [String],
    ) -> Self {
        Self {
            environment,
            command,
            own: HashMap::new(),
            notes: Vec::new(),
        }
    }

    /// Remembers a variable; if it cannot be computed, its use is an error.
    pub(super) fn assign(&mut self, name: &str, pieces: &[Piece]) {
        let value = if mentions_workers(pieces) {
            self.workers()
        } else {
            self.text(pieces)
        };
        self.own.insert(name.to_owned(), value);
    }

    /// Makes an option of `onload_set` visible to later lines as a variable.
    pub(super) fn remember(&mut self, name: &str, text: &str) {
        self.own.insert(name.to_owned(), Ok(text.to_owned()));
    }

    /// The built-in for every way to ask for the number of nginx workers.
    pub(super) fn define_workers(&mut self) {
        let workers = self.workers();
        self.own.insert("num_workers".to_owned(), workers);
    }

    fn workers(&mut self) -> Known {
        if let Some(text) = (self.environment)("NGINX_NUM_WORKERS") {
            return Ok(text);
        }
        let found = workers::count(self.command);
        self.notes.push(found.note);
        Ok(found.workers.to_string())
    }

    /// The text of a word.
    pub(super) fn text(&mut self, pieces: &[Piece]) -> Known {
        let mut text = String::new();
        for piece in pieces {
            match piece {
                Piece::Text(part) => text.push_str(part),
                Piece::Variable { name, default } => {
                    text.push_str(&self.variable_or(name, default.as_deref())?);
                }
                Piece::Arithmetic(formula) => {
                    let value = arithmetic::value(formula, &|name| self.variable(name))?;
                    text.push_str(&value.to_string());
                }
                Piece::Arguments => text.push_str(&self.command.join(" ")),
                Piece::Command(line) => text.push_str(&command(line)?),
            }
        }
        Ok(text)
    }

    fn variable_or(&mut self, name: &str, default: Option<&[Piece]>) -> Known {
        match (self.variable(name), default) {
            (Ok(text), _) if !text.is_empty() => Ok(text),
            (_, Some(default)) => self.text(default),
            (value, None) if name != "num_workers" => value,
            (Err(_), None) => self.workers(),
            (value, None) => value,
        }
    }

    fn variable(&self, name: &str) -> Known {
        if name.starts_with("EF_") {
            if let Some(text) = (self.environment)(name) {
                return Ok(text);
            }
        }
        match (self.own.get(name), (self.environment)(name)) {
            (Some(known), _) => known.clone(),
            (None, Some(text)) => Ok(text),
            (None, None) => Err(format!("${name} is not set")),
        }
    }
}

/// The only command line whose output is known without running it.
fn command(line: &str) -> Known {
    match line.trim() {
        "nproc" => Ok(workers::cores().to_string()),
        other => Err(format!(
            "the shell command `{}` is not run (write its result)",
            shortened(other)
        )),
    }
}

fn shortened(line: &str) -> String {
    let first = line.lines().next().unwrap_or("");
    first.chars().take(60).collect()
}

/// Scripts around nginx let NGINX_NUM_WORKERS override the number in its configuration.
fn mentions_workers(pieces: &[Piece]) -> bool {
    pieces.iter().any(|piece| match piece {
        Piece::Variable { name, default } => name == "NGINX_NUM_WORKERS" && default.is_some(),
        _ => false,
    })
}
