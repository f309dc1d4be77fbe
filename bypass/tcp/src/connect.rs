//! Active opens: which flow, and the first segment.

use crate::config::Ecn;
use crate::conn::State;
use crate::demux::Entry;
use crate::engine::{Engine, Handle};
use crate::error::Error;
use crate::wire::ip::Addr;
use crate::wire::tcp::Flow;
use core::net::{IpAddr, SocketAddr};

impl Engine {
    /// Begins a connection. `local` may leave address or port open (unspecified, zero). The end is
    /// reported by an event: WRITABLE, or ERROR.
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
            port => Flow::new(from, port, to, remote.port()),
        };
        let iss = self.claim(&flow)?;
        self.begin(flow, iss)
    }

    /// Makes a flow usable and answers our first number. A TIME_WAIT entry of it gives way when timestamps
    /// allow (RFC 6191), to numbers behind its own.
    fn claim(&mut self, flow: &Flow) -> Result<u32, Error> {
        let (hash, now_us) = (self.demux.hash(flow), self.cx.now_us);
        match self.find(flow, hash) {
            None => Ok(self.numbers.initial_sequence(flow, now_us)),
            Some(Entry::TimeWait(index)) if self.time_waits.may_give_way(index, now_us) => {
                let iss = self.time_waits.get(index).next_iss();
                self.remove_time_wait(index);
                self.cx.stats.time_wait_recycled += 1;
                Ok(iss)
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

    fn begin(&mut self, flow: Flow, iss: u32) -> Result<Handle, Error> {
        let index = self.new_conn(flow).ok_or(Error::NoBuffers)?;
        let hash = self.demux.hash(&flow);
        self.demux.insert(hash, Entry::Connection(index));
        let cx = &mut self.cx;
        let conn = &mut self.conns[index];
        conn.iss = iss;
        conn.snd_una = iss;
        conn.snd_nxt = iss.wrapping_add(1);
        conn.tx_seq = conn.snd_nxt;
        conn.unit_from = conn.snd_nxt;
        conn.push_seq = conn.snd_nxt;
        conn.small_seq = conn.snd_nxt;
        conn.recovery.high_seq = conn.snd_nxt;
        conn.peer_mss = 536;
        conn.has_ecn = cx.config.ecn == Ecn::Request;
        conn.state = State::SynSent;
        conn.syn_due = true;
        conn.choose_scale(cx);
        conn.set_path_mtu(conn.path_mtu);
        conn.queue_output(cx);
        cx.stats.active_opens += 1;
        Ok(Handle {
            index,
            generation: conn.generation,
        })
    }
}
