//! Messages over UDP that come back: `udp://`. Each begins with a number, by which its echo is known:
//! datagrams may be lost, be late, come twice or in another order.

use super::echo::{first_messages, ANSWERED};
use super::{Bytes, Expired, Fault, InFlight, Protocol, RequestMeta};
use crate::plan::{Target, NUMBER_BYTES};
use crate::transport::Transport;
use load_http2::{Event, Sink};
use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::sync::Arc;

/// Carries datagrams.
pub struct EchoDatagrams {
    messages: Vec<Arc<[u8]>>,
    window: u32,
    /// The first number of the next socket: a late echo for the socket before it is a stray there.
    next: Cell<u64>,
}

impl EchoDatagrams {
    /// To these targets, with so many datagrams in flight from a socket.
    pub fn new(window: usize, targets: &[Target]) -> EchoDatagrams {
        EchoDatagrams {
            messages: first_messages(targets),
            window: window as u32,
            next: Cell::new(1),
        }
    }
}

/// A datagram in flight, or a place for one.
#[derive(Clone, Copy, Default)]
struct Slot {
    /// 0 if the place is free.
    number: u64,
    asked: RequestMeta,
}

/// The datagrams in flight from one socket.
pub struct Datagrams {
    slots: Box<[Slot]>,
    limit: u32,
    open: u32,
    next: u64,
    strays: u64,
    message_bytes: usize,
    /// Whole datagrams, one behind the other.
    out: Vec<u8>,
    /// So many bytes of these have been written.
    sent: usize,
}

impl Datagrams {
    fn new(message_bytes: usize, limit: u32, next: u64) -> Datagrams {
        // half of the places are always free, so a free one is near
        let places = (limit as usize * 2).next_power_of_two();
        Datagrams {
            slots: vec![Slot::default(); places].into(),
            limit,
            open: 0,
            next,
            strays: 0,
            message_bytes,
            out: Vec::new(),
            sent: 0,
        }
    }

    fn place(&self, number: u64) -> usize {
        number as usize & (self.slots.len() - 1)
    }

    fn answered(&mut self, datagram: &[u8]) -> Option<RequestMeta> {
        let number = u64::from_be_bytes(*datagram.first_chunk::<NUMBER_BYTES>()?);
        let place = self.place(number);
        let slot = &mut self.slots[place];
        if number == 0 || slot.number != number {
            return None;
        }
        slot.number = 0;
        self.open -= 1;
        Some(slot.asked)
    }
}

impl InFlight for Datagrams {
    type Request = Arc<[u8]>;

    fn requests(target: &Target) -> io::Result<Vec<Arc<[u8]>>> {
        Ok(target.messages())
    }

    fn limit(&self) -> u32 {
        self.limit
    }

    fn open(&self) -> u32 {
        self.open
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.open < self.limit
    }

    fn places(&self) -> usize {
        self.slots.len()
    }

    fn each(&self) -> Vec<(usize, RequestMeta)> {
        let taken = self.slots.iter().enumerate();
        taken
            .filter(|(_, slot)| slot.number != 0)
            .map(|(place, slot)| (place, slot.asked))
            .collect()
    }

    fn request(&mut self, request: &Arc<[u8]>, asked: RequestMeta) {
        while self.slots[self.place(self.next)].number != 0 {
            self.next += 1;
        }
        let (number, place) = (self.next, self.place(self.next));
        self.slots[place] = Slot { number, asked };
        self.next += 1;
        self.open += 1;
        self.out.extend_from_slice(&number.to_be_bytes());
        self.out.extend_from_slice(&request[NUMBER_BYTES..]);
    }

    /// One read is one datagram.
    fn feed(
        &mut self,
        datagram: &[u8],
        events: &mut Vec<Event<RequestMeta>>,
        _sink: &mut impl Sink,
    ) -> Result<(), Fault> {
        match self.answered(datagram) {
            Some(user) => events.push(Event::Answered {
                slot: 0,
                user,
                status: ANSWERED,
                call: None,
                body_bytes: datagram.len() as u64,
            }),
            None => self.strays += 1,
        }
        Ok(())
    }

    fn has_pending(&self) -> bool {
        self.sent < self.out.len()
    }

    fn expire(&mut self, slots: &[usize]) -> Expired {
        for place in slots {
            self.slots[*place].number = 0;
        }
        self.open -= slots.len() as u32;
        Expired::Alone
    }

    fn take_strays(&mut self) -> u64 {
        std::mem::take(&mut self.strays)
    }
}

impl Protocol for EchoDatagrams {
    type Session = Box<Datagrams>;
    type Client = Datagrams;
    const STREAMS: bool = true;
    const MESSAGES: bool = true;

    fn begin(&self, target: usize) -> Self::Session {
        /// Numbers of one socket; none has time for so many.
        const NUMBERS: u64 = 1 << 40;
        let first = self.next.get();
        self.next.set(first.wrapping_add(NUMBERS).max(1));
        let bytes = self.messages[target].len();
        Box::new(Datagrams::new(bytes, self.window, first))
    }

    #[inline]
    fn client(session: &mut Self::Session) -> Option<&mut Datagrams> {
        Some(session)
    }

    fn send_pending<T: Transport>(
        &self,
        session: &mut Self::Session,
        mut bytes: Bytes<'_, T>,
    ) -> io::Result<usize> {
        let own = &mut **session;
        let mut written = 0;
        while own.has_pending() {
            let one = &own.out[own.sent..own.sent + own.message_bytes];
            match bytes.write(one) {
                Ok(length) => written += length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // where there is always a rest, what was written would pile up
                    own.out.drain(..own.sent);
                    own.sent = 0;
                    return Ok(written);
                }
                Err(error) => return Err(error),
            }
            own.sent += own.message_bytes;
        }
        own.out.clear();
        own.sent = 0;
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use load_http2::Ignore;

    fn asked(request: u32) -> RequestMeta {
        RequestMeta {
            request,
            ..RequestMeta::default()
        }
    }

    fn message() -> Arc<[u8]> {
        vec![7; NUMBER_BYTES + 2].into()
    }

    /// Which requests were answered by a datagram.
    fn fed(own: &mut Datagrams, datagram: &[u8]) -> Vec<u32> {
        let mut events = Vec::new();
        own.feed(datagram, &mut events, &mut Ignore)
            .expect("it never fails");
        let answered = events.into_iter().map(|event| match event {
            Event::Answered { user, .. } => user.request,
            other => panic!("{other:?}"),
        });
        answered.collect()
    }

    #[test]
    fn echoes_are_known_in_any_order_and_count_once() {
        let mut own = Datagrams::new(message().len(), 3, 1);
        (0..3).for_each(|number| own.request(&message(), asked(number)));
        assert!(!own.has_room());
        let sent = own.out.clone();
        let each: Vec<&[u8]> = sent.chunks(message().len()).collect();
        assert_eq!(fed(&mut own, each[2]), [2]);
        assert_eq!(fed(&mut own, each[0]), [0]);
        assert_eq!(fed(&mut own, each[0]), [0u32; 0]);
        assert_eq!(fed(&mut own, b"short"), [0u32; 0]);
        assert_eq!((own.take_strays(), own.take_strays()), (2, 0));
        assert_eq!((own.open(), own.each().len()), (1, 1));
    }

    #[test]
    fn one_that_was_given_up_comes_too_late() {
        let mut own = Datagrams::new(message().len(), 2, 1);
        own.request(&message(), asked(0));
        let late = own.out.clone();
        let slots: Vec<usize> = own.each().into_iter().map(|(slot, _)| slot).collect();
        assert_eq!(own.expire(&slots), Expired::Alone);
        assert_eq!(own.open(), 0);
        own.request(&message(), asked(1));
        assert_eq!(fed(&mut own, &late), [0u32; 0]);
        assert_eq!(own.take_strays(), 1);
    }

    #[test]
    fn a_lost_datagram_keeps_its_place_while_others_pass() {
        let mut own = Datagrams::new(message().len(), 2, 1);
        own.request(&message(), asked(0));
        for number in 1..100 {
            own.out.clear();
            own.request(&message(), asked(number));
            let echo = own.out.clone();
            assert_eq!(fed(&mut own, &echo), [number]);
        }
        assert_eq!(own.each()[0].1.request, 0);
    }
}
