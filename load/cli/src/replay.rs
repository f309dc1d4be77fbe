//! `--replay FILE`: the requests of an access log at the times at which they came.
//!
//! Lines are those of the common or combined log format, as NGINX and Apache write them, or
//! `SECONDS METHOD PATH`. Bodies are in no log, so that only requests without one can be replayed.

use crate::refusal::{because, wrong, Refusal, Wrong};
use crate::table::Args;
use std::collections::HashMap;
use std::sync::Arc;

const SECOND_NS: u64 = 1_000_000_000;
/// Most requests of a log.
const LINES_MAX: usize = 50_000_000;
/// Methods whose requests have no body.
const METHODS: [&str; 3] = ["GET", "HEAD", "OPTIONS"];
/// A log in seconds has no later times than this: they may be milliseconds.
const SECONDS_MAX: u64 = 10_000_000_000;
/// Longest window: a hundred years.
const LENGTH_MAX_NS: u64 = 100 * 365 * 86_400 * SECOND_NS;
/// The window ends so long after the last request is due.
const END_NS: u64 = 1_000_000;

/// What a log asks, and when.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The different requests: method and path.
    pub requests: Vec<(String, String)>,
    /// Which of them is due, in order.
    pub order: Vec<u32>,
    /// When each is due, from the first one on.
    pub times_ns: Arc<[u64]>,
    /// Lines that were left out.
    pub left_out: usize,
}

/// A line that can be replayed.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    at_ns: u64,
    /// Its time is known to the second alone.
    is_coarse: bool,
    method: &'a str,
    path: &'a str,
}

impl Log {
    /// Reads the log of `--replay`, if there is one.
    pub fn read(args: &Args) -> Result<Option<Log>, Refusal> {
        let Some(path) = &args.replay else {
            return if args.speed.is_some() {
                wrong("speed", Wrong::Needs("--replay"))
            } else {
                Ok(None)
            };
        };
        let without = [
            "rate",
            "duration",
            "warmup",
            "arrival",
            "script",
            "body",
            "body-file",
            "method",
            "data",
            "urls",
            "depth",
            "requests",
            "grpc",
        ];
        if let Some(name) = args.first_of(&without) {
            return wrong(name, Wrong::Clash("--replay".into()));
        }
        let speed = args.speed.map_or(1.0, |speed| speed.0);
        if speed <= 0.0 {
            return wrong("speed", Wrong::Zero);
        }
        let text = std::fs::read(path).map_err(|error| {
            Refusal::option(
                "replay",
                Wrong::Unreadable(path.to_string(), error.to_string()),
            )
        })?;
        let log = Log::parse(&String::from_utf8_lossy(&text), speed);
        if log.order.is_empty() {
            return wrong(
                "replay",
                Wrong::Content(
                    path.to_string(),
                    " has no line with a time and a GET, HEAD or OPTIONS request".to_string(),
                ),
            );
        }
        if log.order.len() > LINES_MAX {
            return wrong(
                "replay",
                Wrong::Content(
                    path.to_string(),
                    format!(" has more than {LINES_MAX} requests"),
                ),
            );
        }
        if log
            .times_ns
            .last()
            .is_some_and(|&last| last > LENGTH_MAX_NS)
        {
            return because("speed", format!("makes {path} last longer than 100 years"));
        }
        Ok(Some(log))
    }

    fn parse(text: &str, speed: f64) -> Log {
        let all = text.lines().filter(|line| !line.trim().is_empty());
        let mut lines: Vec<Line> = all.clone().filter_map(read_line).collect();
        let left_out = all.count() - lines.len();
        // logs are written when requests end
        lines.sort_by_key(|line| line.at_ns);
        let mut log = Log {
            left_out,
            ..Log::default()
        };
        let first_ns = lines.first().map_or(0, |line| line.at_ns);
        let mut numbers: HashMap<(&str, &str), u32> = HashMap::new();
        let mut times_ns = Vec::with_capacity(lines.len());
        for (place, line) in lines.iter().enumerate() {
            let since_ns = spread_ns(&lines, place) - first_ns;
            times_ns.push((since_ns as f64 / speed) as u64);
            let number = numbers.entry((line.method, line.path)).or_insert_with(|| {
                let request = (line.method.to_string(), line.path.to_string());
                log.requests.push(request);
                log.requests.len() as u32 - 1
            });
            log.order.push(*number);
        }
        log.times_ns = times_ns.into();
        log
    }

    /// Length of the window.
    pub fn length_ns(&self) -> u64 {
        self.times_ns.last().map_or(0, |last| last + END_NS)
    }
}

/// The time of a line. Requests whose second alone is known are spread over it.
fn spread_ns(lines: &[Line], place: usize) -> u64 {
    let line = &lines[place];
    if !line.is_coarse {
        return line.at_ns;
    }
    let first = lines.partition_point(|other| other.at_ns < line.at_ns);
    let end = lines.partition_point(|other| other.at_ns <= line.at_ns);
    line.at_ns + SECOND_NS * (place - first) as u64 / (end - first) as u64
}

fn read_line(line: &str) -> Option<Line<'_>> {
    // a path may hold the bracket that a log has before its time
    read_seconds(line).or_else(|| read_logged(line))
}

/// `SECONDS METHOD PATH`.
fn read_seconds(line: &str) -> Option<Line<'_>> {
    let (time, request) = line.trim().split_once(char::is_whitespace)?;
    let is_time = |seconds: &f64| (0.0..SECONDS_MAX as f64).contains(seconds);
    let seconds: f64 = time.parse().ok().filter(is_time)?;
    asked((seconds * 1e9) as u64, false, request)
}

/// A line of the common or combined log format.
fn read_logged(line: &str) -> Option<Line<'_>> {
    let (_, rest) = line.split_once('[')?;
    let (time, rest) = rest.split_once(']')?;
    let request = rest.split('"').nth(1)?;
    let seconds = log_time_s(time).filter(|seconds| *seconds < SECONDS_MAX)?;
    asked(SECOND_NS * seconds, true, request)
}

/// A request that can be replayed.
fn asked(at_ns: u64, is_coarse: bool, request: &str) -> Option<Line<'_>> {
    let mut words = request.split_ascii_whitespace();
    let (method, path) = (words.next()?, words.next()?);
    let is_request = METHODS.contains(&method) && path.starts_with('/');
    is_request.then_some(Line {
        at_ns,
        is_coarse,
        method,
        path,
    })
}

/// `10/Oct/2000:13:55:36 -0700` in seconds since 1970.
fn log_time_s(text: &str) -> Option<u64> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let (clock, zone) = text.split_once(' ').unwrap_or((text, "+0000"));
    let mut parts = clock.split(['/', ':']);
    let mut next = || parts.next();
    let day: i64 = next()?.parse().ok().filter(|day| (1..=31).contains(day))?;
    let name = next().filter(|name| name.len() == 3)?;
    let place = MONTHS.find(name).filter(|place| place % 3 == 0)?;
    let month = place as i64 / 3 + 1;
    // a year has four digits at most, so that the sum in seconds does not overflow
    let mut figure = || {
        next()?
            .parse::<i64>()
            .ok()
            .filter(|figure| (0..=9999).contains(figure))
    };
    let (year, hour, minute, second) = (figure()?, figure()?, figure()?, figure()?);
    let (hours, minutes) = (zone.get(1..3)?, zone.get(3..5)?);
    let offset_s = hours.parse::<i64>().ok()? * 3600 + minutes.parse::<i64>().ok()? * 60;
    let offset_s = if zone.starts_with('-') {
        -offset_s
    } else {
        offset_s
    };
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset_s;
    u64::try_from(seconds).ok()
}

/// Days from 1970-01-01 to a date of the Gregorian calendar: years begin in March, so that the leap day
/// is the last of them.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let leaps = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leaps + (153 * month + 2) / 5 + day - 719_469
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_logs_are_those_of_the_calendar() {
        assert_eq!(log_time_s("01/Jan/1970:00:00:00 +0000"), Some(0));
        assert_eq!(log_time_s("10/Oct/2000:13:55:36 -0700"), Some(971_211_336));
        assert_eq!(
            log_time_s("29/Feb/2024:23:59:59 +0130"),
            Some(1_709_245_799)
        );
        assert_eq!(log_time_s("29/Fro/2024:23:59:59 +0000"), None);
    }

    #[test]
    fn lines_of_a_second_are_spread_over_it_and_others_left_out() {
        let text = concat!(
            "h - - [10/Oct/2000:13:55:36 -0700] \"GET /a HTTP/1.0\" 200 23 \"-\" \"x\"\n",
            "h - - [10/Oct/2000:13:55:37 -0700] \"GET /b?c=d HTTP/1.1\" 200 23\n",
            "h - - [10/Oct/2000:13:55:36 -0700] \"HEAD /a HTTP/1.1\" 200 0\n",
            "h - - [10/Oct/2000:13:55:37 -0700] \"POST /a HTTP/1.1\" 200 0\n",
            "h - - [10/Oct/2000:13:55:37 -0700] \"\\x16\\x03\" 400 0\n",
            "\n",
            "h - - [10/Oct/2000:13:55:38 -0700] \"GET /a HTTP/1.1\" 200 0\n",
        );
        let log = Log::parse(text, 2.0);
        let request = |method: &str, path: &str| (method.to_string(), path.to_string());
        let expected = [
            request("GET", "/a"),
            request("HEAD", "/a"),
            request("GET", "/b?c=d"),
        ];
        assert_eq!(log.requests, expected);
        assert_eq!(log.order, [0, 1, 2, 0]);
        let ms = |time: u64| time * 1_000_000;
        assert_eq!(log.times_ns[..], [0, 250, 500, 1000].map(ms));
        assert_eq!((log.left_out, log.length_ns()), (2, ms(1001)));
    }

    #[test]
    fn times_too_large_for_a_log_are_left_out() {
        let log = Log::parse(
            concat!(
                "7 GET /a\n1700000000000 GET /b\ninf GET /c\nnan GET /d\n-1 GET /e\n8 GET /f\n",
                "h - - [10/Oct/99999999999999999:13:55:36 -0700] \"GET /g HTTP/1.0\" 200 23\n",
                "h - - [10/Oct/9999:13:55:36 -0700] \"GET /h HTTP/1.0\" 200 23\n",
            ),
            1.0,
        );
        assert_eq!(log.times_ns[..], [0, SECOND_NS]);
        assert_eq!(log.left_out, 6);
    }

    #[test]
    fn paths_may_hold_brackets() {
        let log = Log::parse(
            concat!(
                "0 GET /a?id[]=1\n1 GET /b?c=[d]\n",
                "h - - [01/Jan/1970:00:00:02 +0000] \"GET /e?f[]=g HTTP/1.1\" 200 0\n",
            ),
            1.0,
        );
        let paths: Vec<&str> = log.requests.iter().map(|one| &one.1[..]).collect();
        assert_eq!(paths, ["/a?id[]=1", "/b?c=[d]", "/e?f[]=g"]);
    }

    #[test]
    fn lines_of_times_and_requests_keep_their_fractions() {
        let log = Log::parse("7.5 GET /x\n7 GET /y HTTP/1.1\n", 1.0);
        assert_eq!(log.times_ns[..], [0, SECOND_NS / 2]);
        assert_eq!(log.order.len(), 2);
        assert_eq!(log.requests[0].1, "/y");
    }
}
