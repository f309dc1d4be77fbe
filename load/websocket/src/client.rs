//! The incoming side of a connection: messages are counted, not kept; pings and closes are answered.

use crate::frame::{self, Opcode, CONTROL_MAX_BYTES};

/// Longest header of an unmasked frame.
const HEAD_MAX_BYTES: usize = 10;
/// Most bytes of pongs that wait for a server that does not read.
const PENDING_MAX_BYTES: usize = 4096;
/// A normal close (RFC 6455, 7.4.1).
const NORMAL: [u8; 2] = 1000u16.to_be_bytes();

/// A violation of the protocol by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Bits that only an extension may set; none was requested.
    Reserved,
    /// An undefined kind of frame.
    Opcode,
    /// A masked frame; only clients mask.
    Masked,
    /// A length above 63 bits or not in its shortest form.
    Length,
    /// A control frame that is too long or fragmented, or a close of one byte.
    Control,
    /// A continuation without a message, or a new message inside another.
    Piece,
    /// A message without a request.
    Unasked,
}

impl Fault {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Reserved => "reserved bits are set",
            Fault::Opcode => "an undefined kind of frame",
            Fault::Masked => "a masked frame",
            Fault::Length => "a length that is not in its shortest form",
            Fault::Control => "a control frame that is too long or in pieces",
            Fault::Piece => "pieces of messages are out of order",
            Fault::Unasked => "a message without a request",
        }
    }
}

/// An event from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message is complete.
    Message {
        /// Length of its payload.
        bytes: u64,
    },
    /// The server closes the connection; the response is pending.
    Closed,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    opcode: Opcode,
    is_final: bool,
    left: u64,
}

/// The client's side of a connection after the upgrade.
#[derive(Debug, Default)]
pub struct Client {
    head: [u8; HEAD_MAX_BYTES],
    head_bytes: usize,
    frame: Option<Frame>,
    /// Length so far of the message that is being read.
    message: Option<u64>,
    control: Vec<u8>,
    pending: Vec<u8>,
    /// The client has sent its close.
    is_closed: bool,
}

impl Client {
    /// Reads on, up to the first event; returns how many bytes were used.
    pub fn feed(&mut self, input: &[u8]) -> Result<(usize, Option<Event>), Fault> {
        let mut used = 0;
        loop {
            if self.frame.is_none() {
                used += self.take_head(&input[used..])?;
            }
            let Some(frame) = &mut self.frame else {
                return Ok((used, None));
            };
            let here = usize::try_from(frame.left).unwrap_or(usize::MAX);
            let count = here.min(input.len() - used);
            if frame.opcode.is_control() {
                self.control.extend_from_slice(&input[used..used + count]);
            }
            frame.left -= count as u64;
            used += count;
            if frame.left > 0 {
                return Ok((used, None));
            }
            let ended = *frame;
            self.frame = None;
            if let Some(event) = self.end(ended)? {
                return Ok((used, Some(event)));
            }
        }
    }

    /// Whether the next byte starts a message.
    pub fn at_start(&self) -> bool {
        self.head_bytes == 0 && self.frame.is_none() && self.message.is_none()
    }

    /// Frames to write between two messages.
    pub fn pending(&self) -> &[u8] {
        &self.pending
    }

    /// So many bytes of them were written.
    pub fn written(&mut self, count: usize) {
        self.pending.drain(..count);
    }

    /// Sends a close, once.
    pub fn close(&mut self) {
        if !self.is_closed {
            self.answer(Opcode::Close, &NORMAL);
        }
    }

    fn take_head(&mut self, input: &[u8]) -> Result<usize, Fault> {
        for (index, byte) in input.iter().enumerate() {
            self.head[self.head_bytes] = *byte;
            self.head_bytes += 1;
            if self.head_bytes == head_length(&self.head, self.head_bytes) {
                self.head_bytes = 0;
                self.begin()?;
                return Ok(index + 1);
            }
        }
        Ok(input.len())
    }

    /// Applies a complete frame header.
    fn begin(&mut self) -> Result<(), Fault> {
        let [first, second, ..] = self.head;
        if first & 0x70 != 0 {
            return Err(Fault::Reserved);
        }
        let opcode = Opcode::of(first & 0x0f).ok_or(Fault::Opcode)?;
        if second & 0x80 != 0 {
            return Err(Fault::Masked);
        }
        let frame = Frame {
            opcode,
            is_final: first & 0x80 != 0,
            left: length(&self.head).ok_or(Fault::Length)?,
        };
        if opcode.is_control() {
            if !frame.is_final || frame.left > CONTROL_MAX_BYTES as u64 {
                return Err(Fault::Control);
            }
        } else if self.message.is_some() != (opcode == Opcode::Continuation) {
            return Err(Fault::Piece);
        } else {
            let so_far = self.message.unwrap_or(0);
            self.message = Some(so_far.saturating_add(frame.left));
        }
        self.frame = Some(frame);
        Ok(())
    }

    fn end(&mut self, frame: Frame) -> Result<Option<Event>, Fault> {
        let payload = std::mem::take(&mut self.control);
        match frame.opcode {
            Opcode::Ping => self.answer(Opcode::Pong, &payload),
            Opcode::Close if payload.len() == 1 => return Err(Fault::Control),
            Opcode::Close => {
                self.answer(Opcode::Close, &payload[..payload.len().min(2)]);
                return Ok(Some(Event::Closed));
            }
            Opcode::Pong => {}
            _ if frame.is_final => {
                let bytes = self.message.take().unwrap_or(0);
                return Ok(Some(Event::Message { bytes }));
            }
            _ => {}
        }
        Ok(None)
    }

    fn answer(&mut self, opcode: Opcode, payload: &[u8]) {
        self.is_closed |= opcode == Opcode::Close;
        if self.pending.len() < PENDING_MAX_BYTES {
            frame::push(&mut self.pending, opcode, payload, [0; 4]);
        }
    }
}

/// The length of a header of which `known` bytes are there.
fn head_length(head: &[u8], known: usize) -> usize {
    match head[1] & 0x7f {
        _ if known < 2 => 2,
        126 => 4,
        127 => HEAD_MAX_BYTES,
        _ => 2,
    }
}

/// The length of the payload, if it is in its shortest form.
fn length(head: &[u8; HEAD_MAX_BYTES]) -> Option<u64> {
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let (length, least, most) = match head[1] & 0x7f {
        126 => (number(&head[2..4]), 126, 0xffff),
        127 => (number(&head[2..10]), 0x1_0000, u64::MAX >> 1),
        short => (u64::from(short), 0, 125),
    };
    (least..=most).contains(&length).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `text` in two pieces, as a connection does.
    fn in_pieces(text: &[u8], cut: usize) -> Result<(Vec<Event>, Vec<u8>), Fault> {
        let (mut client, mut events) = (Client::default(), Vec::new());
        for mut piece in [&text[..cut], &text[cut..]] {
            loop {
                let (used, event) = client.feed(piece)?;
                piece = &piece[used..];
                match event {
                    Some(event) => events.push(event),
                    None => break,
                }
            }
            assert!(piece.is_empty(), "everything is consumed");
        }
        assert!(client.at_start());
        Ok((events, client.pending().to_vec()))
    }

    #[test]
    fn every_split_point_gives_the_same_messages() {
        let mut text = b"\x81\x05Hello".to_vec();
        text.extend(b"\x01\x03Hel\x89\x02hi\x80\x02lo\x82\x00");
        text.extend(b"\x82\x7e\x01\x00");
        text.extend([7; 256]);
        text.extend(b"\x82\x7f\0\0\0\0\0\x01\0\0");
        text.extend(vec![7; 65_536]);
        text.extend(b"\x8a\x00\x88\x05\x03\xe8bye");
        let said = [5, 5, 0, 256, 65_536].map(|bytes| Event::Message { bytes });
        for cut in (0..300).chain([text.len() - 8, text.len() - 1, text.len()]) {
            let (events, pending) = in_pieces(&text, cut).expect("well formed");
            assert_eq!(events[..5], said, "cut at {cut}");
            assert_eq!(events[5..], [Event::Closed], "cut at {cut}");
            assert_eq!(pending, b"\x8a\x82\0\0\0\0hi\x88\x82\0\0\0\0\x03\xe8");
        }
    }

    #[test]
    fn violations_are_named() {
        for (text, fault) in [
            (&b"\xc1\x00"[..], Fault::Reserved),
            (b"\x83\x00", Fault::Opcode),
            (b"\x81\x85\0\0\0\0Hello", Fault::Masked),
            (b"\x81\x7e\x00\x7d", Fault::Length),
            (b"\x81\x7f\0\0\0\0\0\0\xff\xff", Fault::Length),
            (b"\x81\x7f\x80\0\0\0\0\0\0\0", Fault::Length),
            (b"\x09\x00", Fault::Control),
            (b"\x89\x7e\x00\x7e", Fault::Control),
            (b"\x88\x01x", Fault::Control),
            (b"\x80\x00", Fault::Piece),
            (b"\x01\x00\x81\x00", Fault::Piece),
        ] {
            assert_eq!(in_pieces(text, 0), Err(fault), "{text:?}");
        }
    }

    #[test]
    fn a_flood_of_pings_does_not_accumulate() {
        let mut client = Client::default();
        for _ in 0..10_000 {
            assert_eq!(client.feed(b"\x89\x02hi"), Ok((4, None)));
        }
        assert!(client.pending().len() < PENDING_MAX_BYTES + 8);
    }

    #[test]
    fn no_bytes_end_in_a_panic() {
        let mut state = 7u32;
        for _ in 0..20_000 {
            let mut bytes = Vec::new();
            for _ in 0..12 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                bytes.push((state >> 24) as u8 & if state & 1 == 0 { 0x8f } else { 0xff });
            }
            let (mut client, mut rest) = (Client::default(), &bytes[..]);
            while let Ok((used, Some(_))) = client.feed(rest) {
                rest = &rest[used..];
            }
        }
    }
}
