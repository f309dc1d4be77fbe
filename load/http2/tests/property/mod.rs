//! Properties that hold for any bytes; used by the corpus test and by the fuzz targets.

use load_http2::hpack::{self, Decoder};
use load_http2::{huffman, request, Client, Event, Fault, Ignore};

/// The meaning of a server's bytes: the fate of eight requests, and the error that ended the
/// connection.
type Meaning = (Vec<Event<u32>>, Option<Fault>, Vec<u8>);

fn read(pieces: &[&[u8]]) -> Meaning {
    let text = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc";
    let encoded = request::encode_one(text, "http").expect("a request");
    let mut client: Client<u32> = Client::new(8);
    let mut events = Vec::new();
    // the first frame of every server
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    client
        .feed(&settings, &mut events, &mut Ignore)
        .expect("well formed");
    for user in 0..8 {
        client.request(&encoded, user);
    }
    let mut fault = None;
    for piece in pieces {
        if let Err(found) = client.feed(piece, &mut events, &mut Ignore) {
            fault = Some(found);
            break;
        }
    }
    assert!(
        client.open() as usize + events.len() == 8,
        "each request ends exactly once"
    );
    (events, fault, client.pending().to_vec())
}

/// Two pieces mean the same as the whole.
pub fn cut_anywhere_it_means_the_same(bytes: &[u8], cut: usize) {
    let (one, two) = bytes.split_at(cut.min(bytes.len()));
    assert_eq!(read(&[one, two]), read(&[bytes]));
}

/// Any bytes are valid blocks or are rejected; decoded blocks can be encoded again with the same
/// result.
pub fn blocks_are_read_or_refused(bytes: &[u8]) {
    let mut decoder = Decoder::default();
    let (mut again, mut fields) = (Vec::new(), Vec::new());
    let read = decoder.decode(bytes, |name, value| {
        hpack::put_plain(name, value, &mut again);
        fields.push((name.to_vec(), value.to_vec()));
    });
    if read.is_err() {
        return;
    }
    let mut same = Vec::new();
    Decoder::default()
        .decode(&again, |name, value| {
            same.push((name.to_vec(), value.to_vec()))
        })
        .expect("our own");
    assert_eq!(fields, same);
}

/// Any text survives encoding and decoding.
pub fn texts_come_back(bytes: &[u8]) {
    let (mut code, mut text) = (Vec::new(), Vec::new());
    huffman::encode(bytes, &mut code);
    assert_eq!(code.len(), huffman::encoded_len(bytes));
    huffman::decode(&code, &mut text).expect("our own");
    assert_eq!(text, bytes);
    // any bytes are a code or are rejected
    let _ = huffman::decode(bytes, &mut text);
}
