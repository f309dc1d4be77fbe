//! The responder on a shard.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bypass_shard::tcp::{Error, Handle};
use bypass_shard::Shard;

use crate::requests::{answer, Requests};
use crate::{link, Options};

const BACKLOG: u32 = 4096;
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Serves until it is killed.
pub fn run(options: &Options) -> Result<(), String> {
    let (port, size) = (options.port()?, options.number("--size", 128)?);
    let spin = Duration::from_micros(options.number("--spin", 50)?.into());
    let mut shard = link::shard(options)?;
    // Both versions of IP.
    let at = ([0u16; 8], port).into();
    let listener = shard
        .listen(at, BACKLOG)
        .map_err(|error| format!("port {port}: {error}"))?;
    let mut server = Server {
        answer: answer(size),
        clients: HashMap::new(),
        bytes: vec![0; 65_536],
    };
    eprintln!("http: serves {size} bytes on port {port}");
    let mut busy = Instant::now();
    loop {
        let mut work = shard.drive();
        while let Some(event) = shard.next_event() {
            work += 1;
            if event.handle == listener {
                while let Ok(client) = shard.accept(listener) {
                    server.clients.insert(client, Requests::default());
                }
            } else {
                server.serve(&mut shard, event.handle);
            }
        }
        shard.finish();
        if work > 0 {
            busy = Instant::now();
        } else if busy.elapsed() >= spin {
            shard.sleep(SLEEP_MAX);
        }
    }
}

struct Server {
    answer: Vec<u8>,
    clients: HashMap<Handle, Requests>,
    bytes: Vec<u8>,
}

impl Server {
    fn serve(&mut self, shard: &mut Shard, handle: Handle) {
        let Some(client) = self.clients.get_mut(&handle) else {
            return;
        };
        let is_open = loop {
            match shard.receive(handle, &mut self.bytes) {
                Ok(0) => break false,
                Ok(count) => client.take(&self.bytes[..count], &self.answer),
                Err(Error::WouldBlock) => break true,
                Err(_) => break false,
            }
            if client.is_last {
                break true;
            }
        };
        let is_sent = !client.unsent.is_empty() && is_open && {
            match shard.send(handle, &client.unsent, false) {
                Ok(count) => drop(client.unsent.drain(..count)),
                Err(Error::WouldBlock) => {}
                Err(_) => client.is_last = true,
            }
            client.unsent.is_empty()
        };
        if !is_open || client.is_last && (is_sent || client.unsent.is_empty()) {
            self.clients.remove(&handle);
            let _ = shard.close(handle);
        }
    }
}
