//! What the application's side calls: listen, accept, connect, send, receive, close, options.

use crate::config::Ecn;
use crate::conn::{Conn, State, Totals, READABLE, WRITABLE};
use crate::demux::Entry;
use crate::engine::{Engine, Handle};
use crate::error::Error;
use crate::listen::window_scale;
use crate::loss::Phase;
use crate::option::{OptionName, Settings, SocketOption};
use crate::seq::{after, before};
use crate::wire::ip::Addr;
use crate::wire::tcp::Flow;
use core::net::{IpAddr, SocketAddr};

/// Least and largest buffers that an option can ask for.
const BUFFER_MIN: u32 = 2_048;
const BUFFER_MAX: u32 = 8 << 20;

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

/// Facts about a connection, as TCP_INFO has them.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// Its state.
    pub state: State,
    /// Where loss recovery stands.
    pub phase: Phase,
    /// Smoothed round-trip time; zero when not measured.
    pub rtt_us: u32,
    /// Its mean deviation.
    pub rttvar_us: u32,
    /// Least round-trip time seen; `u32::MAX` when not measured.
    pub min_rtt_us: u32,
    /// Retransmission timeout now.
    pub rto_us: u64,
    /// Congestion window in segments.
    pub cwnd: u32,
    /// Slow start threshold in segments; `u32::MAX` before the first loss.
    pub ssthresh: u32,
    /// Payload of a full segment.
    pub mss: u32,
    /// The peer's full segment, as far as seen.
    pub rcv_mss: u32,
    /// Segments sent and not acknowledged.
    pub unacked: u32,
    /// Of these, selectively acknowledged.
    pub sacked: u32,
    /// Of these, taken for lost.
    pub lost: u32,
    /// Of these, sent again.
    pub retrans: u32,
    /// The peer's window.
    pub snd_wnd: u32,
    /// Our window.
    pub rcv_wnd: u32,
    /// Largest packet of the path.
    pub path_mtu: u32,
    /// Consecutive timeouts.
    pub timeouts: u8,
    /// Unanswered zero-window or keepalive probes.
    pub probes: u8,
    /// Shifts of the peer's and of our windows.
    pub scales: (u8, u8),
    /// Timestamps, SACK, ECN in use.
    pub has: (bool, bool, bool),
    /// Sums over its life.
    pub totals: Totals,
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
        // What came while it waited was told to nobody.
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

    /// Begins a connection. `local` may leave address or port open (unspecified, zero). The end is
    /// told by an event: WRITABLE, or ERROR.
    pub fn connect(
        &mut self,
        now_us: u64,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<Handle, Error> {
        self.connect_with(now_us, local, remote, |_| true)
    }

    /// As [`Engine::connect`]; a port chosen by the engine is one that `may_use` allows, for devices
    /// that spread flows over queues by a hash.
    pub fn connect_with(
        &mut self,
        now_us: u64,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        may_use: impl Fn(SocketAddr) -> bool,
    ) -> Result<Handle, Error> {
        self.cx.now_us = self.cx.now_us.max(now_us);
        let to = Addr::from(remote.ip());
        if remote.port() == 0 || to.is_unspecified() || to.is_multicast() {
            return Err(Error::InvalidArgument);
        }
        self.link.routes.next_hop(to)?;
        let from = match local.map(|local| Addr::from(local.ip())) {
            Some(own) if !own.is_unspecified() => own,
            _ => self
                .link
                .routes
                .source_for(to)
                .ok_or(Error::NetworkUnreachable)?,
        };
        if !self.link.routes.is_local(from) || from.is_v4() != to.is_v4() {
            return Err(Error::AddressNotAvailable);
        }
        let flow = match local.map_or(0, |local| local.port()) {
            0 => self.free_flow(from, to, remote.port(), may_use)?,
            port => self.claim(Flow::new(from, port, to, remote.port()))?,
        };
        self.begin(flow)
    }

    /// Whether a flow can be used; a TIME_WAIT entry of it gives way when timestamps allow
    /// (RFC 6191).
    fn claim(&mut self, flow: Flow) -> Result<Flow, Error> {
        let hash = self.demux.hash(&flow);
        match self.find(&flow, hash) {
            None => Ok(flow),
            Some(Entry::TimeWait(index)) if self.time_waits.get(index).has_timestamps => {
                self.remove_time_wait(index);
                self.cx.stats.time_wait_recycled += 1;
                Ok(flow)
            }
            Some(_) => Err(Error::AddressInUse),
        }
    }

    /// A port that no other connection to the same remote end has.
    fn free_flow(
        &mut self,
        from: Addr,
        to: Addr,
        port: u16,
        may_use: impl Fn(SocketAddr) -> bool,
    ) -> Result<Flow, Error> {
        let (first, last) = self.cx.config.ports;
        let count = u32::from(last.saturating_sub(first)) + 1;
        for _ in 0..count {
            self.next_port = self.next_port.wrapping_add(1);
            // RFC 6056, 3.3.3: where the search begins depends on the remote end.
            let start = self.demux.hash(&Flow::new(from, 0, to, port)) as u32;
            let offset = start.wrapping_add(u32::from(self.next_port)) % count;
            let local = first + offset as u16;
            let flow = Flow::new(from, local, to, port);
            let taken = self.find(&flow, self.demux.hash(&flow)).is_some();
            if !taken
                && !self.listeners.has_port(local)
                && may_use((IpAddr::from(from), local).into())
            {
                return Ok(flow);
            }
        }
        Err(Error::AddressNotAvailable)
    }

    fn begin(&mut self, flow: Flow) -> Result<Handle, Error> {
        let index = self.new_conn(flow).ok_or(Error::NoBuffers)?;
        let hash = self.demux.hash(&flow);
        self.demux.insert(hash, Entry::Connection(index));
        let iss = self.numbers.initial_sequence(&flow, self.cx.now_us);
        let cx = &mut self.cx;
        let conn = &mut self.conns[index];
        conn.iss = iss;
        conn.snd_una = iss;
        conn.snd_nxt = iss.wrapping_add(1);
        conn.tx_seq = conn.snd_nxt;
        conn.push_seq = conn.snd_nxt;
        conn.small_seq = conn.snd_nxt;
        conn.recovery.high_seq = conn.snd_nxt;
        conn.peer_mss = 536;
        conn.has_ecn = cx.config.ecn == Ecn::Request;
        conn.rcv_scale = if cx.config.window_scaling {
            window_scale(cx.config.receive_bytes_max)
        } else {
            0
        };
        conn.state = State::SynSent;
        conn.syn_due = true;
        conn.set_path_mtu(conn.path_mtu);
        conn.queue_output(cx);
        cx.stats.active_opens += 1;
        Ok(Handle {
            index,
            generation: conn.generation,
        })
    }

    pub(crate) fn conn(&mut self, handle: Handle) -> Result<&mut Conn, Error> {
        self.conn_index(handle)?;
        Ok(&mut self.conns[handle.index])
    }

    fn conn_index(&self, handle: Handle) -> Result<u32, Error> {
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

    /// Writes bytes; answers how many were taken, at least one. With `more` a small last segment
    /// waits for more (MSG_MORE).
    pub fn send(
        &mut self,
        now_us: u64,
        handle: Handle,
        bytes: &[u8],
        more: bool,
    ) -> Result<usize, Error> {
        let index = self.conn_index(handle)?;
        self.cx.now_us = self.cx.now_us.max(now_us);
        let cx = &mut self.cx;
        let conn = &mut self.conns[index];
        conn.check_writable()?;
        if bytes.is_empty() {
            return Ok(0);
        }
        let count = conn.room(cx).min(bytes.len());
        if count == 0 {
            conn.wants_room = true;
            return Err(Error::WouldBlock);
        }
        let used = conn.tx.len();
        if !cx.pool.reserve(&mut conn.tx, used + count, used) {
            conn.wants_room = true;
            return Err(if used == 0 {
                Error::NoBuffers
            } else {
                Error::WouldBlock
            });
        }
        conn.tx.push(&bytes[..count]);
        conn.wants_room = count < bytes.len();
        conn.more_follows = more && count == bytes.len();
        if !conn.more_follows {
            conn.push_seq = conn.tx_seq.wrapping_add(conn.tx.len() as u32);
        }
        conn.queue_output(cx);
        Ok(count)
    }

    /// Writes bytes of which the last is urgent (MSG_OOB).
    pub fn send_urgent(
        &mut self,
        now_us: u64,
        handle: Handle,
        bytes: &[u8],
    ) -> Result<usize, Error> {
        let count = self.send(now_us, handle, bytes, false)?;
        let conn = self.conn(handle)?;
        conn.snd_up = Some(conn.tx_seq.wrapping_add(conn.tx.len() as u32));
        Ok(count)
    }

    /// Reads bytes; zero is the end of the stream.
    pub fn recv(&mut self, now_us: u64, handle: Handle, into: &mut [u8]) -> Result<usize, Error> {
        let index = self.conn_index(handle)?;
        self.cx.now_us = self.cx.now_us.max(now_us);
        let conn = &mut self.conns[index];
        let count = conn.readable_at_once(true).min(into.len());
        if count == 0 {
            return conn.answer_empty(into.is_empty());
        }
        let count = conn.rx.peek(&mut into[..count]);
        conn.rx.consume(count);
        conn.after_read(&mut self.cx, count as u32);
        Ok(count)
    }

    /// Reads bytes and leaves them (MSG_PEEK).
    pub fn peek(&mut self, handle: Handle, into: &mut [u8]) -> Result<usize, Error> {
        let conn = self.conn(handle)?;
        let count = conn.readable_at_once(false).min(into.len());
        if count == 0 {
            return conn.answer_empty(into.is_empty());
        }
        Ok(conn.rx.peek(&mut into[..count]))
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

    fn close_conn(&mut self, index: u32) {
        let cx = &mut self.cx;
        let conn = &mut self.conns[index];
        conn.is_orphan = true;
        conn.is_unaccepted = false;
        let unread = !conn.rx.is_empty() && !conn.is_shut_reading;
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
            is_it
                && matches!(
                    conn.state,
                    State::FinWait1 | State::Closing | State::LastAck
                )
        })
    }

    /// Ends a connection at once with a reset.
    pub fn abort(&mut self, now_us: u64, handle: Handle) -> Result<(), Error> {
        let index = self.conn_index(handle)?;
        self.cx.now_us = self.cx.now_us.max(now_us);
        self.conns[index].settings.linger_s = Some(0);
        self.close_conn(index);
        Ok(())
    }

    /// Connections that nobody accepted are reset, as on Linux.
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

    /// Facts about a connection.
    pub fn info(&mut self, handle: Handle) -> Result<Info, Error> {
        let index = self.conn_index(handle)?;
        let conn = &self.conns[index];
        Ok(Info {
            state: conn.state,
            phase: conn.recovery.phase,
            rtt_us: conn.rtt.srtt_us,
            rttvar_us: conn.rtt.rttvar_us,
            min_rtt_us: conn.rtt.min_us,
            rto_us: conn.rto_us(&self.cx.config),
            cwnd: conn.cwnd,
            ssthresh: conn.ssthresh,
            mss: conn.mss,
            rcv_mss: conn.rcv_mss,
            unacked: conn.packets_out,
            sacked: conn.recovery.sacked_out,
            lost: conn.recovery.lost_out,
            retrans: conn.recovery.retrans_out,
            snd_wnd: conn.snd_wnd,
            rcv_wnd: conn.receive_window(),
            path_mtu: conn.path_mtu,
            timeouts: conn.recovery.timeouts,
            probes: conn.probes_out.max(conn.slow.keepalive_probes),
            scales: (conn.snd_scale, conn.rcv_scale),
            has: (conn.has_timestamps, conn.has_sack, conn.has_ecn),
            totals: conn.totals,
        })
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
        let (settings, limits, mss) = if handle.is_listener() {
            let settings = self.listeners.slab[self.listener_index(handle)?].settings;
            (
                settings,
                (self.cx.config.send_bytes, self.cx.config.receive_bytes),
                536,
            )
        } else {
            let conn = self.conn(handle)?;
            (conn.settings, (conn.snd_limit, conn.rcv_limit), conn.mss)
        };
        Ok(settings.get(name, limits, mss, &self.cx.config))
    }
}

impl Conn {
    fn check_writable(&mut self) -> Result<(), Error> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        match self.state {
            State::SynSent | State::SynReceived => {
                self.wants_room = true;
                Err(Error::WouldBlock)
            }
            State::Established | State::CloseWait if !self.fin_queued => Ok(()),
            _ => Err(Error::BrokenPipe),
        }
    }

    /// Bytes that the send buffer still takes.
    fn room(&mut self, cx: &crate::conn::Context) -> usize {
        let used = self.tx.len() as u32;
        if used >= self.snd_limit {
            self.tune_send_buffer(cx);
        }
        self.snd_limit.saturating_sub(used) as usize
    }

    /// Sequence number of the next byte to be read.
    fn head_seq(&self) -> u32 {
        let has_fin = self.fin_seq.is_some_and(|fin| after(self.rcv_nxt, fin));
        self.rcv_nxt
            .wrapping_sub(u32::from(has_fin))
            .wrapping_sub(self.rx.len() as u32)
    }

    /// Bytes up to the urgent byte; the urgent byte itself is not part of the stream, unless it is
    /// wanted there.
    fn readable_at_once(&mut self, takes: bool) -> usize {
        let len = if self.is_shut_reading && self.rx.is_empty() {
            0
        } else {
            self.rx.len()
        };
        let head = self.head_seq();
        let Some(urgent) = self.urgent.filter(|_| !self.settings.urgent_inline) else {
            return len;
        };
        if before(urgent.seq, head) || len == 0 {
            return len;
        }
        let ahead = urgent.seq.wrapping_sub(head) as usize;
        if ahead > 0 || !takes {
            return len.min(ahead.max(usize::from(ahead == 0 && !takes) * len));
        }
        self.rx.consume(1);
        self.rx.len()
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
            State::Established | State::SynReceived => State::FinWait1,
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
            SocketOption::SendBuffer { .. } | SocketOption::ReceiveBuffer { .. } => {
                self.apply_buffer_settings();
            }
            SocketOption::SegmentMax(_) => self.set_path_mtu(self.path_mtu),
            SocketOption::CongestionControl(algorithm) => self.control.algorithm = algorithm,
            _ => {}
        }
    }
}

impl Settings {
    fn set(&mut self, option: SocketOption) -> Result<(), Error> {
        let seconds_us = |seconds: u32| u64::from(seconds) * 1_000_000;
        match option {
            SocketOption::NoDelay(on) => self.no_delay = on,
            SocketOption::Cork(on) => self.cork = on,
            SocketOption::QuickAck(_) => {}
            SocketOption::KeepAlive(on) => self.keepalive = on,
            SocketOption::KeepIdle { seconds: 0 } | SocketOption::KeepInterval { seconds: 0 } => {
                return Err(Error::InvalidArgument);
            }
            SocketOption::KeepIdle { seconds } => self.keepalive_idle_us = seconds_us(seconds),
            SocketOption::KeepInterval { seconds } => {
                self.keepalive_interval_us = seconds_us(seconds)
            }
            SocketOption::KeepCount(0) | SocketOption::SynRetries(0) => {
                return Err(Error::InvalidArgument)
            }
            SocketOption::KeepCount(count) => self.keepalive_probes = count,
            SocketOption::UserTimeout { milliseconds } => {
                self.user_timeout_us = u64::from(milliseconds) * 1_000;
            }
            SocketOption::SegmentMax(0) => self.segment_max = 0,
            SocketOption::SegmentMax(bytes) if !(88..=32_767).contains(&bytes) => {
                return Err(Error::InvalidArgument);
            }
            SocketOption::SegmentMax(bytes) => self.segment_max = bytes,
            SocketOption::SendBuffer { bytes } => {
                self.has_fixed_send = true;
                self.send_bytes = bytes.clamp(BUFFER_MIN, BUFFER_MAX);
            }
            SocketOption::ReceiveBuffer { bytes } => {
                self.has_fixed_receive = true;
                self.receive_bytes = bytes.clamp(BUFFER_MIN, BUFFER_MAX);
            }
            SocketOption::Linger { seconds } => self.linger_s = seconds,
            SocketOption::UrgentInline(on) => self.urgent_inline = on,
            SocketOption::CongestionControl(algorithm) => self.congestion = Some(algorithm),
            SocketOption::FinWait { seconds } => self.fin_wait_us = seconds_us(seconds),
            SocketOption::SynRetries(count) => self.syn_retries = count,
            SocketOption::DeferAccept(on) => self.defer_accept = on,
            SocketOption::UnsentLow { bytes } => self.unsent_low = bytes,
            SocketOption::TrafficClass(class) => self.traffic_class = class & !3,
        }
        Ok(())
    }

    fn get(
        &self,
        name: OptionName,
        (send, receive): (u32, u32),
        mss: u32,
        config: &crate::Config,
    ) -> SocketOption {
        let or = |own: u64, common: u64| (if own > 0 { own } else { common } / 1_000_000) as u32;
        let count = |own: u8, common: u8| if own > 0 { own } else { common };
        match name {
            OptionName::NoDelay => SocketOption::NoDelay(self.no_delay),
            OptionName::Cork => SocketOption::Cork(self.cork),
            OptionName::QuickAck => SocketOption::QuickAck(true),
            OptionName::KeepAlive => SocketOption::KeepAlive(self.keepalive),
            OptionName::KeepIdle => SocketOption::KeepIdle {
                seconds: or(self.keepalive_idle_us, config.keepalive_idle_us),
            },
            OptionName::KeepInterval => SocketOption::KeepInterval {
                seconds: or(self.keepalive_interval_us, config.keepalive_interval_us),
            },
            OptionName::KeepCount => {
                SocketOption::KeepCount(count(self.keepalive_probes, config.keepalive_probes))
            }
            OptionName::UserTimeout => SocketOption::UserTimeout {
                milliseconds: (self.user_timeout_us / 1_000) as u32,
            },
            OptionName::SegmentMax => SocketOption::SegmentMax(mss),
            OptionName::SendBuffer => SocketOption::SendBuffer { bytes: send },
            OptionName::ReceiveBuffer => SocketOption::ReceiveBuffer { bytes: receive },
            OptionName::Linger => SocketOption::Linger {
                seconds: self.linger_s,
            },
            OptionName::UrgentInline => SocketOption::UrgentInline(self.urgent_inline),
            OptionName::CongestionControl => {
                SocketOption::CongestionControl(self.congestion.unwrap_or(config.congestion))
            }
            OptionName::FinWait => SocketOption::FinWait {
                seconds: or(self.fin_wait_us, config.fin_wait_us),
            },
            OptionName::SynRetries => {
                SocketOption::SynRetries(count(self.syn_retries, config.syn_retries))
            }
            OptionName::DeferAccept => SocketOption::DeferAccept(self.defer_accept),
            OptionName::UnsentLow => SocketOption::UnsentLow {
                bytes: self.unsent_low,
            },
            OptionName::TrafficClass => SocketOption::TrafficClass(self.traffic_class),
        }
    }
}
