//! One measurement from its plan to its outputs.

use crate::conditions::StopWhen;
use crate::console::{print, say};
use crate::file;
use crate::headroom::Headroom;
use crate::human::{self, Parts};
use crate::json;
use crate::refusal::{because, usage, wrong, Failure, Mistake, Refusal, Wrong};
use crate::series::Series;
use crate::setup;
use crate::spectrum;
use crate::table::{Args, Typed};
use crate::targets::Common;
use crate::watchdog::Watchdog;
use load_engine::outcome::{Outcome, Second};
use load_engine::plan::Plan;
use load_engine::run::{run, Observer, RunFault, TlsFault};
use load_engine::script::{Script, ScriptMain};
use load_engine::sink::Sink;
use load_engine::sys::epoll::Trigger;
use load_engine::sys::lua::flush_output;
use load_engine::sys::signal;
use load_engine::warnings::{self, Warning};
use std::cell::Cell;
use std::path::Path;

/// Exit code of a run whose script does not return.
const FAILED: u8 = 1;
/// Exit code of a run with `--strict` that a signal ended early.
const INTERRUPTED: u8 = 3;

/// Whose manners the program has, by the name it was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compat {
    /// Its own.
    Own,
    /// wrk's.
    Wrk,
    /// wrk2's: a rate is required.
    Wrk2,
}

impl Compat {
    /// By the path of the program.
    pub fn of(program: &str) -> Compat {
        match program.rsplit('/').next() {
            Some("wrk") => Compat::Wrk,
            Some("wrk2") => Compat::Wrk2,
            _ => Compat::Own,
        }
    }
}

/// Measures; the exit code.
pub fn measure(
    args: &Args,
    typed: &Typed,
    arguments: &[String],
    compat: Compat,
) -> Result<u8, Refusal> {
    if compat == Compat::Wrk2 && args.rate.is_none() {
        return usage(Mistake::RateMissing);
    }
    let mut words = typed.words.clone();
    let _sink = if args.sink {
        Some(start_sink(&mut words)?)
    } else {
        None
    };
    find_folders(args)?;
    let script_arguments = split_off_arguments(args, &typed.rest, &mut words);
    if compat != Compat::Own {
        // wrk has one URL, and looks at no word behind it
        words.truncate(1);
    }
    let (plan, common) = setup::plan(args, &words)?;
    let script = script(args, script_arguments, common, compat)?;
    let stop_when = StopWhen::new(args.stop_when.clone());
    let headroom = args.headroom.as_deref();
    let headroom = headroom
        .map(|file| Headroom::read(file, &plan, script.is_some()))
        .transpose()?;
    signal::watch();
    let prometheus = args.prometheus.as_deref();
    let mut series = Series::new(&plan, args.live, args.hlog.is_some(), prometheus);
    let run = Run {
        args,
        arguments,
        plan: &plan,
        script: script.as_ref(),
        headroom,
        compat,
        stop_when: Cell::new(stop_when),
    };
    let is_encrypted = plan.targets.iter().any(|target| target.tls_name.is_some());
    if is_encrypted && plan.trigger == Trigger::Level {
        return because("epoll", "level is not for https");
    }
    run.measure(&mut series)
}

/// Files whose folder is not there, and folders, could not be written after the run.
fn find_folders(args: &Args) -> Result<(), Refusal> {
    let files = [
        ("json", &args.json),
        ("csv", &args.csv),
        ("hlog", &args.hlog),
        ("hgrm", &args.hgrm),
        ("prometheus", &args.prometheus),
    ];
    for (name, path) in files {
        let Some(path) = path else { continue };
        if path == "-" {
            return because(name, "'-' is not a file (use /dev/stdout)");
        }
        if Path::new(path).is_dir() {
            let why = "it is a folder".to_string();
            return wrong(name, Wrong::Unwritable(path.clone(), why));
        }
        let folder = Path::new(path).parent();
        let absent = folder.filter(|place| !place.as_os_str().is_empty() && !place.is_dir());
        if let Some(folder) = absent {
            let why = format!("folder {} does not exist", folder.display());
            return wrong(name, Wrong::Unwritable(path.clone(), why));
        }
    }
    Ok(())
}

/// With a script the words after the URL are the script's.
fn split_off_arguments(args: &Args, rest: &[String], words: &mut Vec<String>) -> Vec<String> {
    if args.script.is_none() {
        return Vec::new();
    }
    let mut arguments = words.clone();
    arguments.extend(rest.iter().cloned());
    words.truncate(1);
    arguments
}

fn script(
    args: &Args,
    arguments: Vec<String>,
    common: Common,
    compat: Compat,
) -> Result<Option<ScriptMain>, Refusal> {
    let Some(file) = &args.script else {
        return Ok(None);
    };
    let text = match std::fs::read(file) {
        Ok(text) => text,
        // as wrk: said, and gone on without
        Err(error) if compat != Compat::Own => {
            say(&format!("{file}: {error}"));
            Vec::new()
        }
        Err(error) => {
            return wrong(
                "script",
                Wrong::Unreadable(file.to_string(), error.to_string()),
            )
        }
    };
    let url = load_http1::url::Url::parse(&arguments[0]);
    let Some(url) = url else {
        return usage(Mistake::NoUrl(arguments[0].clone()));
    };
    let open_loop = args.rate.is_some();
    let headers = common.headers_for(&url);
    let Common { method, body, .. } = common;
    let file = file.to_string();
    let script = Script {
        file,
        text,
        arguments,
        url,
        method,
        headers,
        body,
        is_udp: args.http3,
        open_loop,
    };
    let main = ScriptMain::open(script).map_err(failed)?;
    match &main.fault {
        None => {}
        // as wrk: said, and gone on with what was defined before it
        Some(fault) if compat != Compat::Own => say(fault),
        Some(fault) => {
            // what it would send is not what was asked for
            let fault = fault.strip_prefix(&format!("{}: ", main.script.file));
            let line = fault.and_then(|fault| fault.lines().next());
            return because("script", line.unwrap_or("has failed").to_string());
        }
    }
    Ok(Some(main))
}

/// The engine or a script has failed.
fn failed(why: String) -> Refusal {
    Refusal::Absent(Failure::Run(why))
}

/// The run could not begin, or has failed.
fn refused(fault: RunFault) -> Refusal {
    match fault {
        RunFault::Tls(TlsFault::Option { option, why }) => {
            Refusal::Usage(Mistake::Option(option, Wrong::Because(why.into())))
        }
        RunFault::Tls(TlsFault::Name { url }) => {
            let why = "no name for a TLS handshake".into();
            Refusal::Usage(Mistake::Url(url, why))
        }
        RunFault::Failed(error) => failed(error.to_string()),
    }
}

/// What a run and its outputs need to know.
struct Run<'a> {
    args: &'a Args,
    arguments: &'a [String],
    plan: &'a Plan,
    script: Option<&'a ScriptMain>,
    headroom: Option<Headroom>,
    compat: Compat,
    stop_when: Cell<StopWhen>,
}

impl Run<'_> {
    fn measure(&self, series: &mut Series) -> Result<u8, Refusal> {
        let script = self.args.script.as_deref();
        let mut following = Following {
            run: self,
            watchdog: script.map(|file| Watchdog::start(file, FAILED)),
            series,
            stop_when: self.stop_when.take(),
            stopped_by: None,
            result: Ok(0),
        };
        run(self.plan, self.script, &mut following).map_err(refused)?;
        match (following.result, following.stopped_by) {
            (Ok(_), Some(condition)) => Err(Refusal::Absent(Failure::Stopped(condition))),
            (result, _) => result,
        }
    }

    fn finish(&self, outcome: &Outcome, series: &mut Series) -> Result<u8, Refusal> {
        let (args, plan) = (self.args, self.plan);
        series.end(&outcome.total);
        flush_output();
        let mut found = warnings::find(plan, outcome);
        found.extend(
            self.headroom
                .as_ref()
                .and_then(|headroom| headroom.judge(plan, outcome)),
        );
        print(&human::report(plan, outcome, parts(args)));
        // before a script's `done`, which may end the program
        let mut failures = self.write_files(outcome, &found, series);
        let done = self.script.map_or(Ok(()), |script| {
            // nothing looks at a signal while it runs
            signal::unwatch();
            script.done(outcome)
        });
        failures.extend(done.err().map(Failure::Run));
        if let Some(note) = human::waiting(outcome) {
            say(&note);
        }
        for warning in &found {
            say(&format!("warning: {}", warning.text));
        }
        let is_own = self.compat == Compat::Own;
        failures.extend(unreached(outcome).filter(|_| is_own));
        if let Some(last) = failures.pop() {
            let prefix = if is_own { "wirespeed-load: " } else { "" };
            for failure in failures {
                say(&format!("{prefix}{failure}"));
            }
            return Err(Refusal::Absent(last));
        }
        if args.strict && signal::stop_wanted() {
            // a check of a part of the run must not pass for one of the whole
            return Ok(INTERRUPTED);
        }
        Ok(u8::from(args.strict && !found.is_empty()))
    }

    /// Writes the files that are wanted; why some of them could not be written.
    fn write_files(&self, outcome: &Outcome, found: &[Warning], series: &Series) -> Vec<Failure> {
        let (args, plan) = (self.args, self.plan);
        let mut failures = Vec::new();
        let mut note = |name, path: &str, written: std::io::Result<()>| {
            failures.extend(written.err().map(|error| {
                let wrong = Wrong::Unwritable(path.to_string(), error.to_string());
                Failure::Option(name, wrong)
            }));
        };
        let latency = outcome.total.times.counting(plan.open().is_some());
        if let Some(path) = &args.json {
            let script = self.script.map(|main| &main.script);
            let result = json::result(plan, outcome, found, self.arguments, script);
            note("json", path, result.save(Path::new(path)));
        }
        let texts = [
            ("csv", &args.csv, series.csv.clone()),
            (
                "hlog",
                &args.hlog,
                series.hlog_file(outcome.window_start_unix_ns),
            ),
            ("hgrm", &args.hgrm, spectrum::table(latency)),
        ];
        for (name, path, text) in texts {
            if let Some(path) = path {
                note(name, path, file::replace(Path::new(path), &text));
            }
        }
        failures
    }
}

/// Follows a run: shows it, keeps its seconds, reports it.
struct Following<'a, 'r> {
    run: &'a Run<'r>,
    series: &'a mut Series,
    /// Over the script's threads.
    watchdog: Option<Watchdog>,
    result: Result<u8, Refusal>,
    stop_when: StopWhen,
    /// The condition that ended the run.
    stopped_by: Option<String>,
}

impl Observer for Following<'_, '_> {
    fn begins(&mut self) {
        // as wrk: what a script prints in `init` comes before this line
        let plan = self.run.plan;
        print(&human::banner(
            plan,
            &plan.targets[0].url,
            &connections(plan),
        ));
    }

    fn second(&mut self, second: &Second) {
        self.series.take(second);
        if self.stopped_by.is_none() {
            let met = self.stop_when.met_by(&second.interval).map(String::from);
            self.stopped_by = met.inspect(|_| signal::request_stop());
        }
    }

    fn ends(&mut self, outcome: &Outcome) {
        // `done` may take its time
        self.watchdog = None;
        self.result = self.run.finish(outcome, self.series);
    }
}

/// Why nothing was measured, if no connection could be opened.
fn unreached(outcome: &Outcome) -> Option<Failure> {
    let counts = &outcome.total.counts;
    let tried = counts.errors.connect();
    if tried == 0 || counts.sent > 0 {
        return None;
    }
    let why = warnings::first_connect_note(outcome).unwrap_or("see the warnings");
    Some(Failure::NothingOpened(tried, why.to_string()))
}

fn start_sink(words: &mut Vec<String>) -> Result<Sink, Refusal> {
    if !words.is_empty() {
        return because("sink", "replaces the URL (remove the URL)");
    }
    let sink = Sink::start("127.0.0.1:0").map_err(|error| {
        let why = Wrong::Because(format!("cannot listen: {error}").into());
        Refusal::Absent(Failure::Option("sink", why))
    })?;
    words.push(format!("http://{}/", sink.address()));
    Ok(sink)
}

/// As typed: one number, or from the first step to the last.
fn connections(plan: &Plan) -> String {
    let first = plan.steps.first().map_or(0, |step| step.connections);
    let last = plan.steps.last().map_or(0, |step| step.connections);
    if first == last {
        first.to_string()
    } else {
        format!("{first}..{last}")
    }
}

fn parts(args: &Args) -> Parts {
    let uncorrected = args.u_latency;
    Parts {
        latency: args.latency || uncorrected,
        uncorrected,
    }
}
