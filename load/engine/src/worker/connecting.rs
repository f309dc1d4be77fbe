//! Opening and closing connections.

use super::connector::is_inet;
use super::proxy_header::proxy_header;
use super::{ConnectionState, Worker};
use crate::protocol::{InFlight, Protocol, Wire};
use crate::sys::clock::monotonic_ns;
use crate::sys::epoll::Ready;
use crate::sys::socket::{self, Connect, Fd, Kind, RawAddress};
use crate::transport::Transport;
use std::io::{self, ErrorKind};

/// First wait before opening again after a failure; it doubles.
const BACKOFF_MIN_NS: u64 = 1_000_000;
/// Longest such wait.
const BACKOFF_MAX_NS: u64 = 100_000_000;
/// A server that ends an unused connection after so long did take it.
const IDLE_NS: u64 = 1_000_000_000;

/// How far the opening of a connection came at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// It is established, and its first request is written.
    Sent,
    /// It is established.
    Connected,
    /// It is under way.
    Pending,
}

/// The token of a connection in its events.
pub(super) fn token(index: usize, generation: u32) -> u64 {
    u64::from(generation) << 32 | index as u64
}

impl<T: Transport, P: Protocol> Worker<'_, T, P> {
    /// Whether only the handshake shows that a server is there: a socket of UDP connects at once.
    const CONNECTS_BY_HANDSHAKE: bool = T::DATAGRAMS && P::HANDSHAKES;

    /// From now on so many connections shall be open.
    pub(super) fn want(&mut self, wanted: usize, now: u64) {
        let before = self.connections.wanted;
        self.connections.wanted = wanted;
        self.redispatch(wanted);
        for index in before..wanted {
            if self.connections[index].state == ConnectionState::Closed {
                self.open(index, now);
            }
        }
        // the surplus ones close when they have their answers; a user who thinks sends no more
        for index in wanted..before {
            let state = self.connections[index].state;
            self.thinking.forget(index);
            if matches!(state, ConnectionState::Idle | ConnectionState::Delayed) {
                self.close(index);
            }
        }
    }

    /// Requests that waited for connections which are too many now wait for others.
    fn redispatch(&mut self, wanted: usize) {
        for (target, waiting) in self.pacer.dispatch.resize(wanted) {
            let own = self.pacer.dispatch.own_connection(target);
            self.pacer.dispatch.wait(target, own, waiting);
            if let Some(index) = own {
                let generation = self.connections[index].generation;
                self.burst.add(index, generation, waiting.due_ns);
            }
        }
    }

    /// Starts to open a connection, or queues it behind those under way.
    pub(super) fn open(&mut self, index: usize, now: u64) {
        let asks_again = std::mem::take(&mut self.connections[index].asks_again);
        let is_closed = self.connections[index].state == ConnectionState::Closed;
        if index >= self.connections.wanted || self.stopped || !is_closed {
            return;
        }
        if self.connector.is_full() {
            self.connector.enqueue(index);
            return;
        }
        if !asks_again {
            self.connections[index].sent_ns = now;
        }
        let start = self.start_connect(index);
        self.started(index, start, now);
    }

    fn started(&mut self, index: usize, start: io::Result<Start>, now: u64) {
        match start {
            Ok(Start::Sent) => {}
            Ok(Start::Pending) => {
                self.connector.begin();
                let connection = &mut self.connections[index];
                (connection.state, connection.holds_place) = (ConnectionState::Connecting, true);
            }
            Ok(Start::Connected) => {
                if Self::CONNECTS_BY_HANDSHAKE {
                    self.connector.begin();
                    self.connections[index].holds_place = true;
                }
                self.established(index, now);
            }
            Err(error) => self.connect_failed(index, &error, now),
        }
    }

    fn start_connect(&mut self, index: usize) -> io::Result<Start> {
        self.adopt_address()?;
        let target = usize::from(self.connections[index].target);
        let session = self.wire.begin(target)?;
        let address = self.address_of(index);
        let kind = if T::DATAGRAMS {
            Kind::Datagram
        } else {
            Kind::Stream
        };
        let fd = socket::open(&address, kind)?;
        let connection = &mut self.connections[index];
        connection.fd = fd;
        connection.session = Some(session);
        connection.registered = connection.generation;
        let result = self.prepare_and_connect(fd, target, &address);
        let registered = result.and_then(|connect| {
            let (start, room) = self.start_first(index, connect)?;
            let token = token(index, self.connections[index].registered);
            self.waiter.epoll.add(fd, token, room)?;
            Ok(start)
        });
        if registered.is_err() {
            self.close(index);
        }
        registered
    }

    /// From now on connections go where the script wants them, if it has changed its mind.
    #[inline]
    fn adopt_address(&mut self) -> io::Result<()> {
        if let Some(address) = self.scripting.new_address() {
            self.requests.targets[0].address = address;
            self.requests.targets[0].others.clear();
            self.connector.move_to(&self.requests.targets[0])?;
        }
        Ok(())
    }

    /// Where a connection that is opened now goes.
    #[inline]
    fn address_of(&mut self, index: usize) -> RawAddress {
        let connection = &mut self.connections[index];
        let target = usize::from(connection.target);
        let (address, place) = self.connector.address_of(target, index);
        connection.address = place;
        address
    }

    /// Writes the first request if that can be done already; and whether room must be waited for.
    fn start_first(&mut self, index: usize, connect: Connect) -> io::Result<(Start, bool)> {
        let start = match connect {
            Connect::Connected => Start::Connected,
            Connect::Pending if self.send_first(index)? => Start::Sent,
            Connect::Pending => Start::Pending,
        };
        // a socket of UDP has room as soon as it is there, and would report it after each datagram
        let is_awaited = start != Start::Sent && !T::DATAGRAMS;
        let room = is_awaited || self.connections[index].is_writing();
        Ok((start, room))
    }

    fn prepare_and_connect(
        &mut self,
        fd: Fd,
        target: usize,
        address: &RawAddress,
    ) -> io::Result<Connect> {
        if is_inet(&self.requests.targets[target]) {
            self.connector.prepare(fd, address, !T::DATAGRAMS)?;
        }
        self.wire.transport.prepare(fd)?;
        self.connector.connect(fd, address)
    }

    /// A connect has ended; the time after it.
    pub(super) fn connect_ended(&mut self, index: usize, ready: Ready) -> u64 {
        let now = monotonic_ns();
        if ready.ended() {
            if let Some(error) = socket::take_error(self.connections[index].fd) {
                self.connect_failed(index, &error, now);
                return now;
            }
        }
        if !Wire::<T, P>::HANDSHAKES || self.running {
            self.leave_connecting(index);
        }
        self.established(index, now);
        if ready.ended() && self.connections[index].state == ConnectionState::Idle {
            // the server's end came with its beginning, and no further event reports it
            return self.receive(index, true, now);
        }
        now
    }

    fn leave_connecting(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if !std::mem::take(&mut connection.holds_place) {
            return;
        }
        connection.state = ConnectionState::Closed;
        self.connector.end();
        // one that fails at once leaves its place to the next
        while let Some(next) = self.connector.next_queued() {
            self.open(next, monotonic_ns());
        }
    }

    /// Enters a connect that had ended by `now`.
    pub(super) fn count_connect(&mut self, index: usize, now: u64) {
        let took_ns = now - self.connections[index].sent_ns;
        self.recorder.now.counts.connects += 1;
        self.connector.round_trip_ns = self.connector.round_trip_ns.min(took_ns);
        self.recorder.now.times.connect.record(took_ns);
    }

    fn established(&mut self, index: usize, now: u64) {
        if !Self::CONNECTS_BY_HANDSHAKE {
            self.count_connect(index, now);
        }
        if let Err(error) = self.send_proxy_header(index) {
            self.connect_failed(index, &error, now);
            return;
        }
        let connection = &mut self.connections[index];
        let token = token(index, connection.registered);
        let _ = self.waiter.epoll.want_room(connection.fd, token, false);
        if Wire::<T, P>::HANDSHAKES {
            connection.state = ConnectionState::Handshaking;
            connection.sent_ns = now;
            self.shake_hands(index);
        } else {
            connection.state = ConnectionState::Idle;
            self.offer(index, now);
        }
    }

    /// Sends the PROXY header, where one is wanted.
    fn send_proxy_header(&mut self, index: usize) -> io::Result<()> {
        let Some(version) = self.plan.proxy_header else {
            return Ok(());
        };
        let fd = self.connections[index].fd;
        let (from, to) = socket::ends(fd)?;
        let header = proxy_header(version, from, to);
        // a fresh connection has room for it
        let written = socket::write(fd, &header)?;
        if written < header.len() {
            return Err(io::Error::other("no room for the PROXY header"));
        }
        Ok(())
    }

    /// Goes on with the handshakes; the time after it.
    pub(super) fn shake_hands(&mut self, index: usize) -> u64 {
        let connection = &mut self.connections[index];
        let Some(session) = connection.session.as_mut() else {
            return monotonic_ns();
        };
        let result = self.wire.handshake(session, connection.fd);
        let now = monotonic_ns();
        match result {
            Ok(false) => self.await_handshake(index),
            Ok(true) => self.handshakes_ended(index, now),
            Err(error) if P::TIMERS && error.kind() == ErrorKind::Interrupted => {
                let generation = self.connections[index].generation;
                self.reads.note_unfinished(index, generation, false);
                self.await_handshake(index);
            }
            Err(error) => self.connect_failed(index, &error, now),
        }
        now
    }

    /// A handshake goes on when something comes, when its timer does, or when there is room for what found
    /// none: a socket of UDP reports room only where that is asked for.
    fn await_handshake(&mut self, index: usize) {
        self.set_wake(index);
        if Self::CONNECTS_BY_HANDSHAKE {
            let session = self.connections[index].session.as_mut();
            let client = session.and_then(|session| self.wire.client(session));
            let is_held = client.is_some_and(|client| client.has_pending());
            self.want_room(index, is_held);
        }
    }

    /// The handshakes of a connection have ended well.
    fn handshakes_ended(&mut self, index: usize, now: u64) {
        if Self::CONNECTS_BY_HANDSHAKE {
            self.count_connect(index, now);
        }
        // its end may have found no room
        self.await_handshake(index);
        let connection = &mut self.connections[index];
        let Some(session) = &connection.session else {
            return;
        };
        let target = usize::from(connection.target);
        let is_early = self.wire.is_early(session);
        if self.requests.targets[target].tls_name.is_some() && !is_early {
            let took_ns = now - connection.sent_ns;
            self.recorder.now.times.tls.record(took_ns);
            let resumed = self.wire.was_resumed(session);
            self.recorder.now.counts.resumed += u64::from(resumed);
        }
        connection.state = ConnectionState::Idle;
        let generation = connection.generation;
        if connection.holds_place {
            self.leave_connecting(index);
            self.connections[index].state = ConnectionState::Idle;
        }
        // frames may have come with the end of the handshake; no event reports them
        if P::MESSAGES {
            self.receive(index, false, now);
        } else if P::STREAMS {
            self.reads.note_unfinished(index, generation, false);
        }
        if self.connections[index].generation == generation {
            self.offer(index, now);
        }
    }

    pub(super) fn connect_failed(&mut self, index: usize, error: &io::Error, now: u64) {
        let is_full = error.kind() == ErrorKind::WouldBlock;
        if is_full && !T::DATAGRAMS && self.try_again(index, now) {
            return;
        }
        let errors = &mut self.recorder.now.counts.errors;
        match (error.kind(), error.raw_os_error()) {
            (ErrorKind::ConnectionRefused, _) => errors.connect_refused += 1,
            (ErrorKind::TimedOut, _) => errors.connect_timeout += 1,
            (_, Some(libc::EADDRNOTAVAIL)) => errors.connect_no_port += 1,
            // udp(7): no port is left
            (_, Some(libc::EAGAIN)) if T::DATAGRAMS => errors.connect_no_port += 1,
            _ => errors.connect_other += 1,
        }
        self.recorder.note(|| format!("connect: {error}"));
        self.connector.note_failure(&self.connections[index]);
        self.lose_connect(index, now);
        self.connections[index].failures = self.connections[index].failures.saturating_add(1);
        self.close(index);
        self.reopen_later(index, now);
    }

    /// Enters what a user of a closed loop waited for a connection that was not to be had: a failed
    /// request, and one of those after which the run ends.
    fn lose_connect(&mut self, index: usize, now: u64) {
        if self.running && !self.pacer.is_open() && !self.requests.are_used_up() {
            let waited_ns = now.saturating_sub(self.connections[index].sent_ns);
            self.recorder.now.times.service.record_lost(waited_ns, 1);
            self.recorder.now.counts.unconnected += 1;
            self.requests.fail_one();
        }
    }

    /// A Unix socket says that its queue is full where the kernel's TCP would try again, for as long as
    /// a connect may take.
    fn try_again(&mut self, index: usize, now: u64) -> bool {
        let connection = &mut self.connections[index];
        if now.saturating_sub(connection.sent_ns) >= self.plan.connect_timeout_ns {
            return false;
        }
        connection.failures = connection.failures.saturating_add(1);
        self.close(index);
        self.connections[index].asks_again = true;
        self.reopen_later(index, now);
        true
    }

    /// Closes a connection; what is still reported of it is ignored.
    pub(super) fn close(&mut self, index: usize) {
        self.leave_connecting(index);
        if P::STREAMS {
            let streams = self.connections[index].in_flight as usize;
            self.connections.end_streams(index, streams);
        }
        self.set_not_busy(index, ConnectionState::Closed);
        self.send_close(index);
        let connection = &mut self.connections[index];
        if connection.fd >= 0 {
            socket::close(connection.fd);
        }
        connection.fd = -1;
        connection.begin_anew();
        connection.wants_room = false;
        connection.session = None;
    }

    /// Says on a connection that is about to be closed that it is. One that is aborted ends without the
    /// end that TLS has.
    pub(super) fn send_close(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if let Some(session) = connection.session.as_mut() {
            self.wire.send_close(session, connection.fd);
            if !self.plan.abort {
                self.wire.send_end(session, connection.fd);
            }
        }
    }

    /// The server has ended a connection on which it owed nothing. One that has carried an answer, or
    /// was idle for long, is opened again at once; a server that ends what it has just accepted is left
    /// in peace for longer each time, the next try goes to the next address of its name, and from the
    /// second time on that is a failure to connect.
    #[cold]
    pub(super) fn ended_idle(&mut self, index: usize, why: Option<&io::Error>, now: u64) {
        let connection = &mut self.connections[index];
        let was_idle = now.saturating_sub(connection.sent_ns) >= IDLE_NS;
        if connection.answered > 0 || was_idle {
            self.reopen(index, now);
            return;
        }
        if connection.failures > 0 {
            self.recorder.now.counts.errors.connect_other += 1;
            self.recorder.note(|| match why {
                Some(error) => format!("connect: {error}"),
                None => "connect: closed by the server before the first request".into(),
            });
            self.lose_connect(index, now);
        }
        // the first end counts as a try of its address too
        self.connector.note_failure(&self.connections[index]);
        let connection = &mut self.connections[index];
        connection.failures = connection.failures.saturating_add(1);
        self.close(index);
        self.reopen_later(index, now);
    }

    /// Closes and opens again at once: the server had ended the connection in good order.
    pub(super) fn reopen(&mut self, index: usize, now: u64) {
        if self.connector.renews() && self.renew(index, now) {
            return;
        }
        self.close(index);
        self.open(index, now);
    }

    /// Ends the connection as closing it does and begins the next one on the same socket, if both
    /// sides have ended it: then no state is left that only a closed socket would look after.
    ///
    /// The packets are the same, the source port is a new one, and the kernel need not take down
    /// and make a socket, its file and its place in the epoll set.
    fn renew(&mut self, index: usize, now: u64) -> bool {
        let fits = self.running
            && self.connector.sends_first
            && !self.stopped
            && index < self.connections.wanted;
        let connection = &self.connections[index];
        let fd = connection.fd;
        let target = usize::from(connection.target);
        let inet = is_inet(&self.requests.targets[target]);
        if Wire::<T, P>::HANDSHAKES || !fits || !inet || fd < 0 || connection.is_writing() {
            return false;
        }
        if !self.connector.renew(fd) {
            return false;
        }
        self.set_not_busy(index, ConnectionState::Closed);
        let connection = &mut self.connections[index];
        connection.begin_anew();
        connection.sent_ns = now;
        let start = self.connect_again(index, fd);
        self.started(index, start, now);
        true
    }

    fn connect_again(&mut self, index: usize, fd: Fd) -> io::Result<Start> {
        self.adopt_address()?;
        let address = self.address_of(index);
        let connect = self.connector.connect(fd, &address)?;
        let (start, room) = self.start_first(index, connect)?;
        if room {
            let token = token(index, self.connections[index].registered);
            self.waiter.epoll.want_room(fd, token, true)?;
        }
        Ok(start)
    }

    /// Opens again after a wait that grows with the failures in a row.
    pub(super) fn reopen_later(&mut self, index: usize, now: u64) {
        let connection = &self.connections[index];
        let doublings = u32::from(connection.failures.saturating_sub(1)).min(16);
        let wait_ns = (BACKOFF_MIN_NS << doublings).min(BACKOFF_MAX_NS);
        let generation = connection.generation;
        self.deadlines.set_timer(now + wait_ns, index, generation);
    }
}
