//! One connection of QUIC: datagrams in and out, and its timer. What QUIC is, quinn-proto knows; it does
//! no I/O, so the loops of this engine drive it as they drive everything else.

use super::super::Bytes;
use crate::plan::TlsOptions;
use crate::sys::clock::monotonic_ns;
use crate::transport::{configuration, TlsFault, Transport};
use bytes::{Bytes as Shared, BytesMut};
use load_http3::varint;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent, Endpoint,
    EndpointConfig, Event, NoneTokenStore, RandomConnectionIdGenerator, TransportConfig,
    TransportErrorCode, VarInt,
};
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The other side, whatever its address is: a socket is connected, and gets nothing from anyone else.
const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 443);
/// Datagrams that are made and written together at most.
const BATCH: usize = 32;
/// So many batches are written before other connections have their turn.
const BATCHES_AT_ONCE: usize = 16;
/// Streams that a server may open at once: three that it needs, and some that mean nothing.
const SERVER_STREAMS: u32 = 16;
/// Bytes of a response, and of all responses, that may come before the server hears that they were taken:
/// so much can a server that leaves gaps make a connection keep.
const STREAM_WINDOW: u32 = 16 << 20;
const WINDOW: u32 = 64 << 20;
/// A server that owes responses is asked for a datagram so many times before it would forget the connection.
const KEEP_ALIVES: u32 = 3;

/// The monotonic clock in both of its forms, read together once.
#[derive(Clone, Copy)]
struct Clock {
    instant: Instant,
    ns: u64,
}

impl Clock {
    fn ns_of(self, instant: Instant) -> u64 {
        let since = instant.saturating_duration_since(self.instant);
        // a server may give a time that is centuries away
        let since_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        self.ns.saturating_add(since_ns)
    }
}

/// Settings that all connections of a thread share.
pub(super) struct Configuration {
    endpoint: Arc<EndpointConfig>,
    client: ClientConfig,
    clock: Clock,
}

impl Configuration {
    /// With these options of TLS, or the option that cannot be met.
    pub fn new(options: &TlsOptions) -> Result<Configuration, TlsFault> {
        // QUIC has no other version (RFC 9001, 4.2)
        let options = TlsOptions {
            versions: vec!["1.3".to_string()],
            ..options.clone()
        };
        let mut tls = configuration(&options)?;
        tls.alpn_protocols = vec![load_http3::ALPN.to_vec()];
        // the first packets have this suite, whatever is offered (RFC 9001, 5.2)
        let initial = TLS13_AES_128_GCM_SHA256.tls13();
        let initial = initial.and_then(|suite| suite.quic_suite());
        let initial = initial.expect("ring has it for QUIC");
        let crypto = QuicClientConfig::with_initial(Arc::new(tls), initial);
        let mut client = ClientConfig::new(Arc::new(crypto.expect("it is the right suite")));
        client.transport_config(Arc::new(transport()));
        // a server that knows an address by a token may save a round trip: connects would not compare
        client.token_store(Arc::new(NoneTokenStore));
        let mut endpoint = EndpointConfig::default();
        // a socket has one connection, which needs no name
        endpoint.cid_generator(|| Box::new(RandomConnectionIdGenerator::new(0)));
        Ok(Configuration {
            endpoint: Arc::new(endpoint),
            client,
            clock: Clock {
                instant: Instant::now(),
                ns: monotonic_ns(),
            },
        })
    }
}

fn transport() -> TransportConfig {
    let mut own = TransportConfig::default();
    own.max_concurrent_bidi_streams(0u32.into());
    own.max_concurrent_uni_streams(SERVER_STREAMS.into());
    own.stream_receive_window(STREAM_WINDOW.into());
    own.receive_window(WINDOW.into());
    own.datagram_receive_buffer_size(None);
    // an idle connection ends when the server says so in its own parameters
    own.max_idle_timeout(None);
    own
}

/// One connection.
pub(super) struct Quic {
    endpoint: Endpoint,
    handle: ConnectionHandle,
    /// Its streams.
    pub connection: Connection,
    /// Datagrams that found no room yet, of `each` bytes, and how many bytes of them are written.
    unsent: Vec<u8>,
    each: usize,
    written: usize,
    /// Something has happened since it was last asked for datagrams.
    may_have_more: bool,
    /// The time of the timer that is set, monotonic.
    timer_ns: Option<u64>,
    /// After so long without a datagram the server is asked for one while it owes responses.
    keep_alive: Option<Duration>,
    /// When a datagram has come, or was last asked for.
    heard: Instant,
    end: Option<ConnectionError>,
}

impl Quic {
    /// Begins a connection to a server of this name.
    pub fn connect(own: &Configuration, name: &str) -> Quic {
        let mut endpoint = Endpoint::new(Arc::clone(&own.endpoint), None, true, None);
        let connected = endpoint.connect(Instant::now(), own.client.clone(), PEER, name);
        let (handle, connection) = connected.expect("a name that was checked before the run");
        Quic {
            endpoint,
            handle,
            connection,
            unsent: Vec::new(),
            each: 0,
            written: 0,
            may_have_more: true,
            timer_ns: None,
            keep_alive: None,
            heard: Instant::now(),
            end: None,
        }
    }

    /// The handshake is over: the server has said when it forgets a connection.
    pub fn note_idle_timeout(&mut self) {
        let parameters = self.connection.crypto_session().transport_parameters();
        let mut bytes = Vec::new();
        if let Ok(Some(parameters)) = parameters {
            parameters.write(&mut bytes);
        }
        self.keep_alive = idle_timeout(&bytes).map(|timeout| timeout / KEEP_ALIVES);
    }

    /// When the server is to be asked for a datagram.
    fn keep_alive_at(&self) -> Option<Instant> {
        self.heard.checked_add(self.keep_alive?)
    }

    /// Takes datagrams of `each` bytes, of which the last may have fewer.
    pub fn receive(&mut self, datagrams: &[u8], each: usize) {
        let now = Instant::now();
        self.heard = now;
        let mut rest = BytesMut::from(datagrams);
        let mut reply = Vec::new();
        while !rest.is_empty() {
            let datagram = rest.split_to(each.min(rest.len()));
            let event = self
                .endpoint
                .handle(now, PEER, None, None, datagram, &mut reply);
            // what belongs to no connection is not answered
            if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                self.connection.handle_event(event);
            }
        }
        self.tell_endpoint();
        self.may_have_more = true;
    }

    fn tell_endpoint(&mut self) {
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(event);
            }
        }
    }

    /// The next event of its streams, or that it is established.
    pub fn event(&mut self) -> Option<Event> {
        match self.connection.poll()? {
            Event::ConnectionLost { reason } => {
                self.end = Some(reason);
                None
            }
            event => Some(event),
        }
    }

    /// How it has ended, if it has, for once: in good order or not.
    pub fn take_end(&mut self) -> Option<io::Result<()>> {
        if !self.connection.is_closed() {
            return None;
        }
        while self.end.is_none() {
            if let Event::ConnectionLost { reason } = self.connection.poll()? {
                self.end = Some(reason);
            }
        }
        self.end.take().map(ended)
    }

    /// Something is to be sent, or may be.
    pub fn touch(&mut self) {
        self.may_have_more = true;
    }

    /// Whether it may have datagrams to send.
    pub fn has_pending(&self) -> bool {
        self.may_have_more || !self.unsent.is_empty()
    }

    /// Writes datagrams, as many as there are, as congestion control allows, and as there is room for.
    pub fn transmit<T: Transport>(&mut self, mut bytes: Bytes<'_, T>) -> io::Result<()> {
        for _ in 0..BATCHES_AT_ONCE {
            while !self.unsent.is_empty() {
                match bytes.write_datagrams(&self.unsent[self.written..], self.each) {
                    Ok(length) => self.written += length,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                    Err(error) => return Err(error),
                }
                if self.written == self.unsent.len() {
                    self.unsent.clear();
                    self.written = 0;
                }
            }
            if !self.may_have_more {
                return Ok(());
            }
            let now = Instant::now();
            let made = self.connection.poll_transmit(now, BATCH, &mut self.unsent);
            match made {
                Some(made) => self.each = made.segment_size.unwrap_or(made.size).max(1),
                None => {
                    self.unsent.clear();
                    self.may_have_more = false;
                }
            }
        }
        Ok(())
    }

    /// When its timer shall come, if none is set that comes as early. Where the server owes responses, it
    /// shall not forget the connection meanwhile (RFC 9114, 5.1).
    pub fn take_timer(&mut self, own: &Configuration, is_owed: bool) -> Option<u64> {
        let keep_alive = self.keep_alive_at().filter(|_| is_owed);
        let timeouts = [self.connection.poll_timeout(), keep_alive];
        let at_ns = own.clock.ns_of(timeouts.into_iter().flatten().min()?);
        if self.timer_ns.is_some_and(|set_ns| set_ns <= at_ns) {
            return None;
        }
        self.timer_ns = Some(at_ns);
        Some(at_ns)
    }

    /// A timer has come; whether it is the one that is set. One that was set before, for later, means
    /// nothing any more.
    pub fn timer_came(&mut self, at_ns: u64, is_owed: bool) -> bool {
        if self.timer_ns != Some(at_ns) {
            return false;
        }
        self.timer_ns = None;
        let now = Instant::now();
        if is_owed && self.keep_alive_at().is_some_and(|at| at <= now) {
            self.heard = now;
            self.connection.ping();
        }
        self.connection.handle_timeout(now);
        self.tell_endpoint();
        self.may_have_more = true;
        true
    }

    /// Ends it with a code of HTTP/3.
    pub fn close(&mut self, code: u64) {
        let code = VarInt::from_u64(code).unwrap_or_default();
        self.connection.close(Instant::now(), code, Shared::new());
        self.may_have_more = true;
    }
}

/// The idle timeout in parameters of QUIC, if there is one (RFC 9000, 18): number, length, value.
fn idle_timeout(mut parameters: &[u8]) -> Option<Duration> {
    const MAX_IDLE_TIMEOUT: u64 = 1;
    loop {
        let (number, head) = varint::read(parameters)?;
        let (length, bytes) = varint::read(&parameters[head..])?;
        let value = &parameters[head + bytes..];
        if number == MAX_IDLE_TIMEOUT {
            let (millis, _) = varint::read(value)?;
            return (millis > 0).then(|| Duration::from_millis(millis));
        }
        parameters = value.get(usize::try_from(length).ok()?..)?;
    }
}

/// The end of a connection as those of TCP end.
fn ended(reason: ConnectionError) -> io::Result<()> {
    let is_good = match &reason {
        ConnectionError::ApplicationClosed(close) => {
            close.error_code.into_inner() == load_http3::NO_ERROR
        }
        ConnectionError::ConnectionClosed(close) => {
            close.error_code == TransportErrorCode::NO_ERROR
        }
        _ => false,
    };
    if is_good {
        return Ok(());
    }
    Err(match reason {
        ConnectionError::TimedOut => ErrorKind::TimedOut.into(),
        ConnectionError::Reset => ErrorKind::ConnectionReset.into(),
        other => io::Error::other(other.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_idle_timeout_is_found_among_other_parameters() {
        let second = Some(Duration::from_secs(1));
        assert_eq!(
            idle_timeout(b"\x0f\x02ab\x01\x02\x43\xe8\x04\x01\x05"),
            second
        );
        assert_eq!(idle_timeout(b"\x01\x01\0"), None);
        assert_eq!(idle_timeout(b"\x04\x01\x05"), None);
        assert_eq!(idle_timeout(b"\x0f\x09ab"), None);
        assert_eq!(idle_timeout(b""), None);
    }

    #[test]
    fn a_time_that_is_centuries_away_is_not_in_the_past() {
        let instant = Instant::now();
        let clock = Clock { instant, ns: 5 };
        let far = instant + Duration::from_millis((1 << 62) - 1);
        assert_eq!(clock.ns_of(far), u64::MAX);
        assert_eq!(clock.ns_of(instant + Duration::from_nanos(2)), 7);
    }
}
