//! Requests as bytes, rendered once before the run.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

/// What a request consists of.
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
    /// Body; Content-Length follows it alone.
    pub body: Option<&'a [u8]>,
}

impl Request<'_> {
    /// The request as it goes on the wire.
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
        if self.body.is_some() || matches!(self.method, "POST" | "PUT" | "PATCH") {
            // methods of which a body is expected say that there is none (RFC 9110, 8.6)
            let length = self.body.map_or(0, <[u8]>::len);
            line(format_args!("Content-Length: {length}"));
        }
        line(format_args!(""));
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(self.body.unwrap_or_default());
        bytes
    }
}

/// How many complete requests `text` holds, or the line and column where it stops being one.
/// Scripts may return several at once; that is how pipelining is asked for.
pub fn count(text: &[u8]) -> Result<usize, (usize, usize)> {
    heads(text).map(|heads| heads.len())
}

/// Which of the requests in `text` are HEAD requests, whose answers have no body.
pub fn heads(text: &[u8]) -> Result<Vec<bool>, (usize, usize)> {
    let mut rest = text;
    let mut heads = Vec::new();
    while !rest.is_empty() {
        let used = one(rest).ok_or_else(|| position(text, text.len() - rest.len()))?;
        heads.push(rest.starts_with(b"HEAD "));
        rest = &rest[used..];
    }
    if heads.is_empty() {
        return Err((1, 1));
    }
    Ok(heads)
}

/// The length of the request at the start of `text`.
fn one(text: &[u8]) -> Option<usize> {
    let end = text.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = core::str::from_utf8(&text[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let method = words.next()?;
    let well_formed = !method.is_empty()
        && method
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte == b'-')
        && words.next().is_some_and(|path| !path.is_empty())
        && words
            .next()
            .is_some_and(|version| version.starts_with("HTTP/1."))
        && words.next().is_none();
    if !well_formed {
        return None;
    }
    let mut length = 0;
    for line in lines {
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse::<usize>().ok()?;
        }
    }
    let total = (end + 4).checked_add(length)?;
    (total <= text.len()).then_some(total)
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
    fn a_method_that_has_a_body_says_when_it_has_none() {
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
    fn counts_pipelined_requests_and_names_the_place_of_a_fault() {
        let two = b"GET / HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nab";
        assert_eq!(count(two), Ok(2));
        let head = b"HEAD / HTTP/1.1\r\n\r\n";
        assert_eq!(
            heads(&[head, &two[..]].concat()).expect("three"),
            [true, false, false]
        );
        assert_eq!(count(b""), Err((1, 1)));
        assert_eq!(count(b"GET / HTTP/1.1\r\n\r\nnonsense"), Err((3, 1)));
    }
}
