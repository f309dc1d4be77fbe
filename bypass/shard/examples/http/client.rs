//! One request from a shard.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bypass_shard::tcp::Error;

use crate::{link, Options};

const PATIENCE: Duration = Duration::from_secs(10);

/// Fetches a page and prints its body.
pub fn run(options: &Options) -> Result<(), String> {
    let url = options
        .words
        .last()
        .and_then(|url| url.strip_prefix("http://"));
    let url = url.ok_or("get: missing URL (http://IP:PORT/PATH)")?;
    let (host, path) = url.split_once('/').unwrap_or((url, ""));
    let remote: SocketAddr = host
        .parse()
        .map_err(|_| format!("{host:?} is not IP:PORT"))?;
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let mut shard = link::shard(options)?;
    shard.drive();
    let handle = shard
        .connect(None, remote)
        .map_err(|error| format!("{host}: {error}"))?;
    let (mut unsent, mut page, started) = (request.as_bytes(), Vec::new(), Instant::now());
    let mut bytes = vec![0; 65_536];
    'page: while started.elapsed() < PATIENCE {
        shard.drive();
        while shard.next_event().is_some() {}
        if !unsent.is_empty() {
            match shard.send(handle, unsent, false) {
                Ok(count) => unsent = &unsent[count..],
                Err(Error::WouldBlock) => {}
                Err(error) => return Err(format!("{host}: {error}")),
            }
        }
        loop {
            match shard.receive(handle, &mut bytes) {
                Ok(0) => break 'page,
                Ok(count) => page.extend(&bytes[..count]),
                Err(Error::WouldBlock) => break,
                Err(error) => return Err(format!("{host}: {error}")),
            }
        }
        shard.finish();
        shard.sleep(Duration::from_millis(10));
    }
    let _ = shard.close(handle);
    shard.finish();
    let head = page
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .ok_or("no answer came")?;
    std::io::stdout()
        .write_all(&page[head + 4..])
        .map_err(|error| error.to_string())
}
