//! A connection with a server that is simulated by bytes.

use load_http2::frame::{self, flag, kind, FrameHead, HEAD_BYTES, PREFACE};
use load_http2::{hpack, request, Client, Encoded, Event, Fault, Ignore, Sink};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

fn encoded(text: &[u8]) -> Encoded {
    let mut all = request::encode_all([text].into_iter(), "http").expect("a request");
    all.remove(0)
}

fn frame_of(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write(&mut out, kind, flags, stream, payload);
    out
}

fn settings(pairs: &[(u16, u32)]) -> Vec<u8> {
    let each = pairs
        .iter()
        .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat());
    frame_of(kind::SETTINGS, 0, 0, &each.collect::<Vec<u8>>())
}

fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        hpack::put_plain(name.as_bytes(), value.as_bytes(), &mut out);
    }
    out
}

fn head(stream: u32, status: &str, flags: u8) -> Vec<u8> {
    let block = block(&[(":status", status), ("server", "s")]);
    frame_of(kind::HEADERS, flag::END_HEADERS | flags, stream, &block)
}

/// A connection whose server has sent its settings.
fn settled(most: u32, pairs: &[(u16, u32)]) -> Client<u32> {
    let mut client = Client::new(most);
    assert!(client.pending().starts_with(PREFACE) && !client.has_room());
    assert_eq!(feed(&mut client, &settings(pairs)), Ok(Vec::new()));
    assert!(client.has_room());
    client.written(client.pending().len());
    client
}

fn feed(client: &mut Client<u32>, bytes: &[u8]) -> Result<Vec<Event<u32>>, Fault> {
    let mut events = Vec::new();
    client.feed(bytes, &mut events, &mut Ignore)?;
    Ok(events)
}

/// The frames that wait to be written.
fn written(client: &mut Client<u32>) -> Vec<(FrameHead, Vec<u8>)> {
    let (mut frames, mut rest) = (Vec::new(), client.pending());
    while let Some(head) = FrameHead::read(rest) {
        let end = HEAD_BYTES + head.length;
        frames.push((head, rest[HEAD_BYTES..end].to_vec()));
        rest = &rest[end..];
    }
    client.written(client.pending().len());
    frames
}

fn kinds(frames: &[(FrameHead, Vec<u8>)]) -> Vec<(u8, u32)> {
    frames
        .iter()
        .map(|(head, _)| (head.kind, head.stream))
        .collect()
}

fn answered(user: u32, status: u16, body_bytes: u64) -> (u32, u16, u64) {
    (user, status, body_bytes)
}

fn answers(events: &[Event<u32>]) -> Vec<(u32, u16, u64)> {
    let each = events.iter().map(|event| match *event {
        Event::Answered {
            user,
            status,
            body_bytes,
            ..
        } => (user, status, body_bytes),
        other => panic!("{other:?}"),
    });
    each.collect()
}

#[test]
fn responses_arrive_in_any_order_and_with_any_framing() {
    let mut client = settled(4, &[]);
    let get = encoded(GET);
    for user in 0..4 {
        client.request(&get, user);
    }
    assert!(!client.has_room());
    assert_eq!(
        kinds(&written(&mut client)),
        [(1, 1), (1, 3), (1, 5), (1, 7)]
    );
    let padded = [&[3u8][..], b"abcde", &[0; 3]].concat();
    let bytes = [
        head(7, "204", flag::END_STREAM),
        head(1, "103", 0),
        head(1, "200", 0),
        frame_of(kind::DATA, flag::PADDED, 1, &padded),
        head(3, "500", 0),
        frame_of(kind::DATA, flag::END_STREAM, 3, b""),
        frame_of(kind::DATA, 0, 1, b"fgh"),
        frame_of(
            kind::HEADERS,
            flag::END_HEADERS | flag::END_STREAM,
            1,
            &block(&[("t", "1")]),
        ),
    ]
    .concat();
    let events = feed(&mut client, &bytes).expect("well formed");
    let expected = [
        answered(3, 204, 0),
        answered(1, 500, 0),
        answered(0, 200, 8),
    ];
    assert_eq!(answers(&events), expected);
    assert_eq!(client.open(), 1);
}

#[test]
fn a_head_in_pieces_is_one_head() {
    let mut client = settled(1, &[]);
    client.request(&encoded(GET), 5);
    let whole = block(&[(":status", "200"), ("x-long", &"y".repeat(300))]);
    let bytes = [
        frame_of(kind::HEADERS, flag::END_STREAM, 1, &whole[..3]),
        frame_of(kind::CONTINUATION, 0, 1, &whole[3..100]),
        frame_of(kind::CONTINUATION, 0, 1, &whole[100..]),
        frame_of(kind::CONTINUATION, flag::END_HEADERS, 1, b""),
    ]
    .concat();
    assert_eq!(
        answers(&feed(&mut client, &bytes).expect("well formed")),
        [(5, 200, 0)]
    );
}

#[test]
fn a_script_sees_fields_and_body_of_the_final_response() {
    #[derive(Default)]
    struct Keep(Vec<String>);
    impl Sink for Keep {
        fn field(&mut self, _: usize, name: &[u8], value: &[u8]) {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            self.0.push(text(name) + "=" + &text(value));
        }
        fn body(&mut self, _: usize, piece: &[u8]) {
            self.0.push(String::from_utf8_lossy(piece).into_owned());
        }
    }
    let mut client = settled(1, &[]);
    client.request(&encoded(GET), 0);
    let bytes = [
        head(1, "103", 0),
        head(1, "200", 0),
        frame_of(kind::DATA, flag::END_STREAM, 1, b"abc"),
    ]
    .concat();
    let mut keep = Keep::default();
    client
        .feed(&bytes, &mut Vec::new(), &mut keep)
        .expect("well formed");
    assert_eq!(keep.0, ["server=s", "abc"]);
}

#[test]
fn a_body_goes_out_as_windows_allow() {
    let body = "z".repeat(100_000);
    let text = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n{body}");
    let mut client = settled(2, &[(4, 70_000)]);
    client.request(&encoded(text.as_bytes()), 0);
    let sent = |frames: &[(FrameHead, Vec<u8>)]| -> usize {
        let data = frames.iter().filter(|(head, _)| head.kind == kind::DATA);
        data.map(|(head, _)| head.length).sum()
    };
    // the connection's own window is the smaller one
    assert_eq!(sent(&written(&mut client)), 65_535);
    let more = |stream: u32, bytes: u32| frame_of(8, 0, stream, &bytes.to_be_bytes());
    feed(&mut client, &more(0, 100_000)).expect("well formed");
    assert_eq!(sent(&written(&mut client)), 70_000 - 65_535);
    feed(&mut client, &settings(&[(4, 80_000)])).expect("well formed");
    assert_eq!(sent(&written(&mut client)), 10_000);
    feed(&mut client, &more(1, 50_000)).expect("well formed");
    let frames = written(&mut client);
    assert_eq!(sent(&frames), 20_000);
    assert!(frames.last().expect("the last").0.has(flag::END_STREAM));
}

#[test]
fn an_early_response_ends_the_request() {
    let text = format!(
        "POST / HTTP/1.1\r\nContent-Length: 90000\r\n\r\n{}",
        "z".repeat(90_000)
    );
    let mut client = settled(1, &[]);
    client.request(&encoded(text.as_bytes()), 0);
    written(&mut client);
    let events = feed(&mut client, &head(1, "413", flag::END_STREAM)).expect("well formed");
    assert_eq!(answers(&events), [(0, 413, 0)]);
    assert_eq!(kinds(&written(&mut client)), [(kind::RST_STREAM, 1)]);
    assert!(client.has_room());
}

#[test]
fn the_servers_limits_are_obeyed() {
    let client = settled(100, &[(3, 2)]);
    assert_eq!(client.limit(), 2);
    // a decoder without a table gets one resize, then literals
    let mut client = settled(2, &[(1, 0)]);
    let get = encoded(GET);
    client.request(&get, 0);
    client.request(&get, 1);
    let frames = written(&mut client);
    assert_eq!(frames[0].1[0], 0x20);
    assert_eq!(frames[0].1[1..], get.plain);
    assert_eq!(frames[1].1, get.plain);
}

#[test]
fn a_window_that_shrinks_below_what_was_sent_is_made_up_for_first() {
    let body = "z".repeat(70_000);
    let text = format!("POST / HTTP/1.1\r\nContent-Length: 70000\r\n\r\n{body}");
    let mut client = settled(1, &[]);
    client.request(&encoded(text.as_bytes()), 0);
    written(&mut client);
    let more = |stream: u32, bytes: u32| frame_of(8, 0, stream, &bytes.to_be_bytes());
    // 65,535 bytes were sent: the window is now 1000 - 65,535
    let bytes = [more(0, 100_000), settings(&[(4, 1000)]), more(1, 64_535)].concat();
    feed(&mut client, &bytes).expect("well formed");
    assert_eq!(kinds(&written(&mut client)), [(kind::SETTINGS, 0)]);
    feed(&mut client, &more(1, 7)).expect("well formed");
    let frames = written(&mut client);
    assert_eq!(
        (kinds(&frames), frames[0].1.len()),
        (vec![(kind::DATA, 1)], 7)
    );
}

#[test]
fn a_table_that_shrinks_later_is_emptied_once_and_not_used_again() {
    let mut client = settled(4, &[]);
    let get = encoded(GET);
    for user in 0..2 {
        client.request(&get, user);
    }
    assert_eq!(written(&mut client)[1].1, get.later);
    for table in [100, 4096] {
        feed(&mut client, &settings(&[(1, table)])).expect("well formed");
    }
    for user in 2..4 {
        client.request(&get, user);
    }
    let frames = written(&mut client);
    let blocks = frames.iter().filter(|(head, _)| head.kind == kind::HEADERS);
    let blocks: Vec<_> = blocks.map(|(_, block)| block.clone()).collect();
    assert_eq!(
        blocks,
        [[&[0x20], &get.plain[..]].concat(), get.plain.clone()]
    );
}

#[test]
fn a_long_head_is_cut_into_frames() {
    let text = format!(
        "GET / HTTP/1.1\r\nX-Long: {}\r\n\r\n",
        "\x7f".repeat(40_000)
    );
    let mut client = settled(1, &[]);
    client.request(&encoded(text.as_bytes()), 0);
    let frames = written(&mut client);
    assert_eq!(kinds(&frames), [(1, 1), (9, 1), (9, 1)]);
    assert!(frames[0].0.has(flag::END_STREAM) && !frames[0].0.has(flag::END_HEADERS));
    assert!(frames[2].0.has(flag::END_HEADERS) && !frames[2].0.has(flag::END_STREAM));
}

#[test]
fn resets_and_goaway_end_only_their_streams() {
    let mut client = settled(4, &[]);
    let get = encoded(GET);
    for user in 0..4 {
        client.request(&get, user);
    }
    let slot = client.each().find(|(_, user)| *user == 2).expect("open").0;
    client.cancel(slot);
    let bytes = [
        frame_of(kind::RST_STREAM, 0, 1, &[0, 0, 0, 7]),
        frame_of(kind::GOAWAY, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0]),
        head(3, "200", flag::END_STREAM),
        // of the cancelled one
        head(5, "200", flag::END_STREAM),
    ]
    .concat();
    let events = feed(&mut client, &bytes).expect("well formed");
    assert_eq!(
        events[..2],
        [
            Event::Reset { user: 0, code: 7 },
            Event::Unprocessed { user: 3 }
        ]
    );
    assert_eq!(answers(&events[2..]), [(1, 200, 0)]);
    assert!(client.is_going() && !client.has_room() && client.open() == 0);
}

#[test]
fn pings_get_responses_and_floods_do_not() {
    let mut client = settled(1, &[]);
    let ping = frame_of(kind::PING, 0, 0, b"12345678");
    feed(&mut client, &ping).expect("well formed");
    let frames = written(&mut client);
    assert_eq!(frames[0].1, b"12345678");
    assert!(frames[0].0.has(flag::ACK));
    let flood = ping.repeat(2000);
    assert_eq!(feed(&mut client, &flood), Err(Fault::EnhanceYourCalm));
    assert!(client.pending().len() < 100_000);
    let mut client = settled(1, &[]);
    client.request(&encoded(GET), 0);
    let mut endless = frame_of(kind::HEADERS, 0, 1, b"");
    for _ in 0..400 {
        endless.extend(frame_of(kind::CONTINUATION, 0, 1, &[0x82; 1000]));
    }
    assert_eq!(feed(&mut client, &endless), Err(Fault::EnhanceYourCalm));
    let mut client = settled(1, &[]);
    client.request(&encoded(GET), 0);
    let empty = [
        frame_of(kind::HEADERS, 0, 1, b""),
        frame_of(kind::CONTINUATION, 0, 1, b""),
    ];
    assert_eq!(
        feed(&mut client, &empty.concat()),
        Err(Fault::EnhanceYourCalm)
    );
}

/// Counts the bytes of the fields that it is shown.
#[derive(Default)]
struct Sum(usize);

impl Sink for Sum {
    fn field(&mut self, _slot: usize, name: &[u8], value: &[u8]) {
        self.0 += name.len() + value.len();
    }
}

#[test]
fn a_short_block_that_names_a_long_field_over_and_over_is_refused() {
    let answer = |times: usize| {
        let mut bomb = block(&[(":status", "200")]);
        hpack::put_remembered(b"x-large", &[b'y'; 4000], &mut bomb);
        for _ in 0..times {
            hpack::put_indexed(hpack::DYNAMIC_FIRST, &mut bomb);
        }
        frame_of(kind::HEADERS, flag::END_HEADERS, 1, &bomb)
    };
    for (times, expected) in [(70, Ok(())), (12_000, Err(Fault::EnhanceYourCalm))] {
        let mut client = settled(1, &[]);
        client.request(&encoded(GET), 0);
        let mut sum = Sum::default();
        let fed = client.feed(&answer(times), &mut Vec::new(), &mut sum);
        assert_eq!(fed, expected, "{times}");
        assert!(sum.0 > 70 * 4000 && sum.0 < hpack::FIELDS_MAX + 5000);
    }
}

#[test]
fn a_head_as_long_as_over_http1_is_taken() {
    let long = "y".repeat(200 * 1024);
    let block = block(&[(":status", "200"), ("x-long", &long)]);
    let mut pieces = block.chunks(16_000).peekable();
    let first = pieces.next().expect("a long block");
    let mut bytes = frame_of(kind::HEADERS, flag::END_STREAM, 1, first);
    while let Some(piece) = pieces.next() {
        let end = if pieces.peek().is_none() {
            flag::END_HEADERS
        } else {
            0
        };
        bytes.extend(frame_of(kind::CONTINUATION, end, 1, piece));
    }
    let mut client = settled(1, &[]);
    client.request(&encoded(GET), 7);
    let events = feed(&mut client, &bytes).expect("well formed");
    assert_eq!(answers(&events), [(7, 200, 0)]);
}

#[test]
fn errors_of_the_connection_are_named() {
    let table: [(Vec<u8>, Fault); 13] = [
        (frame_of(kind::DATA, 0, 0, b"x"), Fault::Protocol),
        (frame_of(kind::DATA, 0, 9, b"x"), Fault::Protocol),
        (
            frame_of(kind::DATA, flag::PADDED, 1, &[5, 0]),
            Fault::Protocol,
        ),
        (
            frame_of(kind::HEADERS, flag::END_HEADERS, 2, b""),
            Fault::Protocol,
        ),
        (frame_of(kind::PUSH_PROMISE, 0, 1, &[0; 4]), Fault::Protocol),
        (frame_of(kind::CONTINUATION, 0, 1, b""), Fault::Protocol),
        (frame_of(kind::SETTINGS, 0, 1, b""), Fault::Protocol),
        (frame_of(kind::SETTINGS, 0, 0, b"12345"), Fault::FrameSize),
        (settings(&[(2, 1)]), Fault::Protocol),
        (settings(&[(4, 1 << 31)]), Fault::FlowControl),
        (
            frame_of(kind::WINDOW_UPDATE, 0, 0, &[0; 4]),
            Fault::Protocol,
        ),
        (frame_of(kind::PING, 0, 0, b"short"), Fault::FrameSize),
        (
            frame_of(kind::HEADERS, flag::END_HEADERS, 1, &[0xff]),
            Fault::Compression,
        ),
    ];
    for (bytes, fault) in table {
        let mut client = settled(1, &[]);
        client.request(&encoded(GET), 0);
        assert_eq!(feed(&mut client, &bytes), Err(fault), "{bytes:?}");
    }
    let mut client: Client<u32> = Client::new(1);
    let early = feed(&mut client, &frame_of(kind::PING, 0, 0, b"12345678"));
    assert_eq!(early, Err(Fault::Protocol), "before its settings");
    let long = [0, 0x40, 1, 0, 0, 0, 0, 0, 1];
    assert_eq!(feed(&mut settled(1, &[]), &long), Err(Fault::FrameSize));
}

#[test]
fn a_malformed_response_ends_only_its_stream() {
    let trailer = frame_of(kind::HEADERS, flag::END_HEADERS, 1, &block(&[("t", "1")]));
    let table = [
        frame_of(kind::DATA, flag::END_STREAM, 1, b"x"),
        head(1, "101", 0),
        head(1, "20", 0),
        head(1, "100", flag::END_STREAM),
        trailer.clone(),
        [head(1, "200", 0), trailer].concat(),
        [head(1, "200", 0), head(1, "200", 0)].concat(),
    ];
    for bytes in table {
        let mut client = settled(2, &[]);
        let get = encoded(GET);
        client.request(&get, 0);
        client.request(&get, 1);
        let events = feed(&mut client, &bytes).expect("no error of the connection");
        assert_eq!(events, [Event::Reset { user: 0, code: 1 }], "{bytes:?}");
        assert_eq!(client.open(), 1);
    }
}

#[test]
fn a_response_of_another_length_than_declared_is_malformed() {
    let told = |stream: u32, status: &str, length: &str, flags: u8| {
        let block = block(&[(":status", status), ("content-length", length)]);
        frame_of(kind::HEADERS, flag::END_HEADERS | flags, stream, &block)
    };
    let data = |stream, body: &[u8]| frame_of(kind::DATA, flag::END_STREAM, stream, body);
    let mut client = settled(9, &[]);
    let (get, head) = (encoded(GET), encoded(b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n"));
    for request in [&get, &get, &get, &get, &get, &head] {
        client.request(request, 7);
    }
    client.written(client.pending().len());
    let cut = [
        [told(1, "200", "5", 0), data(1, b"hell")].concat(),
        [told(3, "200", "5", 0), data(3, b"hello!")].concat(),
        told(5, "200", "5", flag::END_STREAM),
    ];
    for (bytes, stream) in cut.iter().zip([1, 3, 5]) {
        let events = feed(&mut client, bytes);
        assert_eq!(
            events,
            Ok(vec![Event::Reset { user: 7, code: 1 }]),
            "{stream}"
        );
        assert_eq!(kinds(&written(&mut client)), [(kind::RST_STREAM, stream)]);
    }
    let whole = [
        told(7, "304", "5", flag::END_STREAM),
        [told(9, "200", "5", 0), data(9, b"hello")].concat(),
        told(11, "200", "5", flag::END_STREAM),
    ];
    let events = feed(&mut client, &whole.concat()).expect("well formed");
    let expected = [
        answered(7, 304, 0),
        answered(7, 200, 5),
        answered(7, 200, 0),
    ];
    assert_eq!(answers(&events), expected);
}

#[test]
fn a_silent_server_gets_one_ping() {
    let mut client = settled(4, &[]);
    let get = encoded(GET);
    let first = client.request(&get, 1);
    client.written(client.pending().len());
    assert!(client.is_silent_since(first) && !client.has_asked_before(first));
    client.ask();
    client.ask();
    assert_eq!(kinds(&written(&mut client)), [(kind::PING, 0)]);
    let second = client.request(&get, 2);
    assert!(!client.has_asked_before(first) && client.has_asked_before(second));
    let answer = frame_of(kind::PING, flag::ACK, 0, &[0; 8]);
    assert_eq!(feed(&mut client, &answer), Ok(Vec::new()));
    assert!(!client.has_asked_before(second) && !client.is_silent_since(second));
}

#[test]
fn windows_are_given_back_with_the_padding_in_them() {
    const PAYLOAD: usize = 16 * 1024;
    let mut client = settled(1, &[]);
    client.request(&encoded(GET), 0);
    written(&mut client);
    feed(&mut client, &head(1, "200", 0)).expect("well formed");
    let mut payload = vec![0; PAYLOAD];
    payload[0] = 255;
    let data = frame_of(kind::DATA, flag::PADDED, 1, &payload);
    // RFC 9113, 6.1: all of the payload counts
    let frames = (1 << 30) / PAYLOAD;
    for number in 1..=frames {
        assert_eq!(feed(&mut client, &data), Ok(Vec::new()));
        assert_eq!(client.pending().is_empty(), number < frames, "{number}");
    }
    let updates = written(&mut client);
    assert_eq!(
        kinds(&updates),
        [(kind::WINDOW_UPDATE, 0), (kind::WINDOW_UPDATE, 1)]
    );
    let more = (1_u32 << 30).to_be_bytes();
    assert!(updates.iter().all(|(_, payload)| *payload == more));
    // of the body alone the length is known
    let end = frame_of(kind::DATA, flag::END_STREAM, 1, b"");
    let events = feed(&mut client, &end).expect("well formed");
    let body_bytes = frames * (PAYLOAD - 256);
    assert_eq!(answers(&events), [answered(0, 200, body_bytes as u64)]);
}
