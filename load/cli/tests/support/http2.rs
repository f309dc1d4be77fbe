//! A small HTTP/2 server that does what a test specifies. It shares no code with the client but the
//! pieces that frames and header blocks are made of.
#![allow(dead_code, reason = "each test file uses a part of it")]

use super::support::pause;
use load_http2::frame::{self, flag, kind, FrameHead, HEAD_BYTES, PREFACE};
use load_http2::hpack::{self, Decoder};
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// One request as the server saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Number of the connection.
    pub connection: usize,
    /// Number of the stream.
    pub stream: u32,
    /// Fields, as `name=value`.
    pub fields: Vec<String>,
    /// Body.
    pub body: Vec<u8>,
}

/// A connection from the server's side.
pub struct Side {
    /// Number of this connection.
    pub number: usize,
    stream: TcpStream,
    decoder: Decoder,
    /// Streams that were given up by the client.
    pub given_up: Vec<u32>,
    /// The codes of GOAWAYs that came.
    pub farewells: Vec<u32>,
    /// PINGs that came; they are answered if it is awake.
    pub pings: usize,
    /// Whether it answers PING and SETTINGS.
    pub is_awake: bool,
    /// Whether it lets the client send as much as it has read.
    pub is_generous: bool,
    unfinished: Vec<Asked>,
}

impl Side {
    fn frame(&mut self) -> Option<(FrameHead, Vec<u8>)> {
        let mut head = [0; HEAD_BYTES];
        self.stream.read_exact(&mut head).ok()?;
        let head = FrameHead::read(&head)?;
        let mut payload = vec![0; head.length];
        self.stream.read_exact(&mut payload).ok()?;
        Some((head, payload))
    }

    /// The next request; `None` at the end.
    pub fn request(&mut self) -> Option<Asked> {
        loop {
            let (head, payload) = self.frame()?;
            match head.kind {
                kind::HEADERS => {
                    assert!(head.has(flag::END_HEADERS), "tests ask for short things");
                    let mut fields = Vec::new();
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let each =
                        |name: &[u8], value: &[u8]| fields.push(text(name) + "=" + &text(value));
                    self.decoder.decode(&payload, each).expect("a block");
                    let asked = Asked {
                        connection: self.number,
                        stream: head.stream,
                        fields,
                        body: Vec::new(),
                    };
                    if head.has(flag::END_STREAM) {
                        return Some(asked);
                    }
                    self.unfinished.push(asked);
                }
                kind::DATA => {
                    let own = |asked: &Asked| asked.stream == head.stream;
                    let place = self.unfinished.iter().position(own).expect("it was begun");
                    self.unfinished[place].body.extend_from_slice(&payload);
                    let more = (payload.len() as u32).to_be_bytes();
                    if self.is_generous {
                        for stream in [0, head.stream] {
                            self.send(kind::WINDOW_UPDATE, 0, stream, &more);
                        }
                    }
                    if head.has(flag::END_STREAM) {
                        return Some(self.unfinished.remove(place));
                    }
                }
                kind::PING if !head.has(flag::ACK) => {
                    self.pings += 1;
                    if self.is_awake {
                        self.send(kind::PING, flag::ACK, 0, &payload);
                    }
                }
                kind::GOAWAY => {
                    let code = payload[4..8].try_into().expect("four octets");
                    self.farewells.push(u32::from_be_bytes(code));
                }
                kind::RST_STREAM => self.given_up.push(head.stream),
                kind::SETTINGS if !head.has(flag::ACK) && self.is_awake => {
                    self.send(kind::SETTINGS, flag::ACK, 0, &[]);
                }
                _ => {}
            }
        }
    }

    /// What does not come within this time is the end.
    pub fn wait_at_most(&self, time: std::time::Duration) {
        let set = self.stream.set_read_timeout(Some(time));
        set.expect("a time");
    }

    /// Writes one frame; false if the client is gone.
    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        let mut out = Vec::new();
        frame::write(&mut out, kind, flags, stream, payload);
        self.stream.write_all(&out).is_ok()
    }

    /// Answers with a status and a body.
    pub fn answer(&mut self, stream: u32, status: &str, body: &[u8]) -> bool {
        let mut block = Vec::new();
        hpack::put_plain(b":status", status.as_bytes(), &mut block);
        hpack::put_plain(b"x-token", b"t1", &mut block);
        let end = if body.is_empty() { flag::END_STREAM } else { 0 };
        let sent = self.send(kind::HEADERS, flag::END_HEADERS | end, stream, &block);
        sent && (body.is_empty() || self.send(kind::DATA, flag::END_STREAM, stream, body))
    }
}

/// A server on a free port; its threads end with the test's process.
pub struct Http2Server {
    /// Where it listens.
    pub address: SocketAddr,
    log: Arc<Mutex<Vec<Asked>>>,
}

impl Http2Server {
    /// Each connection is handed to `serve` on a thread of its own, after these settings were sent.
    pub fn start(
        settings: &'static [(u16, u32)],
        serve: impl Fn(Side, &dyn Fn(&Asked)) + Send + Sync + 'static,
    ) -> Http2Server {
        let pairs = settings.iter();
        let payload: Vec<u8> = pairs
            .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        let mut first = Vec::new();
        frame::write(&mut first, kind::SETTINGS, 0, 0, &payload);
        Http2Server::start_with(first, serve)
    }

    /// As [`Http2Server::start`], with these bytes in the place of settings, in one write.
    pub fn start_with(
        first: Vec<u8>,
        serve: impl Fn(Side, &dyn Fn(&Asked)) + Send + Sync + 'static,
    ) -> Http2Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let log = Arc::new(Mutex::new(Vec::new()));
        let (own, serve, number) = (Arc::clone(&log), Arc::new(serve), AtomicUsize::new(0));
        let first: Arc<[u8]> = first.into();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (log, serve) = (Arc::clone(&own), Arc::clone(&serve));
                let first = Arc::clone(&first);
                let number = number.fetch_add(1, Ordering::Relaxed);
                std::thread::spawn(move || {
                    stream.set_nodelay(true).expect("a socket");
                    let mut preface = [0; PREFACE.len()];
                    // the test whether the server is there says nothing
                    if stream.read_exact(&mut preface).is_err() {
                        return;
                    }
                    assert_eq!(preface, PREFACE);
                    let mut side = Side {
                        number,
                        stream,
                        decoder: Decoder::default(),
                        given_up: Vec::new(),
                        farewells: Vec::new(),
                        pings: 0,
                        is_awake: true,
                        is_generous: true,
                        unfinished: Vec::new(),
                    };
                    if side.stream.write_all(&first).is_err() {
                        return;
                    }
                    serve(side, &|asked| {
                        log.lock().expect("no panic").push(asked.clone())
                    });
                });
            }
        });
        Http2Server { address, log }
    }

    /// Answers every request.
    pub fn hello() -> Http2Server {
        Http2Server::start(&[], |mut side, log| {
            while let Some(asked) = side.request() {
                log(&asked);
                pause();
                if !side.answer(asked.stream, "200", b"hello") {
                    return;
                }
            }
        })
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Everything it was asked so far.
    pub fn seen(&self) -> Vec<Asked> {
        self.log.lock().expect("no panic").clone()
    }

    /// On how many connections it was asked so far.
    pub fn connections(&self) -> usize {
        let seen = self.seen().into_iter();
        seen.map(|asked| asked.connection)
            .collect::<HashSet<_>>()
            .len()
    }
}
