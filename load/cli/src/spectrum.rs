//! The percentile spectrum in the layout that wrk2 and the HdrHistogram tools print and plot.

use crate::figures::quantile;
use crate::units::padded;
use load_engine::latency::Latency;
use std::fmt::Write;

/// Points per halving of the distance to 100 %.
const TICKS_PER_HALF: u32 = 5;

/// wrk2's whole block: eight percentiles, then the spectrum.
pub fn block(title: &str, latency: &Latency) -> String {
    let mut text = format!("  Latency Distribution ({title})\n");
    for percent in [50.0, 75.0, 90.0, 99.0, 99.9, 99.99, 99.999, 100.0] {
        let value = padded(&quantile(latency, percent / 100.0), 10);
        let _ = writeln!(text, "{percent:>7.3}%{value}");
    }
    text += "\n  Detailed Percentile spectrum:\n";
    text += &table(latency);
    text += &"-".repeat(58);
    text.push('\n');
    text
}

/// The spectrum alone, as `.hgrm` files hold it; values in milliseconds.
pub fn table(latency: &Latency) -> String {
    let mut text = format!(
        "{:>12} {:>12} {:>12} {:>12}\n\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    let (mut total, histogram) = (0, latency.histogram());
    if latency.is_empty() {
        // as wrk2: the last row is there without samples, too
        let _ = writeln!(text, "{:>12.3} {:>12.6} {:>12} {:>12}", 0.0, 1.0, 0, "inf");
    }
    for step in histogram.iter_quantiles(TICKS_PER_HALF) {
        total += step.count_since_last_iteration();
        let quantile = step.quantile_iterated_to();
        let ms = step.value_iterated_to().min(latency.max_ns()) as f64 / 1e6;
        let _ = write!(text, "{ms:>12.3} {quantile:>12.6} {total:>12} ");
        if quantile < 1.0 {
            let _ = writeln!(text, "{:>12.2}", 1.0 / (1.0 - quantile));
        } else {
            let _ = writeln!(text, "{:>12}", "inf");
        }
    }
    let (mean, deviation) = (latency.mean_ns() / 1e6, latency.stdev_ns() / 1e6);
    let (max, count) = (latency.max_ns() as f64 / 1e6, latency.count());
    let (buckets, sub_buckets) = (histogram.buckets(), 2048);
    let _ = writeln!(
        text,
        "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]"
    );
    let _ = writeln!(
        text,
        "#[Max     = {max:>12.3}, Total count    = {count:>12}]"
    );
    let _ = writeln!(
        text,
        "#[Buckets = {buckets:>12}, SubBuckets     = {sub_buckets:>12}]"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_samples_it_has_its_last_row() {
        let text = table(&Latency::default());
        let rows: Vec<&str> = text
            .lines()
            .filter(|line| line.contains(" 1.000000 "))
            .collect();
        assert_eq!(
            rows,
            ["       0.000     1.000000            0          inf"]
        );
    }

    #[test]
    fn ends_at_one_hundred_percent_with_all_samples() {
        let mut latency = Latency::default();
        (1..=1000u64).for_each(|n| latency.record(n * 1_000_000));
        let text = table(&latency);
        let last = text
            .lines()
            .rfind(|line| line.ends_with("inf"))
            .expect("a last row");
        assert_eq!(last, "    1000.000     1.000000         1000          inf");
        assert!(text.contains("#[Max     =     1000.000, Total count    =         1000]"));
    }
}
