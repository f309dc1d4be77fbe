//! Adds the result files of several hosts: counts are added, histograms are added, rates are
//! summed over the time that all had in common. Nothing is averaged.

use crate::console::print;
use crate::human::time;
use crate::json::{distribution, write, SCHEMA};
use crate::units::metric;
use crate::values::Refusal;
use base64::Engine as _;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::Histogram;
use load_engine::latency::Latency;
use serde_json::{json, Map, Value};
use std::path::Path;

/// Parts of the plan that must be equal.
const SAME: [&str; 11] = [
    "mode",
    "rate_rps",
    "arrival",
    "connections",
    "depth",
    "http2",
    "websocket",
    "streams",
    "duration_s",
    "warmup_s",
    "close",
];

/// Distributions that are added.
const DISTRIBUTIONS: [&str; 8] = [
    "service",
    "response",
    "lateness",
    "queue",
    "connect",
    "tls",
    "client_delay",
    "censored",
];

/// Reads, adds, prints, and writes if a file is named.
pub fn merge(files: &[String], json: Option<&str>) -> Result<(), Refusal> {
    if files.len() < 2 {
        return Err(Refusal::Usage(
            "merge: needs at least two result files".to_string(),
        ));
    }
    let documents: Result<Vec<Value>, Refusal> = files.iter().map(|file| read(file)).collect();
    let merged = add(&documents?, files).map_err(Refusal::Absent)?;
    print(&summary(&merged));
    if let Some(path) = json {
        write(Path::new(path), &merged)
            .map_err(|error| Refusal::Absent(format!("--json: cannot write {path}: {error}")))?;
    }
    Ok(())
}

fn read(file: &str) -> Result<Value, Refusal> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Refusal::Usage(format!("merge: cannot read {file}: {error}")))?;
    serde_json::from_str(&text)
        .map_err(|error| Refusal::Usage(format!("merge: {file} is no result file: {error}")))
}

/// The sum of `documents`, or why they do not belong together.
fn add(documents: &[Value], files: &[String]) -> Result<Value, String> {
    for (document, file) in documents.iter().zip(files) {
        if document["schema"] != SCHEMA {
            return Err(format!(
                "merge: {file} has schema {}, not {SCHEMA}",
                document["schema"]
            ));
        }
        let twin = documents.iter().position(|other| other == document);
        if let Some(twin) = twin.filter(|&twin| !std::ptr::eq(&documents[twin], document)) {
            return Err(format!(
                "merge: {} and {file} are the same run; give each result once",
                files[twin]
            ));
        }
        for key in SAME {
            let (first, this) = (&documents[0]["plan"][key], &document["plan"][key]);
            if first != this {
                return Err(format!(
                    "merge: the plans differ: {key} is {first} in {} and {this} in {file}",
                    files[0]
                ));
            }
        }
    }
    let (start_ns, end_ns) = common_window(documents)
        .ok_or("merge: the runs have no time in common; start them with the same --start-at")?;
    let mut latency = Map::new();
    for name in DISTRIBUTIONS {
        let each = documents.iter().map(|document| &document["latency"][name]);
        latency.insert(name.to_string(), added(each, name)?);
    }
    let rps: f64 = documents
        .iter()
        .map(|document| rate_within(document, start_ns, end_ns))
        .sum();
    let sums = |key: &str| {
        documents
            .iter()
            .map(|d| &d[key])
            .fold(Value::Null, |a, b| plus(&a, b))
    };
    let mut plan = documents[0]["plan"].clone();
    plan["hosts"] = json!(documents.len());
    Ok(json!({
        "schema": SCHEMA,
        "tool": concat!("wirespeed-load ", env!("CARGO_PKG_VERSION"), " merge"),
        "merged": files,
        "plan": plan,
        "window": {"start_unix_ns": start_ns, "length_ns": end_ns - start_ns},
        "totals": sums("totals"),
        "rps": rps,
        "errors": sums("errors"),
        "latency": latency,
        "steps": steps(documents)?,
        "threads": documents.iter().filter_map(|d| d["threads"].as_array()).flatten().collect::<Vec<_>>(),
        "cpu": sums("cpu"),
        "warnings": documents.iter().filter_map(|d| d["warnings"].as_array()).flatten().collect::<Vec<_>>(),
    }))
}

fn window(document: &Value) -> Option<(u64, u64)> {
    let start_ns = document["window"]["start_unix_ns"].as_u64()?;
    Some((
        start_ns,
        start_ns + document["window"]["length_ns"].as_u64()?,
    ))
}

fn common_window(documents: &[Value]) -> Option<(u64, u64)> {
    let windows: Option<Vec<(u64, u64)>> = documents.iter().map(window).collect();
    let windows = windows?;
    let start_ns = windows.iter().map(|(start, _)| *start).max()?;
    let end_ns = windows.iter().map(|(_, end)| *end).min()?;
    (start_ns < end_ns).then_some((start_ns, end_ns))
}

/// Answers per second of one run within a time; a second that lies half in it counts half.
fn rate_within(document: &Value, start_ns: u64, end_ns: u64) -> f64 {
    let Some((own_start_ns, own_end_ns)) = window(document) else {
        return 0.0;
    };
    let seconds = document["seconds"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let mut completed = 0.0;
    for (number, second) in seconds.iter().enumerate() {
        let at =
            |second: &Value| own_start_ns + (second["t_s"].as_f64().unwrap_or(0.0) * 1e9) as u64;
        let from_ns = at(second);
        let to_ns = seconds.get(number + 1).map_or(own_end_ns, at);
        let within_ns = to_ns.min(end_ns).saturating_sub(from_ns.max(start_ns));
        let share = within_ns as f64 / (to_ns - from_ns).max(1) as f64;
        completed += second["completed"].as_f64().unwrap_or(0.0) * share;
    }
    completed * 1e9 / (end_ns - start_ns) as f64
}

/// Adds numbers and the numbers inside objects.
fn plus(a: &Value, b: &Value) -> Value {
    match (a, b) {
        (Value::Null, other) | (other, Value::Null) => other.clone(),
        (Value::Object(a), Value::Object(b)) => {
            let mut sum = a.clone();
            for (key, value) in b {
                let known = sum.get(key).cloned().unwrap_or(Value::Null);
                sum.insert(key.clone(), plus(&known, value));
            }
            Value::Object(sum)
        }
        _ => match (a.as_u64(), b.as_u64()) {
            (Some(a), Some(b)) => json!(a + b),
            _ => json!(a.as_f64().unwrap_or(0.0) + b.as_f64().unwrap_or(0.0)),
        },
    }
}

/// The steps of a ramp, each added to the same step of the other hosts.
fn steps(documents: &[Value]) -> Result<Vec<Value>, String> {
    let lists = documents
        .iter()
        .filter_map(|document| document["steps"].as_array());
    let lists: Vec<&Vec<Value>> = lists.collect();
    let shortest = lists.iter().map(|list| list.len()).min().unwrap_or(0);
    let step = |number: usize| -> Result<Value, String> {
        let own = || lists.iter().map(|list| &list[number]);
        let sum = |key: &str| own().fold(Value::Null, |sum, step| plus(&sum, &step[key]));
        Ok(json!({
            "step": number,
            "connections": sum("connections"),
            "length_ns": lists[0][number]["length_ns"],
            "completed": sum("completed"),
            "rps": sum("rps"),
            "errors": sum("errors"),
            "service": added(own().map(|step| &step["service"]), "service")?,
            "response": added(own().map(|step| &step["response"]), "response")?,
        }))
    };
    (0..shortest).map(step).collect()
}

fn added<'a>(latencies: impl Iterator<Item = &'a Value>, name: &str) -> Result<Value, String> {
    let mut sum = Latency::default();
    for latency in latencies {
        if !latency.is_null() {
            sum.add(&restored(latency).ok_or(format!("merge: the histogram '{name}' is broken"))?);
        }
    }
    Ok(distribution(&sum))
}

fn restored(latency: &Value) -> Option<Latency> {
    let whole = decoded(&latency["hdr_v2"])?;
    let (min_ns, max_ns) = (latency["min"].as_u64()?, latency["max"].as_u64()?);
    let mut own = Latency::restore(whole, min_ns, max_ns, latency["mean"].as_f64()?);
    if !latency["lost_hdr_v2"].is_null() {
        let lost = decoded(&latency["lost_hdr_v2"])?;
        let mean_ns = lost.mean();
        let (min_ns, max_ns) = (lost.min(), lost.max());
        own.set_lost(Latency::restore(lost, min_ns, max_ns, mean_ns));
    }
    Some(own)
}

fn decoded(text: &Value) -> Option<Histogram<u64>> {
    let text = text.as_str()?;
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(text)
        .ok()?;
    Deserializer::new().deserialize(&mut bytes.as_slice()).ok()
}

fn is_bound(latency: &Value, name: &str) -> bool {
    let bounds = latency["at_least"].as_array();
    bounds.is_some_and(|bounds| bounds.iter().any(|bound| bound == name))
}

fn summary(merged: &Value) -> String {
    let length_s = merged["window"]["length_ns"].as_f64().unwrap_or(0.0) / 1e9;
    let hosts = &merged["plan"]["hosts"];
    let mut text = format!("{hosts} results, {length_s:.2} s in common\n");
    for name in ["service", "response"] {
        let latency = &merged["latency"][name];
        if latency.is_null() {
            continue;
        }
        text += &format!("  {name:<9}");
        for quantile in ["0.5", "0.9", "0.99", "0.999"] {
            let value = latency["quantiles"][quantile].as_f64();
            let value = value.map_or("-".to_string(), |ns| time(ns, is_bound(latency, quantile)));
            text += &format!(
                "  p{} {value}",
                quantile.parse::<f64>().unwrap_or(0.0) * 100.0
            );
        }
        text += &format!(
            "  max {}\n",
            time(
                latency["max"].as_f64().unwrap_or(0.0),
                is_bound(latency, "max")
            )
        );
    }
    let rps = merged["rps"].as_f64().unwrap_or(0.0);
    text += &format!("  errors {}\n", merged["errors"]["total"]);
    text + &format!("Requests/sec: {rps:>9.2} ({})\n", metric(rps))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(start_unix_ns: u64, per_second: u64, latency_ns: u64) -> Value {
        let mut latency = Latency::default();
        latency.record_many(latency_ns, per_second * 2);
        json!({
            "schema": SCHEMA,
            "plan": {"mode": "closed", "connections": 4},
            "window": {"start_unix_ns": start_unix_ns, "length_ns": 2_000_000_000u64},
            "totals": {"completed": per_second * 2, "due": null},
            "errors": {"read": 1, "malformed": {"chunk": 2}},
            "seconds": [
                {"t_s": 0.0, "completed": per_second},
                {"t_s": 1.0, "completed": per_second},
            ],
            "latency": {"service": distribution(&latency)},
        })
    }

    fn names() -> Vec<String> {
        vec!["a".to_string(), "b".to_string()]
    }

    #[test]
    fn counts_and_histograms_are_added_and_rates_summed() {
        let results = [
            result(10_000_000_000, 100, 1_000_000),
            result(10_000_000_000, 300, 5_000_000),
        ];
        let merged = add(&results, &names()).expect("they belong together");
        assert_eq!(merged["rps"], 400.0);
        assert_eq!(merged["totals"]["completed"], 800);
        assert_eq!(merged["errors"]["malformed"]["chunk"], 4);
        let service = &merged["latency"]["service"];
        assert_eq!(
            (service["count"].as_u64(), service["min"].as_u64()),
            (Some(800), Some(1_000_000))
        );
        // the mean of the medians would be 3 ms; of all answers the median is 5
        let median = service["quantiles"]["0.5"].as_f64().expect("a median");
        assert!((median / 5e6 - 1.0).abs() < 0.002, "{median}");
    }

    #[test]
    fn the_same_run_is_not_added_to_itself() {
        let one = || result(10_000_000_000, 100, 1_000_000);
        let text = add(&[one(), one()], &names()).expect_err("twice the same");
        assert_eq!(
            text,
            "merge: a and b are the same run; give each result once"
        );
    }

    #[test]
    fn lower_bounds_stay_lower_bounds() {
        let lossy = |start_ns| {
            let mut latency = Latency::default();
            latency.record_many(1_000_000, 90);
            latency.record_lost(500_000, 10);
            let mut one = result(start_ns, 100, 1);
            one["latency"]["service"] = distribution(&latency);
            one
        };
        let results = [lossy(10_000_000_000), lossy(10_000_000_001)];
        let merged = add(&results, &names()).expect("they overlap");
        let service = &merged["latency"]["service"];
        assert_eq!(service["lost"], 20);
        assert_eq!(
            service["at_least"],
            json!(["0.99", "0.999", "0.9999", "0.99999", "0.999999", "mean", "max"])
        );
    }

    #[test]
    fn rates_count_only_the_common_time() {
        let results = [
            result(10_000_000_000, 100, 1),
            result(11_500_000_000, 300, 1),
        ];
        let merged = add(&results, &names()).expect("they overlap");
        assert_eq!(merged["window"]["length_ns"], 500_000_000);
        assert_eq!(merged["rps"].as_f64().map(f64::round), Some(400.0));
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let apart = [result(10_000_000_000, 1, 1), result(20_000_000_000, 1, 1)];
        assert!(add(&apart, &names()).is_err_and(|text| text.contains("no time in common")));
        let mut other = result(10_000_000_000, 1, 1);
        other["plan"]["connections"] = json!(5);
        let text = add(&[result(10_000_000_000, 1, 1), other], &names()).expect_err("other plan");
        assert_eq!(
            text,
            "merge: the plans differ: connections is 4 in a and 5 in b"
        );
        let mut old = result(10_000_000_000, 1, 1);
        old["schema"] = json!("wirespeed-load/0");
        assert!(add(&[old, result(1, 1, 1)], &names()).is_err());
    }
}
