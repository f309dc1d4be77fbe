//! Dialogues: an engine, a scripted peer and virtual time.
//!
//! A script has one step a line; empty lines and lines that begin with `#` are skipped.
//!
//! | line | meaning |
//! |---|---|
//! | `< S 0:0 win 1000 <mss 1460,sackOK>` | the peer sends this segment |
//! | `< . 1:11 ack 1 fill 7` | the same, and each of its bytes is a 7 |
//! | `> S. 0:0 ack 1 <mss 1460>` | the engine has sent this segment, next in order |
//! | `+200ms` | time passes, timers fire |
//! | `wait 199ms` | as above, and nothing may be sent |
//! | `listen`, `connect`, `accept`, `close`, `abort`, `shutdown`, `shutdown both` | calls |
//! | `send 1000`, `more 10`, `urgent 1`, `recv 500`, `recv eof`, `recv wouldblock` | calls and their results |
//! | `peek 500` | bytes to be read that stay |
//! | `connect rcvbuf 9000` | with an option that is set before the first segment leaves |
//! | `error refused` | the error of the socket |
//! | `set nodelay`, `set keepalive 10 5 3`, … | options |
//! | `icmp toobig 1000 seq 1`, `icmp unreachable seq 1`, `icmp code 13 seq 1` | an error about a segment of the engine's |
//! | `state FinWait2` | the state of the connection |
//! | `room 0`, `room any` | how many frames the device takes |
//! | `gso room 0`, `gso room any` | how many of them in its queue for GSO segments |
//!
//! Sequence and acknowledgment numbers count from the initial ones. Of an expected segment, flags,
//! numbers and acknowledgment are compared always, window and options only when given; `TS` stands
//! for any timestamps. A segment that the engine sent must be expected before the peer sends again.

use super::{config, Frames};
use bypass_tcp::wire::{checksum, ethernet, icmp, ip, tcp};
use bypass_tcp::{Address, Config, Engine, Error, Handle, Rx, Shutdown, SocketOption, Sum};
use std::collections::VecDeque;

const OURS: u32 = 0x0a00_0001;
const PEER: u32 = 0x0a00_0002;
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// The peer's initial number: the dialogue crosses the end of the number space.
const PEER_ISN: u32 = u32::MAX - 500;

pub struct Dialogue {
    pub engine: Engine,
    pub now_us: u64,
    pub frames: Frames,
    sent: VecDeque<Vec<u8>>,
    listener: Option<Handle>,
    pub handle: Option<Handle>,
    isn: Option<u32>,
    ports: (u16, u16),
    last_timestamp: u32,
    is_v6: bool,
}

/// Plays a script with the default settings.
pub fn play(script: &str) -> Dialogue {
    play_with(config(1), script)
}

/// Plays a script with these settings.
pub fn play_with(config: Config, script: &str) -> Dialogue {
    let mut dialogue = Dialogue::new(config);
    dialogue.play(script);
    dialogue
}

/// An established connection accepted from the peer, without timestamps: what most scripts begin with.
pub const ACCEPTED: &str = "
listen
< S 0:0 win 65535 <mss 1000,sackOK,nop,nop,nop,wscale 0>
> S. 0:0 ack 1
+10ms
< . 1:1 ack 1 win 65535
accept
";

impl Dialogue {
    pub fn new(config: Config) -> Dialogue {
        let now_us = 1_000_000_000;
        let mut frames = Frames::of_mtu(config.mtu);
        let mut engine = Engine::new(config, now_us);
        engine.set_addresses(&[
            Address {
                ip: OURS.to_be_bytes().into(),
                prefix_len: 24,
            },
            Address {
                ip: "fd00::1".parse().unwrap(),
                prefix_len: 64,
            },
        ]);
        engine.set_neighbour(now_us, PEER.to_be_bytes().into(), PEER_MAC, &mut frames);
        engine.set_neighbour(now_us, "fd00::2".parse().unwrap(), PEER_MAC, &mut frames);
        Dialogue {
            engine,
            now_us,
            frames,
            sent: VecDeque::new(),
            listener: None,
            handle: None,
            isn: None,
            ports: (80, 40_000),
            last_timestamp: 0,
            is_v6: false,
        }
    }

    /// The peer goes on from another port of its own; what [`Dialogue::return_to_flow`] needs to come back.
    pub fn leave_for_port(&mut self, port: u16) -> (Option<u32>, (u16, u16)) {
        let before = (self.isn.take(), self.ports);
        self.ports.1 = port;
        before
    }

    pub fn return_to_flow(&mut self, (isn, ports): (Option<u32>, (u16, u16))) {
        (self.isn, self.ports) = (isn, ports);
    }

    pub fn v6(mut self) -> Dialogue {
        self.is_v6 = true;
        self
    }

    pub fn play(&mut self, script: &str) {
        for (number, line) in script.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Err(what) = self.step(line) {
                panic!("line {}, {line:?}: {what}\n{script}", number + 1);
            }
            self.end_round();
        }
        let left = self.sent.front().map(|frame| self.describe(frame));
        assert!(
            left.is_none(),
            "not expected at the end of the script: {left:?}\n{script}"
        );
    }

    /// As [`Dialogue::play`]; what the engine sends is not looked at.
    pub fn play_loosely(&mut self, script: &str) {
        for line in script.lines().map(str::trim) {
            self.sent.clear();
            self.step(line).expect(line);
            self.end_round();
        }
        self.sent.clear();
    }

    fn end_round(&mut self) {
        self.engine.end_batch(self.now_us, &mut self.frames);
        while self.engine.next_event().is_some() {}
        if !self.engine.config().answers_follow {
            self.engine.end_batch(self.now_us, &mut self.frames);
        }
        self.sent.extend(self.frames.sent.drain(..));
        self.engine.check_invariants().expect("invariants");
    }

    fn step(&mut self, line: &str) -> Result<(), String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "<" => self.inject(rest),
            ">" => self.expect(rest),
            "wait" => self.pass(rest).and_then(|()| self.expect_nothing()),
            "state" => same(&format!("{:?}", self.info().state), rest),
            "icmp" => self.inject_icmp(rest),
            _ if word.starts_with('+') => self.pass(&word[1..]),
            _ => self.call(word, rest),
        }
    }

    fn info(&mut self) -> bypass_tcp::Info {
        let handle = self.handle.expect("a connection");
        self.engine.info(handle).expect("an open handle")
    }

    /// The congestion window of the connection, and its slow start threshold.
    pub fn window(&mut self) -> (u32, u32) {
        let info = self.info();
        (info.cwnd, info.ssthresh)
    }

    fn pass(&mut self, text: &str) -> Result<(), String> {
        let until_us = self.now_us + duration_us(text)?;
        while let Some(next_us) = self
            .engine
            .next_timer()
            .filter(|next_us| *next_us <= until_us)
        {
            self.now_us = self.now_us.max(next_us);
            self.engine.poll_timers(self.now_us, &mut self.frames);
            self.end_round();
        }
        self.now_us = until_us;
        Ok(())
    }

    fn expect_nothing(&mut self) -> Result<(), String> {
        match self.sent.front() {
            None => Ok(()),
            Some(frame) => Err(format!("unexpected: {}", self.describe(frame))),
        }
    }

    fn call(&mut self, word: &str, rest: &str) -> Result<(), String> {
        let now_us = self.now_us;
        let count = || rest.parse::<usize>().map_err(|error| error.to_string());
        let handle = self.handle;
        let open = || handle.ok_or("no connection");
        let engine = &mut self.engine;
        match word {
            "listen" => {
                let backlog = if rest.is_empty() { 10 } else { count()? as u32 };
                self.listener = Some(
                    engine
                        .listen("[::]:80".parse().unwrap(), backlog)
                        .map_err(text)?,
                );
            }
            "connect" => {
                let to = if self.is_v6 {
                    "[fd00::2]:80"
                } else {
                    "10.0.0.2:80"
                };
                let handle = engine
                    .connect(now_us, None, to.parse().unwrap())
                    .map_err(text)?;
                self.handle = Some(handle);
                self.ports = (engine.local_addr(handle).map_err(text)?.port(), 80);
                if !rest.is_empty() {
                    self.set(rest)?;
                }
            }
            "accept" => {
                self.handle = Some(
                    engine
                        .accept(self.listener.ok_or("no listener")?)
                        .map_err(text)?,
                )
            }
            "close" => engine.close(now_us, open()?).map_err(text)?,
            "unlisten" => engine
                .close(now_us, self.listener.ok_or("no listener")?)
                .map_err(text)?,
            "abort" => engine.abort(now_us, open()?).map_err(text)?,
            "shutdown" => engine
                .shutdown(now_us, open()?, shutdown(rest)?)
                .map_err(text)?,
            "send" | "more" => {
                let bytes = vec![b'x'; count()?];
                let sent = engine.send(now_us, open()?, &bytes, word == "more");
                return same(&format!("{sent:?}"), &format!("Ok({rest})"));
            }
            "urgent" => drop(
                engine
                    .send_urgent(now_us, open()?, &vec![b'u'; count()?])
                    .map_err(text)?,
            ),
            "recv" => return recv(engine, now_us, open()?, rest),
            "peek" => {
                let mut buffer = vec![0; 1 << 20];
                let seen = engine.peek(open()?, &mut buffer).map_err(text)?;
                return same(&seen.to_string(), rest);
            }
            "error" => {
                let error = engine.take_error(open()?).map_err(text)?;
                return same(
                    &error.map_or("none".into(), |error| error.to_string()),
                    rest,
                );
            }
            "set" => self.set(rest)?,
            "room" => self.frames.room = count().ok(),
            "gso" => {
                let room = rest.strip_prefix("room ").ok_or("gso room N")?;
                self.frames.gso_room = room.parse().ok();
            }
            _ => return Err("unknown step".into()),
        }
        Ok(())
    }

    fn set(&mut self, rest: &str) -> Result<(), String> {
        let words: Vec<&str> = rest.split_whitespace().collect();
        let number = |at: usize| {
            words
                .get(at)
                .and_then(|word| word.parse::<u32>().ok())
                .unwrap_or(0)
        };
        let options = match words[0] {
            "nodelay" => vec![SocketOption::NoDelay(true)],
            "cork" => vec![SocketOption::Cork(number(1) > 0)],
            "usertimeout" => vec![SocketOption::UserTimeout {
                milliseconds: number(1),
            }],
            "rcvbuf" => vec![SocketOption::ReceiveBuffer { bytes: number(1) }],
            "oobinline" => vec![SocketOption::UrgentInline(true)],
            "defer" => vec![SocketOption::DeferAccept(true)],
            "keepalive" => vec![
                SocketOption::KeepIdle { seconds: number(1) },
                SocketOption::KeepInterval { seconds: number(2) },
                SocketOption::KeepCount(number(3) as u8),
                SocketOption::KeepAlive(true),
            ],
            _ => return Err("unknown option".into()),
        };
        let handle = self.handle.or(self.listener).ok_or("no socket")?;
        for option in options {
            self.engine
                .setopt(self.now_us, handle, option)
                .map_err(text)?;
        }
        Ok(())
    }

    /// Writes the peer's segment and hands it to the engine.
    fn inject(&mut self, line: &str) -> Result<(), String> {
        self.expect_nothing()?;
        let segment = Text::parse(line)?;
        let mut bytes = Vec::new();
        bytes.extend(self.ports.1.to_be_bytes());
        bytes.extend(self.ports.0.to_be_bytes());
        bytes.extend(PEER_ISN.wrapping_add(segment.seq).to_be_bytes());
        let ack = segment
            .ack
            .map_or(0, |ack| self.isn.unwrap_or(0).wrapping_add(ack));
        bytes.extend(ack.to_be_bytes());
        let options = self.options(&segment.options)?;
        bytes.push(((20 + options.len()) / 4 * 16) as u8);
        bytes.push(segment.flags);
        bytes.extend(segment.window.unwrap_or(65_535).to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(segment.urgent.to_be_bytes());
        bytes.extend(options);
        let byte = |i| segment.fill.unwrap_or((segment.seq + i) as u8);
        bytes.extend((0..segment.len()).map(byte));
        self.hand_over(ip::TCP, bytes, segment.ecn)
    }

    fn hand_over(&mut self, protocol: u8, mut bytes: Vec<u8>, ecn: u8) -> Result<(), String> {
        let (source, destination) = match self.is_v6 {
            false => (ip::Addr::v4(PEER), ip::Addr::v4(OURS)),
            true => (
                "fd00::2".parse::<std::net::IpAddr>().unwrap().into(),
                "fd00::1".parse::<std::net::IpAddr>().unwrap().into(),
            ),
        };
        let (at, mut sum) = match protocol {
            ip::TCP => (
                16,
                ip::pseudo_header(source, destination, protocol, bytes.len()),
            ),
            ip::ICMPV6 => (
                2,
                ip::pseudo_header(source, destination, protocol, bytes.len()),
            ),
            _ => (2, checksum::Checksum::default()),
        };
        sum.add(&bytes);
        bytes[at..at + 2].copy_from_slice(&sum.finish());
        let payload_len = bytes.len();
        let header = ip::Header {
            source,
            destination,
            protocol,
            traffic_class: ecn,
            hops: 64,
            flow_label: 0,
            id: 0,
            payload_len,
        };
        let mut frame = vec![0; 14 + header.len()];
        let kind = if self.is_v6 {
            ethernet::IPV6
        } else {
            ethernet::IPV4
        };
        ethernet::emit(&mut frame, [2, 0, 0, 0, 0, 1], PEER_MAC, kind);
        header.emit(&mut frame[14..]);
        frame.extend(bytes);
        self.engine
            .rx_burst(self.now_us, &[Rx::new(&frame)], &mut self.frames);
        Ok(())
    }

    fn options(&self, text: &str) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        for option in text.split(',').filter(|option| !option.is_empty()) {
            let words: Vec<&str> = option.split_whitespace().collect();
            let number = |at: usize| -> Result<u32, String> {
                words
                    .get(at)
                    .and_then(|word| word.parse().ok())
                    .ok_or(format!("option {option:?}"))
            };
            match words[0] {
                "nop" => bytes.push(1),
                "mss" => bytes.extend([&[2, 4][..], &(number(1)? as u16).to_be_bytes()].concat()),
                "wscale" => bytes.extend([3, 3, number(1)? as u8]),
                "sackOK" => bytes.extend([4, 2]),
                "TS" => {
                    let echo = if words.get(2) == Some(&"last") {
                        self.last_timestamp
                    } else {
                        number(2)?
                    };
                    bytes.extend(
                        [&[8, 10][..], &number(1)?.to_be_bytes(), &echo.to_be_bytes()].concat(),
                    );
                }
                "sack" => {
                    bytes.extend([5, (2 + 8 * (words.len() - 1)) as u8]);
                    for block in &words[1..] {
                        let (left, right) = block.split_once(':').ok_or("a block is left:right")?;
                        for edge in [left, right] {
                            let edge: u32 = edge.parse().map_err(|_| "a block is left:right")?;
                            bytes.extend(self.isn.unwrap_or(0).wrapping_add(edge).to_be_bytes());
                        }
                    }
                }
                "raw" => bytes.extend(words[1..].iter().filter_map(|word| word.parse::<u8>().ok())),
                _ => return Err(format!("unknown option {option:?}")),
            }
        }
        while bytes.len() % 4 != 0 {
            bytes.push(0);
        }
        Ok(bytes)
    }

    fn inject_icmp(&mut self, rest: &str) -> Result<(), String> {
        let words: Vec<&str> = rest.split_whitespace().collect();
        let seq_at = words
            .iter()
            .position(|word| *word == "seq")
            .ok_or("seq is missing")?
            + 1;
        let seq: u32 = words
            .get(seq_at)
            .and_then(|word| word.parse().ok())
            .ok_or("seq N")?;
        let mtu: u32 = words.get(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        let mut bytes = match (words[0], self.is_v6) {
            ("toobig", false) => vec![3, 4, 0, 0, 0, 0, (mtu >> 8) as u8, mtu as u8],
            ("toobig", true) => [&[2, 0, 0, 0][..], &mtu.to_be_bytes()].concat(),
            ("unreachable", false) => vec![3, 3, 0, 0, 0, 0, 0, 0],
            ("nohost", false) => vec![3, 1, 0, 0, 0, 0, 0, 0],
            ("looped", false) => vec![11, 0, 0, 0, 0, 0, 0, 0],
            ("looped", true) => vec![3, 0, 0, 0, 0, 0, 0, 0],
            ("code", false) => vec![3, mtu as u8, 0, 0, 0, 0, 0, 0],
            ("code", true) => vec![1, mtu as u8, 0, 0, 0, 0, 0, 0],
            _ => return Err("unknown error".into()),
        };
        let (source, destination) = match self.is_v6 {
            false => (ip::Addr::v4(OURS), ip::Addr::v4(PEER)),
            true => (
                "fd00::1".parse::<std::net::IpAddr>().unwrap().into(),
                "fd00::2".parse::<std::net::IpAddr>().unwrap().into(),
            ),
        };
        let header = ip::Header {
            source,
            destination,
            protocol: ip::TCP,
            traffic_class: 0,
            hops: 64,
            flow_label: 0,
            id: 0,
            payload_len: 20,
        };
        let mut quoted = vec![0; header.len() + 8];
        header.emit(&mut quoted);
        let at = header.len();
        quoted[at..at + 2].copy_from_slice(&self.ports.0.to_be_bytes());
        quoted[at + 2..at + 4].copy_from_slice(&self.ports.1.to_be_bytes());
        let seq = self.isn.unwrap_or(0).wrapping_add(seq);
        quoted[at + 4..at + 8].copy_from_slice(&seq.to_be_bytes());
        bytes.extend(quoted);
        self.hand_over(if self.is_v6 { ip::ICMPV6 } else { ip::ICMP }, bytes, 0)
    }

    /// Compares the next frame of the engine with the line.
    fn expect(&mut self, line: &str) -> Result<(), String> {
        let wanted = Text::parse(line)?;
        let frame = self.sent.pop_front().ok_or("the engine has sent nothing")?;
        let got_text = self.note_and_describe(&frame);
        let got = Text::parse(&got_text)?;
        let fits = got.flags == wanted.flags
            && (got.seq, got.end) == (wanted.seq, wanted.end)
            && got.ack == wanted.ack
            && wanted
                .window
                .is_none_or(|window| got.window == Some(window))
            && (wanted.urgent == 0 || wanted.urgent == got.urgent)
            && (wanted.ecn == 0 || wanted.ecn == got.ecn)
            && (!wanted.has_options || options_fit(&wanted.options, &got.options));
        if fits {
            Ok(())
        } else {
            Err(format!("the engine has sent {got_text:?}"))
        }
    }

    fn note_and_describe(&mut self, frame: &[u8]) -> String {
        let packet = parse(frame);
        let segment = tcp::parse(&packet, Sum::Unknown).expect("a segment with a right checksum");
        if segment.flags & tcp::SYN != 0 {
            self.isn = Some(segment.seq);
        }
        if let Some((value, _)) = segment.options.timestamps {
            self.last_timestamp = value;
        }
        self.describe(frame)
    }

    fn describe(&self, frame: &[u8]) -> String {
        let packet = parse(frame);
        if packet.protocol != ip::TCP {
            let message = icmp::parse_v4(packet.payload).is_some();
            return format!("a packet of protocol {} ({message})", packet.protocol);
        }
        let segment = tcp::parse(&packet, Sum::Unknown).expect("a segment with a right checksum");
        let isn = self.isn.unwrap_or(segment.seq);
        // A reset without a connection has numbers of the peer's choice.
        let seq = segment.seq.wrapping_sub(isn);
        let mut text = format!(
            "{} {}:{}",
            flags_text(segment.flags),
            seq,
            seq.wrapping_add(segment.payload.len() as u32)
        );
        if segment.flags & tcp::ACK != 0 {
            text += &format!(" ack {}", segment.ack.wrapping_sub(PEER_ISN));
        }
        text += &format!(" win {}", segment.window);
        if segment.flags & tcp::URG != 0 {
            text += &format!(" urg {}", segment.urgent);
        }
        if packet.traffic_class & 3 > 0 {
            text += &format!(" ecn {}", packet.traffic_class & 3);
        }
        text + &format!(" <{}>", options_text(frame, &packet))
    }
}

fn parse(frame: &[u8]) -> ip::Packet<'_> {
    match frame[12..14] {
        [0x86, 0xdd] => ip::parse_v6(&frame[14..]).expect("a packet"),
        _ => ip::parse_v4(&frame[14..], false).expect("a packet with a right checksum"),
    }
}

fn shutdown(how: &str) -> Result<Shutdown, String> {
    match how {
        "" => Ok(Shutdown::Write),
        "both" => Ok(Shutdown::Both),
        _ => Err("shutdown, or shutdown both".into()),
    }
}

fn recv(engine: &mut Engine, now_us: u64, handle: Handle, rest: &str) -> Result<(), String> {
    if rest == "urgent" {
        return engine.recv_urgent(handle).map(drop).map_err(text);
    }
    let mut buffer = vec![0; 1 << 20];
    let answer = match engine.recv(now_us, handle, &mut buffer) {
        Ok(0) => "eof".to_string(),
        Ok(count) => count.to_string(),
        Err(Error::WouldBlock) => "wouldblock".to_string(),
        Err(error) => error.to_string(),
    };
    same(&answer, rest)
}

fn same(got: &str, wanted: &str) -> Result<(), String> {
    if got == wanted {
        Ok(())
    } else {
        Err(format!("got {got}"))
    }
}

fn text(error: Error) -> String {
    error.to_string()
}

fn duration_us(text: &str) -> Result<u64, String> {
    let units = [("ms", 1_000), ("us", 1), ("s", 1_000_000)];
    let (digits, unit) = units
        .iter()
        .find_map(|(name, unit)| text.strip_suffix(name).map(|digits| (digits, unit)))
        .ok_or("a time ends in us, ms or s")?;
    digits
        .parse::<u64>()
        .map(|count| count * unit)
        .map_err(|error| error.to_string())
}

const FLAGS: [(char, u8); 8] = [
    ('S', tcp::SYN),
    ('F', tcp::FIN),
    ('R', tcp::RST),
    ('P', tcp::PSH),
    ('.', tcp::ACK),
    ('U', tcp::URG),
    ('E', tcp::ECE),
    ('W', tcp::CWR),
];

fn flags_text(flags: u8) -> String {
    FLAGS
        .iter()
        .filter(|(_, bit)| flags & bit != 0)
        .map(|(letter, _)| *letter)
        .collect()
}

/// A segment as a script has it.
struct Text {
    flags: u8,
    seq: u32,
    end: u32,
    ack: Option<u32>,
    window: Option<u16>,
    urgent: u16,
    ecn: u8,
    fill: Option<u8>,
    has_options: bool,
    options: String,
}

impl Text {
    fn parse(line: &str) -> Result<Text, String> {
        let (line, options) = match line.split_once('<') {
            Some((line, options)) => (line, Some(options.trim_end_matches('>').to_string())),
            None => (line, None),
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        let (seq, end) = words
            .get(1)
            .and_then(|word| word.split_once(':'))
            .ok_or("FLAGS seq:end")?;
        let number = |text: &str| {
            text.parse::<u32>()
                .map_err(|_| format!("not a number: {text:?}"))
        };
        let after = |name: &str| {
            let at = words.iter().position(|word| *word == name);
            at.and_then(|at| words.get(at + 1))
                .map(|text| number(text))
                .transpose()
        };
        let mut flags = 0;
        for letter in words[0].chars() {
            let bit = FLAGS
                .iter()
                .find(|(known, _)| *known == letter)
                .ok_or("an unknown flag")?;
            flags |= bit.1;
        }
        Ok(Text {
            flags,
            seq: number(seq)?,
            end: number(end)?,
            ack: after("ack")?,
            window: after("win")?.map(|window| window as u16),
            urgent: after("urg")?.unwrap_or(0) as u16,
            ecn: after("ecn")?.unwrap_or(0) as u8,
            fill: after("fill")?.map(|byte| byte as u8),
            has_options: options.is_some(),
            options: options.unwrap_or_default(),
        })
    }

    fn len(&self) -> u32 {
        self.end.wrapping_sub(self.seq)
    }
}

/// `TS` stands for any timestamps, `TS n` for any value with that echo.
fn options_fit(wanted: &str, got: &str) -> bool {
    let (wanted, got): (Vec<&str>, Vec<&str>) =
        (wanted.split(',').collect(), got.split(',').collect());
    let fits = |(wanted, got): (&&str, &&str)| match wanted.strip_prefix("TS") {
        Some("") => got.starts_with("TS "),
        Some(echo) => got.starts_with("TS ") && got.ends_with(echo),
        None => wanted == got,
    };
    wanted.len() == got.len() && wanted.iter().zip(&got).all(fits)
}

/// The options in the order in which they stand; leading NOPs of an aligned option are left out.
fn options_text(frame: &[u8], packet: &ip::Packet<'_>) -> String {
    let at = frame.len() - packet.payload.len();
    let end = at + usize::from(frame[at + 12] >> 4) * 4;
    let mut bytes = &frame[at + 20..end];
    let mut found = Vec::new();
    while let [kind, rest @ ..] = bytes {
        if *kind < 2 {
            found.push("nop".to_string());
            bytes = rest;
            continue;
        }
        let len = usize::from(rest[0]);
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        found.push(match kind {
            2 => format!("mss {}", word(0) & 0xffff),
            3 => format!("wscale {}", bytes[2]),
            4 => "sackOK".into(),
            5 => {
                let edges = (0..(len - 2) / 8).map(|block| {
                    let edge = |at: usize| word(at).wrapping_sub(PEER_ISN);
                    format!(" {}:{}", edge(2 + 8 * block), edge(6 + 8 * block))
                });
                format!("sack{}", edges.collect::<String>())
            }
            8 => format!("TS {} {}", word(2), word(6)),
            _ => format!("kind {kind}"),
        });
        bytes = &bytes[len..];
    }
    found.join(",")
}
