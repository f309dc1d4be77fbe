//! Messages over TCP that come back: `tcp://`. Answers have a size and no other mark, so they belong
//! to the messages in the order in which these were sent.

use super::{Bytes, Expired, Fault, InFlight, Protocol, RequestMeta};
use crate::plan::Target;
use crate::transport::Transport;
use load_http2::{Event, Sink};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::Arc;

/// A status where there is none: an answer is an answer.
pub(super) const ANSWERED: u16 = 200;

/// Carries messages over TCP.
pub struct EchoStream {
    messages: Vec<Arc<[u8]>>,
    /// Size of an answer where it is not that of the message.
    reply_bytes: Option<usize>,
    window: u32,
}

impl EchoStream {
    /// To these targets, with so many messages in flight on a connection.
    pub fn new(reply_bytes: Option<usize>, window: usize, targets: &[Target]) -> EchoStream {
        EchoStream {
            messages: first_messages(targets),
            reply_bytes,
            window: window as u32,
        }
    }
}

/// The one message of each target.
pub(super) fn first_messages(targets: &[Target]) -> Vec<Arc<[u8]>> {
    let first = |target: &Target| target.requests.first().map(|one| Arc::clone(&one.bytes));
    targets
        .iter()
        .map(|target| first(target).unwrap_or_default())
        .collect()
}

/// The messages in flight on one connection, the oldest first.
pub struct Window {
    message: Arc<[u8]>,
    reply_bytes: usize,
    /// Answers are compared with the message: they have its size.
    is_echo: bool,
    limit: u32,
    asked: VecDeque<RequestMeta>,
    /// Bytes of the answer to the oldest one that have come.
    come: usize,
    out: Vec<u8>,
    /// So many of these have been written.
    sent: usize,
}

impl Window {
    fn new(message: Arc<[u8]>, reply_bytes: Option<usize>, limit: u32) -> Window {
        Window {
            reply_bytes: reply_bytes.unwrap_or(message.len()),
            is_echo: reply_bytes.is_none(),
            message,
            limit,
            asked: VecDeque::with_capacity(limit as usize),
            come: 0,
            out: Vec::new(),
            sent: 0,
        }
    }

    fn written(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        } else if self.sent > self.out.len() / 2 {
            // where there is always a rest, what was written would pile up; fewer bytes move than were
            // written since the last time
            self.out.drain(..self.sent);
            self.sent = 0;
        }
    }
}

impl InFlight for Window {
    type Request = Arc<[u8]>;

    fn requests(target: &Target) -> io::Result<Vec<Arc<[u8]>>> {
        Ok(target.messages())
    }

    fn limit(&self) -> u32 {
        self.limit
    }

    fn open(&self) -> u32 {
        self.asked.len() as u32
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.asked.len() < self.limit as usize
    }

    fn places(&self) -> usize {
        self.limit as usize
    }

    fn each(&self) -> Vec<(usize, RequestMeta)> {
        self.asked.iter().copied().enumerate().collect()
    }

    fn request(&mut self, request: &Arc<[u8]>, asked: RequestMeta) {
        self.out.extend_from_slice(request);
        self.asked.push_back(asked);
    }

    fn feed(
        &mut self,
        mut bytes: &[u8],
        events: &mut Vec<Event<RequestMeta>>,
        _sink: &mut impl Sink,
    ) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let Some(&user) = self.asked.front() else {
                return Err(Fault::Echo);
            };
            let here = bytes.len().min(self.reply_bytes - self.come);
            let (piece, rest) = bytes.split_at(here);
            if self.is_echo && *piece != self.message[self.come..self.come + here] {
                return Err(Fault::Echo);
            }
            (self.come, bytes) = (self.come + here, rest);
            if self.come == self.reply_bytes {
                self.come = 0;
                self.asked.pop_front();
                events.push(Event::Answered {
                    slot: 0,
                    user,
                    status: ANSWERED,
                    call: None,
                    body_bytes: self.reply_bytes as u64,
                });
            }
        }
        Ok(())
    }

    fn has_pending(&self) -> bool {
        self.sent < self.out.len()
    }

    fn expire(&mut self, _slots: &[usize]) -> Expired {
        Expired::Together
    }
}

impl Protocol for EchoStream {
    type Session = Box<Window>;
    type Client = Window;
    const STREAMS: bool = true;
    const MESSAGES: bool = true;

    fn begin(&self, target: usize) -> Self::Session {
        let message = Arc::clone(&self.messages[target]);
        Box::new(Window::new(message, self.reply_bytes, self.window))
    }

    #[inline]
    fn client(session: &mut Self::Session) -> Option<&mut Window> {
        Some(session)
    }

    #[inline]
    fn send_pending<T: Transport>(
        &self,
        session: &mut Self::Session,
        mut bytes: Bytes<'_, T>,
    ) -> io::Result<usize> {
        if !session.has_pending() {
            return Ok(0);
        }
        match bytes.write(&session.out[session.sent..]) {
            Ok(length) => {
                session.written(length);
                Ok(length)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error),
        }
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

    fn window(reply_bytes: Option<usize>) -> Window {
        let mut window = Window::new(b"abc"[..].into(), reply_bytes, 2);
        let message = Arc::clone(&window.message);
        (0..2).for_each(|number| window.request(&message, asked(number)));
        window
    }

    /// Which requests were answered by what came.
    fn fed(window: &mut Window, bytes: &[u8]) -> Result<Vec<u32>, Fault> {
        let mut events = Vec::new();
        window.feed(bytes, &mut events, &mut Ignore)?;
        let answered = events.into_iter().map(|event| match event {
            Event::Answered { user, .. } => user.request,
            other => panic!("{other:?}"),
        });
        Ok(answered.collect())
    }

    #[test]
    fn answers_cut_anywhere_belong_to_the_messages_in_their_order() {
        let mut own = window(None);
        assert_eq!(
            (own.out.as_slice(), own.has_room()),
            (&b"abcabc"[..], false)
        );
        assert_eq!(fed(&mut own, b"a"), Ok(vec![]));
        assert_eq!(fed(&mut own, b"bcabc"), Ok(vec![0, 1]));
        assert!(own.has_room() && own.each().is_empty());
    }

    #[test]
    fn messages_that_were_written_are_not_kept() {
        let mut own = window(None);
        for number in 2..1000 {
            // the second one is never written whole before the first one's echo makes room for another
            own.written(3);
            assert_eq!(fed(&mut own, b"abc"), Ok(vec![number - 2]));
            let message = Arc::clone(&own.message);
            own.request(&message, asked(number));
            assert_eq!(&own.out[own.sent..], b"abcabc");
        }
        assert!(own.out.len() <= 4 * 3, "{}", own.out.len());
    }

    #[test]
    fn other_bytes_than_the_echo_end_the_connection() {
        assert_eq!(fed(&mut window(None), b"abd"), Err(Fault::Echo));
        assert_eq!(fed(&mut window(None), b"abcabca"), Err(Fault::Echo));
        assert_eq!(fed(&mut window(Some(2)), b"xxyy"), Ok(vec![0, 1]));
    }
}
