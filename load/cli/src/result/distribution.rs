//! A distribution of times in the result file.

use super::record::record;
use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use hdrhistogram::Histogram;
use load_engine::latency::Latency;
use std::collections::BTreeMap;

/// Quantiles that are listed.
pub const QUANTILES: [(&str, f64); 8] = [
    ("0.5", 0.5),
    ("0.75", 0.75),
    ("0.9", 0.9),
    ("0.99", 0.99),
    ("0.999", 0.999),
    ("0.9999", 0.9999),
    ("0.99999", 0.99999),
    ("0.999999", 0.999999),
];

record! {
    /// A distribution of times.
    Distribution adds add {
        /// `ns`.
        unit: String,
        /// How many times there are.
        count: u64,
        /// The shortest.
        min: u64,
        /// The longest.
        max: u64,
        /// Their mean.
        mean: f64,
        /// Their standard deviation.
        stdev: f64,
        /// How many of them are lower bounds: of requests that were lost.
        lost: u64,
        /// Requests that were dropped and stand nowhere among the times.
        dropped: u64,
        /// Quantiles, and `mean` and `max`, that lost or dropped requests may raise: they are at least so
        /// long.
        at_least: Vec<String>,
        /// The values of quantiles; null where fewer than ten times lie above.
        quantiles: BTreeMap<String, Option<u64>>,
        /// All times as an HdrHistogram: V2, deflate, base64.
        hdr_v2: String,
        /// The lower bounds among them.
        lost_hdr_v2: Option<String>,
    }
}

impl Distribution {
    /// Of what was measured; nothing if that is empty.
    pub fn of(latency: &Latency) -> Option<Distribution> {
        if latency.is_empty() {
            return None;
        }
        let quantiles = QUANTILES.iter().map(|(name, quantile)| {
            let value = latency.known_at_ns(*quantile);
            ((*name).to_string(), value)
        });
        Some(Distribution {
            unit: "ns".to_string(),
            count: latency.count(),
            min: latency.min_ns(),
            max: latency.max_ns(),
            mean: latency.mean_ns(),
            stdev: latency.stdev_ns(),
            lost: latency.lost().map_or(0, Latency::count),
            dropped: latency.dropped(),
            at_least: bounds(latency),
            quantiles: quantiles.collect(),
            hdr_v2: encoded(latency),
            lost_hdr_v2: latency.lost().map(encoded),
        })
    }

    /// As it was measured.
    fn latency(&self) -> Result<Latency, String> {
        let whole = decoded(&self.hdr_v2)?;
        let mut own = Latency::restore(whole, self.min, self.max, self.mean);
        own.note_dropped(self.dropped);
        if let Some(lost) = &self.lost_hdr_v2 {
            let lost = decoded(lost)?;
            let mean_ns = lost.mean();
            let (min_ns, max_ns) = (lost.min(), lost.max());
            own.set_lost(Latency::restore(lost, min_ns, max_ns, mean_ns));
        }
        Ok(own)
    }

    /// Whether a quantile, `mean` or `max` is a lower bound.
    pub fn is_bound(&self, name: &str) -> bool {
        self.at_least.iter().any(|bound| bound == name)
    }
}

/// Counts are added, never averages.
fn add(own: &mut Distribution, other: &Distribution) -> Result<(), String> {
    let mut sum = own.latency()?;
    sum.add(&other.latency()?);
    *own = Distribution::of(&sum).unwrap_or_default();
    Ok(())
}

/// The figures that lost requests may raise: they are lower bounds.
fn bounds(latency: &Latency) -> Vec<String> {
    let raised = QUANTILES.iter().filter(|(_, q)| latency.is_bound(*q));
    let mut names: Vec<String> = raised.map(|(name, _)| (*name).to_string()).collect();
    if latency.is_incomplete() {
        names.extend(["mean", "max"].map(String::from));
    }
    names
}

/// The histogram in HdrHistogram's V2 deflate form, base64.
pub fn encoded(latency: &Latency) -> String {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(&latency.histogram(), &mut bytes)
        .expect("writing to memory does not fail");
    STANDARD.encode(bytes)
}

fn decoded(text: &str) -> Result<Histogram<u64>, String> {
    let bytes = STANDARD.decode(text).ok();
    let histogram = bytes.and_then(|bytes| Deserializer::new().deserialize(&mut &bytes[..]).ok());
    histogram.ok_or(": the histogram is broken".to_string())
}
