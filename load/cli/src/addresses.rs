//! Where the names of URLs lead: `--connect-to` and `--resolve` first, as curl has them, then the
//! system.

use crate::refusal::{because, Failure, Refusal};
use crate::table::Args;
use crate::values::{ConnectTo, Resolve};
use load_engine::sys::socket::{has_met_itself, Address};
use load_http1::url::Url;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Longest test of whether an address takes connections.
const TEST_CONNECT: Duration = Duration::from_secs(5);

/// Addresses that were typed.
#[derive(Debug)]
pub struct Book<'a> {
    resolve: &'a [Resolve],
    connect_to: &'a [ConnectTo],
    /// Connections go over UDP, whatever the URLs are.
    is_udp: bool,
}

impl Book<'_> {
    /// Those of a command line.
    pub fn of(args: &Args) -> Result<Book<'_>, Refusal> {
        let own = args.first_of(&["resolve", "connect-to"]);
        if let (Some(name), true) = (own, args.script.is_some()) {
            return because(name, "is not for scripts; they set wrk.thread.addr");
        }
        Ok(Book {
            resolve: &args.resolve,
            connect_to: &args.connect_to,
            is_udp: args.http3,
        })
    }

    /// The addresses of a URL's host that may be used, the first that takes a connection before all
    /// others; refused if none does.
    pub fn addresses(&self, url: &Url) -> Result<Vec<Address>, Refusal> {
        if url.scheme == "unix" {
            let path = PathBuf::from(&url.host);
            UnixStream::connect(&path).map_err(|error| refused(url, &plain(&error)))?;
            return Ok(vec![Address::Unix(path)]);
        }
        let mut found = self.lookup(url)?;
        if url.scheme == "udp" || self.is_udp {
            // only an answer shows whether a server listens
            return Ok(found.into_iter().map(Address::Inet).collect());
        }
        let mut last = None;
        for first in 0..found.len() {
            match TcpStream::connect_timeout(&found[first], TEST_CONNECT) {
                Ok(stream) if has_met_itself(&stream) => {
                    last = Some(ErrorKind::ConnectionRefused.into())
                }
                Ok(_) => {
                    found.rotate_left(first);
                    return Ok(found.into_iter().map(Address::Inet).collect());
                }
                Err(error) => last = Some(error),
            }
        }
        let why = last.map_or("no address".to_string(), |error| plain(&error));
        Err(refused(url, &why))
    }

    fn lookup(&self, url: &Url) -> Result<Vec<SocketAddr>, Refusal> {
        let (mut host, mut port) = (url.host.as_str(), url.port_number());
        let other = self
            .connect_to
            .iter()
            .find(|ConnectTo(from, _)| from.is_of(host, port));
        if let Some(ConnectTo(_, to)) = other {
            host = if to.host.is_empty() { host } else { &to.host };
            port = to.port.parse().unwrap_or(port);
        }
        if let Some(Resolve(_, known)) = self
            .resolve
            .iter()
            .find(|Resolve(place, _)| place.is_of(host, port))
        {
            return Ok(known.iter().map(|ip| SocketAddr::new(*ip, port)).collect());
        }
        let found = (host, port).to_socket_addrs().map_err(|error| {
            let service = service(url);
            Refusal::Absent(Failure::Unresolved(
                host.to_string(),
                service.to_string(),
                plain(&error),
            ))
        })?;
        // the system may name an address twice, for each kind of socket
        let mut each: Vec<SocketAddr> = Vec::new();
        for address in found {
            if !each.contains(&address) {
                each.push(address);
            }
        }
        Ok(each)
    }
}

fn service(url: &Url) -> &str {
    url.port.as_deref().unwrap_or(&url.scheme)
}

fn refused(url: &Url, why: &str) -> Refusal {
    Refusal::Absent(Failure::Unreachable(
        url.host.clone(),
        service(url).to_string(),
        why.to_string(),
    ))
}

/// The text of an error without its number, as wrk prints it.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or_default()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(options: &[(&'static str, &str)]) -> Result<Args, Refusal> {
        let words = options
            .iter()
            .map(|(name, value)| format!("--{name}={value}"));
        let words: Vec<String> = words.collect();
        Args::read(&crate::options::parse(&words, crate::measure::Compat::Own).expect("options"))
    }

    fn lookup(book: &Book, url: &str) -> Vec<String> {
        let url = Url::parse(url).expect("a URL");
        let found = book.lookup(&url).expect("known");
        found.iter().map(SocketAddr::to_string).collect()
    }

    #[test]
    fn names_lead_where_it_was_typed() {
        let args = args(&[
            ("resolve", "a.test:80:10.0.0.1,[::1]"),
            ("connect-to", "b.test::a.test:80"),
            ("connect-to", ":81:127.0.0.1:9"),
        ])
        .expect("correct");
        let book = Book::of(&args).expect("no script");
        assert_eq!(lookup(&book, "http://a.test/"), ["10.0.0.1:80", "[::1]:80"]);
        assert_eq!(
            lookup(&book, "http://b.test:7/"),
            ["10.0.0.1:80", "[::1]:80"]
        );
        assert_eq!(lookup(&book, "http://c.test:81/"), ["127.0.0.1:9"]);
        assert_eq!(lookup(&book, "http://127.0.0.9:82/"), ["127.0.0.9:82"]);
    }

    #[test]
    fn mistakes_are_named() {
        for (name, value) in [
            ("resolve", "a.test:80"),
            ("resolve", "a.test:x:10.0.0.1"),
            ("resolve", "a.test:80:here"),
            ("connect-to", "a:1:b"),
            ("connect-to", "a:1:b:2:c"),
            ("connect-to", "[::1:1:b:2"),
        ] {
            let Err(Refusal::Usage(mistake)) = args(&[(name, value)]) else {
                panic!("{value}")
            };
            let text = mistake.to_string();
            assert!(
                text.starts_with(&format!("--{name}: invalid '{value}'")),
                "{text}"
            );
        }
    }
}
