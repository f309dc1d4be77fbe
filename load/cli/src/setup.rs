//! From what was typed to what it means: a checked [`Plan`].

use crate::options::Typed;
use crate::units::{parse_metric, parse_time_ns};
use load_engine::plan::{weighted_order, Late, Open, Plan, Rendered, Step, Target, Wait};
use load_engine::schedule::Stretch;
use load_engine::sys::affinity;
use load_engine::sys::epoll::Trigger;
use load_engine::sys::socket::Address;
use load_http1::request::Request;
use load_http1::url::Url;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Most connections of a run; more need more than one process.
const CONNECTIONS_MAX: f64 = 1_000_000.0;
/// Files open besides the connections.
const OTHER_FILES: u64 = 64;

/// Why a run cannot be made.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Something typed is wrong.
    Usage(String),
    /// What was typed is right, but the target is not there.
    Target(String),
}

fn usage<T>(text: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Usage(text.into()))
}

/// Makes the plan.
pub fn plan(typed: &Typed) -> Result<Plan, Refusal> {
    let threads = count(typed, "threads", 2.0)?;
    let connections = count(typed, "connections", 10.0)?;
    let duration_ns = time(typed, "duration", 10_000_000_000)?;
    if duration_ns == 0 {
        return usage("--duration: must be longer than 0");
    }
    if connections < threads {
        return usage("number of connections must be >= threads");
    }
    let headers = headers(typed)?;
    let targets = targets(typed, &headers)?;
    let timeout_ns = time(typed, "timeout", 2_000_000_000)?;
    let plan = Plan {
        threads,
        steps: vec![Step { connections, length_ns: duration_ns }],
        warmup_ns: time(typed, "warmup", 0)?,
        drain_ns: timeout_ns,
        timeout_ns,
        depth: 1,
        batch_latency: false,
        open: open_loop(typed, duration_ns)?,
        targets,
        sources: Vec::new(),
        abort: false,
        close: asks_to_close(&headers),
        trigger: Trigger::Edge,
        wait: Wait::Hybrid,
        pins: pins(typed)?,
        start_at_unix_ns: start_at(typed)?,
        probe: None,
    };
    check_limits(&plan)?;
    Ok(plan)
}

fn number(typed: &Typed, name: &str, default: f64) -> Result<f64, Refusal> {
    let Some(text) = typed.last(name) else { return Ok(default) };
    match parse_metric(text) {
        Some(number) => Ok(number),
        None => usage(format!("--{name}: '{text}' is no number such as 100 or 1.5k")),
    }
}

fn count(typed: &Typed, name: &str, default: f64) -> Result<usize, Refusal> {
    let number = number(typed, name, default)?;
    if !(1.0..=CONNECTIONS_MAX).contains(&number) || number.fract() != 0.0 {
        return usage(format!("--{name}: must be a whole number from 1 to 1000000"));
    }
    Ok(number as usize)
}

fn time(typed: &Typed, name: &str, default_ns: u64) -> Result<u64, Refusal> {
    let Some(text) = typed.last(name) else { return Ok(default_ns) };
    match parse_time_ns(text) {
        Some(ns) => Ok(ns),
        None => usage(format!("--{name}: '{text}' is no time such as 30s, 500ms or 2m")),
    }
}

fn start_at(typed: &Typed) -> Result<Option<u64>, Refusal> {
    let Some(text) = typed.last("start-at") else { return Ok(None) };
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 => Ok(Some((seconds * 1e9) as u64)),
        _ => usage(format!("--start-at: '{text}' is no time in seconds since 1970")),
    }
}

fn open_loop(typed: &Typed, duration_ns: u64) -> Result<Option<Open>, Refusal> {
    if !typed.has("rate") {
        return Ok(None);
    }
    let rate = number(typed, "rate", 0.0)?;
    if rate <= 0.0 {
        return usage("--rate: must be greater than 0");
    }
    let stretches = vec![Stretch { length_ns: duration_ns, from_rps: rate, to_rps: rate }];
    Ok(Some(Open { stretches, poisson: false, seed: 1, late: Late::Queue }))
}

fn headers(typed: &Typed) -> Result<Vec<(String, String)>, Refusal> {
    let mut fields = Vec::new();
    for text in typed.all("header") {
        match text.split_once(':') {
            Some((name, value)) if !name.is_empty() && !text.contains(['\r', '\n']) => {
                fields.push((name.to_string(), value.trim_start().to_string()));
            }
            _ => return usage(format!("--header: '{text}' is no field such as 'Name: value'")),
        }
    }
    Ok(fields)
}

/// Whether the fields ask for one request per connection.
fn asks_to_close(headers: &[(String, String)]) -> bool {
    headers.iter().any(|(name, value)| {
        name.eq_ignore_ascii_case("connection") && value.trim().eq_ignore_ascii_case("close")
    })
}

fn targets(typed: &Typed, headers: &[(String, String)]) -> Result<Vec<Target>, Refusal> {
    let Some(text) = typed.words.first() else {
        return usage("a URL is missing, such as http://127.0.0.1:8080/");
    };
    let Some(url) = Url::parse(text) else { return usage(format!("invalid URL: {text}")) };
    let address = resolve(&url)?;
    let host = url.host_header();
    let request = Request { method: "GET", path: &url.path, host: &host, headers, body: None };
    Ok(vec![Target {
        url: text.clone(),
        address,
        tls_name: url.is_tls().then(|| url.host.clone()),
        requests: vec![Rendered { bytes: request.render(), head_only: false }],
        order: weighted_order(&[1]),
    }])
}

/// The first address behind a URL that takes a connection.
pub fn resolve(url: &Url) -> Result<Address, Refusal> {
    let refused = |reason: &dyn std::fmt::Display| {
        let service = url.port.clone().unwrap_or_else(|| url.scheme.clone());
        Refusal::Target(format!("unable to connect to {}:{service} {reason}", url.host))
    };
    if url.scheme == "unix" {
        let path = std::path::PathBuf::from(&url.host);
        UnixStream::connect(&path).map_err(|error| refused(&error))?;
        return Ok(Address::Unix(path));
    }
    let found = (url.host.as_str(), url.port_number()).to_socket_addrs();
    let addresses = found.map_err(|error| {
        Refusal::Target(format!("unable to resolve {}: {error}", url.host))
    })?;
    let mut last = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, Duration::from_secs(5)) {
            Ok(_) => return Ok(Address::Inet(address)),
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(|| refused(&"no address"), |error| refused(&error)))
}

/// Cores such as `2-5,8`.
fn pins(typed: &Typed) -> Result<Vec<usize>, Refusal> {
    let Some(text) = typed.last("pin") else { return Ok(Vec::new()) };
    let wrong = || Refusal::Usage(format!("--pin: '{text}' is no list of cores such as 2-5,8"));
    let allowed = affinity::allowed();
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let from: usize = from.trim().parse().map_err(|_| wrong())?;
        let to: usize = to.trim().parse().map_err(|_| wrong())?;
        if from > to {
            return Err(wrong());
        }
        cores.extend(from..=to.min(from + 4096));
    }
    if let Some(core) = cores.iter().find(|core| !allowed.contains(core)) {
        return usage(format!("--pin: core {core} is not among those of this process {allowed:?}"));
    }
    Ok(cores)
}

fn check_limits(plan: &Plan) -> Result<(), Refusal> {
    if !plan.pins.is_empty() && plan.pins.len() < plan.threads {
        let (cores, threads) = (plan.pins.len(), plan.threads);
        return usage(format!("--pin: {cores} cores for {threads} threads; give one for each"));
    }
    let wanted = plan.connections_max() as u64 + OTHER_FILES;
    let allowed = affinity::allow_files(wanted);
    if allowed < wanted {
        return usage(format!(
            "--connections: needs {wanted} open files, {allowed} are allowed; raise it with ulimit -n"
        ));
    }
    Ok(())
}
