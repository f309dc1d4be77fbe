//! A whole run: threads started together, their intervals added up while they work.

use crate::ending::Ending;
use crate::machine::{self, Ticks};
use crate::outcome::{Outcome, Second};
use crate::plan::{self, Plan, Shape};
use crate::protocol::{EchoDatagrams, EchoStream, Http1, Http2, Http3, Protocol, WebSocket, Wire};
use crate::script::{Command, Script, ScriptMain, ThreadScript};
use crate::sum::Sum;
use crate::sys::affinity;
use crate::sys::clock::both_ns;
use crate::sys::signal;
pub use crate::transport::TlsFault;
use crate::transport::{Batches, Datagrams, Plain, Timestamped, Tls, Transport};
use crate::worker::{Handover, Worker};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Condvar, Mutex};

/// Time between "all threads are ready" and the common start.
const START_AFTER_NS: u64 = 2_000_000;

/// A place where threads wait for each other and then for one moment.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    ready: usize,
    base_ns: Option<u64>,
}

impl Gate {
    fn lock(&self) -> std::sync::MutexGuard<'_, GateState> {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Called by a thread that is ready; returns the moment of the start.
    fn wait_for_start(&self) -> u64 {
        let mut state = self.lock();
        state.ready += 1;
        self.changed.notify_all();
        loop {
            if let Some(base_ns) = state.base_ns {
                return base_ns;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// Called by a thread that has failed: the others shall not wait for it.
    fn count_as_ready(&self) {
        self.lock().ready += 1;
        self.changed.notify_all();
    }

    /// The run is given up: threads need not wait for it.
    fn abandon(&self) {
        self.lock().base_ns = Some(0);
        self.changed.notify_all();
    }

    /// Waits until `threads` threads are ready, then sets the moment.
    fn open(&self, threads: usize, moment: impl FnOnce() -> u64) -> u64 {
        let mut state = self.lock();
        while state.ready < threads {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        let base_ns = moment();
        state.base_ns = Some(base_ns);
        self.changed.notify_all();
        base_ns
    }
}

/// A follower of a run from outside.
pub trait Observer {
    /// Scripts are set up, and the threads connect.
    fn begins(&mut self);
    /// A second of the run is over.
    fn second(&mut self, second: &Second);
    /// The run is over; the threads are still there for the script's `done`.
    fn ends(&mut self, outcome: &Outcome);
}

/// Why a run could not begin, or failed.
#[derive(Debug)]
pub enum RunFault {
    /// TLS cannot be spoken as the plan wants it.
    Tls(TlsFault),
    /// A thread or its script has failed.
    Failed(io::Error),
}

/// Runs `plan`.
pub fn run(
    plan: &Plan,
    script: Option<&ScriptMain>,
    observer: &mut dyn Observer,
) -> Result<(), RunFault> {
    let run = Run {
        plan,
        script,
        observer,
    };
    match plan.protocol {
        plan::Protocol::Tcp { reply_bytes, .. } => {
            return run.with(&|own| Wire {
                transport: Plain,
                protocol: EchoStream::new(reply_bytes, own.protocol.streams(), &own.targets),
            })
        }
        plan::Protocol::Udp { .. } => {
            return run.with(&|own| Wire {
                transport: Datagrams,
                protocol: EchoDatagrams::new(own.protocol.streams(), &own.targets),
            })
        }
        plan::Protocol::Http3 { .. } => {
            let make = |own: &Plan| Http3::new(own.protocol.streams(), &own.targets, &own.tls);
            // tried once here, so that the threads cannot fail
            make(plan).map_err(RunFault::Tls)?;
            return run.with(&|own| Wire {
                transport: Batches::default(),
                protocol: make(own).expect("it could be made before"),
            });
        }
        plan::Protocol::Http1 {
            timestamps: true, ..
        } => {
            return run.with(&|_| Wire {
                transport: Timestamped::default(),
                protocol: Http1,
            })
        }
        _ => {}
    }
    let targets = &plan.targets;
    if targets.iter().all(|target| target.tls_name.is_none()) {
        return run.with_http(&|| Plain);
    }
    // tried once here, so that the threads cannot fail
    let is_http2 = matches!(plan.protocol, plan::Protocol::Http2 { .. });
    let make = || Tls::new(targets, is_http2, &plan.tls);
    make().map_err(RunFault::Tls)?;
    run.with_http(&|| make().expect("it could be made before"))
}

/// The input of a run.
struct Run<'a> {
    plan: &'a Plan,
    script: Option<&'a ScriptMain>,
    observer: &'a mut dyn Observer,
}

impl Run<'_> {
    /// Runs what speaks HTTP, or begins with it, over such a transport.
    fn with_http<T: Transport>(self, bytes: &(dyn Fn() -> T + Sync)) -> Result<(), RunFault> {
        match self.plan.protocol {
            plan::Protocol::Http2 { .. } => self.with(&|own| Wire {
                transport: bytes(),
                protocol: Http2::new(own.protocol.streams()),
            }),
            plan::Protocol::WebSocket { .. } => self.with(&|own| Wire {
                transport: bytes(),
                protocol: WebSocket::new(&own.targets),
            }),
            _ => self.with(&|_| Wire {
                transport: bytes(),
                protocol: Http1,
            }),
        }
    }

    /// Runs with wires of one kind. Each thread has its own, made for its plan: the probe has one of its
    /// own.
    fn with<T: Transport, P: Protocol>(self, wires: Wires<T, P>) -> Result<(), RunFault> {
        let threads = run_threads(self.plan, self.script, wires, self.observer);
        threads.map_err(RunFault::Failed)
    }
}

/// Makes the wire of a thread with this plan.
type Wires<'a, T, P> = &'a (dyn Fn(&Plan) -> Wire<T, P> + Sync);

fn run_threads<T: Transport, P: Protocol>(
    plan: &Plan,
    script: Option<&ScriptMain>,
    wires: Wires<T, P>,
    observer: &mut dyn Observer,
) -> io::Result<()> {
    let probe_plan = plan.probe.as_ref().map(|probe| probe.plan(plan));
    let gate = Gate::default();
    let left = AtomicUsize::new(plan.threads);
    let common = Common {
        gate: &gate,
        left: plan.requests.is_some().then_some(&left),
        script: script.map(|main| &main.script),
        wires,
    };
    std::thread::scope(|scope| {
        let (finished, intervals) = channel();
        let (ended, endings) = channel();
        let start = |plan, number, source| {
            let (give_back, spare) = channel();
            let (commands, asked) = channel();
            let handover = Handover {
                source,
                finished: finished.clone(),
                spare,
            };
            let thread = Thread {
                plan,
                number,
                handover,
                asked,
                ended: ended.clone(),
            };
            let builder = std::thread::Builder::new();
            match builder.spawn_scoped(scope, move || thread.run(common)) {
                Ok(_) => Ok((commands, give_back)),
                Err(error) => {
                    // those before it wait for all
                    signal::request_stop();
                    gate.abandon();
                    let why = format!("cannot start thread {}: {error}", source + 1);
                    Err(io::Error::other(why + " (use fewer: -t)"))
                }
            }
        };
        let load = (0..plan.threads).map(|number| start(plan, number, number));
        let load: Vec<_> = load.collect::<io::Result<_>>()?;
        let (mut commands, mut give_back): (Vec<_>, Vec<_>) = load.into_iter().unzip();
        let mut decided = None;
        if let Some(main) = script {
            match main.set_up(&commands) {
                Ok(shape) => {
                    decided = Some(shape);
                    proceed(&commands, shape);
                }
                Err(fault) => {
                    gate.abandon();
                    for commands in &commands {
                        // one that has failed itself does not listen any more
                        let _ = commands.send(Command::GiveUp);
                    }
                    return Err(io::Error::other(fault));
                }
            }
        }
        observer.begins();
        if let Some(probe_plan) = &probe_plan {
            let probe = start(probe_plan, 0, plan.threads)?;
            commands.push(probe.0);
            give_back.push(probe.1);
        }
        drop((finished, ended));
        let base_ns = gate.open(commands.len(), || moment(plan));
        let mut sum = Sum::new(plan, base_ns);
        let ticks = Ticks::now(&plan.pins);
        sum.collect(&intervals, &give_back, &mut |second| {
            observer.second(second)
        });
        sum.outcome.stolen = Ticks::now(&plan.pins).stolen_since(ticks);
        sum.outcome.slow_clock = machine::slow_clock();
        sum.outcome.shape = decided;
        let outcome = in_order(&endings, commands.len()).and_then(|endings| sum.outcome(endings));
        let outcome = outcome.map(|outcome| observer.ends(&outcome));
        proceed(&commands, Shape::default());
        outcome
    })
}

fn proceed(threads: &[Sender<Command>], shape: Shape) {
    for commands in threads {
        // a thread without a script does not listen
        let _ = commands.send(Command::Proceed(shape));
    }
}

/// Counts a thread as ready that ends before it is, by a failure or a panic: the others must not
/// wait for it.
struct Arrival<'a> {
    gate: &'a Gate,
    is_over: bool,
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.gate.count_as_ready();
        }
    }
}

/// The input that all threads share.
struct Common<'a, T, P> {
    gate: &'a Gate,
    /// Threads of the load that have not ended, where these end by a number of requests.
    left: Option<&'a AtomicUsize>,
    script: Option<&'a Script>,
    wires: Wires<'a, T, P>,
}

impl<T, P> Clone for Common<'_, T, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, P> Copy for Common<'_, T, P> {}

/// How a thread of a number ended.
type Ended = (usize, io::Result<Ending>);

/// The input of one thread.
struct Thread<'a> {
    plan: &'a Plan,
    number: usize,
    handover: Handover,
    asked: Receiver<Command>,
    ended: Sender<Ended>,
}

impl Thread<'_> {
    fn run<T: Transport, P: Protocol>(self, common: Common<T, P>) {
        affinity::exact_timers();
        let Thread {
            plan,
            number,
            handover,
            asked,
            ended,
        } = self;
        let source = handover.source;
        let mut arrival = Arrival {
            gate: common.gate,
            is_over: false,
        };
        // the probe (whose source is not its number) sends the plain request
        let script = common.script.filter(|_| source == number);
        let prepared = prepare(plan, number, handover, script, &asked, common.wires);
        let (ending, script) = match prepared {
            Ok(mut worker) => {
                worker.connect();
                arrival.is_over = true;
                if let Some(left) = common.left.filter(|_| source != number) {
                    worker.accompany(left);
                }
                let base_ns = worker.wait_for(common.gate.wait_for_start());
                let (ending, script) = worker.run(base_ns);
                (Ok(ending), script)
            }
            Err(error) => {
                drop(arrival);
                (Err(error), None)
            }
        };
        if let Some(left) = common.left.filter(|_| source == number) {
            left.fetch_sub(1, Relaxed);
        }
        // the receiver is gone after a failure of another thread
        let _ = ended.send((source, ending));
        if let Some(mut script) = script {
            script.serve(&asked);
        }
    }
}

fn prepare<'p, T: Transport, P: Protocol>(
    plan: &'p Plan,
    number: usize,
    handover: Handover,
    script: Option<&Script>,
    asked: &Receiver<Command>,
    wires: Wires<T, P>,
) -> io::Result<Worker<'p, T, P>> {
    if let Some(&core) = plan.pins.get(number) {
        affinity::pin(core)?;
    }
    if plan.realtime {
        affinity::become_realtime()?;
    }
    let script = script
        .map(|script| {
            let mut script = ThreadScript::open(script).map_err(io::Error::other)?;
            if script.serve(asked) {
                Ok(script)
            } else {
                Err(io::Error::other("the run was given up"))
            }
        })
        .transpose()?;
    Worker::new(plan, number, wires(plan), handover, script)
}

/// The endings of all threads by number, or the first failure.
fn in_order(endings: &Receiver<Ended>, threads: usize) -> io::Result<Vec<Ending>> {
    let mut ordered: Vec<Option<Ending>> = vec![None; threads];
    for (source, ending) in endings.iter().take(threads) {
        ordered[source] = Some(ending?);
    }
    Ok(ordered.into_iter().flatten().collect())
}

/// The moment of the start, on the monotonic clock.
fn moment(plan: &Plan) -> u64 {
    let (monotonic_ns, real_ns) = both_ns();
    let soon_ns = monotonic_ns + START_AFTER_NS;
    match plan.start_at_unix_ns {
        // mapped once: a step of the wall clock later must not move the load
        Some(unix_ns) => soon_ns.max(monotonic_ns + unix_ns.saturating_sub(real_ns)),
        None => soon_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panics_before_it_is_ready_does_not_keep_the_run_waiting() {
        let gate = Gate::default();
        std::thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let _arrival = Arrival {
                    gate: &gate,
                    is_over: false,
                };
                // as a panic, without the message that a hook would print
                std::panic::resume_unwind(Box::new(()));
            });
            assert_eq!(gate.open(1, || 7), 7);
            assert!(panics.join().is_err());
        });
    }
}
