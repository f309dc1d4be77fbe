//! `--resolve` and `--connect-to`: replacements for a host and a port.

use super::Value;
use crate::refusal::{wrong, Refusal, Wrong};
use load_http1::url::is_port;
use std::net::IpAddr;

/// A host and a port as typed; an empty one stands for any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The host.
    pub host: String,
    /// The port.
    pub port: String,
}

impl Place {
    /// Whether it stands for these.
    pub fn is_of(&self, host: &str, port: u16) -> bool {
        let is_host = self.host.is_empty() || self.host.eq_ignore_ascii_case(host);
        is_host && (self.port.is_empty() || self.port.parse() == Ok(port))
    }
}

/// A place, and the addresses that stand for its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolve(pub Place, pub Vec<IpAddr>);

/// A place, and the one that stands for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectTo(pub Place, pub Place);

/// `HOST:PORT:ADDRESS[,ADDRESS]…`
impl Value for Resolve {
    fn read(name: &'static str, text: &str) -> Result<Resolve, Refusal> {
        let wrong = || {
            Refusal::option(
                name,
                Wrong::Invalid(
                    "",
                    text.to_string(),
                    "such as example.com:443:127.0.0.1,127.0.0.2",
                ),
            )
        };
        let (place, addresses) = place(text).ok_or_else(wrong)?;
        let addresses = addresses.ok_or_else(wrong)?.split(',').map(|address| {
            let bare = address.trim_start_matches('[').trim_end_matches(']');
            bare.parse().map_err(|_| wrong())
        });
        Ok(Resolve(place, addresses.collect::<Result<_, _>>()?))
    }
}

/// `HOST:PORT:HOST:PORT`; each of them may be empty.
impl Value for ConnectTo {
    fn read(name: &'static str, text: &str) -> Result<ConnectTo, Refusal> {
        let both = place(text).and_then(|(from, rest)| Some((from, place(rest?)?)));
        match both {
            Some((from, (to, None))) => Ok(ConnectTo(from, to)),
            _ => wrong(
                name,
                Wrong::Invalid(
                    "",
                    text.to_string(),
                    "such as example.com:443:127.0.0.1:8443",
                ),
            ),
        }
    }
}

/// The host and port that a text begins with, and what follows the colon behind them.
fn place(text: &str) -> Option<(Place, Option<&str>)> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(inner) => {
            let (host, rest) = inner.split_once(']')?;
            (host, rest.strip_prefix(':')?)
        }
        None => text.split_once(':')?,
    };
    let (port, rest) = match rest.split_once(':') {
        Some((port, rest)) => (port, Some(rest)),
        None => (rest, None),
    };
    let is_port = port.is_empty() || is_port(port);
    is_port.then(|| {
        let place = Place {
            host: host.to_string(),
            port: port.to_string(),
        };
        (place, rest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_no_sign() {
        assert!(Resolve::read("resolve", "example.com:443:127.0.0.1").is_ok());
        for text in ["example.com:+443:127.0.0.1", "example.com:65536:127.0.0.1"] {
            assert!(Resolve::read("resolve", text).is_err(), "{text}");
        }
    }
}
