//! Requests as bytes, rendered once before the run.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

/// The parts of a request.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Method, such as `GET`.
    pub method: &'a str,
    /// Path with its query.
    pub path: &'a str,
    /// Value of Host, unless the fields name one.
    pub host: &'a str,
    /// Header fields in order; a later one of the same name wins.
    pub headers: &'a [(String, String)],
    /// Body; the request has Content-Length if it has a body, or sends it as one chunk if a field
    /// asks for that.
    pub body: Option<&'a [u8]>,
}

impl Request<'_> {
    /// The bytes of the request.
    pub fn render(&self) -> Vec<u8> {
        let mut head = String::new();
        let mut line = |text: core::fmt::Arguments| {
            // writing to a String cannot fail
            let _ = head.write_fmt(text);
            head.push_str("\r\n");
        };
        line(format_args!("{} {} HTTP/1.1", self.method, self.path));
        if !self
            .headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("host"))
        {
            line(format_args!("Host: {}", self.host));
        }
        for (index, (name, value)) in self.headers.iter().enumerate() {
            let later = self.headers[index + 1..]
                .iter()
                .any(|(other, _)| other == name);
            if !later && !name.eq_ignore_ascii_case("content-length") {
                line(format_args!("{name}: {value}"));
            }
        }
        if self.is_chunked() {
            // one framing alone (RFC 9112, 6.2)
        } else if self.body.is_some() || matches!(self.method, "POST" | "PUT" | "PATCH") {
            // methods that expect a body declare an empty one (RFC 9110, 8.6)
            let length = self.body.map_or(0, <[u8]>::len);
            line(format_args!("Content-Length: {length}"));
        }
        line(format_args!(""));
        let mut bytes = head.into_bytes();
        let body = self.body.unwrap_or_default();
        if self.is_chunked() {
            if !body.is_empty() {
                bytes.extend_from_slice(alloc::format!("{:x}\r\n", body.len()).as_bytes());
                bytes.extend_from_slice(body);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
        } else {
            bytes.extend_from_slice(body);
        }
        bytes
    }

    /// Whether the fields ask for a chunked body.
    fn is_chunked(&self) -> bool {
        self.headers.iter().any(|(name, value)| {
            let last = value.rsplit(',').next().unwrap_or_default().trim();
            name.eq_ignore_ascii_case("transfer-encoding") && last.eq_ignore_ascii_case("chunked")
        })
    }
}

/// The number of complete requests in `text`, or the line and column of the first error. A script
/// may return several at once to pipeline them.
pub fn count(text: &[u8]) -> Result<usize, (usize, usize)> {
    heads(text).map(|heads| heads.len())
}

/// Which of the requests in `text` are HEAD requests, whose responses have no body.
pub fn heads(text: &[u8]) -> Result<Vec<bool>, (usize, usize)> {
    let mut rest = after_blank_lines(text);
    let mut heads = Vec::new();
    while !rest.is_empty() {
        let used = one(rest).ok_or_else(|| position(text, text.len() - rest.len()))?;
        heads.push(rest.starts_with(b"HEAD "));
        rest = after_blank_lines(&rest[used..]);
    }
    if heads.is_empty() {
        return Err((1, 1));
    }
    Ok(heads)
}

/// The text behind blank lines: servers skip them before a request (RFC 9112, 2.2), and wrk counts none.
pub fn after_blank_lines(text: &[u8]) -> &[u8] {
    let blank = text.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
    &text[blank.count()..]
}

/// The length of the request at the start of `text`: lines may end with LF alone, and the body may
/// be chunked, as scripts may write it.
fn one(text: &[u8]) -> Option<usize> {
    let mut lines = Lines { text, used: 0 };
    let mut words = lines.next()?.split(|byte| *byte == b' ');
    let method = words.next()?;
    let well_formed = !method.is_empty()
        && method
            .iter()
            .all(|byte| byte.is_ascii_uppercase() || *byte == b'-')
        && words.next().is_some_and(|path| !path.is_empty())
        && words
            .next()
            .is_some_and(|version| version.starts_with(b"HTTP/1."))
        && words.next().is_none();
    if !well_formed {
        return None;
    }
    let (mut length, mut is_chunked) = (0, false);
    loop {
        let line = lines.next()?;
        if line.is_empty() {
            break;
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let Some(colon) = colon else {
            // a line that continues the previous field (obs-fold)
            if line.starts_with(b" ") || line.starts_with(b"\t") {
                continue;
            }
            return None;
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            length = core::str::from_utf8(value).ok()?.parse::<usize>().ok()?;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            // chunked must be the last coding of a request (RFC 9112, 6.1)
            let last = value.rsplit(|byte| *byte == b',').next()?;
            is_chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
        }
    }
    if is_chunked {
        lines.skip_chunks()?;
    } else {
        lines.skip(length)?;
    }
    Some(lines.used)
}

/// Lines of a text, without their ends.
struct Lines<'a> {
    text: &'a [u8],
    used: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = &self.text[self.used..];
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        self.used += end + 1;
        let line = &rest[..end];
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.used = self.used.checked_add(bytes)?;
        (self.used <= self.text.len()).then_some(())
    }

    /// Skips a chunked body with its trailers (RFC 9112, 7.1).
    fn skip_chunks(&mut self) -> Option<()> {
        loop {
            let size = self.next()?.split(|byte| *byte == b';').next()?;
            let size = core::str::from_utf8(size.trim_ascii()).ok()?;
            let size = usize::from_str_radix(size, 16).ok()?;
            if size == 0 {
                break;
            }
            self.skip(size)?;
            if !self.next()?.is_empty() {
                return None;
            }
        }
        while !self.next()?.is_empty() {}
        Some(())
    }
}

fn position(text: &[u8], offset: usize) -> (usize, usize) {
    let before = &text[..offset];
    let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
    let column = before
        .iter()
        .rev()
        .take_while(|&&byte| byte != b'\n')
        .count()
        + 1;
    (line, column)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request<'a>(headers: &'a [(String, String)], body: Option<&'a [u8]>) -> String {
        let request = Request {
            method: "GET",
            path: "/x",
            host: "h",
            headers,
            body,
        };
        String::from_utf8(request.render()).expect("text")
    }

    #[test]
    fn host_is_added_unless_given() {
        assert_eq!(request(&[], None), "GET /x HTTP/1.1\r\nHost: h\r\n\r\n");
        let own = [("host".into(), "other".into())];
        assert_eq!(
            request(&own, None),
            "GET /x HTTP/1.1\r\nhost: other\r\n\r\n"
        );
    }

    #[test]
    fn the_last_field_of_a_name_wins_and_length_follows_the_body() {
        let own = [
            ("A".into(), "1".into()),
            ("Content-Length".into(), "9".into()),
            ("A".into(), "2".into()),
        ];
        let text = request(&own, Some(b"ab"));
        assert_eq!(
            text,
            "GET /x HTTP/1.1\r\nHost: h\r\nA: 2\r\nContent-Length: 2\r\n\r\nab"
        );
    }

    #[test]
    fn a_body_has_one_framing() {
        let own = [("Transfer-Encoding".into(), "chunked".into())];
        let start = "GET /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
        let text = request(&own, Some(b"hello world, hello"));
        assert_eq!(
            text,
            alloc::format!("{start}12\r\nhello world, hello\r\n0\r\n\r\n")
        );
        assert_eq!(count(text.as_bytes()), Ok(1));
        assert_eq!(request(&own, None), alloc::format!("{start}0\r\n\r\n"));
    }

    #[test]
    fn a_method_that_expects_a_body_declares_an_empty_one() {
        for (method, expected) in [("POST", true), ("PUT", true), ("DELETE", false)] {
            let (path, host, headers) = ("/", "h", &[][..]);
            let request = Request {
                method,
                path,
                host,
                headers,
                body: None,
            };
            let text = String::from_utf8(request.render()).expect("text");
            assert_eq!(text.ends_with("Content-Length: 0\r\n\r\n"), expected);
        }
    }

    #[test]
    fn counts_pipelined_requests_and_reports_the_place_of_an_error() {
        let two = b"GET / HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nab";
        assert_eq!(count(two), Ok(2));
        let head = b"HEAD / HTTP/1.1\r\n\r\n";
        assert_eq!(
            heads(&[head, &two[..]].concat()).expect("three"),
            [true, false, false]
        );
        let bare = b"GET /a HTTP/1.1\nHost: h\n\nPOST /b HTTP/1.1\r\nContent-Length: 2\r\n\r\nab";
        assert_eq!(count(bare), Ok(2));
        let chunked = b"PUT / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n\
            5;x=y\r\nhello\r\n0\r\nTrailer: 1\r\n\r\n";
        assert_eq!(count(&[&chunked[..], chunked].concat()), Ok(2));
        assert_eq!(count(&chunked[..chunked.len() - 2]), Err((1, 1)));
        assert_eq!(count(b"\r\nGET / HTTP/1.1\r\n\r\n\r\n\n"), Ok(1));
        assert_eq!(
            count(&[&b"\n"[..], two, b"\r\n", two, b"\r\n"].concat()),
            Ok(4)
        );
        assert_eq!(count(b"\r\n"), Err((1, 1)));
        assert_eq!(count(b""), Err((1, 1)));
        assert_eq!(count(b"GET / HTTP/1.1\r\n\r\nnonsense"), Err((3, 1)));
    }
}
