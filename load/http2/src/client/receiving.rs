//! Receives the server's frames: responses, resets, settings.

use super::{Client, Event, Reading};
use super::{BLOCK_MAX, CANCEL, PROTOCOL_ERROR, REPLIES_MAX, RETURN_BYTES};
use crate::fault::Fault;
use crate::frame::{self, flag, kind, FrameHead};
use crate::hpack::TABLE_MAX;
use crate::settings::WINDOW_MAX;
use crate::streams::Sink;
use crate::value::{self, NO_LENGTH};
use alloc::vec::Vec;

impl<U: Copy + Default> Client<U> {
    /// The start of a DATA frame: how many bytes of it were used; nothing if more must arrive.
    #[inline]
    pub(super) fn data_begins(
        &mut self,
        head: FrameHead,
        rest: &[u8],
    ) -> Result<Option<usize>, Fault> {
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
        if used > 0 {
            if let Some(slot) = self.streams.find(head.stream) {
                self.count_payload(slot, used + padding);
            }
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
    pub(super) fn data_goes_on<S: Sink>(
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
        // it may have been cancelled, and its slot reused, since the frame began
        let slot = self.streams.find(stream);
        let taken = rest.len().min(body);
        let passed = (rest.len() - taken).min(padding);
        if let Some(slot) = slot.filter(|_| taken > 0) {
            self.streams.at(slot).body_bytes += taken as u64;
            self.count_payload(slot, taken);
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

    /// Payload of DATA frames, padding included, takes from the stream's window (RFC 9113, 6.1).
    #[inline]
    fn count_payload(&mut self, slot: usize, bytes: usize) {
        let stream = self.streams.at(slot);
        stream.received += bytes as u64;
        if stream.received >= RETURN_BYTES {
            let (id, more) = (stream.id, (stream.received as u32).to_be_bytes());
            stream.received = 0;
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

    /// The response on a stream is complete.
    #[inline]
    fn answered(&mut self, slot: usize, events: &mut Vec<Event<U>>) {
        let stream = self.streams.at(slot);
        if stream.is_cut() {
            self.refuse(slot, events);
            return;
        }
        events.push(Event::Answered {
            slot,
            user: stream.user,
            status: stream.status,
            call: stream.call,
            body_bytes: stream.body_bytes,
        });
        if stream.upload.is_some() {
            // the server does not need the rest of the request
            self.reset(slot, CANCEL);
        } else {
            self.streams.end(slot);
        }
    }

    /// The response on a stream is malformed.
    fn refuse(&mut self, slot: usize, events: &mut Vec<Event<U>>) {
        let user = self.streams.at(slot).user;
        events.push(Event::Reset {
            user,
            code: PROTOCOL_ERROR.into(),
        });
        self.reset(slot, PROTOCOL_ERROR);
    }

    /// Processes a frame of another type than DATA.
    pub(super) fn take<S: Sink>(
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
        // empty frames could go on forever; only the last one may be empty
        let is_idle = payload.is_empty() && !head.has(flag::END_HEADERS);
        if self.block.len() + payload.len() > BLOCK_MAX || is_idle {
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

    /// A complete header block: of a response, of an interim response, or trailers.
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
        let (mut status, mut is_first, mut call) = (0u16, true, None);
        let mut content_length = NO_LENGTH;
        if let (true, Some(slot)) = (S::SEES, slot) {
            if self.streams.at(slot).status == 0 {
                sink.begin(slot);
            }
        }
        // blocks of streams that are gone change the table too
        self.decoder.decode(block, |name, text| {
            if is_first && name == b":status" {
                status = value::status(text);
            }
            is_first = false;
            match name {
                b"grpc-status" => call = Some(value::call_status(text)),
                b"content-length" => content_length = value::length(text),
                _ => {}
            }
            if let (true, Some(slot)) = (S::SEES && (status == 0 || status >= 200), slot) {
                if !name.starts_with(b":") {
                    sink.field(slot, name, text);
                }
            }
        })?;
        let Some(slot) = slot else { return Ok(()) };
        let stream = self.streams.at(slot);
        stream.call = call.or(stream.call);
        let is_trailer = stream.status != 0;
        let fits = match status {
            0 => is_trailer && ends,
            // an interim response neither ends a stream nor follows the final one; 101 is HTTP/1 only
            100..=199 => !is_trailer && !ends && status != 101,
            200..=999 => !is_trailer,
            _ => false,
        };
        if !fits {
            self.refuse(slot, events);
            return Ok(());
        }
        if status >= 200 {
            (stream.status, stream.content_length) = (status, content_length);
        }
        if ends {
            self.answered(slot, events);
        }
        Ok(())
    }

    fn take_reset(&mut self, id: u32, code: u32, events: &mut Vec<Event<U>>) {
        if let Some(slot) = self.streams.find(id) {
            let user = self.streams.at(slot).user;
            let code = code.into();
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

    /// Responds to SETTINGS or PING, within a limit for a server that does not read.
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

/// A payload of one number.
fn number(payload: &[u8]) -> Result<u32, Fault> {
    let octets: [u8; 4] = payload.try_into().map_err(|_| Fault::FrameSize)?;
    Ok(u32::from_be_bytes(octets))
}
