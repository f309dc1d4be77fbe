//! The streams of a connection: a ring of slots, found by the number of the stream.

use crate::value::{is_cut, NO_LENGTH};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Receives the fields and the bodies of responses, for scripts that use them.
pub trait Sink {
    /// Whether it uses anything.
    const SEES: bool = true;
    /// A response begins on a slot: what came before it there was of another one, which did not end.
    fn begin(&mut self, _slot: usize) {}
    /// A field of the response on a slot; pseudo-header fields are not passed.
    fn field(&mut self, _slot: usize, _name: &[u8], _value: &[u8]) {}
    /// A piece of the body.
    fn body(&mut self, _slot: usize, _piece: &[u8]) {}
}

/// A sink for callers that only count.
pub struct Ignore;

impl Sink for Ignore {
    const SEES: bool = false;
}

/// A body that waits for window updates.
#[derive(Debug)]
pub struct Upload {
    pub body: Arc<[u8]>,
    /// Bytes that have been sent.
    pub at: usize,
}

/// One stream, or a free slot.
#[derive(Debug)]
pub struct Stream<U> {
    /// Its number; 0 if the slot is free.
    pub id: u32,
    /// Status of its response; 0 until there is one.
    pub status: u16,
    /// `grpc-status` of its response or of its trailers.
    pub call: Option<u32>,
    /// Bytes of its response's body.
    pub body_bytes: u64,
    /// The length that its head declares, or [`NO_LENGTH`].
    pub content_length: u64,
    /// It responds to a HEAD request: no body follows, whatever length is declared.
    pub is_head: bool,
    /// Bytes of DATA frames without a window update yet.
    pub received: u64,
    /// Bytes of a request's body that may still be sent.
    pub window: i64,
    pub upload: Option<Box<Upload>>,
    /// The caller's value.
    pub user: U,
}

impl<U> Stream<U> {
    /// Whether the body's length differs from the declared one (RFC 9113, 8.1.1).
    #[inline]
    pub fn is_cut(&self) -> bool {
        let (declared, come) = (self.content_length, self.body_bytes);
        is_cut(declared, come, self.is_head, self.status)
    }
}

/// All streams of a connection.
#[derive(Debug)]
pub struct Streams<U> {
    slots: Box<[Stream<U>]>,
    /// The next number.
    next: u32,
    pub open: u32,
}

/// Numbers end here (RFC 9113, 5.1.1).
const ID_MAX: u32 = (1 << 31) - 1;

impl<U: Copy + Default> Streams<U> {
    /// Slots for `most` streams at once.
    pub fn new(most: u32) -> Streams<U> {
        // half of the slots are always free, so a free one is near
        let count = (most as usize * 2).next_power_of_two();
        let free = || Stream {
            id: 0,
            status: 0,
            call: None,
            body_bytes: 0,
            content_length: NO_LENGTH,
            is_head: false,
            received: 0,
            window: 0,
            upload: None,
            user: U::default(),
        };
        let slots: Vec<_> = (0..count).map(|_| free()).collect();
        Streams {
            slots: slots.into(),
            next: 1,
            open: 0,
        }
    }

    #[inline]
    fn slot_of(&self, id: u32) -> usize {
        (id >> 1) as usize & (self.slots.len() - 1)
    }

    /// The number of slots.
    pub fn places(&self) -> usize {
        self.slots.len()
    }

    /// Whether numbers are left.
    pub fn has_numbers(&self) -> bool {
        // some may be skipped
        self.next < ID_MAX - 4 * self.slots.len() as u32
    }

    /// The number of the next stream, or of one that is skipped before it.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// The number of the stream in a slot.
    pub fn id(&self, slot: usize) -> u32 {
        self.slots[slot].id
    }

    /// Whether a stream of this number was opened.
    pub fn has_begun(&self, id: u32) -> bool {
        id < self.next && id & 1 == 1
    }

    /// Opens a stream; returns its slot.
    #[inline]
    pub fn begin(&mut self, window: i64, user: U) -> usize {
        // a skipped number counts as closed (RFC 9113, 5.1.1)
        while self.slots[self.slot_of(self.next)].id != 0 {
            self.next += 2;
        }
        let slot = self.slot_of(self.next);
        self.slots[slot] = Stream {
            id: self.next,
            status: 0,
            call: None,
            body_bytes: 0,
            content_length: NO_LENGTH,
            is_head: false,
            received: 0,
            window,
            upload: None,
            user,
        };
        self.next += 2;
        self.open += 1;
        slot
    }

    /// The slot of an open stream.
    #[inline]
    pub fn find(&self, id: u32) -> Option<usize> {
        let slot = self.slot_of(id);
        (self.slots[slot].id == id && id != 0).then_some(slot)
    }

    #[inline]
    pub fn at(&mut self, slot: usize) -> &mut Stream<U> {
        &mut self.slots[slot]
    }

    /// Ends a stream.
    #[inline]
    pub fn end(&mut self, slot: usize) {
        let stream = &mut self.slots[slot];
        stream.id = 0;
        stream.upload = None;
        self.open -= 1;
    }

    /// All open streams, with their slots.
    pub fn each(&self) -> impl Iterator<Item = (usize, &Stream<U>)> {
        let open = self.slots.iter().enumerate();
        open.filter(|(_, stream)| stream.id != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_lived_stream_is_skipped_and_kept() {
        let mut streams: Streams<u32> = Streams::new(3);
        let long = streams.begin(0, 7);
        for number in 0..1000 {
            let slot = streams.begin(0, number);
            let id = streams.at(slot).id;
            assert_eq!(streams.find(id), Some(slot));
            assert_ne!(slot, long);
            streams.end(slot);
            assert_eq!(streams.find(id), None);
            assert!(
                streams.has_begun(id) && !streams.has_begun(id + 2) && !streams.has_begun(id + 1)
            );
        }
        assert_eq!(streams.find(1), Some(long));
        assert_eq!(
            streams
                .each()
                .map(|(_, stream)| stream.user)
                .collect::<Vec<_>>(),
            [7]
        );
        assert_eq!(streams.open, 1);
    }
}
