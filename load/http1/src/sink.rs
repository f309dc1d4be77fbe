//! Receivers of the fields and the body of a response.

/// Receives the fields and the body of a response, for scripts that want to see them.
pub trait Sink {
    /// A header field or trailer, the name as received.
    fn header(&mut self, _name: &[u8], _value: &[u8]) {}
    /// A piece of the body.
    fn body(&mut self, _piece: &[u8]) {}
}

/// A sink for callers that only count.
pub struct Ignore;

impl Sink for Ignore {}
