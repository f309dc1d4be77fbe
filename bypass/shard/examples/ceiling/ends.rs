//! The server and the client. Their rounds are what is measured.

use bypass_shard::tcp::{Address, Config, Handle};
use bypass_shard::{Settings, Shard};
use bypass_xdp::memory::End;

use crate::Case;

const REQUEST: [u8; 100] = [b'q'; 100];
/// Payload of a full segment: MTU 1500, timestamps.
const SEGMENT: u64 = 1448;
/// What a bulk sender offers and a receiver takes at once.
const PIECE: usize = 65_536;
const SERVER: [u8; 4] = [10, 9, 0, 1];
const CLIENT: [u8; 4] = [10, 9, 0, 2];
const PORT: u16 = 80;

/// As bypass has its engines.
fn shard(end: End, address: [u8; 4]) -> Shard {
    let engine = Config {
        answers_follow: true,
        answer_wait_us: 1000,
        secret: [address[3]; 16],
        ..Config::default()
    };
    let settings = Settings {
        engine,
        ..Settings::default()
    };
    let mac = [2, 0, 0, 0, 0, address[3]];
    let ip = address.into();
    let addresses = [Address { ip, prefix_len: 24 }];
    Shard::alone(Box::new(end), mac, &addresses, &[], settings)
}

/// Answers requests, or sends without end.
pub struct Server {
    shard: Shard,
    listener: Handle,
    response: Option<Vec<u8>>,
    /// Bytes of requests without an answer, by the connection's index.
    asked: Vec<usize>,
    bytes: Vec<u8>,
}

impl Server {
    /// Listens.
    pub fn new(end: End, case: Case) -> Self {
        let mut shard = shard(end, SERVER);
        let at = (SERVER, PORT).into();
        let listener = shard.listen(at, 1024).expect("the only listener");
        Self {
            shard,
            listener,
            response: case.response.map(|bytes| vec![b'r'; bytes]),
            asked: vec![0; case.connections],
            bytes: vec![b'b'; PIECE],
        }
    }

    fn act(&mut self, handle: Handle) {
        if handle == self.listener {
            while self.shard.accept(handle).is_ok() {}
            return;
        }
        let mut count = 0;
        while let Ok(more @ 1..) = self.shard.receive(handle, &mut self.bytes) {
            count += more;
        }
        let Some(response) = &self.response else {
            while self.shard.send(handle, &self.bytes, false).is_ok() {}
            return;
        };
        let asked = &mut self.asked[handle.index as usize];
        *asked += count;
        while *asked >= REQUEST.len() {
            *asked -= REQUEST.len();
            let sent = self.shard.send(handle, response, false);
            assert_eq!(sent, Ok(response.len()), "room for one response");
        }
    }
}

/// One round of the server. A function of its own, because callgrind counts by name.
#[inline(never)]
pub fn serve_round(server: &mut Server, now_us: u64) {
    server.shard.drive_at(now_us);
    while let Some(event) = server.shard.next_event() {
        server.act(event.handle);
    }
    server.shard.finish();
}

/// Asks on each connection, and again when the response is there.
pub struct Client {
    shard: Shard,
    response: Option<usize>,
    /// Bytes that a response lacks, by the connection's index; None before the first request.
    missing: Vec<Option<usize>>,
    responses: u64,
    received: u64,
    bytes: Vec<u8>,
}

impl Client {
    /// Connects.
    pub fn new(end: End, case: Case) -> Self {
        let mut shard = shard(end, CLIENT);
        for _ in 0..case.connections {
            let opened = shard.connect(None, (SERVER, PORT).into());
            opened.expect("a port");
        }
        Self {
            shard,
            response: case.response,
            missing: vec![None; case.connections],
            responses: 0,
            received: 0,
            bytes: vec![0; PIECE],
        }
    }

    /// Responses that are whole, or full segments.
    pub fn units(&self) -> u64 {
        match self.response {
            Some(_) => self.responses,
            None => self.received / SEGMENT,
        }
    }

    fn act(&mut self, handle: Handle) {
        let mut count = 0;
        while let Ok(more @ 1..) = self.shard.receive(handle, &mut self.bytes) {
            count += more;
        }
        self.received += count as u64;
        let missing = &mut self.missing[handle.index as usize];
        let is_due = match (&mut *missing, self.response) {
            (None, _) => true,
            // Bytes without end.
            (Some(_), None) => false,
            (Some(left), Some(_)) => {
                *left -= count;
                *left == 0
            }
        };
        if is_due {
            self.responses += u64::from(missing.is_some());
            *missing = Some(self.response.unwrap_or(0));
            let sent = self.shard.send(handle, &REQUEST, false);
            assert_eq!(sent, Ok(REQUEST.len()), "room for one request");
        }
    }
}

/// One round of the client, as [`serve_round`].
#[inline(never)]
pub fn ask_round(client: &mut Client, now_us: u64) {
    client.shard.drive_at(now_us);
    while let Some(event) = client.shard.next_event() {
        client.act(event.handle);
    }
    client.shard.finish();
}
