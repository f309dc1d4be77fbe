//! Calls of the application: listen, accept, connect, send, receive, close, options.

use crate::conn::{Conn, State, READABLE, WRITABLE};
use crate::demux::Entry;
use crate::engine::{Engine, Handle};
use crate::error::Error;
use crate::option::{OptionName, Settings, SocketOption};
use crate::seq::{after, before};
use crate::wire::ip::Addr;
use core::net::{IpAddr, SocketAddr};

/// Which directions [`Engine::shutdown`] ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shutdown {
    /// No more reading.
    Read,
    /// No more writing: FIN follows the last byte.
    Write,
    /// Both.
    Both,
}

impl Engine {
    /// Opens a listener. At most `backlog` connections wait to be accepted. `[::]` also takes IPv4.
    pub fn listen(&mut self, at: SocketAddr, backlog: u32) -> Result<Handle, Error> {
        self.listen_with(at, backlog, false)
    }

    /// As [`Engine::listen`]; with `is_v6_only`, `[::]` takes no IPv4.
    pub fn listen_with(
        &mut self,
        at: SocketAddr,
        backlog: u32,
        is_v6_only: bool,
    ) -> Result<Handle, Error> {
        let addr = Addr::from(at.ip());
        if !addr.is_unspecified() && !self.link.routes.is_local(addr) {
            return Err(Error::AddressNotAvailable);
        }
        if at.port() == 0 {
            return Err(Error::InvalidArgument);
        }
        let opened = self.listeners.open(addr, at.port(), backlog, is_v6_only);
        let index = opened.ok_or(Error::AddressInUse)?;
        Ok(Handle::listener(
            index,
            self.listeners.slab[index].generation,
        ))
    }

    /// Changes how many connections may wait.
    pub fn set_backlog(&mut self, listener: Handle, backlog: u32) -> Result<(), Error> {
        let index = self.listener_index(listener)?;
        self.listeners.slab[index].backlog = backlog.max(1);
        Ok(())
    }

    /// So many connections that were accepted here wait elsewhere for the application: they count as waiting.
    pub fn set_taken(&mut self, listener: Handle, taken: u32) -> Result<(), Error> {
        let index = self.listener_index(listener)?;
        self.listeners.slab[index].taken = taken;
        Ok(())
    }

    fn listener_index(&self, handle: Handle) -> Result<u32, Error> {
        let index = handle.listener_index().ok_or(Error::InvalidArgument)?;
        match self.listeners.slab.get(index) {
            Some(it) if it.is_open && it.generation == handle.generation => Ok(index),
            _ => Err(Error::BadHandle),
        }
    }

    /// The connection that has waited longest.
    pub fn accept(&mut self, listener: Handle) -> Result<Handle, Error> {
        let index = self.listener_index(listener)?;
        let conn = self.listeners.slab[index]
            .queue
            .pop_front()
            .ok_or(Error::WouldBlock)?;
        let accepted = &mut self.conns[conn];
        accepted.is_unaccepted = false;
        let handle = Handle {
            index: conn,
            generation: accepted.generation,
        };
        // Nobody was notified of events while it waited.
        let ready = accepted.readiness();
        accepted.events = 0;
        accepted.notify(&mut self.cx, ready);
        Ok(handle)
    }

    /// Connections that wait at a listener.
    pub fn waiting(&self, listener: Handle) -> Result<usize, Error> {
        Ok(self.listeners.slab[self.listener_index(listener)?]
            .queue
            .len())
    }

    pub(crate) fn conn(&mut self, handle: Handle) -> Result<&mut Conn, Error> {
        self.conn_index(handle)?;
        Ok(&mut self.conns[handle.index])
    }

    pub(crate) fn conn_index(&self, handle: Handle) -> Result<u32, Error> {
        if handle.is_listener() {
            return Err(Error::InvalidArgument);
        }
        match self.conns.get(handle.index) {
            Some(conn)
                if conn.in_use && !conn.is_orphan && conn.generation == handle.generation =>
            {
                Ok(handle.index)
            }
            _ => Err(Error::BadHandle),
        }
    }

    /// Reads bytes; zero is the end of the stream.
    pub fn recv(&mut self, now_us: u64, handle: Handle, into: &mut [u8]) -> Result<usize, Error> {
        let index = self.conn_index(handle)?;
        self.cx.now_us = self.cx.now_us.max(now_us);
        let conn = &mut self.conns[index];
        let (passed, readable) = conn.readable_at_once();
        let count = readable.min(into.len());
        if !into.is_empty() {
            conn.pass(passed);
        }
        if count == 0 {
            return conn.answer_empty(into.is_empty());
        }
        conn.rx.peek(0, &mut into[..count]);
        conn.pass(count);
        conn.after_read(&mut self.cx, count as u32);
        Ok(count)
    }

    /// Reads bytes and leaves them (MSG_PEEK).
    pub fn peek(&mut self, handle: Handle, into: &mut [u8]) -> Result<usize, Error> {
        let conn = self.conn(handle)?;
        let (passed, readable) = conn.readable_at_once();
        let count = readable.min(into.len());
        if count == 0 {
            return conn.answer_empty(into.is_empty());
        }
        Ok(conn.rx.peek(passed, &mut into[..count]))
    }

    /// Reads the urgent byte (MSG_OOB).
    pub fn recv_urgent(&mut self, handle: Handle) -> Result<u8, Error> {
        let conn = self.conn(handle)?;
        let is_inline = conn.settings.urgent_inline;
        match &mut conn.urgent {
            Some(urgent) if !urgent.is_read && !is_inline => match urgent.byte {
                Some(byte) => {
                    urgent.is_read = true;
                    Ok(byte)
                }
                None => Err(Error::WouldBlock),
            },
            _ => Err(Error::InvalidArgument),
        }
    }

    /// Whether the next byte to be read is the urgent one (SIOCATMARK).
    pub fn at_mark(&mut self, handle: Handle) -> Result<bool, Error> {
        let conn = self.conn(handle)?;
        Ok(conn
            .urgent
            .is_some_and(|urgent| urgent.seq == conn.head_seq()))
    }

    /// Bytes that wait to be read, and bytes not yet acknowledged (FIONREAD, SIOCOUTQ).
    pub fn queued(&mut self, handle: Handle) -> Result<(usize, usize), Error> {
        let conn = self.conn(handle)?;
        Ok((conn.rx.len(), conn.tx.len()))
    }

    /// Ends one direction or both.
    pub fn shutdown(&mut self, now_us: u64, handle: Handle, how: Shutdown) -> Result<(), Error> {
        let index = self.conn_index(handle)?;
        self.cx.now_us = self.cx.now_us.max(now_us);
        let conn = &mut self.conns[index];
        if matches!(conn.state, State::Closed | State::SynSent) {
            return Err(Error::NotConnected);
        }
        if how != Shutdown::Write {
            conn.is_shut_reading = true;
            conn.notify(&mut self.cx, READABLE);
        }
        if how != Shutdown::Read {
            conn.finish_writing(&mut self.cx);
            conn.notify(&mut self.cx, WRITABLE);
        }
        Ok(())
    }

    /// Gives the handle up. Bytes written are still delivered and FIN follows them; with unread
    /// bytes, or SO_LINGER of zero, the peer is reset instead (RFC 9293, 3.6.1; RFC 2525, 2.17).
    pub fn close(&mut self, now_us: u64, handle: Handle) -> Result<(), Error> {
        self.cx.now_us = self.cx.now_us.max(now_us);
        if handle.is_listener() {
            return self.close_listener(handle);
        }
        let index = self.conn_index(handle)?;
        self.close_conn(index);
        Ok(())
    }

    /// The application has closed although not all that it wrote has been handed over, which the caller
    /// goes on to do: from now on the connection lasts no longer than a closed one would.
    pub fn abandon(&mut self, handle: Handle) {
        if let Ok(index) = self.conn_index(handle) {
            self.conns[index].is_abandoned = true;
        }
    }

    fn close_conn(&mut self, index: u32) {
        let cx = &mut self.cx;
        let conn = &mut self.conns[index];
        conn.is_orphan = true;
        conn.is_unaccepted = false;
        let unread = !conn.rx.is_empty();
        let aborts = conn.settings.linger_s == Some(0) || unread;
        cx.pool.release(&mut conn.rx);
        conn.reassembly.clear();
        match conn.state {
            State::Closed | State::TimeWait => {}
            State::SynSent => conn.end_silently(cx),
            _ if aborts => {
                cx.stats.abort_on_close += u64::from(unread);
                conn.abort(cx);
            }
            _ => {
                conn.finish_writing(cx);
                conn.limit_fin_wait(cx);
            }
        }
        self.settle(index);
    }

    /// Whether the peer has not acknowledged the bytes and the end of a connection that was closed: what
    /// SO_LINGER waits for.
    pub fn is_closing(&self, closed: Handle) -> bool {
        let conn = self.conns.get(closed.index);
        conn.is_some_and(|conn| {
            let is_it = conn.in_use && conn.generation == closed.generation;
            is_it && conn.state.is_ending()
        })
    }

    /// Whether an end of ours is not acknowledged. It may not have left: behind bytes that are, before a window that is
    /// shut, where neither a segment nor memory is in use for it.
    pub fn has_ends_under_way(&self) -> bool {
        let mut conns = (0..self.conns.len() as u32).map(|index| &self.conns[index]);
        conns.any(|conn| conn.in_use && conn.fin_queued && conn.state.is_ending())
    }

    /// Ends a connection at once with a reset.
    pub fn abort(&mut self, now_us: u64, handle: Handle) -> Result<(), Error> {
        let index = self.conn_index(handle)?;
        self.cx.now_us = self.cx.now_us.max(now_us);
        self.conns[index].settings.linger_s = Some(0);
        self.close_conn(index);
        Ok(())
    }

    /// Connections that the application has not accepted are reset, as on Linux.
    fn close_listener(&mut self, handle: Handle) -> Result<(), Error> {
        let index = self.listener_index(handle)?;
        while let Some(conn) = self.listeners.slab[index].queue.pop_front() {
            self.conns[conn].settings.linger_s = Some(0);
            self.close_conn(conn);
        }
        for half_open in 0..self.half_opens.slab.len() as u32 {
            let entry = self.half_opens.slab[half_open];
            let hash = self.demux.hash(&entry.flow);
            let is_ours = entry.listener == index && entry.listener_generation == handle.generation;
            if is_ours && self.find(&entry.flow, hash) == Some(Entry::HalfOpen(half_open)) {
                self.remove_half_open(half_open);
            }
        }
        if self.listeners.slab[index].in_ready {
            self.ready_listeners.retain(|ready| *ready != index);
        }
        self.listeners.close(index);
        Ok(())
    }

    /// What is true of a socket now, in the bits of `epoll`.
    pub fn readiness(&mut self, handle: Handle) -> Result<u32, Error> {
        if handle.is_listener() {
            let index = self.listener_index(handle)?;
            return Ok(if self.listeners.slab[index].queue.is_empty() {
                0
            } else {
                READABLE
            });
        }
        Ok(self.conn(handle)?.readiness())
    }

    /// Fetches and clears the error of a connection (SO_ERROR).
    pub fn take_error(&mut self, handle: Handle) -> Result<Option<Error>, Error> {
        let conn = self.conn(handle)?;
        Ok(conn.error.take().or_else(|| conn.soft_error.take()))
    }

    /// Our end.
    pub fn local_addr(&mut self, handle: Handle) -> Result<SocketAddr, Error> {
        if handle.is_listener() {
            let listener = &self.listeners.slab[self.listener_index(handle)?];
            return Ok((IpAddr::from(listener.addr), listener.port).into());
        }
        let flow = self.conn(handle)?.flow;
        Ok((IpAddr::from(flow.local), flow.local_port()).into())
    }

    /// The other end.
    pub fn remote_addr(&mut self, handle: Handle) -> Result<SocketAddr, Error> {
        let flow = self.conn(handle)?.flow;
        Ok((IpAddr::from(flow.remote), flow.remote_port()).into())
    }

    /// Sets an option. A listener's options are those its connections begin with.
    pub fn setopt(
        &mut self,
        now_us: u64,
        handle: Handle,
        option: SocketOption,
    ) -> Result<(), Error> {
        self.cx.now_us = self.cx.now_us.max(now_us);
        if handle.is_listener() {
            let index = self.listener_index(handle)?;
            return self.listeners.slab[index].settings.set(option);
        }
        let index = self.conn_index(handle)?;
        let conn = &mut self.conns[index];
        conn.settings.set(option)?;
        conn.apply(&mut self.cx, option);
        Ok(())
    }

    /// Reads an option.
    pub fn getopt(&mut self, handle: Handle, name: OptionName) -> Result<SocketOption, Error> {
        if handle.is_listener() {
            let settings = self.listeners.slab[self.listener_index(handle)?].settings;
            return Ok(settings.get_unopened(name, &self.cx.config));
        }
        let index = self.conn_index(handle)?;
        let conn = &self.conns[index];
        let limits = (conn.snd_limit, conn.rcv_limit);
        Ok(conn.settings.get(name, limits, conn.mss, &self.cx.config))
    }
}

impl Conn {
    /// Sequence number of the next byte to be read.
    fn head_seq(&self) -> u32 {
        let has_fin = self.fin_seq.is_some_and(|fin| after(self.rcv_nxt, fin));
        self.rcv_nxt
            .wrapping_sub(u32::from(has_fin))
            .wrapping_sub(self.rx.len() as u32)
    }

    /// How many bytes are passed over, and how many can be read behind them. The urgent byte is not part of the
    /// stream, unless it is wanted there, and reading stops before it.
    pub(crate) fn readable_at_once(&self) -> (usize, usize) {
        let len = self.rx.len();
        let urgent = self.urgent.filter(|_| !self.settings.urgent_inline);
        let ahead = urgent.map(|urgent| urgent.seq.wrapping_sub(self.head_seq()) as usize);
        match ahead {
            Some(0) if len > 0 => (1, len - 1),
            Some(ahead) => (0, len.min(ahead)),
            None => (0, len),
        }
    }

    /// Takes bytes that were read out. An urgent byte among them is over (as on Linux): its number comes again.
    fn pass(&mut self, count: usize) {
        self.rx.consume(count);
        let head = self.head_seq();
        self.urgent = self.urgent.filter(|urgent| !before(urgent.seq, head));
    }

    fn answer_empty(&mut self, wants_nothing: bool) -> Result<usize, Error> {
        if wants_nothing {
            return Ok(0);
        }
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if self.is_at_end() || self.is_shut_reading {
            return Ok(0);
        }
        Err(Error::WouldBlock)
    }

    /// FIN follows the last byte.
    fn finish_writing(&mut self, cx: &mut crate::conn::Context) {
        if self.fin_queued {
            return;
        }
        self.state = match self.state {
            State::SynReceived => State::SynReceived,
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            _ => return,
        };
        self.fin_queued = true;
        self.more_follows = false;
        self.queue_output(cx);
    }

    fn end_silently(&mut self, cx: &mut crate::conn::Context) {
        self.state = State::Closed;
        self.drop_output(cx);
    }

    fn abort(&mut self, cx: &mut crate::conn::Context) {
        self.state = State::Closed;
        self.drop_output(cx);
        self.reset_due = true;
        self.queue_output(cx);
    }

    /// Buffers that options fixed.
    pub(crate) fn apply_buffer_settings(&mut self) {
        let Settings {
            send_bytes,
            receive_bytes,
            ..
        } = self.settings;
        if send_bytes > 0 {
            self.snd_limit = send_bytes;
        }
        if receive_bytes > 0 {
            self.rcv_limit = receive_bytes;
        }
    }

    /// The shift of our windows, until the first segment has said it.
    pub(crate) fn choose_scale(&mut self, cx: &crate::conn::Context) {
        let is_said = self.state != State::SynSent || self.syn_resent || !self.syn_due;
        if !is_said && cx.config.window_scaling {
            self.rcv_scale = self.settings.receive_scale(&cx.config);
        }
    }

    /// What a changed option does to an open connection.
    fn apply(&mut self, cx: &mut crate::conn::Context, option: SocketOption) {
        match option {
            SocketOption::NoDelay(_) | SocketOption::Cork(false) => {
                self.push_small = self.unsent() > 0;
                self.queue_output(cx);
            }
            SocketOption::QuickAck(true) => {
                self.enter_quick_acks();
                self.ack_due |= self.ack_pending;
                self.queue_output(cx);
            }
            SocketOption::QuickAck(false) => {
                self.quick_acks = 0;
                self.is_interactive = true;
            }
            SocketOption::KeepAlive(_) | SocketOption::KeepIdle { .. } => {
                self.restart_keepalive(cx)
            }
            SocketOption::SendBuffer { .. } => self.apply_buffer_settings(),
            SocketOption::ReceiveBuffer { .. } => {
                self.apply_buffer_settings();
                self.choose_scale(cx);
            }
            SocketOption::SegmentMax(_) => self.set_path_mtu(self.path_mtu),
            SocketOption::UnsentLow { .. } => {
                self.set_unsent_low(&cx.config);
                self.offer_room(cx);
            }
            SocketOption::CongestionControl(algorithm) => self.control.algorithm = algorithm,
            _ => {}
        }
    }
}
