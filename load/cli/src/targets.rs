//! Where requests go and what they ask: URLs, header fields, bodies, weights.

use crate::addresses::Book;
use crate::console::say;
use crate::data::{percent_encoded, Table};
use crate::raw;
use crate::refusal::{because, usage, wrong, Mistake, Refusal, Wrong};
use crate::replay::Log;
use crate::scheme::Scheme;
use crate::table::Args;
use crate::values::HeaderField;
use base64::Engine as _;
use load_engine::plan::{weighted_order, Rendered, Target};
use load_http1::request::Request;
use load_http1::url::Url;
use load_websocket::{frame, upgrade, Opcode};
use std::hash::{BuildHasher, Hasher, RandomState};

/// Most requests until an order repeats.
const WEIGHTS_MAX: u64 = 1_000_000;

/// The common parts of all requests.
#[derive(Debug)]
pub struct Common {
    /// Method.
    pub method: String,
    /// Header fields.
    pub headers: Vec<(String, String)>,
    /// Body, if there is one.
    pub body: Option<Vec<u8>>,
    /// Whether the body was typed, and so is text.
    pub is_text: bool,
    /// Copies of each request in a batch.
    pub depth: usize,
    /// Size of the messages of `tcp://` and `udp://`, if one was typed.
    pub size: Option<usize>,
    /// Rows that fill places in requests.
    pub data: Option<Table>,
}

/// A URL and how often it is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    text: String,
    url: Url,
    weight: u32,
}

impl Common {
    /// Reads the options that shape requests.
    pub fn read(args: &Args, depth: usize) -> Result<Common, Refusal> {
        let body = match (&args.body, &args.body_file) {
            (Some(_), Some(_)) => {
                return wrong("body", Wrong::Clash("--body-file (remove one)".into()))
            }
            (Some(text), None) => Some(text.as_bytes().to_vec()),
            (None, Some(path)) => Some(std::fs::read(path).map_err(|error| {
                Refusal::option(
                    "body-file",
                    Wrong::Unreadable(path.to_string(), error.to_string()),
                )
            })?),
            (None, None) => None,
        };
        if args.grpc {
            return grpc(args, body.unwrap_or_default(), depth);
        }
        let usual = if body.is_some() { "POST" } else { "GET" };
        let method = args.method.as_ref();
        Ok(Common {
            method: method.map_or(usual, |method| &method.0).to_string(),
            headers: headers(args),
            body,
            is_text: args.body_file.is_none(),
            depth,
            size: raw::size(args)?,
            data: args.data.as_deref().map(Table::read).transpose()?,
        })
    }

    /// Whether the fields ask for one request per connection.
    pub fn asks_to_close(&self) -> bool {
        self.headers.iter().any(|(name, value)| {
            name.eq_ignore_ascii_case("connection") && value.trim().eq_ignore_ascii_case("close")
        })
    }

    /// Whether a field of this name was typed.
    pub fn has_header(&self, name: &str) -> bool {
        let mut names = self.headers.iter().map(|(own, _)| own);
        names.any(|own| own.eq_ignore_ascii_case(name))
    }

    /// The body as a message of WebSocket, in one frame.
    fn message(&self) -> Rendered {
        let opcode = if self.is_text {
            Opcode::Text
        } else {
            Opcode::Binary
        };
        let mask = RandomState::new().build_hasher().finish() as u32;
        let (body, mut bytes) = (self.body.as_deref().unwrap_or_default(), Vec::new());
        frame::push(&mut bytes, opcode, body, mask.to_be_bytes());
        Rendered {
            bytes: bytes.repeat(self.depth).into(),
            head_only: false,
            mixed: None,
        }
    }

    /// The fields, with the user and password of a URL that has them (RFC 7617).
    pub fn headers_for(&self, url: &Url) -> Vec<(String, String)> {
        let mut headers = self.headers.clone();
        let is_given = |(name, _): &(String, String)| name.eq_ignore_ascii_case("authorization");
        let user = url.user.as_ref().filter(|user| !user.is_empty());
        if let (Some(user), false) = (user, headers.iter().any(is_given)) {
            let mut pair = percent_decoded(user);
            if !user.contains(':') {
                // a password that is not there is empty (RFC 7617, 2)
                pair.push(b':');
            }
            let pair = base64::engine::general_purpose::STANDARD.encode(pair);
            headers.push(("Authorization".to_string(), format!("Basic {pair}")));
        }
        headers
    }

    fn render(&self, url: &Url) -> Rendered {
        match Scheme::of(url) {
            Scheme::Http => {}
            Scheme::WebSocket => return self.message(),
            Scheme::Tcp | Scheme::Udp => return raw::message(self.body.as_deref(), self.size),
        }
        self.render_http(url, &url.path, &self.headers_for(url), self.body.as_deref())
    }

    fn render_http(
        &self,
        url: &Url,
        path: &str,
        headers: &[(String, String)],
        body: Option<&[u8]>,
    ) -> Rendered {
        let request = Request {
            method: &self.method,
            path,
            host: &url.host_header(),
            headers,
            body,
        };
        Rendered {
            bytes: request.render().repeat(self.depth).into(),
            head_only: self.method == "HEAD",
            mixed: None,
        }
    }

    /// A request with the values of a row in their places.
    fn render_row(&self, url: &Url, table: &Table, row: usize) -> Rendered {
        let path = table.fill(&url.path, row, percent_encoded);
        // a value must not begin another field
        let flat = |value: &str| value.replace(['\r', '\n'], " ");
        let filled = |text: &String| table.fill(text, row, flat);
        let headers = self.headers_for(url);
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.clone(), filled(value)))
            .collect();
        let body = self
            .body
            .as_deref()
            .map(|body| match std::str::from_utf8(body) {
                Ok(text) => table.fill(text, row, str::to_string).into_bytes(),
                Err(_) => body.to_vec(),
            });
        self.render_http(url, &path, &headers, body.as_deref())
    }

    /// Makes the requests of a log those of the one target.
    pub fn replay(
        &self,
        targets: &mut [Target],
        scheme: Scheme,
        words: &[String],
        log: &Log,
    ) -> Result<(), Refusal> {
        let (Scheme::Http, [target], [word]) = (scheme, targets, words) else {
            return wrong(
                "replay",
                Wrong::Needs("one http:// or https:// URL, whose server is asked"),
            );
        };
        let url = parse_url(word)?;
        let headers = self.headers_for(&url);
        let render = |(method, path): &(String, String)| {
            let request = Request {
                method,
                path,
                host: &url.host_header(),
                headers: &headers,
                body: None,
            };
            Rendered {
                bytes: request.render().into(),
                head_only: method == "HEAD",
                mixed: None,
            }
        };
        target.requests = log.requests.iter().map(render).collect();
        target.order.clone_from(&log.order);
        if log.left_out > 0 {
            say(&format!(
                "note: --replay leaves out {} lines that are not GET, HEAD or OPTIONS requests with a time",
                log.left_out
            ));
        }
        Ok(())
    }

    /// Whether a request has a place for one of the columns.
    fn uses(&self, table: &Table, url: &Url) -> bool {
        let body = self.body.as_deref().map(String::from_utf8_lossy);
        let mut headers = self.headers.iter();
        table.is_used_in(&url.path)
            || headers.any(|(_, value)| table.is_used_in(value))
            || body.is_some_and(|body| table.is_used_in(&body))
    }
}

/// The bytes of a text in which some are written as `%XX` (RFC 3986, 2.1).
fn percent_decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    decoded
}

/// A unary call: POST, and a body of one message that is not compressed, behind its length
/// (gRPC over HTTP/2, "Length-Prefixed-Message").
fn grpc(args: &Args, message: Vec<u8>, depth: usize) -> Result<Common, Refusal> {
    if args.method.is_some() {
        return because("method", "a gRPC call is a POST; leave it out with --grpc");
    }
    if args.data.is_some() {
        return wrong("data", Wrong::Clash("--grpc".into()));
    }
    let Ok(length) = u32::try_from(message.len()) else {
        return because("body-file", "a message of gRPC has less than 4 GiB");
    };
    let mut headers = headers(args);
    for (name, value) in [("Content-Type", "application/grpc"), ("TE", "trailers")] {
        if !headers
            .iter()
            .any(|(own, _)| own.eq_ignore_ascii_case(name))
        {
            headers.push((name.to_string(), value.to_string()));
        }
    }
    let mut body = vec![0];
    body.extend_from_slice(&length.to_be_bytes());
    body.extend_from_slice(&message);
    Ok(Common {
        method: "POST".to_string(),
        headers,
        body: Some(body),
        is_text: false,
        depth,
        size: None,
        data: None,
    })
}

fn headers(args: &Args) -> Vec<(String, String)> {
    let fields = args.header.iter();
    fields
        .filter(|HeaderField(name, _)| !name.is_empty())
        .map(|HeaderField(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// The targets of a run, one for each server with its requests, and what they speak.
pub fn targets(
    args: &Args,
    words: &[String],
    common: &Common,
) -> Result<(Vec<Target>, Scheme), Refusal> {
    let mut lines: Vec<Line> = Vec::new();
    for word in words {
        lines.push(Line {
            text: word.clone(),
            url: parse_url(word)?,
            weight: 1,
        });
    }
    if let Some(path) = &args.urls {
        if args.script.is_some() {
            return wrong(
                "urls",
                Wrong::Clash("--script (which makes the requests itself)".into()),
            );
        }
        let text = std::fs::read_to_string(path).map_err(|error| {
            Refusal::option(
                "urls",
                Wrong::Unreadable(path.to_string(), error.to_string()),
            )
        })?;
        let base = lines.first().map(|line| line.url.clone());
        let listed = read_lines(&text, base.as_ref()).map_err(|fault| {
            Refusal::option(
                "urls",
                Wrong::Content(path.to_string(), format!(", {fault}")),
            )
        })?;
        if base.is_some() {
            // a URL next to the list only says which server the paths belong to
            lines.clear();
        }
        lines.extend(listed);
    }
    if lines.is_empty() {
        return usage(Mistake::UrlMissing);
    }
    if lines.iter().map(|line| u64::from(line.weight)).sum::<u64>() > WEIGHTS_MAX {
        return because(
            "urls",
            format!("the weights add up to more than {WEIGHTS_MAX}"),
        );
    }
    let scheme = Scheme::of(&lines[0].url);
    let other = lines.iter().find(|line| Scheme::of(&line.url) != scheme);
    if let Some(other) = other {
        let (first, second) = (scheme.prefix(), Scheme::of(&other.url).prefix());
        return usage(Mistake::Url(
            other.text.clone(),
            format!("{second} and {first} do not go together; make two runs").into(),
        ));
    }
    if let Some(table) = &common.data {
        check_data(args, table, common, &lines, scheme)?;
    }
    let targets = group(&lines, common, &Book::of(args)?)?;
    Ok((targets, scheme))
}

fn check_data(
    args: &Args,
    table: &Table,
    common: &Common,
    lines: &[Line],
    scheme: Scheme,
) -> Result<(), Refusal> {
    if scheme != Scheme::Http || args.script.is_some() {
        return wrong(
            "data",
            Wrong::OnlyFor("requests of HTTP that no script makes"),
        );
    }
    let weights: u64 = lines.iter().map(|line| u64::from(line.weight)).sum();
    if weights.saturating_mul(table.len() as u64) > WEIGHTS_MAX {
        return because(
            "data",
            format!(
                "{} rows for each URL are more than {WEIGHTS_MAX} requests",
                table.len()
            ),
        );
    }
    match lines.iter().find(|line| !common.uses(table, &line.url)) {
        Some(line) if lines.iter().all(|line| !common.uses(table, &line.url)) => because(
            "data",
            format!(
                "{} has no place for a column, such as /users/{{id}}",
                line.text
            ),
        ),
        _ => Ok(()),
    }
}

fn parse_url(text: &str) -> Result<Url, Refusal> {
    match Url::parse(text) {
        Some(url) if matches!(url.scheme.as_str(), "http" | "https" | "unix") => Ok(url),
        Some(url) if url.is_websocket() => Ok(url),
        Some(url) if raw::is_place(&url) => Ok(url),
        _ => usage(Mistake::NoUrl(text.to_string())),
    }
}

fn read_lines(text: &str, base: Option<&Url>) -> Result<Vec<Line>, String> {
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split(" #").next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fault = |what: &str| format!("line {}: {what}: {line}", number + 1);
        let (weight, place) = match line.split_once(char::is_whitespace) {
            Some((weight, place)) => {
                let weight: u32 = weight.parse().map_err(|_| fault("invalid weight"))?;
                (weight, place.trim())
            }
            None => (1, line),
        };
        if place.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(fault("a blank in a URL (write %20)"));
        }
        let url = match base {
            Some(base) if place.starts_with('/') => Url {
                path: place.to_string(),
                ..base.clone()
            },
            _ => parse_url(place)
                .map_err(|_| fault("not a URL (a path needs a URL on the command line)"))?,
        };
        if weight > 0 {
            lines.push(Line {
                text: place.to_string(),
                url,
                weight,
            });
        }
    }
    Ok(lines)
}

/// Puts URLs of the same server together.
fn group(lines: &[Line], common: &Common, book: &Book) -> Result<Vec<Target>, Refusal> {
    let same = |a: &Url, b: &Url| (&a.scheme, &a.host, &a.port) == (&b.scheme, &b.host, &b.port);
    let mut groups: Vec<Vec<&Line>> = Vec::new();
    for line in lines {
        match groups
            .iter_mut()
            .find(|group| same(&group[0].url, &line.url))
        {
            Some(group) => group.push(line),
            None => groups.push(vec![line]),
        }
    }
    if groups.len() > usize::from(u16::MAX) {
        return usage(Mistake::TooManyTargets);
    }
    groups
        .into_iter()
        .map(|group| target(&group, common, book))
        .collect()
}

/// The requests of a server and their order: all URLs by weight, for one row of the data after the other.
fn requests(lines: &[&Line], common: &Common) -> (Vec<Rendered>, Vec<u32>) {
    let weights: Vec<u32> = lines.iter().map(|line| line.weight).collect();
    let once = weighted_order(&weights);
    let Some(table) = &common.data else {
        let each = lines.iter().map(|line| common.render(&line.url));
        return (each.collect(), once);
    };
    let (mut requests, mut order) = (Vec::new(), Vec::new());
    for row in 0..table.len() {
        let first = requests.len() as u32;
        let each = lines
            .iter()
            .map(|line| common.render_row(&line.url, table, row));
        requests.extend(each);
        order.extend(once.iter().map(|line| first + line));
    }
    (requests, order)
}

fn target(lines: &[&Line], common: &Common, book: &Book) -> Result<Target, Refusal> {
    let url = &lines[0].url;
    let scheme = Scheme::of(url);
    if let (true, Some(second)) = (scheme != Scheme::Http, lines.get(1)) {
        let what = match scheme {
            Scheme::WebSocket => "its connections have one path",
            _ => "its messages are alike",
        };
        let scheme = scheme.prefix();
        return usage(Mistake::Url(
            second.text.clone(),
            format!("a server of {scheme} is given once; {what}").into(),
        ));
    }
    let upgrade = || upgrade::head(&url.path, &url.host_header(), &common.headers_for(url));
    let weights: Vec<u32> = lines.iter().map(|line| line.weight).collect();
    let mut addresses = book.addresses(url)?.into_iter();
    let Some(address) = addresses.next() else {
        return usage(Mistake::Url(lines[0].text.clone(), "no address".into()));
    };
    let (requests, order) = requests(lines, common);
    Ok(Target {
        url: lines[0].text.clone(),
        address,
        others: addresses.collect(),
        tls_name: url.is_tls().then(|| url.host_name().to_string()),
        upgrade: url.is_websocket().then(upgrade),
        requests,
        order,
        weight: weights.iter().sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_weights_comments_and_paths() {
        let base = Url::parse("http://h:81/x").expect("a URL");
        let text = "# list\n3 /a\n/b # often\n\n2 http://other/c\n0 /never\n";
        let lines = read_lines(text, Some(&base)).expect("correct");
        let short: Vec<_> = lines
            .iter()
            .map(|line| (line.weight, line.url.host.as_str(), line.url.path.as_str()))
            .collect();
        assert_eq!(short, [(3, "h", "/a"), (1, "h", "/b"), (2, "other", "/c")]);
        assert_eq!(
            read_lines("x /a", Some(&base)),
            Err("line 1: invalid weight: x /a".to_string())
        );
        assert!(read_lines("/a", None).is_err());
        for text in ["1 /a b", "1 /a\u{1}", "1 http://h/a b"] {
            let fault = read_lines(text, Some(&base)).expect_err(text);
            assert!(fault.starts_with("line 1: a blank in a URL"), "{fault}");
        }
    }

    #[test]
    fn a_user_in_a_url_is_a_field_unless_one_is_given() {
        let mut common = Common {
            method: "GET".into(),
            headers: Vec::new(),
            body: None,
            is_text: true,
            depth: 1,
            size: None,
            data: None,
        };
        let url = Url::parse("http://me%40here:a:b@h/").expect("a URL");
        let text =
            |common: &Common| String::from_utf8_lossy(&common.render(&url).bytes).into_owned();
        assert!(text(&common).contains("\r\nAuthorization: Basic bWVAaGVyZTphOmI=\r\n"));
        let of = |url: &str| {
            let rendered = common.render(&Url::parse(url).expect("a URL"));
            String::from_utf8_lossy(&rendered.bytes).into_owned()
        };
        assert!(of("http://me@h/").contains("\r\nAuthorization: Basic bWU6\r\n"));
        assert!(!of("http://@h/").contains("Authorization"));
        common.headers.push(("authorization".into(), "own".into()));
        assert!(!text(&common).contains("Basic"));
    }

    #[test]
    fn a_batch_is_copies_of_one_request() {
        let common = Common {
            method: "HEAD".into(),
            headers: Vec::new(),
            body: None,
            is_text: true,
            depth: 2,
            size: None,
            data: None,
        };
        let rendered = common.render(&Url::parse("http://h/x").expect("a URL"));
        assert!(rendered.head_only);
        assert_eq!(
            &rendered.bytes[..],
            b"HEAD /x HTTP/1.1\r\nHost: h\r\n\r\n".repeat(2)
        );
    }
}
