//! `--data FILE`: a table (CSV, RFC 4180) whose rows fill `{column}` in path, header fields and body.

use crate::refusal::{wrong, Refusal, Wrong};

/// The rows of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Reads the file.
    pub fn read(path: &str) -> Result<Table, Refusal> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Refusal::option(
                "data",
                Wrong::Unreadable(path.to_string(), error.to_string()),
            )
        })?;
        Table::parse(&text)
            .or_else(|why| wrong("data", Wrong::Content(path.to_string(), format!(", {why}"))))
    }

    fn parse(text: &str) -> Result<Table, String> {
        let mut records = records(text)?.into_iter();
        let Some((_, columns)) = records.next() else {
            return Err("it is empty (the first line names the columns)".to_string());
        };
        let mut rows = Vec::new();
        for (line, row) in records {
            if row.len() != columns.len() {
                let (has, wanted) = (row.len(), columns.len());
                return Err(format!(
                    "line {line}: {has} fields, the first line has {wanted}"
                ));
            }
            rows.push(row);
        }
        if rows.is_empty() {
            return Err("it has no rows below the names of the columns".to_string());
        }
        Ok(Table { columns, rows })
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether a text has a place for one of the columns.
    pub fn is_used_in(&self, text: &str) -> bool {
        self.columns
            .iter()
            .any(|column| text.contains(&format!("{{{column}}}")))
    }

    /// A text with the values of a row in their places; `change` makes them fit there.
    pub fn fill(&self, text: &str, row: usize, change: impl Fn(&str) -> String) -> String {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            filled.push_str(&rest[..at]);
            rest = &rest[at..];
            let place = rest.find('}').and_then(|end| {
                let column = self.columns.iter().position(|name| *name == rest[1..end])?;
                Some((column, end + 1))
            });
            match place {
                Some((column, end)) => {
                    filled.push_str(&change(&self.rows[row][column]));
                    rest = &rest[end..];
                }
                // a brace of the text's own
                None => {
                    filled.push('{');
                    rest = &rest[1..];
                }
            }
        }
        filled + rest
    }
}

/// A value as a part of a path or query (RFC 3986, 2.3).
pub fn percent_encoded(value: &str) -> String {
    let mut encoded = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// The records of a file with the lines on which they begin.
fn records(text: &str) -> Result<Vec<(usize, Vec<String>)>, String> {
    let mut all = Vec::new();
    let (mut rest, mut line) = (text.strip_prefix('\u{feff}').unwrap_or(text), 1);
    while !rest.is_empty() {
        let start = line;
        let mut fields = Vec::new();
        loop {
            let (field, used) = field(rest).ok_or(format!("line {start}: a quote has no end"))?;
            line += rest[..used].matches('\n').count();
            rest = &rest[used..];
            fields.push(field);
            if let Some(more) = rest.strip_prefix(',') {
                rest = more;
                continue;
            }
            let ended = rest.strip_prefix("\r\n").or(rest.strip_prefix('\n'));
            if ended.is_none() && !rest.is_empty() {
                return Err(format!("line {line}: text behind a quoted field"));
            }
            rest = ended.unwrap_or_default();
            line += 1;
            break;
        }
        // an empty line is none
        if fields.len() > 1 || !fields[0].is_empty() {
            all.push((start, fields));
        }
    }
    Ok(all)
}

/// The first field of a text and how long it is there; nothing if its quote has no end.
fn field(text: &str) -> Option<(String, usize)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', '\n']).unwrap_or(text.len());
        let end = if text[..end].ends_with('\r') {
            end - 1
        } else {
            end
        };
        return Some((text[..end].to_string(), end));
    };
    let mut at = 0;
    loop {
        at += quoted[at..].find('"')?;
        if !quoted[at + 1..].starts_with('"') {
            return Some((quoted[..at].replace("\"\"", "\""), at + 2));
        }
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_commas_and_line_ends_are_read_as_the_rfc_has_them() {
        let text = "user,note\r\nann,\"a, \"\"b\"\"\nc\"\r\n\r\nbob,\r\n";
        let table = Table::parse(text).expect("well formed");
        let rows: Vec<Vec<&str>> = table
            .rows
            .iter()
            .map(|row| row.iter().map(String::as_str).collect())
            .collect();
        assert_eq!(rows, [["ann", "a, \"b\"\nc"], ["bob", ""]]);
    }

    #[test]
    fn places_are_filled_and_other_braces_stay() {
        let table = Table::parse("user,id\nann b,7\n").expect("well formed");
        let own = |value: &str| value.to_string();
        let text = r#"{"user":"{user}","id":{id},"x":{other}}"#;
        let filled = r#"{"user":"ann b","id":7,"x":{other}}"#;
        assert_eq!(table.fill(text, 0, own), filled);
        assert_eq!(table.fill("/u/{user}?", 0, percent_encoded), "/u/ann%20b?");
        assert!(table.is_used_in("/{id}") && !table.is_used_in("/{ids}{}"));
    }

    #[test]
    fn faults_have_their_line() {
        for (text, why) in [
            ("", "it is empty (the first line names the columns)"),
            ("a,b\n", "it has no rows below the names of the columns"),
            ("a,b\n1,2\n3\n", "line 3: 1 fields, the first line has 2"),
            ("a,b\n\"1,2\n", "line 2: a quote has no end"),
            ("a,b\n\"1\"x,2\n", "line 2: text behind a quoted field"),
        ] {
            assert_eq!(Table::parse(text), Err(why.to_string()));
        }
    }
}
