//! The figures that `done` receives: `latency` and `requests`.

use crate::latency::Latency;
use mlua::{MetaMethod, UserData, UserDataFields, UserDataMethods, Value};

/// A distribution as scripts see it: distinct values and how often each occurred.
#[derive(Clone, Debug)]
pub struct Statistics {
    counts: Vec<(u64, u64)>,
    total: u64,
    min: f64,
    max: f64,
    mean: f64,
    stdev: f64,
    /// wrk2: `#latency` is the number of samples and `latency[i]` the value at 100·i/n percent.
    by_sample: bool,
}

impl Statistics {
    /// Latencies in whole microseconds.
    pub fn latency(latency: &Latency, by_sample: bool) -> Statistics {
        let mut counts: Vec<(u64, u64)> = Vec::new();
        for (value_ns, more) in latency.recorded() {
            // the end of the last bucket lies above the longest
            let us = (value_ns / 1000).min(latency.max_ns() / 1000);
            match counts.last_mut() {
                Some((value, count)) if *value == us => *count += more,
                _ => counts.push((us, more)),
            }
        }
        Statistics {
            counts,
            total: latency.count(),
            min: (latency.min_ns() / 1000) as f64,
            max: (latency.max_ns() / 1000) as f64,
            mean: latency.mean_ns() / 1e3,
            stdev: latency.stdev_ns() / 1e3,
            by_sample,
        }
    }

    /// Answers per second of each thread.
    pub fn requests(rates: &[f64], by_sample: bool) -> Statistics {
        let mut values: Vec<u64> = rates.iter().map(|rate| *rate as u64).collect();
        values.sort_unstable();
        let mut counts: Vec<(u64, u64)> = Vec::new();
        for value in &values {
            match counts.last_mut() {
                Some((known, count)) if known == value => *count += 1,
                _ => counts.push((*value, 1)),
            }
        }
        let n = values.len().max(1) as f64;
        let mean = values.iter().sum::<u64>() as f64 / n;
        let squares: f64 = values
            .iter()
            .map(|value| (*value as f64 - mean).powi(2))
            .sum();
        Statistics {
            counts,
            total: values.len() as u64,
            min: values.first().copied().unwrap_or(0) as f64,
            max: values.last().copied().unwrap_or(0) as f64,
            mean,
            stdev: if n > 1.0 {
                (squares / (n - 1.0)).sqrt()
            } else {
                0.0
            },
            by_sample,
        }
    }

    fn percentile(&self, percent: f64) -> u64 {
        let rank = (percent / 100.0 * self.total as f64 + 0.5) as u64;
        let mut seen = 0;
        for (value, count) in &self.counts {
            seen += count;
            if seen >= rank {
                return *value;
            }
        }
        0
    }

    /// The `index`-th distinct value and its count, from 1 on.
    fn distinct(&self, index: i64) -> Option<(u64, u64)> {
        let index = usize::try_from(index - 1).ok()?;
        self.counts.get(index).copied()
    }
}

impl UserData for Statistics {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        fields.add_field_method_get("min", |_, this| Ok(this.min));
        fields.add_field_method_get("max", |_, this| Ok(this.max));
        fields.add_field_method_get("mean", |_, this| Ok(this.mean));
        fields.add_field_method_get("stdev", |_, this| Ok(this.stdev));
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("percentile", |_, this, percent: f64| {
            Ok(this.percentile(percent) as f64)
        });
        methods.add_meta_method(MetaMethod::Call, |_, this, index: i64| {
            let (value, count) = this.distinct(index).unwrap_or((0, 0));
            Ok((value as f64, count as f64))
        });
        methods.add_meta_method(MetaMethod::Len, |_, this, ()| {
            Ok(if this.by_sample {
                this.total
            } else {
                this.counts.len() as u64
            } as f64)
        });
        methods.add_meta_method(MetaMethod::Index, |_, this, key: Value| {
            let index = match key {
                Value::Integer(index) => index as f64,
                Value::Number(index) => index,
                // as under wrk, where scripts have learnt to print `requests.total`
                other => return Ok(other),
            };
            Ok(Value::Number(
                this.percentile(100.0 * index / this.total.max(1) as f64) as f64,
            ))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlua::Lua;

    fn lua() -> Lua {
        let mut latency = Latency::default();
        latency.record_many(10_000, 5);
        latency.record_many(20_000, 3);
        latency.record_many(30_000, 2);
        let lua = Lua::new();
        lua.globals()
            .set("latency", Statistics::latency(&latency, false))
            .expect("set");
        lua
    }

    #[test]
    fn a_script_reads_percentiles_and_distinct_values() {
        let (p50, p99, n, value, count): (f64, f64, f64, f64, f64) = lua()
            .load("local v, c = latency(2); return latency:percentile(50), latency:percentile(99), #latency, v, c")
            .eval()
            .expect("runs");
        assert_eq!((p50, p99, n, value, count), (10.0, 30.0, 3.0, 20.0, 3.0));
    }

    #[test]
    fn an_unknown_figure_is_its_own_name() {
        let text: String = lua()
            .load("return 'requests: ' .. latency.total")
            .eval()
            .expect("runs");
        assert_eq!(text, "requests: total");
    }

    #[test]
    fn no_percentile_is_above_the_maximum() {
        let mut latency = Latency::default();
        latency.record(1_234_567_000);
        let statistics = Statistics::latency(&latency, false);
        assert_eq!(statistics.percentile(99.999) as f64, statistics.max);
    }

    #[test]
    fn a_script_reads_ends_and_mean() {
        let (min, max, mean): (f64, f64, f64) = lua()
            .load("return latency.min, latency.max, latency.mean")
            .eval()
            .expect("runs");
        assert_eq!((min, max, mean), (10.0, 30.0, 17.0));
    }
}
