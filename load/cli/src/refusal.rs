//! Reasons why a run cannot start, each with its one-line message.

use std::borrow::Cow;
use std::fmt::{self, Display};

/// Why a run cannot be made.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Something typed is wrong.
    Usage(Mistake),
    /// The input is valid, but a file or a server is missing, or the run has failed.
    Absent(Failure),
}

/// Bad input.
#[derive(Debug, PartialEq, Eq)]
pub enum Mistake {
    /// An option, and what is wrong with it.
    Option(&'static str, Wrong),
    /// A command such as `merge`, and what is wrong with its words.
    Command(&'static str, Wrong),
    /// An option that does not exist, as typed.
    NoSuchOption(String),
    /// An argument that is not UTF-8, as far as it can be shown.
    NotUtf8(String),
    /// The beginning of two options.
    Ambiguous(String, [&'static str; 2]),
    /// An invalid URL.
    NoUrl(String),
    /// A valid URL, and why this run cannot have it.
    Url(String, Cow<'static, str>),
    /// The command line has no URL.
    UrlMissing,
    /// Fewer connections than threads, in the words of wrk.
    TooFewConnections,
    /// wrk2 without a rate, in its words.
    RateMissing,
    /// More servers than a run can have.
    TooManyTargets,
    /// An option that the kernel refused for a socket, as the engine says it.
    Tried(String),
}

/// What is wrong with the value of an option.
#[derive(Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It has none; the name of the value.
    Missing(&'static str),
    /// It takes none.
    Needless,
    /// The text is not of its kind (which may be left out), with an example.
    Invalid(&'static str, String, &'static str),
    /// The text is none of the words.
    Unknown(String, Vec<&'static str>),
    /// It lies outside of this range.
    OutOfRange(Cow<'static, str>),
    /// It must be greater than 0.
    Zero,
    /// A file cannot be read.
    Unreadable(String, String),
    /// A file cannot be written.
    Unwritable(String, String),
    /// A file can be read, but it does not hold what it should; what follows its name.
    Content(String, String),
    /// It does not work with this, and perhaps what to do instead.
    Clash(Cow<'static, str>),
    /// It is for this only.
    OnlyFor(&'static str),
    /// It needs this.
    Needs(&'static str),
    /// Another reason.
    Because(Cow<'static, str>),
}

/// A run that could not be made, or failed.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// A name that leads nowhere: host, service, why.
    Unresolved(String, String, String),
    /// A server that takes no connection: host, service, why.
    Unreachable(String, String, String),
    /// No connection could be opened: attempts, why.
    NothingOpened(u64, String),
    /// A condition of `--stop-when` was met.
    Stopped(String),
    /// An option whose file or address cannot be used.
    Option(&'static str, Wrong),
    /// A command that cannot be carried out.
    Command(&'static str, String),
    /// A socket of any kind cannot be opened.
    NoSocket(String),
    /// The engine or a script has failed.
    Run(String),
}

impl Refusal {
    /// A mistake in an option.
    pub fn option(name: &'static str, wrong: Wrong) -> Refusal {
        Refusal::Usage(Mistake::Option(name, wrong))
    }
}

/// A refusal of an option.
pub fn wrong<T>(name: &'static str, wrong: Wrong) -> Result<T, Refusal> {
    Err(Refusal::option(name, wrong))
}

/// A refusal of an option for a reason of its own.
pub fn because<T>(name: &'static str, why: impl Into<Cow<'static, str>>) -> Result<T, Refusal> {
    wrong(name, Wrong::Because(why.into()))
}

/// A refusal of the command line.
pub fn usage<T>(mistake: Mistake) -> Result<T, Refusal> {
    Err(Refusal::Usage(mistake))
}

impl Mistake {
    /// What to do about a mistake in wrk's words, which give no advice.
    fn hint(&self) -> String {
        let Mistake::NoUrl(text) = self else {
            return String::new();
        };
        match text.split_once("://") {
            None => format!(" (did you mean http://{text}?)"),
            Some(("http" | "https" | "ws" | "wss", _)) => {
                " (for example http://127.0.0.1:8080/path)".into()
            }
            Some(("unix", _)) => " (for example unix:///run/app.sock:/path)".into(),
            Some((scheme @ ("tcp" | "udp"), _)) => {
                format!(" (a host and a port: {scheme}://127.0.0.1:7)")
            }
            Some(_) => " (known schemes: http, https, ws, wss, unix, tcp, udp)".into(),
        }
    }

    /// The line with the advice that wrk's words lack.
    pub fn with_hint(&self) -> String {
        format!("{self}{}", self.hint())
    }
}

impl Display for Mistake {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Mistake::Option(name, wrong) => write!(to, "--{name}: {wrong}"),
            Mistake::Command(name, wrong) => write!(to, "{name}: {wrong}"),
            Mistake::NoSuchOption(typed) => write!(to, "{typed}: unknown option (see --help)"),
            Mistake::NotUtf8(shown) => {
                write!(
                    to,
                    "{shown}: not UTF-8 (other bytes can be sent with --body-file)"
                )
            }
            Mistake::Ambiguous(typed, [one, other]) => {
                write!(to, "--{typed}: ambiguous option (--{one} or --{other}?)")
            }
            Mistake::NoUrl(word) => write!(to, "invalid URL: {word}"),
            Mistake::Url(url, why) => write!(to, "{url}: {why}"),
            Mistake::UrlMissing => to.write_str("a URL is missing, such as http://127.0.0.1:8080/"),
            Mistake::TooFewConnections => to.write_str("number of connections must be >= threads"),
            Mistake::RateMissing => {
                to.write_str("Throughput MUST be specified with the --rate or -R option")
            }
            Mistake::TooManyTargets => to.write_str("there are more than 65535 targets"),
            Mistake::Tried(text) => to.write_str(text),
        }
    }
}

impl Display for Wrong {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Wrong::Missing(value) => write!(to, "missing value ({value})"),
            Wrong::Needless => to.write_str("takes no value (remove it)"),
            Wrong::Invalid("", text, example) => write!(to, "invalid '{text}' ({example})"),
            Wrong::Invalid(kind, text, "") => write!(to, "invalid {kind} '{text}'"),
            Wrong::Invalid(kind, text, example) => {
                write!(to, "invalid {kind} '{text}' ({example})")
            }
            Wrong::Unknown(text, known) => {
                write!(to, "unknown value '{text}' ({})", known.join(", "))
            }
            Wrong::OutOfRange(range) => write!(to, "out of range ({range})"),
            Wrong::Zero => to.write_str("must be greater than 0"),
            Wrong::Unreadable(path, why) => write!(to, "cannot read {path}: {why}"),
            Wrong::Unwritable(path, why) => write!(to, "cannot write {path}: {why}"),
            Wrong::Content(path, why) => write!(to, "{path}{why}"),
            Wrong::Clash(with) => write!(to, "does not work with {with}"),
            Wrong::OnlyFor(what) => write!(to, "is for {what}"),
            Wrong::Needs(what) => write!(to, "needs {what}"),
            Wrong::Because(why) => to.write_str(why),
        }
    }
}

impl Display for Failure {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Failure::Unresolved(host, service, why) => {
                write!(to, "unable to resolve {host}:{service} {why}")
            }
            Failure::Unreachable(host, service, why) => {
                write!(to, "unable to connect to {host}:{service} {why}")
            }
            Failure::NothingOpened(tried, why) => {
                write!(to, "none of {tried} attempts to connect succeeded: {why}")
            }
            Failure::Stopped(condition) => write!(to, "ended early: {condition} (--stop-when)"),
            Failure::Option(name, wrong) => write!(to, "--{name}: {wrong}"),
            Failure::Command(name, why) => write!(to, "{name}: {why}"),
            Failure::NoSocket(why) => write!(to, "cannot open a socket: {why}"),
            Failure::Run(why) => to.write_str(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mistake_is_one_line_that_names_what_is_wrong() {
        let option = |wrong| Mistake::Option("x", wrong).to_string();
        let text = |text: &str| text.to_string();
        let table = [
            (option(Wrong::Zero), "--x: must be greater than 0"),
            (
                option(Wrong::Invalid("time", text("soon"), "for example 30s")),
                "--x: invalid time 'soon' (for example 30s)",
            ),
            (
                option(Wrong::Invalid("", text("a"), "such as b")),
                "--x: invalid 'a' (such as b)",
            ),
            (
                option(Wrong::Invalid("address", text("a"), "")),
                "--x: invalid address 'a'",
            ),
            (
                option(Wrong::Unknown(text("a"), vec!["b", "c"])),
                "--x: unknown value 'a' (b, c)",
            ),
            (
                Mistake::NoUrl(text("h:80")).with_hint(),
                "invalid URL: h:80 (did you mean http://h:80?)",
            ),
            (
                Failure::NothingOpened(3, text("refused")).to_string(),
                "none of 3 attempts to connect succeeded: refused",
            ),
        ];
        for (line, expected) in table {
            assert_eq!(line, expected);
        }
    }
}
