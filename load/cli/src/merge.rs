//! Adds the result files of several hosts: counts are added, histograms are added, rates are
//! summed over the time that all had in common. Nothing is averaged.

use crate::console::{print, say};
use crate::figures::time;
use crate::json::Fingerprint;
use crate::refusal::{usage, Failure, Mistake, Refusal, Wrong};
use crate::result::record::Field as _;
use crate::result::{Distribution, Measured, Part, SecondFacts, WarningFacts, Window};
use crate::units::metric;
use serde_json::Map;
use std::path::Path;

/// Parts of the plan that may differ from host to host; all others must be equal.
const OWN: [&str; 5] = ["seed", "threads", "realtime", "addresses", "hosts"];
const SECOND_NS: u64 = 1_000_000_000;

/// Reads, adds, prints, and writes if a file is named.
pub fn merge(files: &[String], json: Option<&str>) -> Result<(), Refusal> {
    if files.len() < 2 {
        return usage(Mistake::Command(
            "merge",
            Wrong::Needs("at least two result files"),
        ));
    }
    let results: Result<Vec<Measured>, Refusal> = files.iter().map(|file| read(file)).collect();
    let results = results?;
    let merged =
        add(&results, files).map_err(|why| Refusal::Absent(Failure::Command("merge", why)))?;
    print(&summary(&merged));
    if let Some(warning) = same_seed(&results) {
        say(&format!("warning: {}", warning.text));
    }
    if let Some(path) = json {
        merged.save(Path::new(path)).map_err(|error| {
            let wrong = Wrong::Unwritable(path.to_string(), error.to_string());
            Refusal::Absent(Failure::Option("json", wrong))
        })?;
    }
    Ok(())
}

fn read(file: &str) -> Result<Measured, Refusal> {
    let refused = |wrong| Refusal::Usage(Mistake::Command("merge", wrong));
    let text = std::fs::read_to_string(file)
        .map_err(|error| refused(Wrong::Unreadable(file.to_string(), error.to_string())))?;
    Measured::parse(&text)
        .map_err(|why| refused(Wrong::Content(file.to_string(), format!(": {why}"))))
}

/// The sum of `results`, or why they do not belong together.
fn add(results: &[Measured], files: &[String]) -> Result<Measured, String> {
    check(results, files)?;
    let window = common_window(results)
        .ok_or("the runs have no time in common; start them with the same --start-at")?;
    let parts = parts(results, files)?;
    for (result, file) in results.iter().zip(files) {
        // each alone first, so that the message names the broken file
        add_to(&mut result.clone(), result).map_err(|why| format!("{file}: {why}"))?;
    }
    let mut sum = results[0].clone();
    for other in &results[1..] {
        add_to(&mut sum, other)?;
    }
    let (start_ns, end_ns) = (
        window.start_unix_ns,
        window.start_unix_ns + window.length_ns,
    );
    let completed = completed_within(results, start_ns, end_ns);
    sum.tool = concat!("wirespeed-load ", env!("CARGO_PKG_VERSION"), " merge").to_string();
    sum.merged = Some(parts);
    sum.plan.hosts = Some(results.iter().map(hosts).sum());
    sum.rps = completed * 1e9 / window.length_ns as f64;
    sum.seconds = seconds(results, start_ns, end_ns);
    sum.warnings.extend(same_seed(results));
    sum.window = window;
    // of one run alone
    (sum.argv, sum.little) = (Vec::new(), None);
    sum.episodes.clear();
    Ok(sum)
}

/// Adds what is a sum of its parts.
fn add_to(sum: &mut Measured, other: &Measured) -> Result<(), String> {
    sum.totals.add(&other.totals)?;
    sum.bytes_per_second.add(&other.bytes_per_second)?;
    sum.errors.add(&other.errors)?;
    sum.latency.add(&other.latency)?;
    sum.breakdown.add(&other.breakdown)?;
    sum.tcp.add(&other.tcp)?;
    sum.steps.add(&other.steps)?;
    sum.waiting.add(&other.waiting)?;
    sum.cpu.add(&other.cpu)?;
    sum.threads.extend_from_slice(&other.threads);
    sum.warnings.extend_from_slice(&other.warnings);
    for note in &other.notes {
        if !sum.notes.contains(note) {
            sum.notes.push(note.clone());
        }
    }
    Ok(())
}

/// Whether each result is another run of the same plan.
fn check(results: &[Measured], files: &[String]) -> Result<(), String> {
    let first = results[0].plan.write();
    for (number, (result, file)) in results.iter().zip(files).enumerate() {
        if let Some(twin) = results[..number].iter().position(|other| other == result) {
            return Err(format!(
                "{} and {file} are the same run; give each result once",
                files[twin]
            ));
        }
        let plan = result.plan.write();
        let mut keys = first.as_object().into_iter().flat_map(Map::keys);
        let other = keys.find(|key| first[*key] != plan[*key] && !OWN.contains(&key.as_str()));
        if let Some(key) = other {
            return Err(format!(
                "the plans differ: {key} is {} in {} and {} in {file}",
                first[key], files[0], plan[key]
            ));
        }
    }
    Ok(())
}

/// Poisson arrivals that were drawn alike come together: as no Poisson process has them.
fn same_seed(results: &[Measured]) -> Option<WarningFacts> {
    let drawn = results
        .iter()
        .filter(|result| result.plan.arrival == "poisson");
    let mut seeds: Vec<u64> = drawn.filter_map(|result| result.plan.seed).collect();
    let runs = seeds.len();
    seeds.sort_unstable();
    seeds.dedup();
    let alike = runs - seeds.len();
    let text =
        "runs have drawn the same Poisson arrivals as another: their requests fell due together, \
                in bursts that independent users do not make; give each host its own --seed";
    (alike > 0).then(|| WarningFacts {
        id: "same-seed".to_string(),
        value: alike as f64,
        threshold: 0.0,
        text: format!("{alike} {text}"),
    })
}

fn end_ns(result: &Measured) -> u64 {
    let window = &result.window;
    window.start_unix_ns.saturating_add(window.length_ns)
}

fn common_window(results: &[Measured]) -> Option<Window> {
    let starts = results.iter().map(|result| result.window.start_unix_ns);
    let (start_ns, end_ns) = (starts.max()?, results.iter().map(end_ns).min()?);
    (start_ns < end_ns).then(|| Window {
        start_unix_ns: start_ns,
        length_ns: end_ns - start_ns,
    })
}

/// How many hosts a result is of: itself the sum of some, or one.
fn hosts(result: &Measured) -> u64 {
    result.plan.hosts.unwrap_or(1)
}

/// The results of single hosts that this is the sum of; none may be in it twice. Their content
/// decides: two folders may each hold an `a.json`, and one file has many paths.
fn parts(results: &[Measured], files: &[String]) -> Result<Vec<Part>, String> {
    let mut all: Vec<Part> = Vec::new();
    for (result, file) in results.iter().zip(files) {
        let single = || {
            vec![Part {
                file: file.clone(),
                fingerprint: fingerprint(result),
            }]
        };
        for part in result.merged.clone().unwrap_or_else(single) {
            if all
                .iter()
                .any(|other| other.fingerprint == part.fingerprint)
            {
                return Err(format!(
                    "{} is in {file} and in another of these; give each result once",
                    part.file
                ));
            }
            all.push(part);
        }
    }
    Ok(all)
}

/// Of the whole result: runs that began together at one rate differ in their times only.
fn fingerprint(result: &Measured) -> String {
    let mut hash = Fingerprint::default();
    hash.add(result.write().to_string().as_bytes());
    hash.text()
}

/// The seconds of the common time, so that a sum can be added to other results.
fn seconds(results: &[Measured], start_ns: u64, end_ns: u64) -> Vec<SecondFacts> {
    let starts = (start_ns..end_ns).step_by(SECOND_NS as usize);
    let second = |from_ns: u64| {
        let to_ns = (from_ns + SECOND_NS).min(end_ns);
        SecondFacts {
            t_s: (from_ns - start_ns) as f64 / 1e9,
            completed: completed_within(results, from_ns, to_ns).round() as u64,
            ..SecondFacts::default()
        }
    };
    starts.map(second).collect()
}

/// Answers of all runs within a time.
fn completed_within(results: &[Measured], start_ns: u64, end_ns: u64) -> f64 {
    let own = |result| own_within(result, start_ns, end_ns);
    results.iter().map(own).sum()
}

/// Answers of one run within a time; a second that lies half in it counts half.
fn own_within(result: &Measured, start_ns: u64, end_ns: u64) -> f64 {
    let own_end_ns = self::end_ns(result);
    let at = |second: &SecondFacts| result.window.start_unix_ns + (second.t_s * 1e9) as u64;
    let mut completed = 0.0;
    for (number, second) in result.seconds.iter().enumerate() {
        let from_ns = at(second);
        let to_ns = result.seconds.get(number + 1).map_or(own_end_ns, at);
        let within_ns = to_ns.min(end_ns).saturating_sub(from_ns.max(start_ns));
        let share = within_ns as f64 / to_ns.saturating_sub(from_ns).max(1) as f64;
        completed += second.completed as f64 * share;
    }
    completed
}

fn summary(merged: &Measured) -> String {
    let length_s = merged.window.length_ns as f64 / 1e9;
    let mut text = format!("{} results, {length_s:.2} s in common\n", hosts(merged));
    let rows = [
        ("service", &merged.latency.service),
        ("response", &merged.latency.response),
    ];
    for (name, latency) in rows {
        if let Some(latency) = latency {
            text += &row(name, latency);
        }
    }
    text += &format!("  errors {}\n", merged.errors.total);
    let rps = merged.rps;
    text + &format!("Requests/sec: {rps:>9.2} ({})\n", metric(rps))
}

fn row(name: &str, latency: &Distribution) -> String {
    let mut text = format!("  {name:<9}");
    for (quantile, percent) in [
        ("0.5", "50"),
        ("0.9", "90"),
        ("0.99", "99"),
        ("0.999", "99.9"),
    ] {
        let value = latency.quantiles.get(quantile).copied().flatten();
        let value = value.map_or("-".to_string(), |ns| {
            time(ns as f64, latency.is_bound(quantile))
        });
        text += &format!("  p{percent} {value}");
    }
    text + &format!(
        "  max {}\n",
        time(latency.max as f64, latency.is_bound("max"))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{RequestPart, SCHEMA};
    use load_engine::latency::Latency;
    use serde_json::json;

    fn result(start_unix_ns: u64, per_second: u64, latency_ns: u64) -> Measured {
        let mut latency = Latency::default();
        latency.record_many(latency_ns, per_second * 2);
        let text = json!({
            "schema": SCHEMA,
            "plan": {"mode": "closed", "connections": 4},
            "window": {"start_unix_ns": start_unix_ns, "length_ns": 2_000_000_000u64},
            "totals": {"completed": per_second * 2, "due": null},
            "errors": {"read": 1, "malformed": {"chunk": 2}},
            "seconds": [
                {"t_s": 0.0, "completed": per_second},
                {"t_s": 1.0, "completed": per_second},
            ],
            "latency": {"service": Distribution::of(&latency).write()},
        });
        Measured::parse(&text.to_string()).expect("a result")
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
        assert_eq!(merged.rps, 400.0);
        assert_eq!(merged.totals.completed, 800);
        assert_eq!(merged.errors.malformed["chunk"], 4);
        let service = merged.latency.service.expect("times");
        assert_eq!((service.count, service.min), (800, 1_000_000));
        // the mean of the medians would be 3 ms; of all answers the median is 5
        let median = service.quantiles["0.5"].expect("a median") as f64;
        assert!((median / 5e6 - 1.0).abs() < 0.002, "{median}");
    }

    #[test]
    fn a_sum_is_added_to_another_result_like_any() {
        let own = |per_second| {
            let mut one = result(10_000_000_000, per_second, 1_000_000);
            one.bytes_per_second = per_second as f64 * 10.0;
            one
        };
        let pair = add(&[own(100), own(300)], &names()).expect("they belong together");
        let more = ["pair".to_string(), "c".to_string()];
        let all = add(&[pair.clone(), own(50)], &more).expect("so do these");
        assert_eq!(all.rps, 450.0);
        assert_eq!(all.bytes_per_second, 4500.0);
        assert_eq!(all.totals.completed, 900);
        assert_eq!(all.plan.hosts, Some(3));
        let parts = all.merged.expect("a list");
        let names: Vec<&String> = parts.iter().map(|part| &part.file).collect();
        assert_eq!(names, ["a", "b", "c"]);
    }

    #[test]
    fn a_result_is_known_by_its_content_and_not_by_its_name() {
        let one = |per_second| result(10_000_000_000, per_second, 1_000_000);
        let sum = |first, second| add(&[one(first), one(second)], &names()).expect("a sum");
        let racks = ["rack1/sum".to_string(), "rack2/sum".to_string()];
        let all = add(&[sum(100, 300), sum(50, 60)], &racks).expect("other results, same names");
        assert_eq!(all.totals.completed, 1020);
        let text = add(&[sum(100, 300), sum(50, 300)], &racks).expect_err("b is in both");
        assert!(
            text.starts_with("b is in rack2/sum and in another"),
            "{text}"
        );
        let spelt = ["rack1/sum".to_string(), "./a".to_string()];
        let text = add(&[sum(100, 300), one(100)], &spelt).expect_err("a twice");
        assert!(text.starts_with("./a is in ./a and in another"), "{text}");
    }

    #[test]
    fn the_end_of_a_damaged_result_does_not_overflow() {
        let results = [
            result(10_000_000_000, 100, 1_000_000),
            result(u64::MAX, 100, 1_000_000),
        ];
        let text = add(&results, &names()).expect_err("far apart");
        assert!(
            text.starts_with("the runs have no time in common"),
            "{text}"
        );
    }

    #[test]
    fn the_same_run_is_not_added_to_itself() {
        let one = || result(10_000_000_000, 100, 1_000_000);
        let text = add(&[one(), one()], &names()).expect_err("twice the same");
        assert_eq!(text, "a and b are the same run; give each result once");
    }

    #[test]
    fn lower_bounds_stay_lower_bounds() {
        let lossy = |start_ns| {
            let mut latency = Latency::default();
            latency.record_many(1_000_000, 90);
            latency.record_lost(500_000, 10);
            let mut one = result(start_ns, 100, 1);
            one.latency.service = Distribution::of(&latency);
            one
        };
        let results = [lossy(10_000_000_000), lossy(10_000_000_001)];
        let merged = add(&results, &names()).expect("they overlap");
        let service = merged.latency.service.expect("times");
        assert_eq!(service.lost, 20);
        assert_eq!(
            service.at_least,
            ["0.99", "0.999", "0.9999", "0.99999", "0.999999", "mean", "max"]
        );
    }

    /// Durations from a microsecond to minutes, of which some are lower bounds.
    fn scattered(host: u64) -> Vec<(u64, bool)> {
        let mut state = host + 1;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state >> 33
        };
        (0..5_000)
            .map(|_| {
                let decade = 10u64.pow(3 + (next() % 9) as u32);
                (decade + next() % decade * (host + 1), next() % 50 == 0)
            })
            .collect()
    }

    fn of_samples(samples: &[(u64, bool)]) -> Distribution {
        let mut latency = Latency::default();
        for (duration_ns, is_lost) in samples {
            if *is_lost {
                latency.record_lost(*duration_ns, 1);
            } else {
                latency.record(*duration_ns);
            }
        }
        Distribution::of(&latency).expect("samples")
    }

    #[test]
    fn percentiles_of_four_results_are_those_of_all_samples_together() {
        let files = ["a", "b", "c", "d"].map(String::from);
        let samples: Vec<_> = (0..4).map(scattered).collect();
        let mut results: Vec<Measured> = (10_000_000_000..)
            .zip(&samples)
            .map(|(start_ns, own)| {
                let mut one = result(start_ns, 2_500, 1);
                one.latency.service = Some(of_samples(own));
                one
            })
            .collect();
        let merged = add(&results, &files).expect("they belong together");
        let (found, all) = (
            merged.latency.service.expect("times"),
            of_samples(&samples.concat()),
        );
        assert_eq!(found.quantiles, all.quantiles);
        assert_eq!(found.at_least, all.at_least);
        assert_eq!(
            (found.count, found.min, found.max, found.lost),
            (20_000, all.min, all.max, all.lost)
        );
        assert!((found.mean / all.mean - 1.0).abs() < 1e-9);
        assert!((found.stdev / all.stdev - 1.0).abs() < 1e-9);
        results[3].plan.rate_rps = Some(7.0);
        let text = add(&results, &files).expect_err("another plan");
        assert_eq!(text, "the plans differ: rate_rps is null in a and 7.0 in d");
    }

    #[test]
    fn equal_poisson_arrivals_are_reported() {
        let drawn = |start_ns, arrival: &str, seed: u64| {
            let mut one = result(start_ns, 100, 1);
            one.plan.arrival = arrival.to_string();
            one.plan.seed = Some(seed);
            one
        };
        let warned = |arrival, second| {
            let results = [
                drawn(10_000_000_000, arrival, 1),
                drawn(10_000_000_001, arrival, second),
            ];
            let merged = add(&results, &names()).expect("they overlap");
            merged.warnings.iter().any(|one| one.id == "same-seed")
        };
        assert!(warned("poisson", 1));
        assert!(!warned("poisson", 2) && !warned("even", 1));
    }

    #[test]
    fn rates_count_only_the_common_time() {
        let results = [
            result(10_000_000_000, 100, 1),
            result(11_500_000_000, 300, 1),
        ];
        let merged = add(&results, &names()).expect("they overlap");
        assert_eq!(merged.window.length_ns, 500_000_000);
        assert_eq!(merged.rps.round(), 400.0);
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let apart = [result(10_000_000_000, 1, 1), result(20_000_000_000, 1, 1)];
        assert!(add(&apart, &names()).is_err_and(|text| text.contains("no time in common")));
        let mut other = result(10_000_000_000, 1, 1);
        other.plan.connections = 5;
        let text = add(&[result(10_000_000_000, 1, 1), other], &names()).expect_err("other plan");
        assert_eq!(text, "the plans differ: connections is 4 in a and 5 in b");
        let old = Measured::parse(r#"{"schema": "wirespeed-load/0"}"#);
        let text = old.expect_err("another version");
        assert_eq!(text, "schema \"wirespeed-load/0\", not wirespeed-load/1");
    }

    #[test]
    fn a_histogram_that_is_broken_is_named_with_its_file_and_place() {
        let mut broken = result(10_000_000_000, 100, 1);
        if let Some(service) = &mut broken.latency.service {
            service.hdr_v2.truncate(7);
        }
        let good = result(10_000_000_000, 1, 1);
        for (results, file) in [([good.clone(), broken.clone()], "b"), ([broken, good], "a")] {
            let text = add(&results, &names()).expect_err("broken");
            assert_eq!(text, format!("{file}: service: the histogram is broken"));
        }
    }

    #[test]
    fn a_request_that_one_host_has_not_come_to_keeps_the_times_of_the_other() {
        let asked = |start_ns, requests: usize| {
            let mut one = result(start_ns, 100, 1);
            one.breakdown.requests = ["GET /a", "GET /b", "GET /c"][..requests]
                .iter()
                .map(|request| RequestPart {
                    target: "http://host/".to_string(),
                    request: (*request).to_string(),
                    latency: Some(of_samples(&[(1000, false)])),
                })
                .collect();
            one
        };
        for (first, second) in [(2, 3), (3, 2)] {
            let results = [asked(10_000_000_000, first), asked(10_000_000_001, second)];
            let merged = add(&results, &names()).expect("they belong together");
            let told: Vec<_> = merged
                .breakdown
                .requests
                .iter()
                .map(|part| {
                    (
                        part.request.as_str(),
                        part.latency.as_ref().map(|own| own.count),
                    )
                })
                .collect();
            let all = [
                ("GET /a", Some(2)),
                ("GET /b", Some(2)),
                ("GET /c", Some(1)),
            ];
            assert_eq!(told, all, "{first} and {second} requests");
        }
    }

    #[test]
    fn the_steps_of_a_ramp_are_added_step_by_step() {
        let stepped = |per_second| {
            let mut one = result(10_000_000_000, per_second, 1);
            let text = json!([{"step": 0, "length_ns": 5, "completed": per_second, "connections": 2},
                {"step": 1, "length_ns": 7, "completed": 1, "connections": 3}]);
            one.steps = Vec::read(&text).expect("steps");
            one
        };
        let merged = add(&[stepped(10), stepped(20)], &names()).expect("they belong together");
        let told: Vec<_> = merged
            .steps
            .iter()
            .map(|step| {
                (
                    step.step.0,
                    step.length_ns.0,
                    step.completed,
                    step.connections,
                )
            })
            .collect();
        assert_eq!(told, [(0, 5, 30, 4), (1, 7, 2, 6)]);
    }
}
