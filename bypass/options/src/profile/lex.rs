//! Splits a line of a profile into words as a shell does, without executing anything.

/// A part of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// Letters as they are.
    Text(String),
    /// `$NAME`, `${NAME}` or `${NAME:-default}`.
    Variable {
        name: String,
        default: Option<Vec<Piece>>,
    },
    /// `$(( … ))`.
    Arithmetic(String),
    /// `$( … )` or back quotes: a command line, which is never run.
    Command(String),
    /// `$@` or `$*`: the words of the program's command line.
    Arguments,
}

/// A word, or one of the shell's operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Word {
    /// The pieces that make it up.
    Plain(Vec<Piece>),
    /// `| & < > ( )`, one letter each.
    Operator(char),
    /// `;`, or the end of a line in a text of several.
    End,
}

/// Why a text cannot be split into words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Broken {
    /// A quote or bracket is still open: the next line belongs to it.
    Unfinished(&'static str),
    /// A form that profiles do not support.
    Wrong(String),
}

/// Nested expansions in one word; far more than profiles use, little enough for the stack.
const DEPTH_MAX: usize = 16;

struct Cursor<'a> {
    letters: std::iter::Peekable<std::str::Chars<'a>>,
}

/// Every word of a text of one or more lines.
pub(super) fn words(text: &str) -> Result<Vec<Word>, Broken> {
    let mut cursor = Cursor {
        letters: text.chars().peekable(),
    };
    let mut words = Vec::new();
    while let Some(letter) = cursor.letters.peek().copied() {
        match letter {
            '\n' | ';' => {
                cursor.letters.next();
                words.push(Word::End);
            }
            '#' => while cursor.letters.next_if(|letter| *letter != '\n').is_some() {},
            '|' | '&' | '<' | '>' | '(' | ')' => {
                cursor.letters.next();
                words.push(Word::Operator(letter));
            }
            '\\' if cursor.continues() => {
                cursor.letters.next();
                cursor.letters.next();
            }
            _ if letter.is_whitespace() => {
                cursor.letters.next();
            }
            _ => words.push(Word::Plain(cursor.word()?)),
        }
    }
    Ok(words)
}

impl Cursor<'_> {
    /// A backslash before the end of a line: both are removed.
    fn continues(&self) -> bool {
        self.letters.clone().nth(1) == Some('\n')
    }

    fn word(&mut self) -> Result<Vec<Piece>, Broken> {
        let mut pieces = Vec::new();
        while let Some(letter) = self.letters.peek().copied() {
            match letter {
                '\n' | ';' | '|' | '&' | '<' | '>' | '(' | ')' => break,
                _ if letter.is_whitespace() => break,
                '\'' => self.single_quoted(&mut pieces)?,
                '"' => self.double_quoted(&mut pieces)?,
                _ => self.piece(&mut pieces, 0)?,
            }
        }
        Ok(pieces)
    }

    fn single_quoted(&mut self, pieces: &mut Vec<Piece>) -> Result<(), Broken> {
        self.letters.next();
        let mut text = String::new();
        for letter in self.letters.by_ref() {
            if letter == '\'' {
                pieces.push(Piece::Text(text));
                return Ok(());
            }
            text.push(letter);
        }
        Err(Broken::Unfinished("a ' is not closed"))
    }

    fn double_quoted(&mut self, pieces: &mut Vec<Piece>) -> Result<(), Broken> {
        self.letters.next();
        pieces.push(Piece::Text(String::new()));
        loop {
            match self.letters.peek().copied() {
                None => return Err(Broken::Unfinished("a \" is not closed")),
                Some('"') => {
                    self.letters.next();
                    return Ok(());
                }
                Some('\\') => self.escape_in_quotes(pieces),
                Some(_) => self.piece(pieces, 0)?,
            }
        }
    }

    /// Inside double quotes a backslash protects only letters that are special there.
    fn escape_in_quotes(&mut self, pieces: &mut Vec<Piece>) {
        self.letters.next();
        match self.letters.next() {
            Some('\n') | None => {}
            Some(letter @ ('"' | '\\' | '$' | '`')) => push(pieces, letter),
            Some(letter) => {
                push(pieces, '\\');
                push(pieces, letter);
            }
        }
    }

    fn piece(&mut self, pieces: &mut Vec<Piece>, depth: usize) -> Result<(), Broken> {
        match self.letters.next() {
            Some('$') => {
                let piece = self.dollar(depth)?;
                pieces.push(piece);
            }
            Some('`') => {
                let command = self.until('`')?;
                pieces.push(Piece::Command(command));
            }
            Some('\\') => {
                if let Some(letter) = self.letters.next().filter(|letter| *letter != '\n') {
                    push(pieces, letter);
                }
            }
            Some(letter) => push(pieces, letter),
            None => {}
        }
        Ok(())
    }

    fn dollar(&mut self, depth: usize) -> Result<Piece, Broken> {
        if depth > DEPTH_MAX {
            return Err(Broken::Wrong("expansions are nested too deeply".to_owned()));
        }
        match self.letters.peek().copied() {
            Some('{') => {
                self.letters.next();
                self.braces(depth)
            }
            Some('(') => {
                self.letters.next();
                self.brackets()
            }
            Some('@' | '*') => {
                self.letters.next();
                Ok(Piece::Arguments)
            }
            Some(letter) if is_name(letter) => Ok(Piece::Variable {
                name: self.name(),
                default: None,
            }),
            _ => Ok(Piece::Text("$".to_owned())),
        }
    }

    fn braces(&mut self, depth: usize) -> Result<Piece, Broken> {
        let name = self.name();
        match self.letters.next() {
            Some('}') if !name.is_empty() => Ok(Piece::Variable {
                name,
                default: None,
            }),
            Some(':') if self.letters.next_if_eq(&'-').is_some() => {
                let default = Some(self.default(depth)?);
                Ok(Piece::Variable { name, default })
            }
            Some('-') => {
                let default = Some(self.default(depth)?);
                Ok(Piece::Variable { name, default })
            }
            None => Err(Broken::Unfinished("a ${ is not closed")),
            _ => Err(Broken::Wrong(format!(
                "${{{name}…}}: unsupported expansion (only ${{NAME}} and ${{NAME:-default}})"
            ))),
        }
    }

    fn default(&mut self, depth: usize) -> Result<Vec<Piece>, Broken> {
        let mut pieces = Vec::new();
        loop {
            match self.letters.peek() {
                None => return Err(Broken::Unfinished("a ${ is not closed")),
                Some('}') => {
                    self.letters.next();
                    return Ok(pieces);
                }
                Some('\'') => self.single_quoted(&mut pieces)?,
                Some(_) => self.piece(&mut pieces, depth + 1)?,
            }
        }
    }

    /// After `$(`: arithmetic when a second bracket follows, else a command line.
    fn brackets(&mut self) -> Result<Piece, Broken> {
        let inner = self.balanced()?;
        match inner
            .strip_prefix('(')
            .and_then(|rest| rest.strip_suffix(')'))
        {
            Some(formula) => Ok(Piece::Arithmetic(formula.to_owned())),
            None => Ok(Piece::Command(inner)),
        }
    }

    fn balanced(&mut self) -> Result<String, Broken> {
        let (mut inner, mut open, mut quote) = (String::new(), 1, None);
        for letter in self.letters.by_ref() {
            match (quote, letter) {
                (Some(mark), _) if letter == mark => quote = None,
                (Some(_), _) => {}
                (None, '\'') => quote = Some('\''),
                (None, '(') => open += 1,
                (None, ')') => open -= 1,
                (None, _) => {}
            }
            if open == 0 {
                return Ok(inner);
            }
            inner.push(letter);
        }
        Err(Broken::Unfinished("a $( is not closed"))
    }

    fn until(&mut self, end: char) -> Result<String, Broken> {
        let mut inner = String::new();
        for letter in self.letters.by_ref() {
            if letter == end {
                return Ok(inner);
            }
            inner.push(letter);
        }
        Err(Broken::Unfinished("a ` is not closed"))
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(letter) = self.letters.next_if(|letter| is_name(*letter)) {
            name.push(letter);
        }
        name
    }
}

fn is_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Adds a letter to the text at the end, so that one run of letters is one piece.
fn push(pieces: &mut Vec<Piece>, letter: char) {
    if let Some(Piece::Text(text)) = pieces.last_mut() {
        text.push(letter);
    } else {
        pieces.push(Piece::Text(letter.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Word {
        Word::Plain(vec![Piece::Text(text.to_owned())])
    }

    #[test]
    fn quotes_and_comments_are_the_shells() {
        let words = words("onload_set EF_X 'any=rss:active' 12 #why\n").expect("valid");
        let expected = [
            plain("onload_set"),
            plain("EF_X"),
            plain("any=rss:active"),
            plain("12"),
            Word::End,
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn a_hash_inside_a_word_does_not_start_a_comment() {
        assert_eq!(words("a#b"), Ok(vec![plain("a#b")]));
    }

    #[test]
    fn variables_defaults_arithmetic_and_commands_are_distinguished() {
        let word = |text| match words(text).expect("valid").remove(0) {
            Word::Plain(mut pieces) => pieces.remove(0),
            other => panic!("{other:?}"),
        };
        let variable = Piece::Variable {
            name: "A".to_owned(),
            default: None,
        };
        assert_eq!(word("$A"), variable);
        assert_eq!(word("${A}"), variable);
        let default = Some(vec![Piece::Text("4".to_owned())]);
        assert_eq!(
            word("${A:-4}"),
            Piece::Variable {
                name: "A".to_owned(),
                default
            }
        );
        assert_eq!(word("$(( 2*$A ))"), Piece::Arithmetic(" 2*$A ".to_owned()));
        assert_eq!(word("$(nproc)"), Piece::Command("nproc".to_owned()));
        assert_eq!(word("`nproc`"), Piece::Command("nproc".to_owned()));
        assert_eq!(word("$@"), Piece::Arguments);
    }

    #[test]
    fn an_open_quote_asks_for_the_next_line() {
        assert_eq!(words("a='b"), Err(Broken::Unfinished("a ' is not closed")));
        assert_eq!(
            words("a=\"b"),
            Err(Broken::Unfinished("a \" is not closed"))
        );
        assert_eq!(
            words("a=$(b"),
            Err(Broken::Unfinished("a $( is not closed"))
        );
    }

    #[test]
    fn deep_nesting_is_refused_before_it_costs_the_stack() {
        let text = format!("{}x{}", "${a:-".repeat(10_000), "}".repeat(10_000));
        assert!(matches!(words(&text), Err(Broken::Wrong(_))));
    }
}
