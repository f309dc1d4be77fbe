//! The parts of a URL for a request, split as wrk does.

use alloc::string::{String, ToString};

/// A URL in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// `http`, `https`, `ws`, `wss`, `tcp`, `udp`, or `unix` (ours: the host is then a socket path).
    pub scheme: String,
    /// Host name or address, without brackets; for `unix` the path of the socket.
    pub host: String,
    /// Port as typed, if any.
    pub port: Option<String>,
    /// User and password as typed, if any.
    pub user: Option<String>,
    /// Everything from the path on, query and fragment included; at least `/`.
    pub path: String,
}

impl Url {
    /// Splits `text`; `None` if scheme or host are missing or the port is invalid.
    pub fn parse(text: &str) -> Option<Url> {
        let (scheme, rest) = text.split_once("://")?;
        if scheme.is_empty() || text.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return None;
        }
        // RFC 3986, 3.1
        let scheme = scheme.to_ascii_lowercase();
        if scheme == "unix" {
            return Url::parse_unix(rest);
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (user, authority) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user.to_string()), host),
            None => (None, authority),
        };
        let (host, port) = split_port(authority)?;
        if host.is_empty() {
            return None;
        }
        // the zone of an address stands behind an encoded % (RFC 6874, 2)
        let host = if host.contains(':') {
            host.replacen("%25", "%", 1)
        } else {
            host.to_string()
        };
        let path = if path.starts_with('/') {
            path.to_string()
        } else {
            "/".to_string() + path
        };
        Some(Url {
            scheme,
            host,
            port,
            user,
            path,
        })
    }

    /// `unix:///run/app.sock:/path`: the request path follows the first `:/`, as it may hold a URL.
    fn parse_unix(rest: &str) -> Option<Url> {
        let (socket, path) = match rest.find(":/") {
            Some(at) => (&rest[..at], &rest[at + 1..]),
            None => (rest, "/"),
        };
        if !socket.starts_with('/') {
            return None;
        }
        let (scheme, host) = ("unix".to_string(), socket.to_string());
        Some(Url {
            scheme,
            host,
            port: None,
            user: None,
            path: path.to_string(),
        })
    }

    /// The host as the server knows it: the zone of an address means nothing there (RFC 6874, 4).
    pub fn host_name(&self) -> &str {
        let zone = self.host.contains(':').then(|| self.host.find('%'));
        zone.flatten().map_or(&self.host, |at| &self.host[..at])
    }

    /// The value of the Host header: `[v6]` in brackets, the port if one was typed.
    pub fn host_header(&self) -> String {
        if self.scheme == "unix" {
            return "localhost".to_string();
        }
        let mut text = if self.host.contains(':') {
            String::from("[") + self.host_name() + "]"
        } else {
            self.host.clone()
        };
        if let Some(port) = &self.port {
            text.push(':');
            text.push_str(port);
        }
        text
    }

    /// The port to connect to.
    pub fn port_number(&self) -> u16 {
        let default = if self.is_tls() { 443 } else { 80 };
        self.port
            .as_ref()
            .and_then(|port| port.parse().ok())
            .unwrap_or(default)
    }

    /// Whether the connection is encrypted.
    pub fn is_tls(&self) -> bool {
        self.scheme.starts_with("https") || self.scheme == "wss"
    }

    /// Whether it is a WebSocket URL (RFC 6455, 3).
    pub fn is_websocket(&self) -> bool {
        matches!(self.scheme.as_str(), "ws" | "wss")
    }
}

/// Whether a text is the number of a port. Numbers may have a sign, ports may not.
pub fn is_port(text: &str) -> bool {
    !text.starts_with('+') && text.parse::<u16>().is_ok()
}

fn split_port(authority: &str) -> Option<(&str, Option<String>)> {
    let (host, port) = if let Some(inner) = authority.strip_prefix('[') {
        let (host, after) = inner.split_once(']')?;
        let port = after.strip_prefix(':');
        if port.is_none() && !after.is_empty() {
            return None;
        }
        (host, port)
    } else {
        match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        }
    };
    let port = port.filter(|text| !text.is_empty());
    if port.is_some_and(|text| !is_port(text)) {
        return None;
    }
    Some((host, port.map(ToString::to_string)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (String, u16, String, String) {
        let url = Url::parse(text).expect("a URL");
        (
            url.host.clone(),
            url.port_number(),
            url.path.clone(),
            url.host_header(),
        )
    }

    #[test]
    fn splits_hosts_ports_and_paths() {
        let own = |a: &str, b, c: &str, d: &str| (a.into(), b, c.into(), d.into());
        assert_eq!(parts("http://h"), own("h", 80, "/", "h"));
        assert_eq!(parts("HTTPS://H"), own("H", 443, "/", "H"));
        assert_eq!(parts("http://h:81/a?b#c"), own("h", 81, "/a?b#c", "h:81"));
        assert_eq!(parts("https://u:p@h/x"), own("h", 443, "/x", "h"));
        assert_eq!(
            parts("http://[::1]:8080/"),
            own("::1", 8080, "/", "[::1]:8080")
        );
        for zone in ["%", "%25"] {
            assert_eq!(
                parts(&format!("http://[fe80::1{zone}eth0]:8080/")),
                own("fe80::1%eth0", 8080, "/", "[fe80::1]:8080")
            );
        }
        assert_eq!(parts("wss://h/x"), own("h", 443, "/x", "h"));
        assert_eq!(parts("http://h?q"), own("h", 80, "/?q", "h"));
        for path in ["/p", "/p?to=http://h/"] {
            assert_eq!(
                parts(&format!("unix:///run/a.sock:{path}")),
                own("/run/a.sock", 80, path, "localhost")
            );
        }
    }

    #[test]
    fn refuses_invalid_urls() {
        for text in [
            "",
            "h",
            "http://",
            "http:///x",
            "://h",
            "http://h:x/",
            "http://h:+80/",
            "http://[::1]8080/",
            "http://[::1]x/",
            "http://a b/",
        ] {
            assert_eq!(Url::parse(text), None, "{text:?}");
        }
    }
}
