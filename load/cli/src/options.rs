//! Every option once. The parser, `--help`, the shell completions and docs/load-options.md are all
//! made from this table.

/// Where an option comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Options of wrk.
    Wrk,
    /// Options of wrk2.
    Wrk2,
    /// What is sent, and where to.
    Load,
    /// How it is sent.
    Engine,
    /// What is written.
    Output,
}

impl Group {
    /// All groups in the order of the help.
    pub const ALL: [Group; 5] = [
        Group::Wrk,
        Group::Wrk2,
        Group::Load,
        Group::Engine,
        Group::Output,
    ];

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Group::Wrk => "Options of wrk",
            Group::Wrk2 => "Options of wrk2",
            Group::Load => "What is sent",
            Group::Engine => "How it is sent",
            Group::Output => "What is written",
        }
    }
}

/// One option.
#[derive(Debug)]
pub struct Entry {
    /// Long name.
    pub long: &'static str,
    /// Short name, if any.
    pub short: Option<char>,
    /// Name of its value; `None` for a switch.
    pub value: Option<&'static str>,
    /// Default, as shown.
    pub default: &'static str,
    /// Its group.
    pub group: Group,
    /// One line.
    pub text: &'static str,
}

const fn option(
    group: Group,
    long: &'static str,
    short: Option<char>,
    value: Option<&'static str>,
    default: &'static str,
    text: &'static str,
) -> Entry {
    Entry {
        long,
        short,
        value,
        default,
        group,
        text,
    }
}

use Group::{Engine, Load, Output, Wrk, Wrk2};

/// All options.
pub const TABLE: &[Entry] = &[
    option(
        Wrk,
        "connections",
        Some('c'),
        Some("N"),
        "10",
        "connections over all threads; A..B:S goes from A to B in steps of S (see --step)",
    ),
    option(
        Wrk,
        "duration",
        Some('d'),
        Some("TIME"),
        "10s",
        "length of the measured window",
    ),
    option(
        Wrk,
        "threads",
        Some('t'),
        Some("N"),
        "2",
        "threads that send",
    ),
    option(
        Wrk,
        "script",
        Some('s'),
        Some("FILE"),
        "",
        "Lua script as for wrk (setup, init, delay, request, response, done)",
    ),
    option(
        Wrk,
        "header",
        Some('H'),
        Some("FIELD"),
        "",
        "header field for every request, such as 'Accept: text/plain'; may be repeated",
    ),
    option(
        Wrk,
        "latency",
        Some('L'),
        None,
        "",
        "print the distribution of latencies",
    ),
    option(
        Wrk,
        "timeout",
        Some('T'),
        Some("TIME"),
        "2s",
        "longest wait for an answer; then it counts as timed out and the connection is reopened",
    ),
    option(Wrk, "version", Some('v'), None, "", "print the version"),
    option(Wrk, "help", Some('h'), None, "", "print this help"),
    option(
        Wrk2,
        "rate",
        Some('R'),
        Some("N"),
        "",
        "open loop: requests per second over all threads, sent by the clock; A..B ramps from A to \
         B over the window, A..B:S goes in steps of S",
    ),
    option(
        Wrk2,
        "u_latency",
        Some('U'),
        None,
        "",
        "print the spectrum of service times too (implies --latency)",
    ),
    option(
        Wrk2,
        "batch_latency",
        Some('B'),
        None,
        "",
        "with pipelining record only the last answer of a batch",
    ),
    option(
        Load,
        "method",
        Some('X'),
        Some("NAME"),
        "GET",
        "method of the requests",
    ),
    option(
        Load,
        "body",
        None,
        Some("TEXT"),
        "",
        "body of the requests; the method is then POST unless --method says otherwise",
    ),
    option(
        Load,
        "body-file",
        None,
        Some("FILE"),
        "",
        "body of the requests from a file",
    ),
    option(
        Load,
        "urls",
        None,
        Some("FILE"),
        "",
        "URLs or paths, one a line, each after an optional weight; # begins a comment",
    ),
    option(
        Load,
        "depth",
        None,
        Some("N"),
        "1",
        "requests that are sent together on a connection (pipelining)",
    ),
    option(
        Load,
        "arrival",
        None,
        Some("even|poisson"),
        "even",
        "how the requests of an open loop are spread over time",
    ),
    option(
        Load,
        "seed",
        None,
        Some("N"),
        "1",
        "seed of the Poisson arrivals",
    ),
    option(
        Load,
        "late",
        None,
        Some("queue|drop"),
        "queue",
        "what becomes of a due request when no connection is free",
    ),
    option(
        Load,
        "step",
        None,
        Some("TIME"),
        "",
        "length of each step of a ramp; without it the duration is divided among them",
    ),
    option(
        Load,
        "probe",
        None,
        Some("RATE"),
        "",
        "beside the load a few requests per second on connections of their own, reported apart",
    ),
    option(
        Load,
        "probe-connections",
        None,
        Some("N"),
        "2",
        "connections of the probe",
    ),
    option(
        Load,
        "sink",
        None,
        None,
        "",
        "send to a null server inside this program instead of a URL: the headroom of the path",
    ),
    option(
        Engine,
        "warmup",
        None,
        Some("TIME"),
        "0s",
        "load before the window whose figures are thrown away",
    ),
    option(
        Engine,
        "drain",
        None,
        Some("TIME"),
        "the timeout",
        "longest wait for answers after the window of an open loop",
    ),
    option(
        Engine,
        "pin",
        None,
        Some("CORES"),
        "",
        "bind threads to cores, one each, such as 2-5,8; one more core is the probe's",
    ),
    option(
        Engine,
        "start-at",
        None,
        Some("UNIX_SECONDS"),
        "",
        "connect now, send from this moment on, so that several hosts start together",
    ),
    option(
        Engine,
        "source",
        None,
        Some("ADDRESSES"),
        "",
        "source addresses, separated by commas; each has its own 28 thousand ports",
    ),
    option(
        Engine,
        "abort",
        None,
        None,
        "",
        "close connections with RST: leaves nothing in TIME_WAIT, but is another load",
    ),
    option(
        Engine,
        "wait",
        None,
        Some("sleep|hybrid|spin"),
        "hybrid",
        "how a thread waits for the next due time",
    ),
    option(
        Engine,
        "epoll",
        None,
        Some("edge|level"),
        "edge",
        "how readiness is reported; level for stacks that know only that",
    ),
    option(
        Output,
        "json",
        None,
        Some("FILE"),
        "",
        "write everything that was measured as JSON",
    ),
    option(
        Output,
        "csv",
        None,
        Some("FILE"),
        "",
        "write one line a second: rate, latencies, errors",
    ),
    option(
        Output,
        "hlog",
        None,
        Some("FILE"),
        "",
        "write an HdrHistogram log, one histogram a second",
    ),
    option(
        Output,
        "hgrm",
        None,
        Some("FILE"),
        "",
        "write the percentile spectrum for the HdrHistogram plotter",
    ),
    option(
        Output,
        "live",
        None,
        Some("auto|always|never"),
        "auto",
        "show a line every second; auto: if standard error is a terminal",
    ),
    option(
        Output,
        "strict",
        None,
        None,
        "",
        "exit with 1 if there are warnings",
    ),
];

/// What was typed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Typed {
    /// Options by long name, in order.
    pub options: Vec<(&'static str, String)>,
    /// Other words.
    pub words: Vec<String>,
    /// Words after `--`.
    pub rest: Vec<String>,
}

impl Typed {
    /// The last value of an option.
    pub fn last(&self, long: &str) -> Option<&str> {
        self.options
            .iter()
            .rev()
            .find(|(name, _)| *name == long)
            .map(|(_, value)| value.as_str())
    }

    /// All values of an option in order.
    pub fn all<'a>(&'a self, long: &'a str) -> impl Iterator<Item = &'a str> {
        self.options
            .iter()
            .filter(move |(name, _)| *name == long)
            .map(|(_, v)| v.as_str())
    }

    /// Whether an option was given.
    pub fn has(&self, long: &str) -> bool {
        self.last(long).is_some()
    }
}

/// Reads arguments as getopt_long does: options anywhere, short ones together, `--name=value`,
/// long names cut short as far as they stay unique.
pub fn parse(arguments: &[String]) -> Result<Typed, String> {
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
            let entry = by_long(name)?;
            let value = take_value(entry, given, &mut left)?;
            typed.options.push((entry.long, value));
        } else if argument.len() > 1 && argument.starts_with('-') {
            parse_short(&argument[1..], &mut left, &mut typed)?;
        } else {
            typed.words.push(argument.clone());
        }
    }
    Ok(typed)
}

fn by_long(name: &str) -> Result<&'static Entry, String> {
    if let Some(entry) = TABLE.iter().find(|entry| entry.long == name) {
        return Ok(entry);
    }
    let mut begun = TABLE
        .iter()
        .filter(|entry| !name.is_empty() && entry.long.starts_with(name));
    match (begun.next(), begun.next()) {
        (Some(entry), None) => Ok(entry),
        (Some(one), Some(other)) => Err(format!(
            "--{name}: could be --{} or --{}; type more of it",
            one.long, other.long
        )),
        _ => Err(format!("--{name}: no such option; --help lists them")),
    }
}

fn take_value(
    entry: &Entry,
    given: Option<String>,
    left: &mut std::slice::Iter<String>,
) -> Result<String, String> {
    match (entry.value, given) {
        (None, None) => Ok(String::new()),
        (None, Some(_)) => Err(format!("--{}: takes no value", entry.long)),
        (Some(_), Some(value)) => Ok(value),
        (Some(name), None) => left
            .next()
            .cloned()
            .ok_or_else(|| format!("--{}: needs a {name}", entry.long)),
    }
}

fn parse_short(
    letters: &str,
    left: &mut std::slice::Iter<String>,
    typed: &mut Typed,
) -> Result<(), String> {
    let mut rest = letters.chars();
    while let Some(letter) = rest.next() {
        let entry = TABLE
            .iter()
            .find(|entry| entry.short == Some(letter))
            .ok_or_else(|| format!("-{letter}: no such option; --help lists them"))?;
        if entry.value.is_none() {
            typed.options.push((entry.long, String::new()));
            continue;
        }
        let given = Some(rest.as_str().to_string()).filter(|value| !value.is_empty());
        let value = take_value(entry, given, left)?;
        typed.options.push((entry.long, value));
        break;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(line: &str) -> Result<Typed, String> {
        let words: Vec<String> = line.split(' ').map(String::from).collect();
        parse(&words)
    }

    #[test]
    fn reads_options_in_every_form_and_place() {
        let typed = typed("-t4 http://h/ --dur=5s -LH a --conn 7 -- x -y").expect("correct");
        assert_eq!(typed.last("threads"), Some("4"));
        assert_eq!(typed.last("duration"), Some("5s"));
        assert_eq!(typed.last("connections"), Some("7"));
        assert_eq!(typed.last("header"), Some("a"));
        assert!(typed.has("latency"));
        assert_eq!(typed.words, ["http://h/"]);
        assert_eq!(typed.rest, ["x", "-y"]);
    }

    #[test]
    fn mistakes_are_named() {
        let table = [
            (
                "--nonsense",
                "--nonsense: no such option; --help lists them",
            ),
            ("-Z", "-Z: no such option; --help lists them"),
            ("-c", "--connections: needs a N"),
            ("--latency=1", "--latency: takes no value"),
        ];
        for (line, message) in table {
            assert_eq!(typed(line), Err(message.to_string()));
        }
    }

    #[test]
    fn names_and_letters_are_unique() {
        for (index, entry) in TABLE.iter().enumerate() {
            for other in &TABLE[index + 1..] {
                assert_ne!(entry.long, other.long);
                assert!(
                    entry.short.is_none() || entry.short != other.short,
                    "{}",
                    other.long
                );
            }
        }
    }
}
