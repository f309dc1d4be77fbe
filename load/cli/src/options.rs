//! Splits the command line as getopt_long does, without interpreting values.

use crate::measure::Compat;
use crate::refusal::{Mistake, Wrong};
use crate::table::{Entry, Group, Typed, TABLE};

/// Reads arguments as getopt_long does: options anywhere, short ones together, `--name=value`,
/// long names cut short as far as they stay unique.
pub fn parse(arguments: &[String], compat: Compat) -> Result<Typed, Mistake> {
    let mut typed = Typed::default();
    let mut left = arguments.iter();
    while let Some(argument) = left.next() {
        if argument == "--" {
            typed.rest.extend(left.cloned());
            break;
        }
        if let Some(long) = argument.strip_prefix("--") {
            let (name, given) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_string())),
                None => (long, None),
            };
            let entry = by_long(name, compat)?;
            let value = take_value(entry, given, &mut left)?;
            typed.options.push((entry, value));
        } else if argument.len() > 1 && argument.starts_with('-') {
            parse_short(&argument[1..], &mut left, &mut typed)?;
        } else {
            typed.words.push(argument.clone());
        }
    }
    if typed.words.is_empty() && !typed.has("sink") {
        // for getopt_long the words behind it are as any others, the URL among them
        std::mem::swap(&mut typed.words, &mut typed.rest);
    }
    Ok(typed)
}

fn by_long(name: &str, compat: Compat) -> Result<&'static Entry, Mistake> {
    let is_begun = |entry: &&Entry| !name.is_empty() && entry.long.starts_with(name);
    let is_theirs = |entry: &&Entry| matches!(entry.group, Group::Wrk | Group::Wrk2);
    let exact = TABLE.iter().find(|entry| entry.long == name);
    // what is short for an option of wrk or wrk2 there is short for it here, whatever else begins so; under their
    // names even what else is called so
    let comes_first = |entry: &&Entry| compat == Compat::Own || is_theirs(entry);
    if let Some(entry) = exact.filter(comes_first) {
        return Ok(entry);
    }
    let mut theirs = TABLE.iter().filter(is_theirs).filter(is_begun);
    if let (Some(entry), None) = (theirs.next(), theirs.next()) {
        return Ok(entry);
    }
    if let Some(entry) = exact {
        return Ok(entry);
    }
    let mut begun = TABLE.iter().filter(is_begun);
    match (begun.next(), begun.next()) {
        (Some(entry), None) => Ok(entry),
        (Some(one), Some(other)) => {
            Err(Mistake::Ambiguous(name.to_string(), [one.long, other.long]))
        }
        _ => Err(Mistake::NoSuchOption(format!("--{name}"))),
    }
}

fn take_value(
    entry: &Entry,
    given: Option<String>,
    left: &mut std::slice::Iter<String>,
) -> Result<String, Mistake> {
    match (entry.value, given) {
        (None, None) => Ok(String::new()),
        (None, Some(_)) => Err(Mistake::Option(entry.long, Wrong::Needless)),
        (Some(_), Some(value)) => Ok(value),
        (Some(name), None) => left
            .next()
            .cloned()
            .ok_or(Mistake::Option(entry.long, Wrong::Missing(name))),
    }
}

fn parse_short(
    letters: &str,
    left: &mut std::slice::Iter<String>,
    typed: &mut Typed,
) -> Result<(), Mistake> {
    let mut rest = letters.chars();
    while let Some(letter) = rest.next() {
        let entry = TABLE
            .iter()
            .find(|entry| entry.short == Some(letter))
            .ok_or_else(|| Mistake::NoSuchOption(format!("-{letter}")))?;
        if entry.value.is_none() {
            typed.options.push((entry, String::new()));
            continue;
        }
        let given = Some(rest.as_str().to_string()).filter(|value| !value.is_empty());
        let value = take_value(entry, given, left)?;
        typed.options.push((entry, value));
        break;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(line: &str) -> Result<Typed, Mistake> {
        let words: Vec<String> = line.split(' ').map(String::from).collect();
        parse(&words, Compat::Own)
    }

    #[test]
    fn reads_options_in_every_form_and_place() {
        let typed = typed("-t4 http://h/ --dur=5s -LH a --conn 7 -- x -y").expect("correct");
        let options = typed.options.iter();
        let options: Vec<_> = options
            .map(|(entry, text)| (entry.long, text.as_str()))
            .collect();
        let expected = [
            ("threads", "4"),
            ("duration", "5s"),
            ("latency", ""),
            ("header", "a"),
            ("connections", "7"),
        ];
        assert_eq!(options, expected);
        assert_eq!(typed.words, ["http://h/"]);
        assert_eq!(typed.rest, ["x", "-y"]);
    }

    #[test]
    fn the_url_may_stand_behind_the_end_of_the_options() {
        let typed = typed("-t4 -- http://h/ -x").expect("correct");
        assert_eq!(typed.words, ["http://h/", "-x"]);
        assert!(typed.rest.is_empty());
    }

    #[test]
    fn what_is_short_for_an_option_of_wrk_is_that_under_its_name() {
        let words = |line: &str| -> Vec<String> { line.split(' ').map(String::from).collect() };
        let of = |line: &str, compat| {
            let typed = parse(&words(line), compat).expect("correct");
            let options = typed.options.iter();
            let options = options.map(|(entry, value)| format!("{}={value}", entry.long));
            (options.collect::<Vec<_>>().join(" "), typed.words.join(" "))
        };
        let pair = |options: &str, rest: &str| (options.to_string(), rest.to_string());
        for compat in [Compat::Wrk, Compat::Wrk2] {
            assert_eq!(
                of("--late http://h/", compat),
                pair("latency=", "http://h/")
            );
            // whole names of our own stay
            assert_eq!(of("--json f u", compat), pair("json=f", "u"));
        }
        assert_eq!(of("--late drop u", Compat::Own), pair("late=drop", "u"));
    }

    #[test]
    fn mistakes_are_named() {
        let table = [
            ("--nonsense", "--nonsense: unknown option (see --help)"),
            ("-Z", "-Z: unknown option (see --help)"),
            ("-c", "--connections: missing value (N)"),
            ("--latency=1", "--latency: takes no value (remove it)"),
        ];
        for (line, message) in table {
            let mistake = typed(line).expect_err(line);
            assert_eq!(mistake.to_string(), message);
        }
    }
}
