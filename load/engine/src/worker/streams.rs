//! Requests and answers on connections that carry several at once: what is the same for both halves of
//! the other hot path stays there, what is another here.

use super::failing::Failure;
use super::Worker;
use crate::plan::Target;
use crate::protocol::{Expired, InFlight, Protocol, RequestMeta};
use crate::script::Answer;
use crate::sys::epoll::Ready;
use crate::transport::Transport;
use load_http1::Sink as _;
use load_http2::{Event, Ignore, Sink};
use std::io;

/// Further state of connections with several requests at once.
pub(super) struct Streams<C: InFlight> {
    /// Each target's requests.
    requests: Vec<Vec<C::Request>>,
    /// Connections that have something to write, with their generation.
    unwritten: Vec<(u32, u32)>,
    /// The events of a read; kept for its memory.
    events: Vec<Event<RequestMeta>>,
}

impl<C: InFlight> Streams<C> {
    /// Turns the requests of all targets into what is sent.
    pub fn new(targets: &[Target], depth: usize) -> io::Result<Streams<C>> {
        if depth != 1 {
            return Err(io::Error::other(
                "with --http2 and --http3 a script returns one request at a time; --streams sends several \
                 at once",
            ));
        }
        let each = targets.iter().map(C::requests);
        Ok(Streams {
            requests: each.collect::<io::Result<_>>()?,
            unwritten: Vec::new(),
            events: Vec::new(),
        })
    }

    /// Of transports that carry one request after the other.
    pub fn none() -> Streams<C> {
        Streams {
            requests: Vec::new(),
            unwritten: Vec::new(),
            events: Vec::new(),
        }
    }
}

/// What a script shall see, by slot.
struct Shown<'a>(&'a mut Vec<Answer>);

impl Sink for Shown<'_> {
    fn begin(&mut self, slot: usize) {
        self.0[slot] = Answer::default();
    }

    fn field(&mut self, slot: usize, name: &[u8], value: &[u8]) {
        self.0[slot].header(name, value);
    }

    fn body(&mut self, slot: usize, piece: &[u8]) {
        self.0[slot].body(piece);
    }
}

impl<T: Transport, P: Protocol> Worker<'_, T, P> {
    /// Whether the server has allowed nothing at all on a connection for longer than answers may take.
    pub(super) fn is_of_no_use(&mut self, index: usize, now: u64) -> bool {
        let connection = &mut self.connections[index];
        let since_ns = connection.sent_ns.max(connection.idle_ns);
        let session = connection.session.as_mut();
        let client = session.and_then(|session| self.wire.client(session));
        let is_closed = client.is_some_and(|client| client.limit() == 0);
        self.running && is_closed && now.saturating_sub(since_ns) > self.plan.timeout_ns
    }

    /// Whether a stream more may begin on a connection: it has room for one, is wanted, and has not
    /// carried as many answers as it shall.
    #[inline]
    pub(super) fn may_begin(&mut self, index: usize) -> bool {
        index < self.connections.wanted && !self.is_used_up(index) && self.has_room(index)
    }

    #[inline]
    fn has_room(&mut self, index: usize) -> bool {
        let session = self.connections[index].session.as_mut();
        let client = session.and_then(|session| self.wire.client(session));
        client.is_some_and(|client| client.has_room())
    }

    /// A connection is ready: all its streams are.
    pub(super) fn offer_streams(&mut self, index: usize, now: u64) {
        let session = self.connections[index].session.as_mut();
        let client = session.and_then(|session| self.wire.client(session));
        let free = client.map_or(0, |client| client.limit().saturating_sub(client.open()));
        (0..free).for_each(|_| self.offer_one(index, now));
    }

    /// Handles one event of a connection with streams; the time after it.
    #[inline]
    pub(super) fn handle_streams(&mut self, index: usize, ready: Ready, woken_ns: u64) -> u64 {
        let connection = &self.connections[index];
        let generation = connection.generation;
        if ready.writable() && connection.wants_room {
            self.write_streams(index);
        }
        if ready.readable() && self.connections[index].generation == generation {
            return self.receive(index, ready.ended(), woken_ns);
        }
        woken_ns
    }

    /// Puts the next request on a stream; it is written with the ones after it.
    #[inline]
    pub(super) fn send_on_stream(&mut self, index: usize, due_ns: u64, now: u64) {
        let made = if self.scripting.is_dynamic() {
            match self.make_request(index) {
                Some(made) => Some(made),
                None => return,
            }
        } else {
            None
        };
        let connection = &mut self.connections[index];
        let target = usize::from(connection.target);
        if made.is_none() {
            self.requests.next(connection);
        }
        let request = connection.request;
        let Some(session) = connection.session.as_mut() else {
            return;
        };
        let Some(client) = self.wire.client(session) else {
            return;
        };
        if !client.has_pending() {
            self.streams
                .unwritten
                .push((index as u32, connection.generation));
        }
        let known = || &self.streams.requests[target][request as usize];
        let asked = RequestMeta {
            due_ns,
            sent_ns: now,
            request,
        };
        client.request(made.as_ref().unwrap_or_else(known), asked);
        self.connections.begin_stream(index);
        if self.recorder.is_counted(due_ns) {
            self.recorder.now.counts.sent += 1;
        }
    }

    /// A request that the script makes now.
    fn make_request(&mut self, index: usize) -> Option<<P::Client as InFlight>::Request> {
        let text = self.scripting.request()?;
        self.heed_script();
        let target = usize::from(self.connections[index].target);
        let made = text.and_then(|text| {
            let made = P::Client::scripted(&text, &self.requests.targets[target]);
            made.map_err(|error| error.to_string())
        });
        match made {
            Ok(made) => Some(made),
            Err(fault) => {
                self.give_up(fault);
                None
            }
        }
    }

    /// Writes what all connections have to say.
    #[inline]
    pub(super) fn flush_streams(&mut self) {
        let mut unwritten = std::mem::take(&mut self.streams.unwritten);
        for &(index, generation) in &unwritten {
            self.write_if_same(index as usize, generation);
        }
        unwritten.clear();
        // a failure may have opened another connection at once
        unwritten.append(&mut self.streams.unwritten);
        self.streams.unwritten = unwritten;
    }

    /// Writes what a connection has to say, unless it is another one by now.
    pub(super) fn write_if_same(&mut self, index: usize, generation: u32) {
        if self.connections[index].generation == generation {
            self.write_streams(index);
        }
    }

    /// Sets the timer of a connection whose protocol has to act at a time of its own.
    #[inline]
    pub(super) fn set_wake(&mut self, index: usize) {
        if !P::TIMERS {
            return;
        }
        let connection = &mut self.connections[index];
        let session = connection.session.as_mut();
        if let Some(at_ns) = session.and_then(|session| self.wire.take_timer(session)) {
            let generation = connection.generation;
            self.deadlines.set_wake(at_ns, index, generation);
        }
    }

    /// Writes what a connection has to say, as far as there is room.
    fn write_streams(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let Some(session) = connection.session.as_mut() else {
            return;
        };
        let written = self.wire.send_pending(session, connection.fd);
        let flushed = self.wire.flush(session, connection.fd);
        let is_empty = self
            .wire
            .client(session)
            .is_none_or(|client| !client.has_pending());
        match (written, flushed) {
            (Ok(length), Ok(is_flushed)) => {
                self.recorder.now.counts.bytes_out += length as u64;
                self.want_room(index, !(is_empty && is_flushed));
                self.set_wake(index);
            }
            (Err(error), _) | (_, Err(error)) => self.not_written(index, error),
        }
    }

    /// Takes the bytes of one read.
    pub(super) fn take_frames(&mut self, index: usize, bytes: &[u8], now: u64) {
        let is_seen = self.checks.keeps_answers;
        let connection = &mut self.connections[index];
        let generation = connection.generation;
        let mut answers = if is_seen {
            std::mem::take(&mut connection.pieces().answers)
        } else {
            Vec::new()
        };
        let session = connection.session.as_mut();
        let Some(client) = session.and_then(|session| self.wire.client(session)) else {
            return;
        };
        let had_nothing = !client.has_pending();
        let (allowed, open) = (client.limit(), client.open());
        let mut events = std::mem::take(&mut self.streams.events);
        let fed = if is_seen {
            answers.resize_with(client.places(), Answer::default);
            client.feed(bytes, &mut events, &mut Shown(&mut answers))
        } else {
            client.feed(bytes, &mut events, &mut Ignore)
        };
        if had_nothing && client.has_pending() {
            self.streams.unwritten.push((index as u32, generation));
        }
        let limit = client.limit();
        // its other users wait for a response, or think
        let more = if limit > allowed {
            let thinking = self.thinking.on(index, generation);
            limit.saturating_sub(open + thinking)
        } else {
            0
        };
        self.recorder.now.counts.bytes_in += client.count_read(bytes.len());
        self.recorder.now.counts.strays += client.take_strays();
        for event in events.drain(..) {
            self.take_event(index, event, &mut answers, now);
        }
        self.streams.events = events;
        if self.connections[index].generation != generation {
            // it has carried as many answers as it shall, and is opened again
            return;
        }
        if is_seen {
            self.connections[index].pieces().answers = answers;
        }
        self.offer_more(index, more, now);
        match fed {
            Ok(()) => self.part_if_going(index, now),
            Err(fault) => self.fail(index, Failure::Fault(fault), now),
        }
    }

    /// The server allows more streams than before: so many users were turned away.
    fn offer_more(&mut self, index: usize, more: u32, now: u64) {
        // a server that takes back and allows again for ever must not fill the list
        let places = self.connections.wanted * self.plan.protocol.streams();
        for _ in 0..more {
            if self.may_begin(index) && self.burst.len() < places {
                self.offer_one(index, now);
            }
        }
    }

    /// A connection that takes no more requests and waits for none is opened again.
    fn part_if_going(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        let session = connection.session.as_mut();
        let client = session.and_then(|session| self.wire.client(session));
        if client.is_some_and(|client| client.is_going() && client.open() == 0) {
            self.ended_idle(index, None, now);
        } else if connection.in_flight == 0 && index >= self.connections.wanted {
            self.close(index);
        }
    }

    fn take_event(
        &mut self,
        index: usize,
        event: Event<RequestMeta>,
        answers: &mut [Answer],
        now: u64,
    ) {
        if self.recorder.is_over(now) {
            self.rotate(now);
        }
        let connection = &mut self.connections[index];
        let target = usize::from(connection.target);
        match event {
            Event::Answered {
                slot,
                user,
                status,
                call,
                body_bytes,
            } => {
                connection.failures = 0;
                connection.answered = connection.answered.saturating_add(1);
                let coded = (!P::MESSAGES).then_some(status);
                self.recorder.count_answer(user.due_ns, coded);
                self.checks.compare(status, body_bytes, &mut self.recorder);
                self.recorder.record_times(target, user, status, now);
                if self.plan.protocol.is_grpc() && call != Some(0) {
                    self.note_failed_call(call);
                } else {
                    self.compare_length(target, user.request, body_bytes, status);
                }
                if let Some(answer) = answers.get_mut(slot) {
                    let answer = std::mem::take(answer);
                    self.show_answer(status, body_bytes, answer);
                }
            }
            Event::Reset { user, code } => {
                self.recorder.now.counts.errors.stream_reset += 1;
                self.recorder.note(|| format!("stream reset: code {code}"));
                self.recorder.lose(target, user, 1, now);
            }
            Event::Unprocessed { user } => {
                self.recorder.now.counts.errors.stale += 1;
                self.recorder
                    .note(|| "the server went away before it took a request".into());
                self.recorder.lose(target, user, 1, now);
            }
        }
        self.end_stream(index, now);
    }

    /// A stream has ended, with an answer or without: the next one may begin in its place. A connection
    /// that has carried as many answers as it shall is opened again once none is under way on it.
    fn end_stream(&mut self, index: usize, now: u64) {
        self.connections.end_streams(index, 1);
        if self.is_used_up(index) {
            if self.connections[index].in_flight == 0 {
                self.reopen(index, now);
            }
        } else if self.may_begin(index) {
            self.offer_one(index, now);
        }
    }

    /// A call was answered, and failed: its time counts as that of any answer.
    #[cold]
    fn note_failed_call(&mut self, call: Option<u32>) {
        self.recorder.now.counts.errors.grpc += 1;
        self.recorder.note(|| match call {
            Some(number) => format!("grpc-status: {number}"),
            None => "a response without grpc-status".into(),
        });
    }

    /// Requests that have waited too long, with their slots.
    pub(super) fn late_streams(&mut self, index: usize, now: u64) -> Vec<(usize, RequestMeta)> {
        let timeout_ns = self.plan.timeout_ns;
        let session = self.connections[index].session.as_mut();
        let client = session.and_then(|session| self.wire.client(session));
        let mut all = client.map_or(Vec::new(), |client| client.each());
        all.retain(|(_, asked)| now.saturating_sub(asked.sent_ns) > timeout_ns);
        all
    }

    /// Gives up on requests that have waited too long.
    pub(super) fn scan_streams(&mut self, index: usize, now: u64) {
        let late = self.late_streams(index, now);
        let connection = &mut self.connections[index];
        let generation = connection.generation;
        let session = connection.session.as_mut();
        let Some(client) = session.and_then(|session| self.wire.client(session)) else {
            return;
        };
        let slots: Vec<usize> = late.iter().map(|(slot, _)| *slot).collect();
        let expired = client.expire(&slots);
        if expired == Expired::Together {
            self.fail(index, Failure::Timeout, now);
            return;
        }
        self.streams.unwritten.push((index as u32, generation));
        self.recorder.now.counts.errors.timeout += late.len() as u64;
        self.recorder.note(|| "no response in time".into());
        let target = usize::from(self.connections[index].target);
        for (_, asked) in late {
            self.recorder.lose(target, asked, 1, now);
        }
        if let Expired::Gone(why) = expired {
            self.connections.end_streams(index, slots.len());
            self.fail(index, Failure::Read(io::Error::other(why)), now);
            return;
        }
        for _ in slots {
            self.end_stream(index, now);
        }
        if self.connections[index].generation == generation {
            self.part_if_going(index, now);
        }
    }
}
