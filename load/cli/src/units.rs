//! Numbers as wrk reads and writes them.

/// Largest count; a schedule reckons with no higher rate.
const COUNT_MAX: f64 = 1e15;
/// Nanoseconds of a second.
pub const SECOND_NS: f64 = 1e9;

struct Scale {
    base: &'static str,
    step: f64,
    units: &'static [&'static str],
}

const METRIC: Scale = Scale {
    base: "",
    step: 1000.0,
    units: &["k", "M", "G", "T", "P"],
};
const BINARY: Scale = Scale {
    base: "",
    step: 1024.0,
    units: &["K", "M", "G", "T", "P"],
};
const TIME_US: Scale = Scale {
    base: "us",
    step: 1000.0,
    units: &["ms", "s"],
};
const TIME_S: Scale = Scale {
    base: "s",
    step: 60.0,
    units: &["m", "h"],
};

impl Scale {
    /// Divides while the number is at least 0.85 of the next unit. The last unit is never reached:
    /// that is how wrk does it, and scripts parse what it prints.
    fn format(&self, number: f64, decimals: usize) -> String {
        let (mut amount, mut unit) = (number, self.base);
        for pair in self.units.windows(2) {
            if amount < self.step * 0.85 {
                break;
            }
            amount /= self.step;
            unit = pair[0];
        }
        format!("{amount:.decimals$}{unit}")
    }
}

/// `1500` → `1.50k`.
pub fn metric(number: f64) -> String {
    METRIC.format(number, 2)
}

/// Bytes: `2048` → `2.00K`.
pub fn binary(bytes: f64) -> String {
    BINARY.format(bytes, 2)
}

/// Microseconds: `1500` → `1.50ms`.
pub fn time_us(us: f64) -> String {
    if us >= 1_000_000.0 {
        return TIME_S.format(us / 1_000_000.0, 2);
    }
    TIME_US.format(us, 2)
}

/// Whole seconds: `120` → `2m`.
pub fn time_s(seconds: f64) -> String {
    TIME_S.format(seconds, 0)
}

/// Right-aligned in `width`, leaving blanks where a unit of two letters would stand. Cut to it as
/// wrk cuts, unless a mark that wrk does not have stands before it.
pub fn padded(text: &str, width: usize) -> String {
    let letters = text
        .bytes()
        .rev()
        .take(2)
        .filter(u8::is_ascii_alphabetic)
        .count();
    let pad = 2 - letters;
    let room = width - pad;
    let cut = if text.is_ascii() {
        &text[..text.len().min(room)]
    } else {
        text
    };
    format!("{cut:>room$}{:pad$}", "")
}

/// Splits `12.5k` into number and unit in lower case.
fn split(text: &str) -> Option<(f64, String)> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    Some((number, text[end..].trim().to_ascii_lowercase()))
}

/// A count with k, M, G, T or P, such as `10k`.
pub fn parse_metric(text: &str) -> Option<f64> {
    let (number, unit) = split(text)?;
    let exponent = match unit.as_str() {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return None,
    };
    Some(scaled(number, 1000f64.powi(exponent))).filter(|count| *count <= COUNT_MAX)
}

/// A product that is whole but for rounding is: 16.1 x 1000 is a little more than 16100.
fn scaled(number: f64, by: f64) -> f64 {
    let product = number * by;
    let near = product.round();
    let is_near = (product - near).abs() <= near * f64::EPSILON;
    if is_near {
        near
    } else {
        product
    }
}

/// A length of time in nanoseconds; seconds without a unit.
pub fn parse_time_ns(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let unit_ns = match unit.as_str() {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "" | "s" => SECOND_NS,
        "m" => 60.0 * SECOND_NS,
        "h" => 3600.0 * SECOND_NS,
        _ => return None,
    };
    let ns = number * unit_ns;
    (ns < u64::MAX as f64 / 4.0).then_some(ns.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_numbers_as_wrk_does() {
        assert_eq!(metric(849.0), "849.00");
        assert_eq!(metric(850.0), "0.85k");
        assert_eq!(metric(1e15), "1000.00T");
        assert_eq!(binary(1024.0 * 1024.0), "1.00M");
        assert_eq!(time_us(849.0), "849.00us");
        assert_eq!(time_us(850.0), "0.85ms");
        assert_eq!(time_us(999_000.0), "999.00ms");
        assert_eq!(time_us(1_000_000.0), "1.00s");
        assert_eq!(time_us(51_000_000.0), "0.85m");
        assert_eq!(time_s(30.0), "30s");
        assert_eq!(time_s(7200.0), "120m");
    }

    #[test]
    fn pads_by_the_letters_at_the_end() {
        assert_eq!(padded("1.23ms", 8), "  1.23ms");
        assert_eq!(padded("1.23k", 8), "  1.23k ");
        assert_eq!(padded("1.23", 8), "  1.23  ");
    }

    #[test]
    fn reads_what_wrk_reads_and_more() {
        assert_eq!(parse_metric("10K"), Some(10_000.0));
        assert_eq!(parse_metric("1.5M"), Some(1_500_000.0));
        for tenths in 0..10_000 {
            let text = format!("{}.{}k", tenths / 10, tenths % 10);
            assert_eq!(parse_metric(&text), Some(f64::from(tenths * 100)), "{text}");
        }
        assert_eq!(parse_metric("-1"), None);
        assert_eq!(parse_metric("1x"), None);
        assert_eq!(parse_metric("1P"), Some(1e15));
        assert_eq!(parse_metric("1.1P"), None);
        assert_eq!(parse_metric(&"9".repeat(400)), None, "infinite");
        assert_eq!(parse_time_ns("10"), Some(10_000_000_000));
        assert_eq!(parse_time_ns("500ms"), Some(500_000_000));
        assert_eq!(parse_time_ns("1.5s"), Some(1_500_000_000));
        assert_eq!(parse_time_ns("2 M"), Some(120_000_000_000));
        assert_eq!(parse_time_ns("soon"), None);
    }
}
