//! Times as people read them, with `≥` for lower bounds.

use crate::units::time_us;
use load_engine::latency::Latency;

/// A time, marked if it is only known to be at least so long.
pub fn time(ns: f64, is_bound: bool) -> String {
    let mark = if is_bound { "≥" } else { "" };
    format!("{mark}{}", time_us(ns / 1e3))
}

/// The value of a quantile, marked if it is a lower bound.
pub fn quantile(latency: &Latency, quantile: f64) -> String {
    let ns = latency.at_ns(quantile) as f64;
    time(ns, latency.is_bound(quantile))
}
