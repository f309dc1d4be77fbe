//! The heads that answers are recognised by: one for each request where these are not too many, so
//! that URLs that alternate do not drive each other out.

use super::connection::{Connection, Pieces};
use super::recorder::Recorder;
use crate::plan::Target;
use load_http1::{Head, Ignore, Malformed, Parser, Progress, Recognised, Template};

/// Most heads that are kept.
const TEMPLATES_MAX: usize = 1024;
/// Of so many answers one takes the full path although the template knows it.
const AUDIT_EVERY: u32 = 1024;

/// One head for each request, or one for all.
pub(super) struct Templates {
    all: Vec<Template>,
    /// Number of each target's first one; empty if there is one for all.
    first: Vec<u32>,
    /// Whether answers may be recognised by them.
    pub are_usable: bool,
    until_audit: u32,
}

impl Templates {
    /// For the requests of these targets; nothing is known yet. Where requests vary or answers are
    /// kept, every answer takes the full path.
    pub fn of(targets: &[Target], is_full_path: bool) -> Templates {
        let mut first = Vec::with_capacity(targets.len());
        let mut count = 0;
        for target in targets {
            first.push(count as u32);
            count += target.requests.len();
        }
        if count == 1 || count > TEMPLATES_MAX {
            (first, count) = (Vec::new(), 1);
        }
        let all = (0..count).map(|_| Template::default()).collect();
        let mut templates = Templates {
            all,
            first,
            are_usable: false,
            until_audit: 0,
        };
        templates.are_usable = !is_full_path && templates.fit(targets);
        templates
    }

    /// Which head an answer to a request has.
    #[inline]
    fn place(&self, target: u16, request: u32) -> usize {
        if self.first.is_empty() {
            return 0;
        }
        (self.first[usize::from(target)] + request) as usize
    }

    /// The head that the next answer on a connection begins with, if it is a known one and it is not
    /// the turn of the full path.
    #[inline]
    pub fn recognise<S>(&self, connection: &Connection<S>, bytes: &[u8]) -> Option<Recognised> {
        let is_simple = self.are_usable && connection.in_flight > 0 && connection.between_answers();
        if !is_simple || self.until_audit == 0 {
            return None;
        }
        let place = self.place(connection.target, connection.request);
        self.all[place].recognise(bytes)
    }

    /// An answer that was recognised does without the full path.
    #[inline]
    pub fn note_used(&mut self) {
        self.until_audit -= 1;
    }

    /// The full path: takes bytes of the answer that a connection reads, which is kept if
    /// `keeps_answers`, and learns its head.
    pub fn parse<S>(
        &mut self,
        connection: &mut Connection<S>,
        input: &[u8],
        keeps_answers: bool,
        recorder: &mut Recorder,
    ) -> Result<Progress, Malformed> {
        if connection.in_flight == 0 {
            return Err(Malformed::Unasked);
        }
        let audit = self.until_audit == 0;
        let place = self.place(connection.target, connection.request);
        let template = &mut self.all[place];
        let expected = if audit && connection.between_answers() {
            template.recognise(input).filter(|known| !known.is_chunked)
        } else {
            None
        };
        self.until_audit = AUDIT_EVERY;
        let mut heads = 0;
        let mut learn = |head: &Head, bytes: &[u8]| {
            heads += 1;
            template.learn(head, bytes);
        };
        let head_only = connection.head_only;
        let progress = if keeps_answers {
            let Pieces { parser, answer, .. } = connection.pieces();
            let answer = answer.get_or_insert_default();
            parser.feed(input, head_only, &mut **answer, &mut learn)?
        } else if let Some(pieces) = &mut connection.pieces {
            pieces
                .parser
                .feed(input, head_only, &mut Ignore, &mut learn)?
        } else {
            let mut parser = Parser::default();
            let progress = parser.feed(input, head_only, &mut Ignore, &mut learn)?;
            if !parser.at_start() {
                connection.pieces().parser = parser;
            }
            progress
        };
        if let (Some(expected), Progress::Done(_, done)) = (expected, progress) {
            if expected.done != done && heads > 0 {
                self.are_usable = false;
                recorder.note(|| "a response was misread by the fast path; it is off now".into());
            }
        }
        Ok(progress)
    }

    /// Whether a head means the same for all requests that it is kept for: after HEAD the length is
    /// another thing than after GET.
    fn fit(&self, targets: &[Target]) -> bool {
        let requests = || targets.iter().flat_map(|target| &target.requests);
        let heads = requests().filter(|request| request.head_only).count();
        let is_shared = self.first.is_empty();
        let is_alike = !is_shared || heads == 0 || heads == requests().count();
        is_alike && requests().all(|request| request.mixed.is_none())
    }
}
