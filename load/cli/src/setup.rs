//! Turns the parsed command line into a checked [`Plan`].

use crate::http3;
use crate::raw;
use crate::refusal::{because, usage, wrong, Mistake, Refusal, Wrong};
use crate::replay::Log;
use crate::scheme::Scheme;
use crate::sockets;
use crate::table::Args;
use crate::targets::{targets, Common};
use crate::values::{whole, Addresses, Arrival, Bodies, Coalesce, List, Ramp, Rate};
use load_engine::plan::{Closed, Open, Pace, Plan, Probe, Protocol, Step, Target, TlsOptions};
use load_engine::schedule::Stretch;
use load_engine::sys::affinity;
use load_engine::sys::control::Control;
use load_engine::sys::socket::Address;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;

/// Files open besides the connections.
const OTHER_FILES: u64 = 64;
/// Of each thread: its set of connections and the alarm in it.
const FILES_OF_THREAD: u64 = 2;
/// Shortest step: its figures have to be handed over when it ends.
const STEP_MIN_NS: u64 = 10_000_000;
/// Most requests in a batch.
const DEPTH_MAX: usize = 10_000;

/// Makes the plan for the URLs in `words`; and what its requests are made of, as files may be pipes that are read
/// once.
pub fn plan(args: &Args, words: &[String]) -> Result<(Plan, Common), Refusal> {
    let depth = args.depth.0;
    let streams = args.streams.0;
    check_streams(args, depth, streams)?;
    if args.has("dispatch") && !is_open(args) {
        return wrong("dispatch", Wrong::OnlyFor("an open loop; give a rate (-R)"));
    }
    if depth > DEPTH_MAX {
        return wrong(
            "depth",
            Wrong::OutOfRange(format!("at most {DEPTH_MAX}").into()),
        );
    }
    if depth != 1 && args.script.is_some() {
        return wrong(
            "depth",
            Wrong::Clash("--script (return several requests in one text)".into()),
        );
    }
    let log = Log::read(args)?;
    let (steps, stretches) = match &log {
        Some(log) => steps_of_log(args, log)?,
        None => steps(args)?,
    };
    if args.threads.is_some() {
        // known without the targets, whose names may take a while to resolve
        threads(args, &steps, 0)?;
    }
    let common = Common::read(args, depth)?;
    if let (Some(version), true) = (streams_by(args), common.asks_to_close()) {
        let why = format!("'Connection: close' is of HTTP/1.1; leave it out with --{version}");
        return because("header", why);
    }
    let window = args.window.0;
    if window > STREAMS_MAX {
        return wrong(
            "window",
            Wrong::OutOfRange(format!("at most {STREAMS_MAX}").into()),
        );
    }
    let (mut targets, scheme) = targets(args, words, &common)?;
    if let Some(log) = &log {
        common.replay(&mut targets, scheme, words, log)?;
    }
    raw::check(args, scheme, targets[0].requests[0].bytes.len())?;
    if scheme == Scheme::WebSocket {
        check_websocket(args, &common)?;
    }
    http3::check(args, &targets)?;
    let threads = threads(args, &steps, targets.len())?;
    let timeout_ns = args.timeout.0;
    if timeout_ns == 0 {
        return wrong("timeout", Wrong::Zero);
    }
    let connect_timeout_ns = args.connect_timeout.map_or(timeout_ns, |time| time.0);
    if connect_timeout_ns == 0 {
        return because("connect-timeout", "must be longer than 0");
    }
    let sources = args.source.clone().map_or(Vec::new(), |list| list.0);
    keep_reachable(&mut targets, &sources);
    let tls = tls(args, &targets)?;
    let expect = args.expect.clone();
    let socket = sockets::options(args, threads)?;
    let proxy_header = sockets::proxy_header(args, &targets)?;
    let requests = requests(args)?;
    if scheme != Scheme::Http && (expect.status.is_some() || expect.body.is_some()) {
        return because("expect", "of a message only the length can be expected");
    }
    let pace = match stretches {
        Some(stretches) => Pace::Open(open_loop(args, stretches, log.as_ref())),
        None => Pace::Closed(Closed {
            think: args.think,
            control: None,
        }),
    };
    check_pace(args)?;
    let mut plan = Plan {
        threads,
        steps,
        warmup_ns: args.warmup.map_or(0, |time| time.0),
        drain_ns: args.drain.map_or(timeout_ns, |time| time.0),
        timeout_ns,
        connect_timeout_ns,
        protocol: protocol(args, scheme, &targets)?,
        // as wrk and wrk2: with a rate each answer is recorded, without one each batch
        batch_latency: args.batch_latency || !is_open(args),
        pace,
        socket,
        proxy_header,
        requests,
        per_connection: per_connection(args)?,
        expect,
        all_addresses: args.addresses == Addresses::All,
        tls,
        sources,
        abort: args.abort,
        close: common.asks_to_close(),
        trigger: args.epoll,
        wait: args.wait,
        busy_poll_us: sockets::busy_poll(args)?,
        coalesce: args.coalesce == Coalesce::Auto,
        pins: args.pin.clone().map_or(Vec::new(), |cores| cores.0),
        realtime: args.realtime,
        start_at_unix_ns: args.start_at.map(|time| time.0),
        probe: probe(args)?,
        sink: args.sink,
        targets,
    };
    check_limits(args, &plan)?;
    if let Pace::Closed(closed) = &mut plan.pace {
        closed.control = control(args, plan.threads)?;
    }
    Ok((plan, common))
}

/// The file of `--control`, put in place.
fn control(args: &Args, threads: usize) -> Result<Option<Arc<Control>>, Refusal> {
    let Some(path) = &args.control else {
        return Ok(None);
    };
    match Control::create(Path::new(path), threads) {
        Ok(control) => Ok(Some(Arc::new(control))),
        Err(error) => because("control", format!("cannot make {path}: {error}")),
    }
}

/// Threads that send: as typed; without it two, or one where the connections are too few for that.
fn threads(args: &Args, steps: &[Step], targets: usize) -> Result<usize, Refusal> {
    let fewest = steps.iter().map(|step| step.connections).min().unwrap_or(1);
    // a script has one target; in an open loop each thread sends to all of them
    let targets = if args.script.is_some() { 1 } else { targets };
    let each = if is_open(args) { targets } else { 1 };
    let default = (fewest / each.max(1)).clamp(1, 2);
    let threads = args.threads.map_or(default, |threads| threads.0);
    if fewest < threads {
        return usage(Mistake::TooFewConnections);
    }
    if fewest < targets {
        let why = format!(
            "{fewest} for {targets} servers would leave some without any; give at least one for each"
        );
        return because("connections", why);
    }
    if fewest / threads < each {
        let why = format!(
            "{fewest} on {threads} threads leave a thread with fewer than the {targets} servers \
             that it sends to; give at least {}, or fewer threads (-t)",
            targets * threads
        );
        return because("connections", why);
    }
    Ok(threads)
}

/// Most streams of a connection; servers allow 100 to 256 as a rule.
const STREAMS_MAX: usize = 10_000;

/// Calls of gRPC go over HTTP/2 only.
fn is_http2(args: &Args) -> bool {
    args.http2 || args.grpc
}

/// The option that puts requests on streams, if one does.
fn streams_by(args: &Args) -> Option<&'static str> {
    if is_http2(args) {
        return Some("http2");
    }
    args.http3.then_some("http3")
}

/// Refuses options that do not go with protocols that have streams.
fn check_streams(args: &Args, depth: usize, streams: usize) -> Result<(), Refusal> {
    if args.grpc && args.script.is_some() {
        return wrong(
            "grpc",
            Wrong::Clash("--script (set the message with --body or --body-file)".into()),
        );
    }
    if args.http3 && is_http2(args) {
        let other = if args.grpc { "--grpc" } else { "--http2" };
        return wrong(
            "http3",
            Wrong::Clash(format!("{other} (remove one)").into()),
        );
    }
    let Some(version) = streams_by(args) else {
        return if args.has("streams") {
            wrong(
                "streams",
                Wrong::Needs("--http2 or --http3 (for HTTP/1.1 use --depth)"),
            )
        } else {
            Ok(())
        };
    };
    if streams > STREAMS_MAX {
        return wrong(
            "streams",
            Wrong::OutOfRange(format!("at most {STREAMS_MAX}").into()),
        );
    }
    if depth != 1 {
        let why = format!("--{version} (use --streams)");
        return wrong("depth", Wrong::Clash(why.into()));
    }
    let without = [
        ("sink", " (the null server speaks HTTP/1.1 only)"),
        ("rx-timestamps", ""),
    ];
    match without.iter().find(|(name, _)| args.has(name)) {
        Some((name, why)) => wrong(name, Wrong::Clash(format!("--{version}{why}").into())),
        None => Ok(()),
    }
}

/// What does not go with messages of WebSocket.
fn check_websocket(args: &Args, common: &Common) -> Result<(), Refusal> {
    let without = [
        ("http2", "does not work with ws:// (an upgrade of HTTP/1.1)"),
        ("http3", "does not work with ws:// (an upgrade of HTTP/1.1)"),
        ("grpc", "does not work with ws://"),
        (
            "script",
            "does not work with ws:// (set the message with --body)",
        ),
        ("method", "does not work with ws:// (the upgrade is a GET)"),
        ("rx-timestamps", "does not work with ws://"),
    ];
    if let Some((name, why)) = without.iter().find(|(name, _)| args.has(name)) {
        return because(name, *why);
    }
    if common.asks_to_close() {
        return because(
            "header",
            "'Connection: close' does not work with ws:// (remove it)",
        );
    }
    if common.has_header("Sec-WebSocket-Extensions") {
        return because(
            "header",
            "'Sec-WebSocket-Extensions' does not work with ws://: compression is not supported (remove it)",
        );
    }
    Ok(())
}

/// Connections and rates over the window. Where both go in steps, they go together.
fn steps(args: &Args) -> Result<(Vec<Step>, Option<Vec<Stretch>>), Refusal> {
    let rate = match &args.rate {
        Some(Rate::Curve(stretches)) => return steps_of_curve(args, stretches.clone()),
        Some(Rate::Ramp(ramp)) => Some(*ramp),
        None => None,
    };
    let connections = args.connections;
    if connections.by.is_none() && connections.from != connections.to {
        return because(
            "connections",
            "a ramp needs steps (for example 700..2000:100)",
        );
    }
    let is_stepped = connections.by.is_some() || rate.is_some_and(|rate| rate.by.is_some());
    if args.step.is_some() && !is_stepped {
        return wrong(
            "step",
            Wrong::Needs("a ramp in steps, such as -R 1k..10k:1k"),
        );
    }
    let counts = connections.steps();
    let rates = rate.map_or(Vec::new(), |rate| rate.steps());
    let n = counts.len().max(rates.len());
    if counts.len() > 1 && rates.len() > 1 && counts.len() != rates.len() {
        let (a, b) = (counts.len(), rates.len());
        return because(
            "connections",
            format!("{a} steps, but --rate has {b} (make them equal)"),
        );
    }
    let length_ns = step_length(args, n)?;
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
fn is_open(args: &Args) -> bool {
    args.rate.is_some() || args.replay.is_some()
}

/// Connections of a run whose load a file has.
fn same_connections(args: &Args) -> Result<usize, Refusal> {
    let ramp = args.connections;
    if ramp.by.is_some() || ramp.from != ramp.to {
        return because(
            "connections",
            "cannot be a ramp where the load is from a file",
        );
    }
    whole("connections", ramp.from)
}

/// The window of a log, with its mean rate.
fn steps_of_log(args: &Args, log: &Log) -> Result<(Vec<Step>, Option<Vec<Stretch>>), Refusal> {
    let length_ns = log.length_ns();
    let mean_rps = log.order.len() as f64 * 1e9 / length_ns as f64;
    let step = Step {
        connections: same_connections(args)?,
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
    args: &Args,
    stretches: Vec<Stretch>,
) -> Result<(Vec<Step>, Option<Vec<Stretch>>), Refusal> {
    if let Some(name) = args.first_of(&["duration", "step"]) {
        return wrong(
            name,
            Wrong::Clash("a rate from a file, whose last point is the end".into()),
        );
    }
    let step = Step {
        connections: same_connections(args)?,
        length_ns: stretches.iter().map(|stretch| stretch.length_ns).sum(),
    };
    Ok((vec![step], Some(stretches)))
}

fn step_length(args: &Args, steps: usize) -> Result<u64, Refusal> {
    // with a number of requests the time is only a bound
    let default_ns = if args.requests.is_some() {
        24 * 3600 * 1_000_000_000
    } else {
        10_000_000_000
    };
    let duration_ns = args.duration.map_or(default_ns, |time| time.0);
    let length_ns = args.step.map_or(duration_ns / steps as u64, |time| time.0);
    if args.duration.is_some()
        && args
            .step
            .is_some_and(|step| step.0.checked_mul(steps as u64) != Some(duration_ns))
    {
        let why = format!("its {steps} steps do not make the --duration (leave one of them out)");
        return because("step", why);
    }
    if duration_ns == 0 || (steps == 1 && length_ns == 0) {
        return wrong("duration", Wrong::Zero);
    }
    if steps > 1 && length_ns < STEP_MIN_NS {
        return because(
            "duration",
            format!(
                "leaves {:.1} ms for each of {steps} steps (at least 10 ms)",
                length_ns as f64 / 1e6
            ),
        );
    }
    Ok(length_ns)
}

fn stretches(rate: Ramp, steps: usize, length_ns: u64) -> Result<Vec<Stretch>, Refusal> {
    if rate.from <= 0.0 && rate.to <= 0.0 {
        return wrong("rate", Wrong::Zero);
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

fn open_loop(args: &Args, stretches: Vec<Stretch>, log: Option<&Log>) -> Open {
    Open {
        stretches,
        recorded: log.map(|log| Arc::clone(&log.times_ns)),
        poisson: args.arrival == Arrival::Poisson,
        seed: args.seed.0 as u64,
        dispatch: args.dispatch,
        late: args.late,
        deadline_ns: args.deadline.map(|time| time.0),
    }
}

/// The options of TLS, which need an https or wss URL.
fn tls(args: &Args, targets: &[Target]) -> Result<TlsOptions, Refusal> {
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
        if let Some(name) = args.first_of(&names) {
            return wrong(name, Wrong::OnlyFor("https:// and wss://"));
        }
    }
    let list = |list: &Option<List>| list.clone().map_or(Vec::new(), |list| list.0);
    let identity = match (&args.cert, &args.key) {
        (Some(certificate), key) => Some((
            certificate.into(),
            key.as_ref().unwrap_or(certificate).into(),
        )),
        (None, Some(_)) => {
            return wrong(
                "key",
                Wrong::Needs("the certificate that it belongs to (--cert)"),
            )
        }
        (None, None) => None,
    };
    Ok(TlsOptions {
        versions: list(&args.tls_version),
        groups: list(&args.tls_groups),
        ciphers: list(&args.tls_ciphers),
        name: args.sni.clone(),
        authorities: args.ca.as_ref().map(Into::into),
        identity,
        resumes: args.tls_resume || args.early_data,
        early_data: early_data(args, targets)?,
    })
}

/// Whether first requests are sent with the handshake. HTTP/2 and WebSocket begin with an exchange of
/// their own; over QUIC it is not built.
fn early_data(args: &Args, targets: &[Target]) -> Result<bool, Refusal> {
    if !args.early_data {
        return Ok(false);
    }
    if let Some(version) = streams_by(args) {
        return wrong("early-data", Wrong::Clash(format!("--{version}").into()));
    }
    if targets.iter().any(|target| target.upgrade.is_some()) {
        return wrong("early-data", Wrong::Clash("wss://".into()));
    }
    let versions = args.tls_version.as_ref();
    if versions.is_some_and(|list| !list.0.iter().any(|version| version == "1.3")) {
        return wrong("early-data", Wrong::Needs("TLS 1.3 (--tls-version)"));
    }
    Ok(true)
}

/// Refuses options of the other loop.
fn check_pace(args: &Args) -> Result<(), Refusal> {
    let is_open = is_open(args);
    if args.think.is_some() && is_open {
        return wrong(
            "think",
            Wrong::OnlyFor("a closed loop; with a rate the schedule decides"),
        );
    }
    if let (Some(name), false) = (args.first_of(&["deadline", "late", "arrival"]), is_open) {
        return wrong(name, Wrong::OnlyFor("an open loop; give a rate (-R)"));
    }
    if args.control.is_some() && (is_open || args.probe.is_some()) {
        let name = if is_open { "rate" } else { "probe" };
        return because(
            "control",
            format!("only a closed loop can be held back; leave out --{name}"),
        );
    }
    Ok(())
}

/// The protocol of all connections.
fn protocol(args: &Args, scheme: Scheme, targets: &[Target]) -> Result<Protocol, Refusal> {
    let (depth, window) = (args.depth.0, args.window.0);
    let drop_bodies = drop_bodies(args, targets)?;
    Ok(match scheme {
        Scheme::Http if is_http2(args) => Protocol::Http2 {
            streams: args.streams.0,
            grpc: args.grpc,
        },
        Scheme::Http if args.http3 => Protocol::Http3 {
            streams: args.streams.0,
        },
        Scheme::Http => Protocol::Http1 {
            depth,
            timestamps: args.rx_timestamps,
            drop_bodies,
        },
        Scheme::WebSocket => Protocol::WebSocket { depth },
        Scheme::Tcp => Protocol::Tcp {
            window,
            reply_bytes: args.reply_size.map(|size| size.0),
        },
        Scheme::Udp => Protocol::Udp { window },
    })
}

/// Whether bodies are dropped in the kernel, which only a plain TCP socket can do.
fn drop_bodies(args: &Args, targets: &[Target]) -> Result<bool, Refusal> {
    let is_wanted = args.bodies == Bodies::Drop;
    let is_plain = |target: &Target| {
        let is_tcp = matches!(target.address, Address::Inet(_));
        is_tcp && target.tls_name.is_none() && target.upgrade.is_none()
    };
    let is_other = streams_by(args).is_some() || args.rx_timestamps;
    if is_wanted && (is_other || !targets.iter().all(is_plain)) {
        return because(
            "bodies",
            "drop is for HTTP/1.1 by http:// over TCP, without --rx-timestamps",
        );
    }
    Ok(is_wanted)
}

/// Requests of the whole run.
fn requests(args: &Args) -> Result<Option<u64>, Refusal> {
    if args.requests.is_some() && args.warmup.is_some() {
        return because(
            "requests",
            "is not for --warmup, whose requests would be among them",
        );
    }
    Ok(args.requests.map(|requests| requests.0))
}

fn per_connection(args: &Args) -> Result<Option<u16>, Refusal> {
    let figure = args.requests_per_connection;
    let figure = figure.map(|count| u16::try_from(count.0)).transpose();
    figure.or_else(|_| because("requests-per-connection", "must be at most 65535"))
}

fn probe(args: &Args) -> Result<Option<Probe>, Refusal> {
    let Some(rate_rps) = args.probe.map(|rate| rate.0) else {
        return Ok(None);
    };
    if rate_rps <= 0.0 {
        return wrong("probe", Wrong::Zero);
    }
    Ok(Some(Probe {
        rate_rps,
        connections: args.probe_connections.0,
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

/// Leaves out further addresses of names that no source address could reach.
fn keep_reachable(targets: &mut [Target], sources: &[IpAddr]) {
    let Some(source) = sources.first() else {
        return;
    };
    let is_of_family = |address: &Address| match address {
        Address::Inet(address) => address.is_ipv4() == source.is_ipv4(),
        Address::Unix(_) => true,
    };
    for target in targets {
        target.others.retain(is_of_family);
    }
}

/// Addresses from which no target could be reached.
fn check_sources(plan: &Plan) -> Result<(), Refusal> {
    if plan.all_addresses && !plan.sources.is_empty() {
        return because(
            "addresses",
            "all is not for --source, whose addresses have one family",
        );
    }
    for source in &plan.sources {
        if let Err(error) = UdpSocket::bind((*source, 0)) {
            return because(
                "source",
                format!("{source}: {error} (is it an address of this machine?)"),
            );
        }
        for target in &plan.targets {
            let Address::Inet(address) = target.address else {
                continue;
            };
            if address.is_ipv4() != source.is_ipv4() {
                return because(
                    "source",
                    format!("{source} cannot reach {address}: one is IPv4, the other IPv6"),
                );
            }
        }
    }
    Ok(())
}

fn check_limits(args: &Args, plan: &Plan) -> Result<(), Refusal> {
    check_sources(plan)?;
    let tcp =
        |target: &Target| target.tls_name.is_none() && matches!(target.address, Address::Inet(_));
    if args.rx_timestamps && !plan.targets.iter().all(tcp) {
        return wrong("rx-timestamps", Wrong::Needs("http:// over TCP"));
    }
    if let Some(error) = refused_realtime(plan) {
        return because(
            "realtime",
            format!("{error} (run as root, with CAP_SYS_NICE, or raise ulimit -r)"),
        );
    }
    if !plan.pins.is_empty() && plan.pins.len() < plan.threads {
        let (cores, threads) = (plan.pins.len(), plan.threads);
        return because(
            "pin",
            format!("{cores} cores for {threads} threads (one per thread is needed)"),
        );
    }
    // the null server inside this program has the other end of each
    let ends = if plan.sink { 2 } else { 1 };
    let probe = plan.probe.as_ref().map(|probe| probe.plan(plan));
    let probe = probe.map_or(0, |probe| probe.connections_max());
    let connections = (plan.connections_max() + probe) as u64;
    let wanted = ends * connections + FILES_OF_THREAD * plan.threads as u64 + OTHER_FILES;
    let allowed = affinity::allow_files(wanted);
    if allowed < wanted {
        return because(
            "connections",
            format!("needs {wanted} open files, but {allowed} are allowed (raise ulimit -n)"),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_from_a_source_address_go_to_addresses_of_its_family() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let resolve = format!("--resolve=h.test:{port}:127.0.0.1,::1,127.0.0.2");
        let others = |options: &[&str]| {
            let words: Vec<String> = options.iter().map(ToString::to_string).collect();
            let typed =
                crate::options::parse(&words, crate::measure::Compat::Own).expect("options");
            let args = Args::read(&typed).expect("values");
            let (plan, _) = plan(&args, &[format!("http://h.test:{port}/")]).expect("a plan");
            let each = plan.targets[0].others.iter();
            each.map(Address::to_string).collect::<Vec<_>>()
        };
        let all = [format!("::1:{port}"), format!("127.0.0.2:{port}")];
        assert_eq!(others(&[&resolve]), all);
        assert_eq!(others(&[&resolve, "--source=127.0.0.1"]), all[1..]);
    }
}
