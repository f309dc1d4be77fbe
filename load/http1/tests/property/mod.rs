//! Properties that hold for any bytes; used by the corpus test and by the fuzz target.

use load_http1::request::count;
use load_http1::url::Url;
use load_http1::{Done, Ignore, Malformed, Parser, Progress, Template};

/// The meaning of a stream of bytes: its responses, and the error that ended it.
type Meaning = (Vec<Done>, Option<Malformed>);

/// Reads pieces as a connection does: unconsumed bytes are kept and passed again.
fn read(pieces: &[&[u8]]) -> Meaning {
    let mut parser = Parser::default();
    let mut kept: Vec<u8> = Vec::new();
    let mut answers = Vec::new();
    for piece in pieces {
        kept.extend_from_slice(piece);
        let mut used = 0;
        while used < kept.len() {
            match parser.feed(&kept[used..], false, &mut Ignore, &mut |_, _| {}) {
                Ok(Progress::Done(more, done)) => {
                    used += more;
                    answers.push(done);
                }
                Ok(Progress::More(more)) => {
                    used += more;
                    break;
                }
                Err(fault) => return (answers, Some(fault)),
            }
        }
        kept.drain(..used);
    }
    (answers, None)
}

/// Two pieces mean the same as the whole.
pub fn cut_anywhere_it_means_the_same(bytes: &[u8], cut: usize) {
    let (one, two) = bytes.split_at(cut.min(bytes.len()));
    assert_eq!(read(&[one, two]), read(&[bytes]));
}

/// The fast path reads a recognised response as the full path does.
pub fn the_template_agrees(bytes: &[u8]) {
    let mut template = Template::default();
    let learn = &mut |head: &load_http1::Head, text: &[u8]| template.learn(head, text);
    if Parser::default()
        .feed(bytes, false, &mut Ignore, learn)
        .is_err()
    {
        return;
    }
    let Some(known) = template.recognise(bytes) else {
        return;
    };
    let (head_bytes, expected) = (known.head_bytes, known.done);
    if known.is_chunked {
        let body = &bytes[head_bytes..];
        let fast = Parser::before_chunks(expected).feed(body, false, &mut Ignore, &mut |_, _| {});
        let whole = Parser::default().feed(bytes, false, &mut Ignore, &mut |_, _| {});
        let fast = fast.map(|progress| match progress {
            Progress::Done(used, done) => Progress::Done(used + head_bytes, done),
            Progress::More(used) => Progress::More(used + head_bytes),
        });
        assert_eq!(fast, whole);
        return;
    }
    let total = head_bytes as u64 + expected.body_bytes;
    if total > bytes.len() as u64 {
        return;
    }
    let step = Parser::default().feed(bytes, false, &mut Ignore, &mut |_, _| {});
    assert_eq!(step, Ok(Progress::Done(total as usize, expected)));
}

/// What is well formed once is so twice; a fault has a place within the text.
pub fn requests_are_counted_or_refused(text: &[u8]) {
    match count(text) {
        Ok(requests) => assert_eq!(count(&text.repeat(2)), Ok(requests * 2)),
        Err((line, column)) => {
            let lines = text.iter().filter(|&&byte| byte == b'\n').count() + 1;
            assert!((1..=lines).contains(&line) && (1..=text.len() + 1).contains(&column));
        }
    }
}

/// What is shown as the Host field of an http URL leads back to the same host and port.
pub fn a_url_says_where_it_goes(text: &str) {
    let Some(url) = Url::parse(text) else { return };
    if url.scheme == "http" && url.host_header().is_ascii() {
        let again = Url::parse(&format!("http://{}/", url.host_header()));
        let again = again.unwrap_or_else(|| panic!("{text}: no URL with {}", url.host_header()));
        assert_eq!((again.host, again.port), (url.host, url.port));
    }
}
