//! One connection from the client's side (RFC 9113): requests in, frames out; frames in, answers out.
//!
//! Bytes are handed in as they come, cut anywhere; what is to be written gathers in a buffer that the
//! caller empties. Any fault of the server ends the connection, or one stream, and never panics.

use crate::fault::Fault;
use crate::frame::{self, flag, kind, FrameHead, HEAD_BYTES, PAYLOAD_MAX, PREFACE};
use crate::hpack::{put_empty_table, Decoder, TABLE_MAX};
use crate::request::Encoded;
use crate::settings::{put_own, Settings, WINDOW_FIRST, WINDOW_MAX};
use crate::streams::{Sink, Streams, Upload};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Longest header block, as with HTTP/1.
const BLOCK_MAX: usize = 64 * 1024;
/// So many body bytes later the server is given them back.
const RETURN_BYTES: u64 = 1 << 30;
/// Answers to PING and SETTINGS that may wait to be written.
const REPLIES_MAX: usize = 1000;
/// CANCEL (RFC 9113, 7).
const CANCEL: u32 = 8;
/// PROTOCOL_ERROR (RFC 9113, 7).
const PROTOCOL_ERROR: u32 = 1;

/// What a connection tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<U> {
    /// An answer is complete.
    Answered {
        /// Where its stream was.
        slot: usize,
        /// What was said of it.
        user: U,
        /// Status code.
        status: u16,
        /// Length of its body.
        body_bytes: u64,
    },
    /// A stream ended without a whole answer.
    Reset {
        /// What was said of it.
        user: U,
        /// The error code.
        code: u32,
    },
    /// The server is going away and has not looked at this request: it may be sent again elsewhere.
    Unprocessed {
        /// What was said of it.
        user: U,
    },
}

/// Where in a frame the reader stands.
#[derive(Clone, Copy, Debug)]
enum Reading {
    /// Before a frame's head.
    Head,
    /// In a DATA frame: bytes of the body and of the padding that are still to come.
    Data {
        stream: u32,
        body: usize,
        padding: usize,
        ends: bool,
    },
}

/// One connection.
#[derive(Debug)]
pub struct Client<U> {
    out: Vec<u8>,
    /// Bytes of a frame that is not complete.
    kept: Vec<u8>,
    reading: Reading,
    decoder: Decoder,
    streams: Streams<U>,
    /// Streams that the caller wants at once.
    most: u32,
    server: Settings,
    /// The server has told what it allows.
    is_settled: bool,
    /// The server takes no more streams.
    is_going: bool,
    /// The server's decoder remembers what requests have in common.
    is_primed: bool,
    /// The server's decoder remembers less than usual: it is told to remember nothing.
    is_plain: bool,
    /// That it has to be told yet.
    owes_empty: bool,
    /// Bytes of requests' bodies that may still be sent.
    window: i64,
    /// Bytes of answers' bodies that the server has not been given back.
    received: u64,
    replies: usize,
    /// A header block that is not complete, its stream, and whether that ends with it.
    block: Vec<u8>,
    continued: Option<(u32, bool)>,
}

impl<U: Copy + Default> Client<U> {
    /// A connection that carries up to `most` streams at once; its first bytes are ready to write.
    pub fn new(most: u32) -> Client<U> {
        let mut out = Vec::from(PREFACE);
        put_own(&mut out);
        let more = (WINDOW_MAX - WINDOW_FIRST) as u32;
        frame::write(&mut out, kind::WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
        Client {
            out,
            kept: Vec::new(),
            reading: Reading::Head,
            decoder: Decoder::default(),
            streams: Streams::new(most),
            most,
            server: Settings::default(),
            is_settled: false,
            is_going: false,
            is_primed: false,
            is_plain: false,
            owes_empty: false,
            window: WINDOW_FIRST,
            received: 0,
            replies: 0,
            block: Vec::new(),
            continued: None,
        }
    }

    /// Whether the server has told what it allows: only then requests are sent.
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Whether no further stream will be taken.
    pub fn is_going(&self) -> bool {
        self.is_going || !self.streams.has_numbers()
    }

    /// Streams that may be open at once.
    pub fn most(&self) -> u32 {
        self.most.min(self.server.streams)
    }

    /// Open streams.
    #[inline]
    pub fn open(&self) -> u32 {
        self.streams.open
    }

    /// Whether a request can be sent now.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.is_settled && self.streams.open < self.most() && !self.is_going()
    }

    /// Places of streams; slots are below it.
    pub fn places(&self) -> usize {
        self.streams.places()
    }

    /// What is said of the open streams, with their slots.
    pub fn each(&self) -> impl Iterator<Item = (usize, U)> + '_ {
        self.streams
            .each()
            .map(|(slot, stream)| (slot, stream.user))
    }

    /// Bytes to write.
    #[inline]
    pub fn pending(&self) -> &[u8] {
        &self.out
    }

    /// So many of them have been written.
    #[inline]
    pub fn written(&mut self, bytes: usize) {
        if bytes == self.out.len() {
            self.out.clear();
            self.replies = 0;
        } else {
            self.out.drain(..bytes);
        }
    }

    /// Sends a request on a stream of its own; there must be room. `user` comes back with its answer.
    #[inline]
    pub fn request(&mut self, request: &Encoded, user: U) -> usize {
        let slot = self.streams.begin(self.server.window, user);
        let id = self.streams.at(slot).id;
        let end = if request.body.is_empty() {
            flag::END_STREAM
        } else {
            0
        };
        let block = if self.is_plain {
            &request.plain
        } else if self.is_primed {
            &request.later
        } else {
            self.is_primed = true;
            &request.first
        };
        if block.len() < PAYLOAD_MAX && !self.owes_empty {
            frame::write(
                &mut self.out,
                kind::HEADERS,
                flag::END_HEADERS | end,
                id,
                block,
            );
        } else {
            self.put_rare_block(end, id, block);
        }
        if !request.body.is_empty() {
            let body = Arc::clone(&request.body);
            self.streams.at(slot).upload = Some(Box::new(Upload { body, at: 0 }));
            self.upload(slot);
        }
        slot
    }

    /// A header block that is too long for one frame, or the first for a server without memory.
    #[cold]
    fn put_rare_block(&mut self, end: u8, id: u32, block: &[u8]) {
        let mut whole = Vec::new();
        if core::mem::take(&mut self.owes_empty) {
            // RFC 7541, 4.2: said at the start of the first block that follows
            put_empty_table(&mut whole);
        }
        whole.extend_from_slice(block);
        put_long_block(&mut self.out, end, id, &whole);
    }

    /// Gives a request up.
    pub fn cancel(&mut self, slot: usize) {
        self.reset(slot, CANCEL);
    }

    fn reset(&mut self, slot: usize, code: u32) {
        let id = self.streams.at(slot).id;
        frame::write(&mut self.out, kind::RST_STREAM, 0, id, &code.to_be_bytes());
        self.streams.end(slot);
    }

    /// Sends of a request's body what the windows allow.
    fn upload(&mut self, slot: usize) {
        let stream = self.streams.at(slot);
        let Some(upload) = &mut stream.upload else {
            return;
        };
        loop {
            let rest = &upload.body[upload.at..];
            let room = stream.window.min(self.window).max(0) as usize;
            let length = rest.len().min(room).min(self.server.frame);
            if length == 0 {
                return;
            }
            let is_last = length == rest.len();
            let end = if is_last { flag::END_STREAM } else { 0 };
            frame::write(&mut self.out, kind::DATA, end, stream.id, &rest[..length]);
            stream.window -= length as i64;
            self.window -= length as i64;
            upload.at += length;
            if is_last {
                stream.upload = None;
                return;
            }
        }
    }

    /// Sends of all bodies what new windows allow.
    fn upload_all(&mut self) {
        let waiting = self
            .streams
            .each()
            .filter(|(_, stream)| stream.upload.is_some());
        let waiting: Vec<usize> = waiting.map(|(slot, _)| slot).collect();
        waiting.into_iter().for_each(|slot| self.upload(slot));
    }

    /// Takes bytes that the server has sent. After a fault the connection is of no more use.
    pub fn feed<S: Sink>(
        &mut self,
        bytes: &[u8],
        events: &mut Vec<Event<U>>,
        sink: &mut S,
    ) -> Result<(), Fault> {
        if self.kept.is_empty() {
            let used = self.feed_all(bytes, events, sink)?;
            self.kept.extend_from_slice(&bytes[used..]);
            return Ok(());
        }
        let mut kept = core::mem::take(&mut self.kept);
        kept.extend_from_slice(bytes);
        let used = self.feed_all(&kept, events, sink)?;
        kept.drain(..used);
        self.kept = kept;
        Ok(())
    }

    /// How many of the bytes were used: all but those of a frame that is not complete.
    fn feed_all<S: Sink>(
        &mut self,
        bytes: &[u8],
        events: &mut Vec<Event<U>>,
        sink: &mut S,
    ) -> Result<usize, Fault> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            if let Reading::Data { .. } = self.reading {
                at += self.data_goes_on(rest, events, sink);
                continue;
            }
            let Some(head) = FrameHead::read(rest) else {
                break;
            };
            self.check(head)?;
            if head.kind == kind::DATA {
                let Some(used) = self.data_begins(head, &rest[HEAD_BYTES..])? else {
                    break;
                };
                at += HEAD_BYTES + used;
                // an empty frame is over at once
                self.data_goes_on(&[], events, sink);
                continue;
            }
            let Some(payload) = rest.get(HEAD_BYTES..HEAD_BYTES + head.length) else {
                break;
            };
            at += HEAD_BYTES + head.length;
            self.take(head, payload, events, sink)?;
        }
        Ok(at)
    }

    /// What can be wrong with a frame before its payload is there.
    #[inline]
    fn check(&self, head: FrameHead) -> Result<(), Fault> {
        if head.length > PAYLOAD_MAX {
            return Err(Fault::FrameSize);
        }
        let goes_on = self
            .continued
            .is_some_and(|(stream, _)| stream == head.stream);
        let is_more = head.kind == kind::CONTINUATION;
        if is_more != goes_on || (self.continued.is_some() && !is_more) {
            return Err(Fault::Protocol);
        }
        // a server first says what it allows (RFC 9113, 3.4)
        if !self.is_settled && (head.kind != kind::SETTINGS || head.has(flag::ACK)) {
            return Err(Fault::Protocol);
        }
        let fits = match head.kind {
            kind::DATA | kind::HEADERS | kind::RST_STREAM => self.streams.has_begun(head.stream),
            kind::PRIORITY | kind::CONTINUATION => head.stream != 0,
            kind::SETTINGS | kind::PING | kind::GOAWAY => head.stream == 0,
            kind::PUSH_PROMISE => false,
            _ => true,
        };
        fits.then_some(()).ok_or(Fault::Protocol)
    }

    /// The beginning of a DATA frame: how many bytes of it were used; nothing if more must come.
    #[inline]
    fn data_begins(&mut self, head: FrameHead, rest: &[u8]) -> Result<Option<usize>, Fault> {
        let (mut padding, mut used) = (0, 0);
        if head.has(flag::PADDED) {
            if head.length == 0 {
                return Err(Fault::FrameSize);
            }
            let Some(&octet) = rest.first() else {
                return Ok(None);
            };
            (padding, used) = (usize::from(octet), 1);
        }
        let body = head
            .length
            .checked_sub(used + padding)
            .ok_or(Fault::Protocol)?;
        self.received += head.length as u64;
        if self.received >= RETURN_BYTES {
            let more = self.received as u32;
            frame::write(
                &mut self.out,
                kind::WINDOW_UPDATE,
                0,
                0,
                &more.to_be_bytes(),
            );
            self.received = 0;
        }
        self.reading = Reading::Data {
            stream: head.stream,
            body,
            padding,
            ends: head.has(flag::END_STREAM),
        };
        Ok(Some(used))
    }

    /// More of a DATA frame; how many bytes were used.
    #[inline]
    fn data_goes_on<S: Sink>(
        &mut self,
        rest: &[u8],
        events: &mut Vec<Event<U>>,
        sink: &mut S,
    ) -> usize {
        let Reading::Data {
            stream,
            body,
            padding,
            ends,
        } = self.reading
        else {
            return 0;
        };
        // it may have been given up, and its place taken, since the frame began
        let slot = self.streams.find(stream);
        let taken = rest.len().min(body);
        let passed = (rest.len() - taken).min(padding);
        if let Some(slot) = slot.filter(|_| taken > 0) {
            self.count_body(slot, taken);
            if S::SEES {
                sink.body(slot, &rest[..taken]);
            }
        }
        let (body, padding) = (body - taken, padding - passed);
        self.reading = Reading::Data {
            stream,
            body,
            padding,
            ends,
        };
        if body + padding == 0 {
            self.reading = Reading::Head;
            if let Some(slot) = slot {
                self.data_ended(slot, ends, events);
            }
        }
        taken + passed
    }

    #[inline]
    fn count_body(&mut self, slot: usize, bytes: usize) {
        let stream = self.streams.at(slot);
        stream.body_bytes += bytes as u64;
        let held = stream.body_bytes - stream.returned_bytes;
        if held >= RETURN_BYTES {
            stream.returned_bytes = stream.body_bytes;
            let (id, more) = (stream.id, (held as u32).to_be_bytes());
            frame::write(&mut self.out, kind::WINDOW_UPDATE, 0, id, &more);
        }
    }

    #[inline]
    fn data_ended(&mut self, slot: usize, ends: bool, events: &mut Vec<Event<U>>) {
        if self.streams.at(slot).status == 0 {
            // a body before its head
            self.refuse(slot, events);
        } else if ends {
            self.answered(slot, events);
        }
    }

    /// The answer on a stream is complete.
    #[inline]
    fn answered(&mut self, slot: usize, events: &mut Vec<Event<U>>) {
        let stream = self.streams.at(slot);
        events.push(Event::Answered {
            slot,
            user: stream.user,
            status: stream.status,
            body_bytes: stream.body_bytes,
        });
        if stream.upload.is_some() {
            // nobody needs the rest of the request
            self.reset(slot, CANCEL);
        } else {
            self.streams.end(slot);
        }
    }

    /// The answer on a stream makes no sense.
    fn refuse(&mut self, slot: usize, events: &mut Vec<Event<U>>) {
        let user = self.streams.at(slot).user;
        events.push(Event::Reset {
            user,
            code: PROTOCOL_ERROR,
        });
        self.reset(slot, PROTOCOL_ERROR);
    }

    /// Takes a frame of another type than DATA.
    fn take<S: Sink>(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        events: &mut Vec<Event<U>>,
        sink: &mut S,
    ) -> Result<(), Fault> {
        match head.kind {
            kind::HEADERS => return self.take_headers(head, payload, events, sink),
            kind::CONTINUATION => return self.take_continuation(head, payload, events, sink),
            kind::PRIORITY if payload.len() != 5 => return Err(Fault::FrameSize),
            kind::RST_STREAM => self.take_reset(head.stream, number(payload)?, events),
            kind::SETTINGS => self.take_settings(head, payload)?,
            kind::PING => self.take_ping(head, payload)?,
            kind::GOAWAY => {
                let last = payload.get(..4).ok_or(Fault::FrameSize)?;
                self.take_goaway(number(last)?, events);
            }
            kind::WINDOW_UPDATE => self.take_window(head.stream, number(payload)?, events)?,
            _ => {}
        }
        Ok(())
    }

    #[inline]
    fn take_headers<S: Sink>(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        events: &mut Vec<Event<U>>,
        sink: &mut S,
    ) -> Result<(), Fault> {
        let mut block = payload;
        if head.has(flag::PADDED) {
            let (&padding, rest) = block.split_first().ok_or(Fault::FrameSize)?;
            let length = rest.len().checked_sub(usize::from(padding));
            block = &rest[..length.ok_or(Fault::Protocol)?];
        }
        if head.has(flag::PRIORITY) {
            block = block.get(5..).ok_or(Fault::FrameSize)?;
        }
        let ends = head.has(flag::END_STREAM);
        if head.has(flag::END_HEADERS) {
            return self.take_block(head.stream, ends, block, events, sink);
        }
        self.block.clear();
        self.block.extend_from_slice(block);
        self.continued = Some((head.stream, ends));
        Ok(())
    }

    fn take_continuation<S: Sink>(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        events: &mut Vec<Event<U>>,
        sink: &mut S,
    ) -> Result<(), Fault> {
        // frames without anything in them would never end
        if self.block.len() + payload.len() > BLOCK_MAX || payload.is_empty() {
            return Err(Fault::EnhanceYourCalm);
        }
        self.block.extend_from_slice(payload);
        let Some((stream, ends)) = self.continued.filter(|_| head.has(flag::END_HEADERS)) else {
            return Ok(());
        };
        self.continued = None;
        let block = core::mem::take(&mut self.block);
        self.take_block(stream, ends, &block, events, sink)
    }

    /// A whole header block: of an answer, of an interim one, or its trailers.
    #[inline]
    fn take_block<S: Sink>(
        &mut self,
        id: u32,
        ends: bool,
        block: &[u8],
        events: &mut Vec<Event<U>>,
        sink: &mut S,
    ) -> Result<(), Fault> {
        let slot = self.streams.find(id);
        let (mut status, mut is_first) = (0u16, true);
        // blocks of streams that are gone change the table too
        self.decoder.decode(block, |name, value| {
            if is_first && name == b":status" {
                status = code(value);
            }
            is_first = false;
            if let (true, Some(slot)) = (S::SEES && (status == 0 || status >= 200), slot) {
                if !name.starts_with(b":") {
                    sink.field(slot, name, value);
                }
            }
        })?;
        let Some(slot) = slot else { return Ok(()) };
        let stream = self.streams.at(slot);
        let is_trailer = stream.status != 0;
        let fits = match status {
            0 => is_trailer && ends,
            // an interim answer neither ends a stream nor follows the final one; 101 is of HTTP/1
            100..=199 => !is_trailer && !ends && status != 101,
            200..=999 => !is_trailer,
            _ => false,
        };
        if !fits {
            self.refuse(slot, events);
            return Ok(());
        }
        if status >= 200 {
            stream.status = status;
        }
        if ends {
            self.answered(slot, events);
        }
        Ok(())
    }

    fn take_reset(&mut self, id: u32, code: u32, events: &mut Vec<Event<U>>) {
        if let Some(slot) = self.streams.find(id) {
            let user = self.streams.at(slot).user;
            events.push(Event::Reset { user, code });
            self.streams.end(slot);
        }
    }

    fn take_settings(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Fault> {
        if head.has(flag::ACK) {
            return payload.is_empty().then_some(()).ok_or(Fault::FrameSize);
        }
        let before = self.server.window;
        self.server.take(payload)?;
        self.reply(kind::SETTINGS, &[])?;
        if self.server.table < TABLE_MAX && !self.is_plain {
            (self.is_plain, self.owes_empty) = (true, true);
        }
        self.is_settled = true;
        let change = self.server.window - before;
        if change != 0 {
            let open: Vec<usize> = self.streams.each().map(|(slot, _)| slot).collect();
            for slot in open {
                let stream = self.streams.at(slot);
                stream.window += change;
                if stream.window > WINDOW_MAX {
                    return Err(Fault::FlowControl);
                }
            }
            self.upload_all();
        }
        Ok(())
    }

    fn take_ping(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Fault> {
        if payload.len() != 8 {
            return Err(Fault::FrameSize);
        }
        if head.has(flag::ACK) {
            return Ok(());
        }
        self.reply(kind::PING, payload)
    }

    /// Answers SETTINGS or PING; a server that asks and does not read is not answered for ever.
    fn reply(&mut self, kind: u8, payload: &[u8]) -> Result<(), Fault> {
        self.replies += 1;
        if self.replies > REPLIES_MAX {
            return Err(Fault::EnhanceYourCalm);
        }
        frame::write(&mut self.out, kind, flag::ACK, 0, payload);
        Ok(())
    }

    fn take_goaway(&mut self, last: u32, events: &mut Vec<Event<U>>) {
        self.is_going = true;
        let last = last & !(1 << 31);
        let left = self.streams.each().filter(|(_, stream)| stream.id > last);
        let left: Vec<usize> = left.map(|(slot, _)| slot).collect();
        for slot in left {
            let user = self.streams.at(slot).user;
            events.push(Event::Unprocessed { user });
            self.streams.end(slot);
        }
    }

    fn take_window(&mut self, id: u32, more: u32, events: &mut Vec<Event<U>>) -> Result<(), Fault> {
        let more = i64::from(more & !(1 << 31));
        if id == 0 {
            self.window += more;
            if more == 0 {
                return Err(Fault::Protocol);
            }
            if self.window > WINDOW_MAX {
                return Err(Fault::FlowControl);
            }
            self.upload_all();
            return Ok(());
        }
        if !self.streams.has_begun(id) {
            return Err(Fault::Protocol);
        }
        let Some(slot) = self.streams.find(id) else {
            return Ok(());
        };
        let stream = self.streams.at(slot);
        stream.window += more;
        if more == 0 || stream.window > WINDOW_MAX {
            self.refuse(slot, events);
        } else {
            self.upload(slot);
        }
        Ok(())
    }
}

/// Frames of a header block that is too long for one.
fn put_long_block(out: &mut Vec<u8>, end: u8, id: u32, block: &[u8]) {
    let mut pieces = block.chunks(PAYLOAD_MAX).peekable();
    let mut kind = kind::HEADERS;
    while let Some(piece) = pieces.next() {
        let last = if pieces.peek().is_none() {
            flag::END_HEADERS
        } else {
            0
        };
        let ends = if kind == kind::HEADERS { end } else { 0 };
        frame::write(out, kind, last | ends, id, piece);
        kind = kind::CONTINUATION;
    }
}

/// A payload that is one number.
fn number(payload: &[u8]) -> Result<u32, Fault> {
    let octets: [u8; 4] = payload.try_into().map_err(|_| Fault::FrameSize)?;
    Ok(u32::from_be_bytes(octets))
}

/// A status code; one that no status has if it is none.
fn code(value: &[u8]) -> u16 {
    match value {
        [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
            u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0')
        }
        _ => u16::MAX,
    }
}
