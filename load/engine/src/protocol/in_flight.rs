//! Connections that carry several requests at once, each with its own times: streams of HTTP/2 and
//! HTTP/3, messages in a window of `tcp://` and `udp://`.

use crate::plan::Target;
use load_http2::request::{encode_all, encode_one};
use load_http2::{Client, Encoded, Event, Sink};
use std::io;

/// What is known of a request in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestMeta {
    /// When it was due.
    pub due_ns: u64,
    /// When it was written (in closed loop: when the stream became free for it).
    pub sent_ns: u64,
    /// Its number within its target.
    pub request: u32,
}

/// Why a connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server broke the rules of HTTP/2.
    Http2(load_http2::Fault),
    /// The server broke the rules of HTTP/3.
    Http3(load_http3::Fault),
    /// The peer sent something else than the echo of the message.
    Echo,
}

impl Fault {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Http2(fault) => fault.name(),
            Fault::Http3(fault) => fault.name(),
            Fault::Echo => "the response is not the echo of the message",
        }
    }
}

/// The effect of giving up on requests on the others of their connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// They go on.
    Alone,
    /// The other side is gone, and they are lost.
    Gone(&'static str),
    /// Their answers would come behind the missing ones: all are given up.
    Together,
}

/// The requests in flight on one connection, each in a slot.
pub trait InFlight: Sized {
    /// A request as it is sent.
    type Request;

    /// The requests of a target.
    fn requests(target: &Target) -> io::Result<Vec<Self::Request>>;

    /// A request that a script has made for a target.
    fn scripted(_text: &[u8], _target: &Target) -> io::Result<Self::Request> {
        Err(io::Error::other("a script makes requests of HTTP only"))
    }

    /// How many there may be at once.
    fn limit(&self) -> u32;

    /// How many there are.
    fn open(&self) -> u32;

    /// Whether one more can be sent now.
    fn has_room(&self) -> bool;

    /// Slots are below this.
    fn places(&self) -> usize;

    /// Those in flight, with their slots.
    fn each(&self) -> Vec<(usize, RequestMeta)>;

    /// Whether the other side takes no more of them and the connection is to be opened again.
    fn is_going(&self) -> bool {
        false
    }

    /// Takes a request; there must be room. It is written with what is pending.
    fn request(&mut self, request: &Self::Request, asked: RequestMeta);

    /// Takes what one read has brought.
    fn feed(
        &mut self,
        bytes: &[u8],
        events: &mut Vec<Event<RequestMeta>>,
        sink: &mut impl Sink,
    ) -> Result<(), Fault>;

    /// Whether something is to be written.
    fn has_pending(&self) -> bool;

    /// Gives up on requests that have waited too long.
    fn expire(&mut self, slots: &[usize]) -> Expired;

    /// How many of the `length` bytes that the last read has brought were those of responses and their
    /// protocol, not of what carries them.
    fn count_read(&mut self, length: usize) -> u64 {
        length as u64
    }

    /// Datagrams since the last call that belong to no request in flight.
    fn take_strays(&mut self) -> u64 {
        0
    }
}

/// Of protocols whose connections carry one request, or one batch, after the other.
pub enum OneByOne {}

impl InFlight for OneByOne {
    type Request = ();

    fn requests(_target: &Target) -> io::Result<Vec<()>> {
        Ok(Vec::new())
    }

    fn limit(&self) -> u32 {
        match *self {}
    }

    fn open(&self) -> u32 {
        match *self {}
    }

    fn has_room(&self) -> bool {
        match *self {}
    }

    fn places(&self) -> usize {
        match *self {}
    }

    fn each(&self) -> Vec<(usize, RequestMeta)> {
        match *self {}
    }

    fn request(&mut self, _request: &(), _asked: RequestMeta) {
        match *self {}
    }

    fn feed(
        &mut self,
        _bytes: &[u8],
        _events: &mut Vec<Event<RequestMeta>>,
        _sink: &mut impl Sink,
    ) -> Result<(), Fault> {
        match *self {}
    }

    fn has_pending(&self) -> bool {
        match *self {}
    }

    fn expire(&mut self, _slots: &[usize]) -> Expired {
        match *self {}
    }
}

/// The scheme of a target's requests in HTTP/2 and HTTP/3.
pub(super) fn scheme(target: &Target) -> &'static str {
    if target.tls_name.is_some() {
        "https"
    } else {
        "http"
    }
}

/// The fault of a text that cannot be translated.
pub(super) fn no_request() -> io::Error {
    io::Error::other("a request cannot be translated: it is not a request of HTTP/1")
}

impl InFlight for Client<RequestMeta> {
    type Request = Encoded;

    fn requests(target: &Target) -> io::Result<Vec<Encoded>> {
        let texts = target.requests.iter().map(|request| &request.bytes[..]);
        encode_all(texts, scheme(target)).ok_or_else(no_request)
    }

    fn scripted(text: &[u8], target: &Target) -> io::Result<Encoded> {
        encode_one(text, scheme(target)).ok_or_else(no_request)
    }

    fn limit(&self) -> u32 {
        Client::limit(self)
    }

    #[inline]
    fn open(&self) -> u32 {
        self.open()
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.has_room()
    }

    fn places(&self) -> usize {
        self.places()
    }

    fn each(&self) -> Vec<(usize, RequestMeta)> {
        self.each().collect()
    }

    fn is_going(&self) -> bool {
        self.is_going()
    }

    #[inline]
    fn request(&mut self, request: &Encoded, asked: RequestMeta) {
        self.request(request, asked);
    }

    #[inline]
    fn feed(
        &mut self,
        bytes: &[u8],
        events: &mut Vec<Event<RequestMeta>>,
        sink: &mut impl Sink,
    ) -> Result<(), Fault> {
        self.feed(bytes, events, sink).map_err(Fault::Http2)
    }

    #[inline]
    fn has_pending(&self) -> bool {
        !self.pending().is_empty()
    }

    /// Their streams are cancelled. A server that has said nothing for as long as two of them waited,
    /// and did not answer when it was asked (PING), is gone.
    fn expire(&mut self, slots: &[usize]) -> Expired {
        let is_gone = slots.iter().any(|slot| self.has_asked_before(*slot));
        if slots.iter().any(|slot| self.is_silent_since(*slot)) {
            self.ask();
        }
        slots.iter().for_each(|slot| self.cancel(*slot));
        if is_gone {
            Expired::Gone("the server has fallen silent and does not answer PING")
        } else {
            Expired::Alone
        }
    }
}
