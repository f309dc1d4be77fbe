//! One sending thread: its loop, and when things happen in it.
//!
//! ```text
//! wait for events (until the next due time or the next check)
//! each event: read → parse → record; in closed loop the next requests are written in bursts
//! pace: while a request is due and a connection is idle, write it
//! check, ten times a second: ends of intervals, timeouts, reopenings, the end of the run
//! ```
//! A worker is made of parts, each with its own state; none of them knows the worker:
//!
//! | part | what it has |
//! |---|---|
//! | [`waiting::Waiter`] | the epoll set; pauses before waits, rests after them |
//! | [`deadlines::Deadlines`] | timers of connections; when timeouts and TCP are looked at |
//! | [`connections::Connections`] | the table of connections; how many are wanted, and are busy |
//! | [`connector::Connector`] | addresses and options of sockets; how many are opened at once |
//! | [`requests::Requests`] | targets with their orders; how many requests may still begin |
//! | [`pacer::Pacer`] | due times, and the requests that wait for a connection |
//! | [`burst::Burst`] | connections that get their next requests together |
//! | [`receiving::Reads`] | the buffer; connections with more to read |
//! | [`streams::Streams`] | requests of protocols that carry several at once |
//! | [`scripting::Scripting`] | the Lua state, its faults, think times |
//! | [`thinking::Thinking`] | until when users think |
//! | [`templates::Templates`] | heads that answers are recognised by |
//! | [`checks::Checks`] | the properties that answers must have |
//! | [`away::Away`] | for how long the thread did not run |
//! | [`recorder::Recorder`] | the figures of this second; [`timing`] knows which of them a request belongs to |
//!
//! The other files are what a worker does with them: [`sending`] and [`receiving`] are the hot path,
//! with answers by protocol in [`http1`], [`websocket`] and [`streams`]; [`pacing`] is the open loop's,
//! [`connecting`] opens and closes.

mod addresses;
mod away;
mod burst;
mod checks;
mod coalescing;
mod connecting;
mod connection;
mod connections;
mod connector;
mod deadlines;
mod dispatch;
mod ending;
mod failing;
mod gate;
mod http1;
mod pacer;
mod pacing;
mod proxy_header;
mod receiving;
mod recorder;
mod requests;
mod resting;
mod scripting;
mod sending;
mod starting;
mod streams;
mod templates;
mod thinking;
mod timeouts;
mod timing;
mod waiting;
mod websocket;

pub use recorder::{Finished, Handover};

use crate::breakdown::Rows;
use crate::ending::Ending;
use crate::plan::{Phase, Plan};
use crate::protocol::{Protocol, SessionOf, Wire};
use crate::script::ThreadScript;
use crate::sys::clock::monotonic_ns;
use crate::sys::control::State;
use crate::sys::signal::stop_wanted;
use crate::sys::tcp_info::tcp_info;
use crate::transport::Transport;
use away::Away;
use burst::Burst;
use checks::Checks;
use connection::ConnectionState;
use connections::{is_open, target_of_connections, Connections};
use connector::Connector;
use deadlines::{Deadlines, CHECK_NS};
use pacer::Pacer;
use receiving::Reads;
use recorder::Recorder;
use requests::Requests;
use scripting::Scripting;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use streams::Streams;
use templates::Templates;
use thinking::Thinking;
use waiting::Waiter;

/// One sending thread.
pub struct Worker<'p, T: Transport, P: Protocol> {
    plan: &'p Plan,
    number: usize,
    wire: Wire<T, P>,
    waiter: Waiter,
    deadlines: Deadlines,
    connections: Connections<SessionOf<T, P>>,
    connector: Connector<'p>,
    requests: Requests,
    streams: Streams<P::Client>,
    scripting: Scripting,
    thinking: Thinking,
    pacer: Pacer<'p>,
    burst: Burst,
    reads: Reads,
    templates: Templates,
    checks: Checks<'p>,
    recorder: Recorder,
    away: Away,
    /// Connections that were not open yet when the load began.
    missing_at_start: usize,
    /// Threads of the load that this one accompanies (the probe), where these end by a number of requests.
    left: Option<&'p AtomicUsize>,
    /// The load has begun.
    running: bool,
    /// Another program holds this one back: nothing new is sent.
    holding: bool,
    /// The load is over.
    stopped: bool,
}

impl<'p, T: Transport, P: Protocol> Worker<'p, T, P> {
    /// Thread `number` of the plan; opens nothing yet.
    pub fn new(
        plan: &'p Plan,
        number: usize,
        wire: Wire<T, P>,
        handover: Handover,
        script: Option<ThreadScript>,
    ) -> io::Result<Worker<'p, T, P>> {
        let mut targets = plan.targets.clone();
        let mut scripting = Scripting::new(plan, number, script);
        scripting.adopt(&mut targets)?;
        let shape = scripting.shape();
        let depth = shape.map_or(plan.protocol.depth(), |shape| shape.depth);
        let requests = Requests::new(plan, number, targets, depth);
        let targets = &requests.targets;
        let streams = if P::STREAMS {
            Streams::new(targets, depth)?
        } else {
            Streams::none()
        };
        let target_of = target_of_connections(plan, number, targets);
        let pacer = Pacer::new(plan, number, targets, &target_of, depth);
        let dynamic = scripting.is_dynamic();
        let checks = Checks::new(plan, shape, targets);
        let needs_no_delay = dynamic || !(plan.close && requests.are_short());
        let rows = Rows::of(targets);
        let sends_first = plan.proxy_header.is_none() && !scripting.delays() && !dynamic;
        let connector = Connector::new(plan, number, targets, needs_no_delay, sends_first)?;
        let templates = Templates::of(targets, checks.keeps_answers || dynamic);
        Ok(Worker {
            plan,
            number,
            wire,
            waiter: Waiter::new(plan)?,
            deadlines: Deadlines::default(),
            connections: Connections::new(&target_of),
            connector,
            requests,
            streams,
            scripting,
            thinking: Thinking::default(),
            pacer,
            burst: Burst::new(plan.open().is_some()),
            reads: Reads::new(),
            templates,
            checks,
            recorder: Recorder::new(handover, plan, rows),
            away: Away::default(),
            missing_at_start: 0,
            left: None,
            running: false,
            holding: false,
            stopped: false,
        })
    }

    /// Lets nothing fall due within the window any more when none of so many threads is left.
    pub fn accompany(&mut self, left: &'p AtomicUsize) {
        self.left = Some(left);
    }

    /// Runs the load from `base_ns` (monotonic) to its end; gives the script back.
    pub fn run(mut self, base_ns: u64) -> (Ending, Option<ThreadScript>) {
        self.mind_gate();
        self.start(base_ns);
        while !self.stopped {
            let timeout_ns = if self.is_at_gate() {
                0
            } else {
                self.waiting_time()
            };
            self.turn(timeout_ns);
            self.mind_gate();
        }
        let stopped_ns = monotonic_ns();
        self.sit_out();
        self.show_counters(State::Ended);
        self.end(stopped_ns)
    }

    /// A script that stops its thread ends its load, not the window: rates are over all of it.
    fn sit_out(&mut self) {
        if !self.scripting.has_stopped() || self.scripting.has_failed() {
            return;
        }
        // nothing falls due for a thread that has stopped
        self.pacer.stop();
        while !self.recorder.draining() && !stop_wanted() {
            let now = monotonic_ns();
            let left_ns = self.recorder.now.end_ns.saturating_sub(now).min(CHECK_NS);
            std::thread::sleep(Duration::from_nanos(left_ns));
            self.recorder.rotate(monotonic_ns());
        }
    }

    /// One pass: waits, handles what came, sends what is due, checks.
    fn turn(&mut self, timeout_ns: u64) {
        let timeout_ns = if self.reads.are_finished() {
            timeout_ns
        } else {
            0
        };
        let is_polling = timeout_ns == 0 && self.reads.are_finished() && !self.recorder.draining();
        let paused_ns = self.pause();
        let woken = self.waiter.wait(timeout_ns, is_polling, paused_ns);
        let mut now = woken.now;
        for number in 0..woken.count {
            let (token, ready) = self.waiter.event(number);
            let before_ns = now;
            now = self.handle(token, ready, woken.woken_ns);
            if self.burst.is_full() {
                self.send_ready();
            }
            let took_ns = now.saturating_sub(before_ns);
            self.pacer.note_event(took_ns);
            if self.pacer.due_ns <= now {
                self.pace(now);
            }
        }
        if !self.reads.are_finished() {
            now = self.read_on(now);
        }
        self.send_ready();
        if self.pacer.due_ns <= now {
            self.pace(now);
        }
        if now >= self.deadlines.next_check_ns {
            self.check(now);
        }
        let is_done = self.connections.busy == 0 && self.pacer.is_idle();
        let is_over = self.recorder.draining() || self.pacer.has_ended();
        if is_done && (is_over || self.requests.are_used_up()) {
            self.stopped = true;
        }
        self.waiter.rest(now);
    }

    /// Pauses before a wait that would find little; when it began to.
    #[inline]
    fn pause(&mut self) -> Option<u64> {
        if !self.running || !self.burst.is_empty() || !self.reads.are_finished() {
            return None;
        }
        self.waiter.pause(self.connections.busy)
    }

    /// A check that comes much too late shows that this thread did not run: it was stopped, or its machine
    /// was. A script may have kept it as well.
    fn note_away(&mut self, now: u64) {
        let due_ns = self.deadlines.next_check_ns;
        if self.running && due_ns > 0 && self.scripting.shape().is_none() {
            let start_ns = self.recorder.window_start_ns;
            let window = start_ns..start_ns + self.plan.duration_ns();
            self.away.note_check(due_ns, now, &window);
        }
    }

    /// Everything that has its time: called when the next check is due.
    fn check(&mut self, now: u64) {
        self.note_away(now);
        if self.running && self.recorder.is_over(now) {
            self.rotate(now);
        }
        self.recorder.sample_rate(now);
        let answers = self.recorder.now.counts.completed;
        self.waiter.adapt(now, answers, self.connections.busy);
        self.fire_timers(now);
        if P::TIMERS {
            self.wake_protocols(now);
        }
        if self.recorder.now.phase == Phase::Measured && self.deadlines.wants_tcp_sample(now) {
            self.sample_tcp();
        }
        self.scan_timeouts(now);
        let is_alone = self.left.is_some_and(|left| left.load(Relaxed) == 0);
        if is_alone && self.running {
            self.pacer.end(now);
        }
        let is_stopped = self.running && stop_wanted();
        if self.is_drained(now) || self.waits_in_vain(now) || is_stopped {
            self.stopped = true;
        }
        // what came free just now shall not wait for the next event
        self.send_ready();
        let interval_end_ns = self.recorder.now.end_ns;
        self.deadlines.set_next_check(now, interval_end_ns);
        self.away.note_checked(monotonic_ns());
    }

    /// Whether nothing falls due any more, and responses have been waited for as long as they may be.
    fn is_drained(&self, now: u64) -> bool {
        if !self.pacer.is_open() {
            return self.recorder.draining();
        }
        let window_ns = self.plan.warmup_ns + self.plan.duration_ns();
        let end_ns = self.pacer.over_ns.min(self.pacer.base_ns + window_ns);
        let is_over = self.recorder.draining() || self.pacer.has_ended();
        is_over && now >= end_ns + self.plan.drain_ns
    }

    /// Begins the interval that `now` lies in, and the stage if there is a new one.
    pub(super) fn rotate(&mut self, now: u64) {
        let before = self.recorder.now.phase;
        self.recorder.rotate(now);
        let after = self.recorder.now.phase;
        if before == Phase::Warmup && after != Phase::Warmup {
            self.waiter.begin_window();
        }
        if let Some(stage) = self.recorder.stage() {
            let wanted = self.plan.share(stage.connections, self.number);
            if wanted != self.connections.wanted {
                self.want(wanted, now);
            }
        } else if !self.pacer.is_open() {
            self.stopped = true;
        }
    }

    /// Looks at the TCP of the next connection that is open.
    fn sample_tcp(&mut self) {
        for _ in 0..self.connections.wanted {
            let sampled = self.deadlines.next_tcp_sampled(self.connections.wanted);
            let connection = &self.connections[sampled];
            if !is_open(connection) {
                continue;
            }
            if let Some(info) = tcp_info(connection.fd) {
                self.recorder.now.tcp.record(&info);
            }
            return;
        }
    }

    /// Handles timers that have come.
    fn fire_timers(&mut self, now: u64) {
        while let Some((index, generation)) = self.deadlines.pop_timer(now) {
            let connection = &self.connections[index as usize];
            if connection.generation != generation {
                continue;
            }
            let state = connection.state;
            self.thinking.end(index as usize, generation);
            match state {
                ConnectionState::Closed => self.open(index as usize, now),
                ConnectionState::Delayed => self.send_unless_held(index as usize, now),
                // a script's delay, of one stream
                ConnectionState::Idle | ConnectionState::Busy
                    if P::STREAMS && self.is_free(index, generation) =>
                {
                    self.send_unless_held(index as usize, now);
                }
                _ => {}
            }
        }
        if P::STREAMS {
            self.flush_streams();
        }
    }

    /// Lets connections go on whose protocol has to act now.
    fn wake_protocols(&mut self, now: u64) {
        // one that is set meanwhile has its turn at the next check
        for _ in 0..self.deadlines.wakes() {
            let Some((at_ns, index, generation)) = self.deadlines.pop_wake(now) else {
                return;
            };
            let index = index as usize;
            let connection = &mut self.connections[index];
            let is_same = connection.generation == generation;
            let session = connection.session.as_mut().filter(|_| is_same);
            if !session.is_some_and(|session| self.wire.timer_came(session, at_ns)) {
                continue;
            }
            if connection.state == ConnectionState::Handshaking {
                self.shake_hands(index);
            } else {
                // it may have ended by its timer, which no event reports
                self.receive(index, false, now);
                self.write_if_same(index, generation);
            }
        }
    }
}
