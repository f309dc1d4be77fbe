//! One connection from the client's side (RFC 9113): requests in, frames out; frames in, responses
//! out.
//!
//! The caller passes bytes as they arrive, cut anywhere; bytes to write collect in a buffer that
//! the caller empties. An error of the server ends the connection, or one stream, and never panics.

mod receiving;

use crate::fault::Fault;
use crate::frame::{self, flag, kind, FrameHead, HEAD_BYTES, PAYLOAD_MAX, PREFACE};
use crate::hpack::{put_empty_table, Decoder, FIELDS_MAX};
use crate::request::Encoded;
use crate::settings::{put_own, Settings, WINDOW_FIRST, WINDOW_MAX};
use crate::streams::{Sink, Streams, Upload};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Longest header block: one that is not compressed has no more fields.
const BLOCK_MAX: usize = FIELDS_MAX;
/// The server gets window updates after so many body bytes.
const RETURN_BYTES: u64 = 1 << 30;
/// Most responses to PING and SETTINGS that wait to be written.
const REPLIES_MAX: usize = 1000;
/// CANCEL (RFC 9113, 7).
const CANCEL: u32 = 8;
/// PROTOCOL_ERROR (RFC 9113, 7).
const PROTOCOL_ERROR: u32 = 1;

/// An event of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<U> {
    /// A response is complete.
    Answered {
        /// Its stream's slot.
        slot: usize,
        /// The caller's value for the request.
        user: U,
        /// Status code.
        status: u16,
        /// The gRPC status of the call (`grpc-status`); 0 is success.
        call: Option<u32>,
        /// Length of its body.
        body_bytes: u64,
    },
    /// A stream ended without a complete response.
    Reset {
        /// The caller's value for the request.
        user: U,
        /// The error code.
        code: u64,
    },
    /// The server is going away and has not processed this request: it may be sent again elsewhere.
    Unprocessed {
        /// The caller's value for the request.
        user: U,
    },
}

/// The reader's position in a frame.
#[derive(Clone, Copy, Debug)]
enum Reading {
    /// Before a frame's head.
    Head,
    /// In a DATA frame: bytes of body and padding left.
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
    /// So many of these have been written.
    sent: usize,
    /// Bytes of an incomplete frame.
    kept: Vec<u8>,
    reading: Reading,
    decoder: Decoder,
    streams: Streams<U>,
    /// Streams that the caller uses at once.
    most: u32,
    server: Settings,
    /// The server has sent its settings.
    is_settled: bool,
    /// The server accepts no more streams.
    is_going: bool,
    /// The code of the server's error; 0 if it made none.
    code: u32,
    /// The server's decoder has the fields that requests share.
    is_primed: bool,
    /// The server's decoder has a smaller table than usual: the client empties it.
    is_plain: bool,
    /// The resize to an empty table is not sent yet.
    owes_empty: bool,
    /// Bytes of request bodies that may still be sent.
    window: i64,
    /// Bytes of response bodies without a window update yet.
    received: u64,
    replies: usize,
    /// The number of the next stream when the server last sent something.
    heard: u32,
    /// The same when the last PING was sent; 0 if the server has sent anything since.
    asked: u32,
    /// An incomplete header block, its stream, and whether the stream ends with it.
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
            sent: 0,
            kept: Vec::new(),
            reading: Reading::Head,
            decoder: Decoder::default(),
            streams: Streams::new(most),
            most,
            server: Settings::default(),
            is_settled: false,
            is_going: false,
            code: 0,
            is_primed: false,
            is_plain: false,
            owes_empty: false,
            window: WINDOW_FIRST,
            received: 0,
            replies: 0,
            heard: 0,
            asked: 0,
            block: Vec::new(),
            continued: None,
        }
    }

    /// Whether the server has sent its settings: requests are sent only then.
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Whether the server accepts no further streams.
    pub fn is_going(&self) -> bool {
        self.is_going || !self.streams.has_numbers()
    }

    /// Streams that may be open at once.
    pub fn limit(&self) -> u32 {
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
        self.is_settled && self.streams.open < self.limit() && !self.is_going()
    }

    /// Number of slots for streams.
    pub fn places(&self) -> usize {
        self.streams.places()
    }

    /// The caller's values of the open streams, with their slots.
    pub fn each(&self) -> impl Iterator<Item = (usize, U)> + '_ {
        self.streams
            .each()
            .map(|(slot, stream)| (slot, stream.user))
    }

    /// Bytes to write.
    #[inline]
    pub fn pending(&self) -> &[u8] {
        &self.out[self.sent..]
    }

    /// So many of them were written.
    #[inline]
    pub fn written(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent == self.out.len() {
            self.out.clear();
            (self.sent, self.replies) = (0, 0);
        } else if self.sent > self.out.len() / 2 {
            // fewer bytes move than were written since the last time
            self.out.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Sends a request on a new stream; there must be a free one. `user` comes back with its
    /// response.
    #[inline]
    pub fn request(&mut self, request: &Encoded, user: U) -> usize {
        let slot = self.streams.begin(self.server.window, user);
        let stream = self.streams.at(slot);
        stream.is_head = request.is_head;
        let id = stream.id;
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

    /// A header block that is too long for one frame, or the first for a server without a table.
    #[cold]
    fn put_rare_block(&mut self, end: u8, id: u32, block: &[u8]) {
        let mut whole = Vec::new();
        if core::mem::take(&mut self.owes_empty) {
            // RFC 7541, 4.2: sent at the start of the next block
            put_empty_table(&mut whole);
        }
        whole.extend_from_slice(block);
        put_long_block(&mut self.out, end, id, &whole);
    }

    /// Cancels a request.
    pub fn cancel(&mut self, slot: usize) {
        self.reset(slot, CANCEL);
    }

    /// Sends a GOAWAY: no more requests come, for the server's error if it has made one (RFC 9113, 5.4.1 and
    /// 6.8). False if there is nothing to end: its settings have not come, and it may speak another protocol.
    pub fn close(&mut self) -> bool {
        let is_begun = self.is_settled || self.code != 0;
        if is_begun {
            // the server's streams, of which there are none, were processed up to the first number
            let payload = [[0; 4], self.code.to_be_bytes()].concat();
            frame::write(&mut self.out, kind::GOAWAY, 0, 0, &payload);
        }
        is_begun
    }

    /// Sends a PING, unless one is outstanding.
    pub fn ask(&mut self) {
        if self.asked == 0 {
            self.asked = self.streams.next();
            frame::write(&mut self.out, kind::PING, 0, 0, &[0; 8]);
        }
    }

    /// Whether the server has sent nothing since this request was sent.
    pub fn is_silent_since(&self, slot: usize) -> bool {
        self.streams.id(slot) >= self.heard
    }

    /// Whether a PING was sent before this request, and the server has sent nothing since.
    pub fn has_asked_before(&self, slot: usize) -> bool {
        self.asked != 0 && self.streams.id(slot) >= self.asked
    }

    fn reset(&mut self, slot: usize, code: u32) {
        let id = self.streams.at(slot).id;
        frame::write(&mut self.out, kind::RST_STREAM, 0, id, &code.to_be_bytes());
        self.streams.end(slot);
    }

    /// Sends as much of a request's body as the windows allow.
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

    /// Sends as much of all bodies as the new windows allow.
    fn upload_all(&mut self) {
        let waiting = self
            .streams
            .each()
            .filter(|(_, stream)| stream.upload.is_some());
        let waiting: Vec<usize> = waiting.map(|(slot, _)| slot).collect();
        waiting.into_iter().for_each(|slot| self.upload(slot));
    }

    /// Reads bytes that the server sent. After an error the connection is unusable.
    pub fn feed<S: Sink>(
        &mut self,
        bytes: &[u8],
        events: &mut Vec<Event<U>>,
        sink: &mut S,
    ) -> Result<(), Fault> {
        (self.heard, self.asked) = (self.streams.next(), 0);
        let fed = self.feed_on(bytes, events, sink);
        if let Err(fault) = fed {
            self.code = fault.code();
        }
        fed
    }

    #[inline]
    fn feed_on<S: Sink>(
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

    /// How many of the bytes were used: all but those of an incomplete frame.
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
                // an empty frame ends at once
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

    /// Errors of a frame that are visible before its payload arrives.
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
        // a server sends its settings first (RFC 9113, 3.4)
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
