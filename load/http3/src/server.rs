//! The streams that a server opens (RFC 9114, 6.2): its control stream, those of its header compression,
//! and others, which mean nothing here.

use crate::fault::Fault;
use crate::frame::{kind, Frames, Visitor, Want};
use crate::varint;
use alloc::vec::Vec;

/// Types of streams (RFC 9114, 6.2; RFC 9204, 4.2).
pub(crate) const CONTROL: u64 = 0;
const PUSH: u64 = 1;
const ENCODER: u64 = 2;
const DECODER: u64 = 3;

/// The instruction that sets the size of the dynamic table to 0: the only one that an encoder may send to
/// this client (RFC 9204, 4.3.1).
const NO_TABLE: u8 = 0x20;

/// What a server has said on its own streams.
#[derive(Debug, Default)]
pub struct Server {
    /// Types of streams of which there may be one, by their numbers.
    has: [bool; 4],
    is_settled: bool,
    going: Option<u64>,
}

/// A stream that the server has opened.
#[derive(Debug)]
pub struct ServerStream(Kind);

#[derive(Debug)]
enum Kind {
    /// Its type is not complete.
    Unknown(Vec<u8>),
    Control(Frames),
    Encoder,
    /// In a number that goes on with the next byte, or not.
    Decoder(bool),
    Ignored,
}

impl Default for ServerStream {
    fn default() -> ServerStream {
        ServerStream(Kind::Unknown(Vec::new()))
    }
}

impl ServerStream {
    /// Whether nothing that comes on it is of interest.
    pub fn is_ignored(&self) -> bool {
        matches!(self.0, Kind::Ignored)
    }
}

impl Server {
    /// Whether it has sent its settings.
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// The first stream that it will not look at, once it is going away.
    pub fn going(&self) -> Option<u64> {
        self.going
    }

    /// Reads bytes of a stream of its own.
    pub fn feed(&mut self, stream: &mut ServerStream, bytes: &[u8]) -> Result<(), Fault> {
        if let Kind::Unknown(kept) = &mut stream.0 {
            kept.extend_from_slice(bytes);
            let Some((kind, used)) = varint::read(kept) else {
                return Ok(());
            };
            let rest = kept.split_off(used);
            stream.0 = self.kind(kind)?;
            return self.feed_known(&mut stream.0, &rest);
        }
        self.feed_known(&mut stream.0, bytes)
    }

    /// What a stream of this type is.
    fn kind(&mut self, kind: u64) -> Result<Kind, Fault> {
        let known = match kind {
            CONTROL => Kind::Control(Frames::new()),
            // this client has allowed no push
            PUSH => return Err(Fault::Id),
            ENCODER => Kind::Encoder,
            DECODER => Kind::Decoder(false),
            _ => return Ok(Kind::Ignored),
        };
        if core::mem::replace(&mut self.has[kind as usize], true) {
            return Err(Fault::StreamCreation);
        }
        Ok(known)
    }

    fn feed_known(&mut self, kind: &mut Kind, bytes: &[u8]) -> Result<(), Fault> {
        match kind {
            Kind::Control(frames) => frames.feed(bytes, self),
            Kind::Encoder if bytes.iter().any(|byte| *byte != NO_TABLE) => {
                Err(Fault::EncoderStream)
            }
            Kind::Decoder(is_inside) => bytes.iter().try_for_each(|byte| {
                // a server can only cancel streams: no block refers to its table (RFC 9204, 4.4.2)
                let is_cancellation = *is_inside || byte & 0xc0 == 0x40;
                *is_inside = if *is_inside {
                    byte & 0x80 != 0
                } else {
                    byte & 0x3f == 0x3f
                };
                is_cancellation.then_some(()).ok_or(Fault::DecoderStream)
            }),
            Kind::Encoder | Kind::Ignored | Kind::Unknown(_) => Ok(()),
        }
    }

    /// A stream of its own has ended.
    pub fn ended(&self, stream: &ServerStream) -> Result<(), Fault> {
        match stream.0 {
            // an end before the type is complete is allowed (RFC 9114, 6.2)
            Kind::Ignored | Kind::Unknown(_) => Ok(()),
            _ => Err(Fault::ClosedCriticalStream),
        }
    }

    fn settings(&mut self, mut payload: &[u8]) -> Result<(), Fault> {
        self.is_settled = true;
        while !payload.is_empty() {
            let (id, first) = varint::read(payload).ok_or(Fault::Frame)?;
            let (_, second) = varint::read(&payload[first..]).ok_or(Fault::Frame)?;
            // those of HTTP/2 (RFC 9114, 7.2.4.1); no other limits what this client sends
            if matches!(id, 0 | 2..=5) {
                return Err(Fault::Settings);
            }
            payload = &payload[first + second..];
        }
        Ok(())
    }

    fn goaway(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let (id, used) = varint::read(payload).ok_or(Fault::Frame)?;
        if used != payload.len() {
            return Err(Fault::Frame);
        }
        // a request's stream, and never a later one than before (RFC 9114, 5.2)
        if id % 4 != 0 || self.going.is_some_and(|before| id > before) {
            return Err(Fault::Id);
        }
        self.going = Some(id);
        Ok(())
    }
}

/// Its control stream.
impl Visitor for Server {
    fn begins(&mut self, kind: u64) -> Result<Want, Fault> {
        if self.is_settled == (kind == kind::SETTINGS) {
            let fault = if self.is_settled {
                Fault::FrameUnexpected
            } else {
                Fault::MissingSettings
            };
            return Err(fault);
        }
        match kind {
            kind::SETTINGS | kind::GOAWAY => Ok(Want::Whole),
            kind::CANCEL_PUSH => Err(Fault::Id),
            kind::DATA | kind::HEADERS | kind::PUSH_PROMISE | kind::MAX_PUSH_ID => {
                Err(Fault::FrameUnexpected)
            }
            _ if kind::is_of_http2(kind) => Err(Fault::FrameUnexpected),
            _ => Ok(Want::Nothing),
        }
    }

    fn whole(&mut self, kind: u64, payload: &[u8]) -> Result<(), Fault> {
        if kind == kind::SETTINGS {
            self.settings(payload)
        } else {
            self.goaway(payload)
        }
    }
}
