//! `-R @FILE`: a rate that changes over the run, from a file of points.

use crate::refusal::{wrong, Refusal, Wrong};
use crate::units::{parse_metric, parse_time_ns};
use load_engine::schedule::Stretch;

/// Most points of a curve.
const POINTS_MAX: usize = 100_000;

/// A moment of the window and its rate.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    at_ns: u64,
    rps: f64,
}

/// Reads a curve: between two points the rate changes linearly, two at one moment are a jump.
pub fn read(path: &str) -> Result<Vec<Stretch>, Refusal> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Refusal::option(
            "rate",
            Wrong::Unreadable(path.to_string(), error.to_string()),
        )
    })?;
    parse(&text).or_else(|why| wrong("rate", Wrong::Content(path.to_string(), format!(", {why}"))))
}

fn parse(text: &str) -> Result<Vec<Stretch>, String> {
    let mut points: Vec<Point> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let fault = |what: &str| format!("line {}: {what}: {line}", number + 1);
        let point = point(line).ok_or_else(|| fault("not a time and a rate, such as 10s 5k"))?;
        let before = points.last().map_or(0, |last| last.at_ns);
        if points.is_empty() && point.at_ns > 0 {
            return Err(fault("the first point is not at 0s"));
        }
        if point.at_ns < before {
            return Err(fault("earlier than the point before it"));
        }
        if points.len() == POINTS_MAX {
            return Err(fault("more than 100000 points"));
        }
        points.push(point);
    }
    let pairs = points.windows(2).map(|pair| Stretch {
        length_ns: pair[1].at_ns - pair[0].at_ns,
        from_rps: pair[0].rps,
        to_rps: pair[1].rps,
    });
    let stretches: Vec<Stretch> = pairs.filter(|stretch| stretch.length_ns > 0).collect();
    let has_load = |stretch: &Stretch| stretch.from_rps > 0.0 || stretch.to_rps > 0.0;
    if !stretches.iter().any(has_load) {
        return Err("no stretch of time with a rate above 0 (at least two points)".to_string());
    }
    Ok(stretches)
}

fn point(line: &str) -> Option<Point> {
    let (at, rate) = line.split_once(char::is_whitespace)?;
    Some(Point {
        at_ns: parse_time_ns(at)?,
        rps: parse_metric(rate.trim())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_joined_and_two_at_one_moment_are_a_jump() {
        let text = "# morning\n0 100\n10s 1k # noon\n10s 0\n\n12s 0\n";
        let stretch = |length_ns: u64, from_rps, to_rps| Stretch {
            length_ns: length_ns * 1_000_000_000,
            from_rps,
            to_rps,
        };
        let expected = vec![stretch(10, 100.0, 1000.0), stretch(2, 0.0, 0.0)];
        assert_eq!(parse(text), Ok(expected));
    }

    #[test]
    fn faults_have_their_line() {
        for (text, why) in [
            (
                "0s 5\nsoon 7\n",
                "line 2: not a time and a rate, such as 10s 5k: soon 7",
            ),
            ("1s 5\n2s 7\n", "line 1: the first point is not at 0s: 1s 5"),
            (
                "0s 5\n3s 7\n2s 7\n",
                "line 3: earlier than the point before it: 2s 7",
            ),
            (
                "0s 5\n",
                "no stretch of time with a rate above 0 (at least two points)",
            ),
            (
                "0s 0\n9s 0\n",
                "no stretch of time with a rate above 0 (at least two points)",
            ),
        ] {
            assert_eq!(parse(text), Err(why.to_string()));
        }
    }
}
