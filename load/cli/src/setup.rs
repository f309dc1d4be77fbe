//! From what was typed to what it means: a checked [`Plan`].

use crate::conditions::expect;
use crate::curve;
use crate::options::Typed;
use crate::raw;
use crate::replay::Log;
use crate::sockets;
use crate::targets::{targets, Common, Protocol};
use crate::units::parse_time_ns;
use crate::values::{choice, count, number, pins, ramp, sources, start_at, time, usage, whole};
use crate::values::{Ramp, Refusal};
use load_engine::plan::{Dispatch, Late, Open, Plan, Probe, Step, Target, Think, TlsOptions, Wait};
use load_engine::schedule::Stretch;
use load_engine::sys::affinity;
use load_engine::sys::control::Control;
use load_engine::sys::epoll::Trigger;
use load_engine::sys::socket::Address;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;

/// Files open besides the connections.
const OTHER_FILES: u64 = 64;
/// Shortest step: its figures have to be handed over when it ends.
const STEP_MIN_NS: u64 = 10_000_000;
/// Most requests in a batch.
const DEPTH_MAX: usize = 10_000;

/// Makes the plan for the URLs in `words`.
pub fn plan(typed: &Typed, words: &[String]) -> Result<Plan, Refusal> {
    let depth = count(typed, "depth", 1.0)?;
    let streams = count(typed, "streams", 1.0)?;
    check_http2(typed, depth, streams)?;
    if typed.has("dispatch") && !is_open(typed) {
        return usage("--dispatch: is for an open loop; give a rate (-R)");
    }
    if depth > DEPTH_MAX {
        return usage(format!("--depth: out of range (at most {DEPTH_MAX})"));
    }
    let log = Log::read(typed)?;
    let (steps, stretches) = match &log {
        Some(log) => steps_of_log(typed, log)?,
        None => steps(typed)?,
    };
    if typed.has("threads") {
        // known without the targets, whose names may take a while to resolve
        threads(typed, &steps, 0)?;
    }
    let common = Common::read(typed, depth)?;
    if is_http2(typed) && common.asks_to_close() {
        return usage("--header: 'Connection: close' is of HTTP/1.1; leave it out with --http2");
    }
    let window = count(typed, "window", 1.0)?;
    if window > STREAMS_MAX {
        return usage(format!("--window: out of range (at most {STREAMS_MAX})"));
    }
    let (mut targets, protocol) = targets(typed, words, &common)?;
    if let Some(log) = &log {
        common.replay(&mut targets, protocol, words, log)?;
    }
    let websocket = protocol == Protocol::WebSocket;
    let message_bytes = targets[0].requests[0].bytes.len();
    let raw = raw::options(typed, protocol, message_bytes, window)?;
    if websocket {
        check_websocket(typed, &common)?;
    }
    let threads = threads(typed, &steps, targets.len())?;
    let timeout_ns = time(typed, "timeout", 2_000_000_000)?;
    if timeout_ns == 0 {
        return usage("--timeout: must be greater than 0");
    }
    let connect_timeout_ns = time(typed, "connect-timeout", timeout_ns)?;
    if connect_timeout_ns == 0 {
        return usage("--connect-timeout: must be longer than 0");
    }
    let tls = tls(typed, &targets)?;
    let expect = expect(typed)?;
    let socket = sockets::options(typed)?;
    let proxy_header = sockets::proxy_header(typed, &targets)?;
    let requests = requests(typed)?;
    if protocol != Protocol::Http && (expect.status.is_some() || expect.body.is_some()) {
        return usage("--expect: of a message only the length can be expected");
    }
    let mut plan = Plan {
        threads,
        steps,
        warmup_ns: time(typed, "warmup", 0)?,
        drain_ns: time(typed, "drain", timeout_ns)?,
        timeout_ns,
        connect_timeout_ns,
        depth,
        http2: is_http2(typed),
        websocket,
        grpc: typed.has("grpc"),
        raw,
        streams: if raw.is_some() { window } else { streams },
        // as wrk and wrk2: with a rate each answer is recorded, without one each batch
        batch_latency: typed.has("batch_latency") || !is_open(typed),
        open: stretches
            .map(|stretches| open_loop(typed, stretches, log.as_ref()))
            .transpose()?,
        socket,
        proxy_header,
        requests,
        per_connection: per_connection(typed)?,
        expect,
        deadline_ns: deadline(typed)?,
        all_addresses: choice(typed, "addresses", &[("first", false), ("all", true)])?,
        tls,
        sources: sources(typed)?,
        abort: typed.has("abort"),
        close: common.asks_to_close(),
        trigger: choice(
            typed,
            "epoll",
            &[("edge", Trigger::Edge), ("level", Trigger::Level)],
        )?,
        wait: choice(
            typed,
            "wait",
            &[
                ("hybrid", Wait::Hybrid),
                ("sleep", Wait::Sleep),
                ("spin", Wait::Spin),
            ],
        )?,
        coalesce: choice(typed, "coalesce", &[("auto", true), ("never", false)])?,
        think: think(typed)?,
        drop_bodies: drop_bodies(typed, &targets)?,
        pins: pins(typed)?,
        realtime: typed.has("realtime"),
        start_at_unix_ns: start_at(typed)?,
        probe: probe(typed)?,
        timestamps: typed.has("rx-timestamps"),
        sink: typed.has("sink"),
        control: None,
        targets,
    };
    check_limits(typed, &plan)?;
    plan.control = control(typed, &plan)?;
    Ok(plan)
}

/// The file of `--control`, put in place.
fn control(typed: &Typed, plan: &Plan) -> Result<Option<Arc<Control>>, Refusal> {
    let Some(path) = typed.last("control") else {
        return Ok(None);
    };
    if plan.open.is_some() || plan.probe.is_some() {
        let name = if plan.open.is_some() { "rate" } else { "probe" };
        return usage(format!(
            "--control: only a closed loop can be held back; leave out --{name}"
        ));
    }
    match Control::create(Path::new(path), plan.threads) {
        Ok(control) => Ok(Some(Arc::new(control))),
        Err(error) => usage(format!("--control: cannot make {path}: {error}")),
    }
}

/// Threads that send: as typed; without it two, or one where the connections are too few for that.
fn threads(typed: &Typed, steps: &[Step], targets: usize) -> Result<usize, Refusal> {
    let fewest = steps.iter().map(|step| step.connections).min().unwrap_or(1);
    // a script has one target; in an open loop each thread sends to all of them
    let targets = if typed.has("script") { 1 } else { targets };
    let each = if is_open(typed) { targets } else { 1 };
    let default = (fewest / each.max(1)).clamp(1, 2);
    let threads = count(typed, "threads", default as f64)?;
    if fewest < threads {
        return usage("number of connections must be >= threads");
    }
    if fewest < targets {
        return usage(format!(
            "--connections: {fewest} for {targets} servers would leave some without any; give at \
             least one for each"
        ));
    }
    if fewest / threads < each {
        return usage(format!(
            "--connections: {fewest} on {threads} threads leave a thread with fewer than the \
             {targets} servers that it sends to; give at least {}, or fewer threads (-t)",
            targets * threads
        ));
    }
    Ok(threads)
}

/// Most streams of a connection; servers allow 100 to 256 as a rule.
const STREAMS_MAX: usize = 10_000;

/// Calls of gRPC go over HTTP/2 only.
fn is_http2(typed: &Typed) -> bool {
    typed.has("http2") || typed.has("grpc")
}

/// What HTTP/2 does otherwise, or cannot do here.
fn check_http2(typed: &Typed, depth: usize, streams: usize) -> Result<(), Refusal> {
    if typed.has("grpc") && typed.has("script") {
        return usage(
            "--grpc: does not work with --script (set the message with --body or --body-file)",
        );
    }
    if !is_http2(typed) {
        return if typed.has("streams") {
            usage("--streams: needs --http2 (for HTTP/1.1 use --depth)")
        } else {
            Ok(())
        };
    }
    if streams > STREAMS_MAX {
        return usage(format!("--streams: out of range (at most {STREAMS_MAX})"));
    }
    if depth != 1 {
        return usage("--depth: does not work with --http2 (use --streams)");
    }
    let without = [
        (
            "sink",
            "does not work with --http2 (the null server speaks HTTP/1.1 only)",
        ),
        ("rx-timestamps", "does not work with --http2"),
    ];
    match without.iter().find(|(name, _)| typed.has(name)) {
        Some((name, why)) => usage(format!("--{name}: {why}")),
        None => Ok(()),
    }
}

/// What does not go with messages of WebSocket.
fn check_websocket(typed: &Typed, common: &Common) -> Result<(), Refusal> {
    let without = [
        ("http2", "does not work with ws:// (an upgrade of HTTP/1.1)"),
        ("grpc", "does not work with ws://"),
        (
            "script",
            "does not work with ws:// (set the message with --body)",
        ),
        ("method", "does not work with ws:// (the upgrade is a GET)"),
        ("rx-timestamps", "does not work with ws://"),
    ];
    if let Some((name, why)) = without.iter().find(|(name, _)| typed.has(name)) {
        return usage(format!("--{name}: {why}"));
    }
    if common.asks_to_close() {
        return usage("--header: 'Connection: close' does not work with ws:// (remove it)");
    }
    Ok(())
}

/// Connections and rates over the window. Where both go in steps, they go together.
fn steps(typed: &Typed) -> Result<(Vec<Step>, Option<Vec<Stretch>>), Refusal> {
    if let Some(path) = typed.last("rate").and_then(curve::file) {
        return steps_of_curve(typed, curve::read(path)?);
    }
    let connections = ramp(typed, "connections", 10.0)?;
    if connections.by.is_none() && connections.from != connections.to {
        return usage("--connections: a ramp needs steps (for example 700..2000:100)");
    }
    let rate = if typed.has("rate") {
        Some(ramp(typed, "rate", 0.0)?)
    } else {
        None
    };
    let counts = connections.steps();
    let rates = rate.map_or(Vec::new(), |rate| rate.steps());
    let n = counts.len().max(rates.len());
    if counts.len() > 1 && rates.len() > 1 && counts.len() != rates.len() {
        let (a, b) = (counts.len(), rates.len());
        return usage(format!(
            "--connections: {a} steps, but --rate has {b} (make them equal)"
        ));
    }
    let length_ns = step_length(typed, n)?;
    let counts: Result<Vec<Step>, Refusal> = (0..n)
        .map(|step| {
            let figure = counts[step.min(counts.len() - 1)];
            Ok(Step {
                connections: whole("connections", figure)?,
                length_ns,
            })
        })
        .collect();
    Ok((
        counts?,
        rate.map(|rate| stretches(rate, n, length_ns)).transpose()?,
    ))
}

/// An open loop: requests are due at a rate, or as they came before.
fn is_open(typed: &Typed) -> bool {
    typed.has("rate") || typed.has("replay")
}

/// The window of a log, with its mean rate.
fn steps_of_log(typed: &Typed, log: &Log) -> Result<(Vec<Step>, Option<Vec<Stretch>>), Refusal> {
    let length_ns = log.length_ns();
    let mean_rps = log.order.len() as f64 * 1e9 / length_ns as f64;
    let step = Step {
        connections: count(typed, "connections", 10.0)?,
        length_ns,
    };
    let stretch = Stretch {
        length_ns,
        from_rps: mean_rps,
        to_rps: mean_rps,
    };
    Ok((vec![step], Some(vec![stretch])))
}

/// A curve from a file has the length of the window in it.
fn steps_of_curve(
    typed: &Typed,
    stretches: Vec<Stretch>,
) -> Result<(Vec<Step>, Option<Vec<Stretch>>), Refusal> {
    for name in ["duration", "step"] {
        if typed.has(name) {
            return usage(format!(
                "--{name}: does not work with a rate from a file, whose last point is the end"
            ));
        }
    }
    let step = Step {
        connections: count(typed, "connections", 10.0)?,
        length_ns: stretches.iter().map(|stretch| stretch.length_ns).sum(),
    };
    Ok((vec![step], Some(stretches)))
}

fn step_length(typed: &Typed, steps: usize) -> Result<u64, Refusal> {
    // with a number of requests the time is only a bound
    let default_ns = if typed.has("requests") {
        24 * 3600 * 1_000_000_000
    } else {
        10_000_000_000
    };
    let duration_ns = time(typed, "duration", default_ns)?;
    let length_ns = time(typed, "step", duration_ns / steps as u64)?;
    if duration_ns == 0 || (steps == 1 && length_ns == 0) {
        return usage("--duration: must be greater than 0");
    }
    if steps > 1 && length_ns < STEP_MIN_NS {
        return usage(format!(
            "--duration: leaves {:.1} ms for each of {steps} steps (at least 10 ms)",
            length_ns as f64 / 1e6
        ));
    }
    Ok(length_ns)
}

fn stretches(rate: Ramp, steps: usize, length_ns: u64) -> Result<Vec<Stretch>, Refusal> {
    if rate.from <= 0.0 && rate.to <= 0.0 {
        return usage("--rate: must be greater than 0");
    }
    if rate.by.is_none() && rate.from != rate.to {
        let length_ns = length_ns * steps as u64;
        return Ok(vec![Stretch {
            length_ns,
            from_rps: rate.from,
            to_rps: rate.to,
        }]);
    }
    let rates = rate.steps();
    let each = (0..steps).map(|step| {
        let rps = rates[step.min(rates.len() - 1)];
        Stretch {
            length_ns,
            from_rps: rps,
            to_rps: rps,
        }
    });
    Ok(each.collect())
}

/// wrk2's way first: a rate there belongs to connections.
const DISPATCH: [(&str, Dispatch); 3] = [
    ("pinned", Dispatch::Pinned),
    ("any", Dispatch::Any),
    ("random", Dispatch::Random),
];

fn open_loop(typed: &Typed, stretches: Vec<Stretch>, log: Option<&Log>) -> Result<Open, Refusal> {
    Ok(Open {
        stretches,
        recorded: log.map(|log| Arc::clone(&log.times_ns)),
        poisson: choice(typed, "arrival", &[("even", false), ("poisson", true)])?,
        seed: number(typed, "seed", 1.0)? as u64,
        dispatch: choice(typed, "dispatch", &DISPATCH)?,
        late: choice(
            typed,
            "late",
            &[("queue", Late::Queue), ("drop", Late::Drop)],
        )?,
    })
}

/// The options of TLS, which need an https or wss URL.
fn tls(typed: &Typed, targets: &[Target]) -> Result<TlsOptions, Refusal> {
    let names = [
        "tls-version",
        "tls-groups",
        "tls-ciphers",
        "sni",
        "ca",
        "cert",
        "key",
        "tls-resume",
        "early-data",
    ];
    if targets.iter().all(|target| target.tls_name.is_none()) {
        if let Some(name) = names.iter().find(|name| typed.has(name)) {
            return usage(format!("--{name}: is for https:// and wss://"));
        }
    }
    let list = |name: &str| -> Vec<String> {
        let text = typed.last(name).unwrap_or_default();
        let words = text
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty());
        words.map(String::from).collect()
    };
    let identity = match (typed.last("cert"), typed.last("key")) {
        (Some(certificate), key) => Some((certificate.into(), key.unwrap_or(certificate).into())),
        (None, Some(_)) => {
            return usage("--key: needs the certificate that it belongs to (--cert)")
        }
        (None, None) => None,
    };
    Ok(TlsOptions {
        versions: list("tls-version"),
        groups: list("tls-groups"),
        ciphers: list("tls-ciphers"),
        name: typed.last("sni").map(String::from),
        authorities: typed.last("ca").map(Into::into),
        identity,
        resumes: typed.has("tls-resume") || typed.has("early-data"),
        early_data: early_data(typed, targets)?,
    })
}

/// Whether first requests are sent with the handshake. HTTP/2 and WebSocket begin with an exchange of
/// their own.
fn early_data(typed: &Typed, targets: &[Target]) -> Result<bool, Refusal> {
    if !typed.has("early-data") {
        return Ok(false);
    }
    if is_http2(typed) {
        return usage("--early-data: does not work with --http2");
    }
    if targets.iter().any(|target| target.upgrade.is_some()) {
        return usage("--early-data: does not work with wss://");
    }
    let versions = typed.last("tls-version");
    if versions.is_some_and(|versions| !versions.contains("1.3")) {
        return usage("--early-data: needs TLS 1.3 (--tls-version)");
    }
    Ok(true)
}

/// `--think TIME` or `--think A..B`.
fn think(typed: &Typed) -> Result<Option<Think>, Refusal> {
    let Some(text) = typed.last("think") else {
        return Ok(None);
    };
    if is_open(typed) {
        return usage("--think: is for a closed loop; with a rate the schedule decides");
    }
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    match (parse_time_ns(least), parse_time_ns(most)) {
        (Some(least_ns), Some(most_ns)) if least_ns <= most_ns => {
            Ok(Some(Think { least_ns, most_ns }))
        }
        _ => usage(format!(
            "--think: invalid time '{text}' (for example 100ms or 50ms..2s)"
        )),
    }
}

/// Whether bodies are dropped in the kernel, which only a plain TCP socket can do.
fn drop_bodies(typed: &Typed, targets: &[Target]) -> Result<bool, Refusal> {
    let is_wanted = choice(typed, "bodies", &[("read", false), ("drop", true)])?;
    let is_plain = |target: &Target| {
        let is_tcp = matches!(target.address, Address::Inet(_));
        is_tcp && target.tls_name.is_none() && target.upgrade.is_none()
    };
    let is_other = is_http2(typed) || typed.has("rx-timestamps");
    if is_wanted && (is_other || !targets.iter().all(is_plain)) {
        return usage(
            "--bodies: drop is for HTTP/1.1 by http:// over TCP, without --rx-timestamps",
        );
    }
    Ok(is_wanted)
}

/// Requests of the whole run.
fn requests(typed: &Typed) -> Result<Option<u64>, Refusal> {
    if !typed.has("requests") {
        return Ok(None);
    }
    let figure = number(typed, "requests", 1.0)?;
    if figure < 1.0 || figure.fract() != 0.0 {
        return usage("--requests: must be a whole number of at least 1");
    }
    if typed.has("warmup") {
        return usage("--requests: is not for --warmup, whose requests would be among them");
    }
    Ok(Some(figure as u64))
}

fn per_connection(typed: &Typed) -> Result<Option<u16>, Refusal> {
    if !typed.has("requests-per-connection") {
        return Ok(None);
    }
    let figure = count(typed, "requests-per-connection", 1.0)?;
    match u16::try_from(figure) {
        Ok(figure) => Ok(Some(figure)),
        Err(_) => usage("--requests-per-connection: must be at most 65535"),
    }
}

fn deadline(typed: &Typed) -> Result<Option<u64>, Refusal> {
    if !typed.has("deadline") {
        return Ok(None);
    }
    if !is_open(typed) {
        return usage("--deadline: is for an open loop; give a rate (-R)");
    }
    time(typed, "deadline", 0).map(Some)
}

fn probe(typed: &Typed) -> Result<Option<Probe>, Refusal> {
    if !typed.has("probe") {
        return Ok(None);
    }
    let rate_rps = number(typed, "probe", 10.0)?;
    if rate_rps <= 0.0 {
        return usage("--probe: must be greater than 0");
    }
    Ok(Some(Probe {
        rate_rps,
        connections: count(typed, "probe-connections", 2.0)?,
    }))
}

/// Why the threads may not have real-time priority; tried on one that ends at once.
fn refused_realtime(plan: &Plan) -> Option<std::io::Error> {
    if !plan.realtime {
        return None;
    }
    // a thread that panics was not refused, and the run's own threads would report it
    let tried = std::thread::spawn(affinity::become_realtime).join();
    tried.ok().and_then(Result::err)
}

/// Addresses from which no target could be reached.
fn check_sources(plan: &Plan) -> Result<(), Refusal> {
    if plan.all_addresses && !plan.sources.is_empty() {
        return usage("--addresses: all is not for --source, whose addresses have one family");
    }
    for source in &plan.sources {
        if let Err(error) = UdpSocket::bind((*source, 0)) {
            return usage(format!(
                "--source: {source}: {error} (is it an address of this machine?)"
            ));
        }
        for target in &plan.targets {
            let Address::Inet(address) = target.address else {
                continue;
            };
            if address.is_ipv4() != source.is_ipv4() {
                return usage(format!(
                    "--source: {source} cannot reach {address}: one is IPv4, the other IPv6"
                ));
            }
        }
    }
    Ok(())
}

fn check_limits(typed: &Typed, plan: &Plan) -> Result<(), Refusal> {
    check_sources(plan)?;
    let tcp =
        |target: &Target| target.tls_name.is_none() && matches!(target.address, Address::Inet(_));
    if typed.has("rx-timestamps") && !plan.targets.iter().all(tcp) {
        return usage("--rx-timestamps: needs http:// over TCP");
    }
    if let Some(error) = refused_realtime(plan) {
        return usage(format!(
            "--realtime: {error} (run as root, with CAP_SYS_NICE, or raise ulimit -r)"
        ));
    }
    if !plan.pins.is_empty() && plan.pins.len() < plan.threads {
        let (cores, threads) = (plan.pins.len(), plan.threads);
        return usage(format!(
            "--pin: {cores} cores for {threads} threads (one per thread is needed)"
        ));
    }
    // the null server inside this program has the other end of each
    let ends = if plan.sink { 2 } else { 1 };
    let wanted = ends * plan.connections_max() as u64 + OTHER_FILES;
    let allowed = affinity::allow_files(wanted);
    if allowed < wanted {
        return usage(format!(
            "--connections: needs {wanted} open files, but {allowed} are allowed (raise ulimit -n)"
        ));
    }
    Ok(())
}
