//! Adds the result files of several hosts: counts are added, histograms are added, rates are
//! summed over the time that all had in common. Nothing is averaged.

use crate::console::{print, say};
use crate::human::time;
use crate::json::{distribution, write, Fingerprint, SCHEMA};
use crate::units::metric;
use crate::values::Refusal;
use base64::Engine as _;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::Histogram;
use load_engine::latency::Latency;
use serde_json::{json, Map, Value};
use std::path::Path;

/// Parts of the plan that must be equal.
const SAME: [&str; 17] = [
    "mode",
    "rate_rps",
    "arrival",
    "dispatch",
    "late",
    "targets",
    "requests",
    "timeout_s",
    "connections",
    "depth",
    "http2",
    "websocket",
    "grpc",
    "streams",
    "duration_s",
    "warmup_s",
    "close",
];

/// Distributions that are added.
const DISTRIBUTIONS: [&str; 9] = [
    "service",
    "response",
    "lateness",
    "queue",
    "connect",
    "tls",
    "client_delay",
    "first_byte",
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
    let documents = documents?;
    let merged = add(&documents, files).map_err(Refusal::Absent)?;
    print(&summary(&merged));
    if let Some(text) = same_seed(&documents)
        .as_ref()
        .and_then(|own| own["text"].as_str())
    {
        say(&format!("warning: {text}"));
    }
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
        .map_err(|error| Refusal::Usage(format!("merge: {file}: not a result file: {error}")))
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
    let completed = completed_within(documents, start_ns, end_ns);
    let sums = |key: &str| {
        documents
            .iter()
            .map(|d| &d[key])
            .fold(Value::Null, |a, b| plus(&a, b))
    };
    let mut plan = documents[0]["plan"].clone();
    plan["hosts"] = json!(documents.iter().map(hosts).sum::<u64>());
    Ok(json!({
        "schema": SCHEMA,
        "tool": concat!("wirespeed-load ", env!("CARGO_PKG_VERSION"), " merge"),
        "merged": parts(documents, files)?,
        "plan": plan,
        "window": {"start_unix_ns": start_ns, "length_ns": end_ns - start_ns},
        "totals": sums("totals"),
        "rps": completed * 1e9 / (end_ns - start_ns) as f64,
        "bytes_per_second": sums("bytes_per_second"),
        "errors": sums("errors"),
        "latency": latency,
        "breakdown": parts_of(documents)?,
        "steps": steps(documents)?,
        "seconds": seconds(documents, start_ns, end_ns),
        "threads": documents.iter().filter_map(|d| d["threads"].as_array()).flatten().collect::<Vec<_>>(),
        "cpu": sums("cpu"),
        "warnings": warnings(documents),
    }))
}

/// The distributions by request, target and status.
fn parts_of(documents: &[Value]) -> Result<Value, String> {
    crate::parts::merged(documents, &|each| added(each.into_iter(), "breakdown"))
}

/// What each run warned of, and what only all of them together show.
fn warnings(documents: &[Value]) -> Vec<Value> {
    let own = documents.iter().filter_map(|d| d["warnings"].as_array());
    own.flatten().cloned().chain(same_seed(documents)).collect()
}

/// Poisson arrivals that were drawn alike come together: as no Poisson process has them.
fn same_seed(documents: &[Value]) -> Option<Value> {
    let mut seeds: Vec<_> = documents
        .iter()
        .filter(|document| document["plan"]["arrival"] == "poisson")
        .filter_map(|document| document["plan"]["seed"].as_u64())
        .collect();
    let runs = seeds.len();
    seeds.sort_unstable();
    seeds.dedup();
    let alike = runs - seeds.len();
    let text =
        "runs have drawn the same Poisson arrivals as another: their requests fell due together, \
                in bursts that independent users do not make; give each host its own --seed";
    (alike > 0).then(|| {
        json!({
            "id": "same-seed",
            "value": alike,
            "threshold": 0,
            "text": format!("{alike} {text}"),
        })
    })
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

/// How many hosts a result is of: itself the sum of some, or one.
fn hosts(document: &Value) -> u64 {
    document["plan"]["hosts"].as_u64().unwrap_or(1)
}

/// The results of single hosts that this is the sum of; none may be in it twice. Their content
/// decides: two folders may each hold an `a.json`, and one file has many paths.
fn parts(documents: &[Value], files: &[String]) -> Result<Vec<Value>, String> {
    let mut all: Vec<Value> = Vec::new();
    for (document, file) in documents.iter().zip(files) {
        let single = || vec![json!({"file": file, "fingerprint": fingerprint(document)})];
        let own = document["merged"].as_array().cloned();
        for part in own.unwrap_or_else(single) {
            if all.iter().any(|other| identity(other) == identity(&part)) {
                let name = part["file"].as_str().or(part.as_str()).unwrap_or(file);
                return Err(format!(
                    "merge: {name} is in {file} and in another of these; give each result once"
                ));
            }
            all.push(part);
        }
    }
    Ok(all)
}

/// Sums of earlier builds have the name alone.
fn identity(part: &Value) -> &Value {
    part.get("fingerprint").unwrap_or(part)
}

/// Of the whole result: runs that began together at one rate differ in their times only.
fn fingerprint(document: &Value) -> String {
    let mut hash = Fingerprint::default();
    hash.add(document.to_string().as_bytes());
    hash.text()
}

/// The seconds of the common time, so that a sum can be added to other results.
fn seconds(documents: &[Value], start_ns: u64, end_ns: u64) -> Vec<Value> {
    const SECOND_NS: u64 = 1_000_000_000;
    let starts = (start_ns..end_ns).step_by(SECOND_NS as usize);
    let second = |from_ns: u64| {
        let to_ns = (from_ns + SECOND_NS).min(end_ns);
        json!({
            "t_s": (from_ns - start_ns) as f64 / 1e9,
            "completed": completed_within(documents, from_ns, to_ns),
        })
    };
    starts.map(second).collect()
}

/// Answers of all runs within a time.
fn completed_within(documents: &[Value], start_ns: u64, end_ns: u64) -> f64 {
    let own = |document| own_within(document, start_ns, end_ns);
    documents.iter().map(own).sum()
}

/// Answers of one run within a time; a second that lies half in it counts half.
fn own_within(document: &Value, start_ns: u64, end_ns: u64) -> f64 {
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
    completed
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
    own.note_dropped(latency["dropped"].as_u64().unwrap_or(0));
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
    fn a_sum_is_added_to_another_result_like_any() {
        let own = |per_second| {
            let mut one = result(10_000_000_000, per_second, 1_000_000);
            one["bytes_per_second"] = json!(per_second as f64 * 10.0);
            one
        };
        let pair = add(&[own(100), own(300)], &names()).expect("they belong together");
        let more = ["pair".to_string(), "c".to_string()];
        let all = add(&[pair.clone(), own(50)], &more).expect("so do these");
        assert_eq!(all["rps"], 450.0);
        assert_eq!(all["bytes_per_second"], 4500.0);
        assert_eq!(all["totals"]["completed"], 900);
        assert_eq!(all["plan"]["hosts"], 3);
        let parts = all["merged"].as_array().expect("a list");
        let names: Vec<&Value> = parts.iter().map(|part| &part["file"]).collect();
        assert_eq!(names, ["a", "b", "c"]);
    }

    #[test]
    fn a_result_is_known_by_its_content_and_not_by_its_name() {
        let one = |per_second| result(10_000_000_000, per_second, 1_000_000);
        let sum = |first, second| add(&[one(first), one(second)], &names()).expect("a sum");
        let racks = ["rack1/sum".to_string(), "rack2/sum".to_string()];
        let all = add(&[sum(100, 300), sum(50, 60)], &racks).expect("other results, same names");
        assert_eq!(all["totals"]["completed"], 1020);
        let text = add(&[sum(100, 300), sum(50, 300)], &racks).expect_err("b is in both");
        assert!(
            text.starts_with("merge: b is in rack2/sum and in another"),
            "{text}"
        );
        let spelt = ["rack1/sum".to_string(), "./a".to_string()];
        let text = add(&[sum(100, 300), one(100)], &spelt).expect_err("a twice");
        assert!(
            text.starts_with("merge: ./a is in ./a and in another"),
            "{text}"
        );
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
    fn poisson_arrivals_that_were_drawn_alike_are_told() {
        let drawn = |start_ns, arrival: &str, seed: u64| {
            let mut one = result(start_ns, 100, 1);
            one["plan"]["arrival"] = json!(arrival);
            one["plan"]["seed"] = json!(seed);
            one
        };
        let told = |arrival, second| {
            let results = [
                drawn(10_000_000_000, arrival, 1),
                drawn(10_000_000_001, arrival, second),
            ];
            let merged = add(&results, &names()).expect("they overlap");
            merged["warnings"]
                .as_array()
                .expect("a list")
                .iter()
                .any(|one| one["id"] == "same-seed")
        };
        assert!(told("poisson", 1));
        assert!(!told("poisson", 2) && !told("even", 1));
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
