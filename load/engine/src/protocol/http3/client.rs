//! HTTP/3 on the streams of a connection: requests out, responses in.

use super::super::in_flight::{no_request, scheme};
use super::super::{Expired, Fault, InFlight, RequestMeta};
use super::quic::Quic;
use crate::plan::Target;
use bytes::Bytes;
use load_http2::{Event, Sink};
use load_http3::{request, Answer, Encoded, Response, Server, ServerStream};
use load_http3::{CONTROL_STREAM, NO_ERROR, REQUEST_CANCELLED};
use quinn_proto::{self as quic, Dir, ReadError, Side, StreamEvent, StreamId, VarInt};
use std::collections::HashMap;
use std::io;

/// A request as it is sent; connections share its bytes.
pub struct Request {
    /// Frames, up to the bytes of the body.
    head: Bytes,
    body: Bytes,
    is_head: bool,
}

impl From<Encoded> for Request {
    fn from(encoded: Encoded) -> Request {
        Request {
            head: encoded.head.into(),
            body: Bytes::from_owner(encoded.body),
            is_head: encoded.is_head,
        }
    }
}

/// A request that is not sent in full.
struct Upload {
    pieces: [Bytes; 2],
    /// So many of them have been handed over, and there are so many.
    next: usize,
    count: usize,
}

/// A request in flight.
struct Stream {
    id: StreamId,
    asked: RequestMeta,
    /// Its number among the requests of the connection; the first is 1.
    number: u64,
    upload: Option<Upload>,
    response: Response,
}

/// How what came on the stream of a request has ended.
enum End {
    Answered(Answer),
    /// By the server, with this code.
    Reset(u64),
}

/// One connection.
pub struct Client {
    pub(super) quic: Quic,
    /// Bytes of each datagram of the last read.
    pub(super) datagram_bytes: usize,
    is_connected: bool,
    server: Server,
    /// The streams that the server has opened.
    others: Vec<(StreamId, ServerStream)>,
    slots: Box<[Option<Stream>]>,
    free: Vec<usize>,
    slot_of: HashMap<StreamId, usize>,
    /// The stream of the next request, if the server allows one.
    next: Option<StreamId>,
    /// The number of the next request.
    number: u64,
    /// That number when the server last sent something.
    heard: u64,
    /// The same when the server was last asked whether it is there; 0 if it has sent anything since.
    asked: u64,
    /// Bytes of streams since these were last asked for.
    read: u64,
    sent: usize,
    /// The code that the connection ends with.
    code: u64,
    /// Fields of a response; kept for its memory.
    scratch: Vec<u8>,
}

impl Client {
    /// With up to `most` streams at once.
    pub(super) fn new(quic: Quic, most: u32) -> Client {
        let most = most as usize;
        Client {
            quic,
            datagram_bytes: usize::MAX,
            is_connected: false,
            server: Server::default(),
            others: Vec::new(),
            slots: (0..most).map(|_| None).collect(),
            free: (0..most).rev().collect(),
            slot_of: HashMap::with_capacity(most),
            next: None,
            number: 1,
            heard: 1,
            asked: 0,
            read: 0,
            sent: 0,
            code: NO_ERROR,
            scratch: Vec::new(),
        }
    }

    /// Whether requests can be sent: the handshake is over.
    pub(super) fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Ends the connection.
    pub(super) fn close(&mut self) {
        self.quic.close(self.code);
    }

    /// Bytes of requests that were handed over since the last call.
    pub(super) fn take_sent(&mut self) -> usize {
        std::mem::take(&mut self.sent)
    }

    fn is_full(&self) -> bool {
        self.next.is_none()
    }

    /// Takes what QUIC reports of its streams.
    fn take_events(
        &mut self,
        events: &mut Vec<Event<RequestMeta>>,
        sink: &mut impl Sink,
    ) -> Result<(), load_http3::Fault> {
        while let Some(event) = self.quic.event() {
            match event {
                quic::Event::Connected => self.begin(),
                quic::Event::Stream(event) => self.take_event(event, events, sink)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn take_event(
        &mut self,
        event: StreamEvent,
        events: &mut Vec<Event<RequestMeta>>,
        sink: &mut impl Sink,
    ) -> Result<(), load_http3::Fault> {
        match event {
            StreamEvent::Opened { dir: Dir::Uni } => self.accept()?,
            StreamEvent::Readable { id } if id.initiator() == Side::Server => {
                self.read_other(id)?
            }
            StreamEvent::Readable { id } => {
                if let Some(&slot) = self.slot_of.get(&id) {
                    self.read_response(slot, events, sink)?;
                }
            }
            StreamEvent::Writable { id } => {
                if let Some(&slot) = self.slot_of.get(&id) {
                    self.upload(slot);
                }
            }
            // the server does not need the rest of a request, and answers it all the same
            StreamEvent::Stopped { id, error_code } => {
                let slot = self.slot_of.get(&id).copied();
                let stream = slot.and_then(|slot| self.slots[slot].as_mut());
                if stream.is_some_and(|stream| stream.upload.take().is_some()) {
                    self.reset(id, error_code);
                }
            }
            StreamEvent::Available { dir: Dir::Bi } => self.reserve(),
            _ => {}
        }
        Ok(())
    }

    /// The handshake is over: the control stream comes first.
    fn begin(&mut self) {
        let opened = self.quic.connection.streams().open(Dir::Uni);
        // a server that allows none breaks the rules (RFC 9114, 6.2), and has to do without
        if let Some(id) = opened {
            let mut stream = self.quic.connection.send_stream(id);
            // a fresh stream has room for three bytes
            let _ = stream.write(CONTROL_STREAM);
        }
        self.is_connected = true;
        self.quic.note_idle_timeout();
        self.reserve();
    }

    /// Takes a stream for the next request, if the server allows one.
    fn reserve(&mut self) {
        if self.next.is_none() {
            self.next = self.quic.connection.streams().open(Dir::Bi);
        }
    }

    /// Takes the streams that the server has opened.
    fn accept(&mut self) -> Result<(), load_http3::Fault> {
        while let Some(id) = self.quic.connection.streams().accept(Dir::Uni) {
            self.others.push((id, ServerStream::default()));
            self.read_other(id)?;
        }
        Ok(())
    }

    /// Reads what has come on a stream of the server's.
    fn read_other(&mut self, id: StreamId) -> Result<(), load_http3::Fault> {
        let Some(place) = self.others.iter().position(|(own, _)| *own == id) else {
            return Ok(());
        };
        let stream = &mut self.others[place].1;
        let mut receiving = self.quic.connection.recv_stream(id);
        let Ok(mut chunks) = receiving.read(true) else {
            return Ok(());
        };
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    self.read += chunk.bytes.len() as u64;
                    self.server.feed(stream, &chunk.bytes)?;
                }
                Err(ReadError::Blocked) => return Ok(()),
                Ok(None) | Err(ReadError::Reset(_)) => break,
            }
        }
        drop(chunks);
        let ended = self.server.ended(stream);
        self.others.swap_remove(place);
        ended
    }

    /// Reads what has come on the stream of a request.
    fn read_response(
        &mut self,
        slot: usize,
        events: &mut Vec<Event<RequestMeta>>,
        sink: &mut impl Sink,
    ) -> Result<(), load_http3::Fault> {
        let Some(stream) = self.slots[slot].as_mut() else {
            return Ok(());
        };
        let mut receiving = self.quic.connection.recv_stream(stream.id);
        let Ok(mut chunks) = receiving.read(true) else {
            return Ok(());
        };
        let end = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    self.read += chunk.bytes.len() as u64;
                    let (response, scratch) = (&mut stream.response, &mut self.scratch);
                    if let Err(fault) = response.feed(&chunk.bytes, scratch, slot, sink) {
                        break Err(fault);
                    }
                }
                Ok(None) => break stream.response.end().map(End::Answered),
                Err(ReadError::Blocked) => return Ok(()),
                Err(ReadError::Reset(code)) => break Ok(End::Reset(code.into_inner())),
            }
        };
        drop(chunks);
        let user = stream.asked;
        match end {
            Ok(End::Answered(answer)) => events.push(Event::Answered {
                slot,
                user,
                status: answer.status,
                call: answer.call,
                body_bytes: answer.body_bytes,
            }),
            Ok(End::Reset(code)) => events.push(Event::Reset { user, code }),
            Err(fault @ load_http3::Fault::Message) => {
                let code = fault.code();
                events.push(Event::Reset { user, code });
                self.stop(slot, code);
            }
            Err(fault) => return Err(fault),
        }
        self.end(slot);
        Ok(())
    }

    /// The server shall send no more of a response.
    fn stop(&mut self, slot: usize, code: u64) {
        if let Some(stream) = &self.slots[slot] {
            // the server may have ended it
            let _ = self.quic.connection.recv_stream(stream.id).stop(own(code));
        }
    }

    /// A request is over; what is left of it is not sent.
    fn end(&mut self, slot: usize) {
        let Some(stream) = self.slots[slot].take() else {
            return;
        };
        if stream.upload.is_some() {
            self.reset(stream.id, own(REQUEST_CANCELLED));
        }
        self.slot_of.remove(&stream.id);
        self.free.push(slot);
    }

    /// Sends no more on a stream. The server counts it as open until it hears so (RFC 9000, 3.5).
    fn reset(&mut self, id: StreamId, code: VarInt) {
        // it may have been sent in full, and is closed then
        let _ = self.quic.connection.send_stream(id).reset(code);
    }

    /// Gives up on a request: neither side sends more of it.
    fn cancel(&mut self, slot: usize) {
        self.stop(slot, REQUEST_CANCELLED);
        if let Some(stream) = &self.slots[slot] {
            self.reset(stream.id, own(REQUEST_CANCELLED));
        }
        self.end(slot);
        self.quic.touch();
    }

    /// Hands over as much of a request as the windows allow.
    fn upload(&mut self, slot: usize) {
        let Some(stream) = self.slots[slot].as_mut() else {
            return;
        };
        let Some(upload) = &mut stream.upload else {
            return;
        };
        let mut sending = self.quic.connection.send_stream(stream.id);
        while upload.next < upload.count {
            match sending.write_chunks(&mut upload.pieces[upload.next..upload.count]) {
                Ok(written) => {
                    upload.next += written.chunks;
                    self.sent += written.bytes;
                }
                Err(quic::WriteError::Blocked) => return,
                Err(_) => break,
            }
        }
        stream.upload = None;
        // the server may have said that it does not need the rest
        if let Err(quic::FinishError::Stopped(code)) = sending.finish() {
            let id = stream.id;
            self.reset(id, code);
        }
    }

    /// The server is going away: it has not looked at these requests, and will not (RFC 9114, 5.2).
    fn give_back(&mut self, from: u64, events: &mut Vec<Event<RequestMeta>>) {
        for slot in 0..self.slots.len() {
            let Some(stream) = &self.slots[slot] else {
                continue;
            };
            if VarInt::from(stream.id).into_inner() >= from {
                events.push(Event::Unprocessed { user: stream.asked });
                self.cancel(slot);
            }
        }
    }
}

/// A code of this client's as QUIC has it.
fn own(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or_default()
}

impl InFlight for Client {
    type Request = Request;

    fn requests(target: &Target) -> io::Result<Vec<Request>> {
        let texts = target.requests.iter().map(|request| &request.bytes[..]);
        texts.map(|text| Client::scripted(text, target)).collect()
    }

    fn scripted(text: &[u8], target: &Target) -> io::Result<Request> {
        let encoded = request::encode(text, scheme(target)).ok_or_else(no_request)?;
        Ok(encoded.into())
    }

    /// The server allows a number of streams in all, not at once: where that is used up there may be no
    /// more than there are.
    fn limit(&self) -> u32 {
        if self.is_full() {
            self.open()
        } else {
            self.slots.len() as u32
        }
    }

    fn open(&self) -> u32 {
        self.slot_of.len() as u32
    }

    fn has_room(&self) -> bool {
        !self.is_full() && !self.free.is_empty() && !self.is_going()
    }

    fn places(&self) -> usize {
        self.slots.len()
    }

    fn each(&self) -> Vec<(usize, RequestMeta)> {
        let slots = self.slots.iter().enumerate();
        let open = slots.filter_map(|(slot, stream)| Some((slot, stream.as_ref()?.asked)));
        open.collect()
    }

    fn is_going(&self) -> bool {
        self.server.going().is_some()
    }

    fn request(&mut self, request: &Request, asked: RequestMeta) {
        let (Some(id), Some(slot)) = (self.next.take(), self.free.pop()) else {
            return;
        };
        self.slots[slot] = Some(Stream {
            id,
            asked,
            number: self.number,
            upload: Some(Upload {
                pieces: [request.head.clone(), request.body.clone()],
                next: 0,
                count: if request.body.is_empty() { 1 } else { 2 },
            }),
            response: Response::new(request.is_head),
        });
        self.slot_of.insert(id, slot);
        self.number += 1;
        self.upload(slot);
        self.reserve();
        self.quic.touch();
    }

    /// One read is one datagram, or several.
    fn feed(
        &mut self,
        datagrams: &[u8],
        events: &mut Vec<Event<RequestMeta>>,
        sink: &mut impl Sink,
    ) -> Result<(), Fault> {
        (self.heard, self.asked) = (self.number, 0);
        let before = self.server.going();
        self.quic.receive(datagrams, self.datagram_bytes);
        let taken = self.take_events(events, sink);
        let going = self.server.going().filter(|going| Some(*going) != before);
        if let Some(from) = going {
            self.give_back(from, events);
        }
        taken.map_err(|fault| {
            // the server learns which rule it broke when the connection is closed
            self.code = fault.code();
            Fault::Http3(fault)
        })
    }

    fn has_pending(&self) -> bool {
        self.quic.has_pending()
    }

    /// Their streams are cancelled. A server that has said nothing for as long as two of them waited, not
    /// even that their datagrams have arrived, is gone.
    fn expire(&mut self, slots: &[usize]) -> Expired {
        let numbers = slots.iter().filter_map(|slot| self.slots[*slot].as_ref());
        let newest = numbers.map(|stream| stream.number).max().unwrap_or(0);
        let is_gone = self.asked != 0 && newest >= self.asked;
        if newest >= self.heard && self.asked == 0 {
            self.asked = self.number;
            self.quic.connection.ping();
        }
        slots.iter().for_each(|slot| self.cancel(*slot));
        if is_gone {
            Expired::Gone("the server has fallen silent and acknowledges nothing")
        } else {
            Expired::Alone
        }
    }

    fn count_read(&mut self, _length: usize) -> u64 {
        std::mem::take(&mut self.read)
    }
}
