//! A response: what comes on the stream of a request (RFC 9114, 4.1).

use crate::fault::Fault;
use crate::frame::{kind, Frames, Visitor, Want};
use crate::qpack;
use alloc::vec::Vec;
use load_http2::value::{self, NO_LENGTH};
use load_http2::Sink;

/// A response that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// The number of its `grpc-status`, if it has one.
    pub call: Option<u32>,
    /// Length of its body.
    pub body_bytes: u64,
}

/// A response that comes in.
#[derive(Debug)]
pub struct Response {
    frames: Frames,
    message: Message,
}

/// What is known of it.
#[derive(Debug)]
struct Message {
    /// Status; 0 until there is one.
    status: u16,
    call: Option<u32>,
    body_bytes: u64,
    /// The length that its head declares, or [`NO_LENGTH`].
    content_length: u64,
    is_head: bool,
    has_trailers: bool,
}

impl Response {
    /// The response to a request, which may be a HEAD request.
    pub fn new(is_head: bool) -> Response {
        Response {
            frames: Frames::new(),
            message: Message {
                status: 0,
                call: None,
                body_bytes: 0,
                content_length: NO_LENGTH,
                is_head,
                has_trailers: false,
            },
        }
    }

    /// Reads bytes; `sink` gets the fields and the body with `slot`. `scratch` is kept for its memory.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        scratch: &mut Vec<u8>,
        slot: usize,
        sink: &mut impl Sink,
    ) -> Result<(), Fault> {
        let mut visit = Visit {
            message: &mut self.message,
            scratch,
            slot,
            sink,
        };
        self.frames.feed(bytes, &mut visit)
    }

    /// The stream has ended.
    pub fn end(&self) -> Result<Answer, Fault> {
        if !self.frames.is_between() {
            return Err(Fault::Frame);
        }
        let message = &self.message;
        let (declared, come) = (message.content_length, message.body_bytes);
        let is_cut = value::is_cut(declared, come, message.is_head, message.status);
        if message.status == 0 || is_cut {
            return Err(Fault::Message);
        }
        Ok(Answer {
            status: message.status,
            call: message.call,
            body_bytes: message.body_bytes,
        })
    }
}

/// Looks at the frames of a response.
struct Visit<'a, S> {
    message: &'a mut Message,
    scratch: &'a mut Vec<u8>,
    slot: usize,
    sink: &'a mut S,
}

impl<S: Sink> Visitor for Visit<'_, S> {
    fn begins(&mut self, kind: u64) -> Result<Want, Fault> {
        match kind {
            kind::DATA if self.message.status == 0 => Err(Fault::FrameUnexpected),
            kind::DATA | kind::HEADERS if self.message.has_trailers => Err(Fault::FrameUnexpected),
            kind::DATA => Ok(Want::Pieces),
            kind::HEADERS => Ok(Want::Whole),
            // this client has allowed none
            kind::PUSH_PROMISE => Err(Fault::Id),
            kind::CANCEL_PUSH | kind::SETTINGS | kind::GOAWAY | kind::MAX_PUSH_ID => {
                Err(Fault::FrameUnexpected)
            }
            _ if kind::is_of_http2(kind) => Err(Fault::FrameUnexpected),
            _ => Ok(Want::Nothing),
        }
    }

    fn piece(&mut self, bytes: &[u8]) {
        self.message.body_bytes += bytes.len() as u64;
        if S::SEES {
            self.sink.body(self.slot, bytes);
        }
    }

    /// A header block: of the response, of an interim response, or trailers.
    fn whole(&mut self, _kind: u64, block: &[u8]) -> Result<(), Fault> {
        let (mut status, mut is_first, mut call) = (0, true, None);
        let mut content_length = NO_LENGTH;
        let (slot, sink) = (self.slot, &mut *self.sink);
        if S::SEES && self.message.status == 0 {
            sink.begin(slot);
        }
        qpack::decode(block, self.scratch, |name, text| {
            if is_first && name == b":status" {
                status = value::status(text);
            }
            is_first = false;
            match name {
                b"grpc-status" => call = Some(value::call_status(text)),
                b"content-length" => content_length = value::length(text),
                _ => {}
            }
            let is_shown = S::SEES && (status == 0 || status >= 200);
            if is_shown && !name.starts_with(b":") {
                sink.field(slot, name, text);
            }
        })?;
        let message = &mut *self.message;
        message.call = call.or(message.call);
        match (status, message.status) {
            (0, 1..) => message.has_trailers = true,
            // an interim response; 101 is HTTP/1 only (RFC 9114, 4.5)
            (100..=199, 0) if status != 101 => {}
            (200..=999, 0) => {
                (message.status, message.content_length) = (status, content_length);
            }
            _ => return Err(Fault::Message),
        }
        Ok(())
    }
}
