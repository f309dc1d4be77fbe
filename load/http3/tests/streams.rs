//! The streams of a server, written by hand as RFC 9114 and RFC 9204 have them: what they mean at every
//! cut, and which error each mistake is.

use load_http2::{Ignore, Sink};
use load_http3::{Answer, Fault, Response, Server, ServerStream};

/// HEADERS with `:status: 200` (static 25).
const OK: &[u8] = b"\x01\x03\0\0\xd9";

/// The meaning of a response in two pieces.
fn answered(bytes: &[u8], cut: usize, sink: &mut impl Sink) -> Result<Answer, Fault> {
    let mut response = Response::new(false);
    let (one, two) = bytes.split_at(cut);
    let mut scratch = Vec::new();
    response.feed(one, &mut scratch, 3, sink)?;
    response.feed(two, &mut scratch, 3, sink)?;
    response.end()
}

/// The same at every cut.
fn answer(bytes: &[u8]) -> Result<Answer, Fault> {
    let whole = answered(bytes, 0, &mut Ignore);
    for cut in 0..=bytes.len() {
        assert_eq!(answered(bytes, cut, &mut Ignore), whole, "cut at {cut}");
    }
    whole
}

fn ok(body_bytes: u64) -> Result<Answer, Fault> {
    Ok(Answer {
        status: 200,
        call: None,
        body_bytes,
    })
}

/// What a script would see.
#[derive(Default)]
struct Seen(Vec<String>);

impl Sink for Seen {
    fn field(&mut self, slot: usize, name: &[u8], value: &[u8]) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.0
            .push(format!("{slot} {}={}", text(name), text(value)));
    }

    fn body(&mut self, slot: usize, piece: &[u8]) {
        self.0
            .push(format!("{slot} {}", String::from_utf8_lossy(piece)));
    }
}

#[test]
fn bodies_come_in_any_number_of_frames() {
    assert_eq!(answer(OK), ok(0));
    assert_eq!(answer(&[OK, b"\0\x05hello"].concat()), ok(5));
    let many = [OK, b"\0\x01h", b"\0\0", b"\0\x40\x04ello", b"\0\0"].concat();
    assert_eq!(answer(&many), ok(5));
}

#[test]
fn what_is_unknown_is_ignored_everywhere() {
    // types that are reserved for this purpose (RFC 9114, 7.2.8): 0x21 and 0x5f, the latter in two bytes
    let grease = [&b"\x21\x03abc"[..], b"\x40\x5f\0"].concat();
    let bytes = [&grease[..], OK, &grease, b"\0\x01h", &grease].concat();
    assert_eq!(answer(&bytes), ok(1));
}

#[test]
fn interim_responses_and_trailers_belong_to_the_response() {
    // `:status: 103` is static 24; x-a=1 and grpc-status=0 are literal
    let interim = &b"\x01\x08\0\0\xd8\x23x-e\x00"[..];
    let trailers = b"\x01\x11\0\0\x27\x04grpc-status\x010";
    let bytes = [interim, OK, b"\0\x02ok", trailers].concat();
    let mut seen = Seen::default();
    let expected = Answer {
        status: 200,
        call: Some(0),
        body_bytes: 2,
    };
    assert_eq!(answered(&bytes, 0, &mut seen), Ok(expected));
    assert_eq!(seen.0, ["3 ok", "3 grpc-status=0"]);
    assert_eq!(answer(&bytes), Ok(expected));
}

#[test]
fn a_declared_length_is_that_of_the_body() {
    // content-length is static 4 by name: 0101 0100, then the value
    let head = &b"\x01\x06\0\0\xd9\x54\x012"[..];
    assert_eq!(answer(&[head, b"\0\x02ab"].concat()), ok(2));
    assert_eq!(answer(&[head, b"\0\x01a"].concat()), Err(Fault::Message));
    let mut to_head = Response::new(true);
    to_head
        .feed(head, &mut Vec::new(), 0, &mut Ignore)
        .expect("well formed");
    assert_eq!(to_head.end(), ok(0), "to HEAD");
}

#[test]
fn mistakes_of_a_response_each_have_their_error() {
    let trailers = b"\x01\x02\0\0";
    let table: [(&[&[u8]], Fault); 13] = [
        (&[], Fault::Message),
        (&[b"\x01\x03\0\0\xd8"], Fault::Message), // an interim response alone
        (&[b"\x01\x02\0\0"], Fault::Message),     // a head without a status
        (&[OK, OK], Fault::Message),
        (&[b"\0\x01h"], Fault::FrameUnexpected),
        (&[OK, trailers, b"\0\x01h"], Fault::FrameUnexpected),
        (&[OK, trailers, trailers], Fault::FrameUnexpected),
        (&[b"\x04\0"], Fault::FrameUnexpected),     // SETTINGS
        (&[OK, b"\x06\0"], Fault::FrameUnexpected), // PING of HTTP/2
        (&[b"\x05\x01\0"], Fault::Id),              // PUSH_PROMISE
        (&[OK, b"\0\x02h"], Fault::Frame),          // cut off
        (&[b"\x01\x80\x04\xb0\x01"], Fault::ExcessiveLoad),
        (&[b"\x01\x03\0\0\x80"], Fault::Decompression),
    ];
    for (frames, fault) in table {
        assert_eq!(answer(&frames.concat()), Err(fault), "{frames:?}");
    }
}

/// What a server said on some streams, each of which has ended or not.
fn said(streams: &[&[u8]], ends: bool) -> Result<Server, Fault> {
    let mut server = Server::default();
    for bytes in streams {
        let mut stream = ServerStream::default();
        // cut at every byte
        for one in bytes.chunks(1) {
            server.feed(&mut stream, one)?;
        }
        if ends {
            server.ended(&stream)?;
        }
    }
    Ok(server)
}

fn fault(streams: &[&[u8]]) -> Option<Fault> {
    said(streams, false).err()
}

#[test]
fn settings_and_goaway_are_read_on_the_control_stream() {
    // a setting of QPACK, one of WebTransport in four bytes, one that is reserved for nothing
    let settings = b"\x00\x04\x09\x01\x10\x80\x00\x33\x33\x01\x21\x00";
    let server = said(&[settings], false).expect("well formed");
    assert!(server.is_settled() && server.going().is_none());
    let server = said(
        &[b"\0\x04\0\x21\x02ab\x07\x01\x08", b"\x02\x20", b"\x03"],
        false,
    );
    assert_eq!(server.expect("well formed").going(), Some(8));
    let twice = said(&[b"\0\x04\0\x07\x01\x08\x07\x01\x04"], false);
    assert_eq!(twice.expect("fewer than before").going(), Some(4));
}

#[test]
fn streams_of_unknown_types_mean_nothing_and_may_end() {
    assert!(said(&[b"\x40\x54abc", b"\x21", b"\x40", b""], true).is_ok());
    let mut stream = ServerStream::default();
    let mut server = Server::default();
    server.feed(&mut stream, b"\x21").expect("any type");
    assert!(stream.is_ignored());
}

#[test]
fn mistakes_on_the_servers_streams_each_have_their_error() {
    let table: [(&[&[u8]], Fault); 18] = [
        (&[b"\0\x04\0", b"\0"], Fault::StreamCreation),
        (&[b"\x02", b"\x02"], Fault::StreamCreation),
        (&[b"\x01\0"], Fault::Id), // a push stream
        (&[b"\0\x07\x01\0"], Fault::MissingSettings),
        (&[b"\0\x21\0"], Fault::MissingSettings), // even before an unknown frame
        (&[b"\0\x04\0\x04\0"], Fault::FrameUnexpected),
        (&[b"\0\x04\0\0\x01h"], Fault::FrameUnexpected), // DATA
        (&[b"\0\x04\0\x01\0"], Fault::FrameUnexpected),  // HEADERS
        (&[b"\0\x04\0\x0d\x01\0"], Fault::FrameUnexpected), // MAX_PUSH_ID
        (&[b"\0\x04\0\x08\0"], Fault::FrameUnexpected),  // WINDOW_UPDATE of HTTP/2
        (&[b"\0\x04\0\x03\x01\0"], Fault::Id),           // CANCEL_PUSH
        (&[b"\0\x04\0\x07\x01\x02"], Fault::Id),         // not a request's stream
        (&[b"\0\x04\0\x07\x01\x04\x07\x01\x08"], Fault::Id), // more than before
        (&[b"\0\x04\0\x07\x02\x04\0"], Fault::Frame),
        (&[b"\0\x04\x02\x02\0"], Fault::Settings), // ENABLE_PUSH of HTTP/2
        (&[b"\0\x04\x01\x01"], Fault::Frame),      // half a setting
        (&[b"\x02\x3f\xe1\x1f"], Fault::EncoderStream), // a table of 4,096 bytes
        (&[b"\x03\x80"], Fault::DecoderStream),    // a block that refers to no table
    ];
    for (streams, expected) in table {
        assert_eq!(fault(streams), Some(expected), "{streams:?}");
    }
    // streams that it will not read, the second with a number of three bytes
    assert_eq!(fault(&[b"\x03\x44\x7f\x80\x01\x44"]), None);
    for critical in [&b"\0\x04\0"[..], b"\x02", b"\x03"] {
        let ended = said(&[critical], true).err();
        assert_eq!(ended, Some(Fault::ClosedCriticalStream));
    }
}

#[test]
fn no_bytes_make_it_panic() {
    // a generator of numbers (xorshift), so that a failure comes again
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // small values are types and lengths more often than not
        (state >> 33) as u8 & if state & 1 == 0 { 0x0f } else { 0xff }
    };
    for _ in 0..5_000 {
        let bytes: Vec<u8> = (0..40).map(|_| byte()).collect();
        let _ = answer(&bytes);
        let _ = said(&[&bytes], true);
        let _ = said(&[&[&b"\0\x04\0"[..], &bytes].concat()], true);
        let with_head = [OK, &bytes[..]].concat();
        let _ = answer(&with_head);
    }
}
