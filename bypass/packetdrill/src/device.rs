//! The device of a host: packets that leave, and when.

use std::collections::VecDeque;

use bypass_tcp::wire::{checksum, ip, tcp};
use bypass_tcp::{TxMeta, TxSink};

const ETHERNET: usize = 14;

/// Packets without their Ethernet headers, and when they left.
#[derive(Debug, Default)]
pub struct Leaving {
    /// The time for packets that leave now.
    pub now_us: u64,
    /// GSO packets are segmented, as a device would.
    pub cuts: bool,
    packets: VecDeque<(u64, Vec<u8>)>,
}

impl Leaving {
    /// The earliest packet that left, and when.
    pub fn pop(&mut self) -> Option<(u64, Vec<u8>)> {
        self.packets.pop_front()
    }

    fn push(&mut self, mut frame: Vec<u8>) {
        // Neighbours are known: scripts are not about ARP and neighbour discovery.
        if matches!(frame[12..ETHERNET], [8, 0] | [0x86, 0xdd]) {
            let packet = frame.split_off(ETHERNET);
            self.packets.push_back((self.now_us, packet));
        }
    }
}

impl TxSink for Leaving {
    fn transmit(&mut self, len: usize, meta: TxMeta, fill: impl FnOnce(&mut [u8])) -> bool {
        let mut frame = vec![0; len];
        fill(&mut frame);
        if meta.gso_size > 0 && self.cuts {
            for piece in cut(&frame, &meta) {
                self.push(piece);
            }
            return true;
        }
        if meta.gso_size > 0 || meta.partial_checksum {
            complete(&mut frame, &meta);
        }
        self.push(frame);
        true
    }
}

/// The segments of a GSO packet; FIN and PSH stay with the last.
fn cut(frame: &[u8], meta: &TxMeta) -> Vec<Vec<u8>> {
    let (headers, payload) = frame.split_at(meta.header_len);
    let count = payload.len().div_ceil(meta.gso_size);
    let pieces = payload.chunks(meta.gso_size).enumerate();
    let packet = |(number, piece): (usize, &[u8])| {
        let mut packet = [headers, piece].concat();
        let seq = &mut packet[meta.tcp_at + 4..meta.tcp_at + 8];
        let first = u32::from_be_bytes([seq[0], seq[1], seq[2], seq[3]]);
        let ahead = (number * meta.gso_size) as u32;
        seq.copy_from_slice(&first.wrapping_add(ahead).to_be_bytes());
        if number + 1 < count {
            packet[meta.tcp_at + 13] &= !(tcp::FIN | tcp::PSH);
        }
        state_length(&mut packet);
        complete(&mut packet, meta);
        packet
    };
    pieces.map(packet).collect()
}

/// Writes the length of an IP packet, and the fields that depend on it.
fn state_length(frame: &mut [u8]) {
    let length = (frame.len() - ETHERNET) as u16;
    let packet = &mut frame[ETHERNET..];
    if packet[0] >> 4 == 6 {
        packet[4..6].copy_from_slice(&(length - 40).to_be_bytes());
        return;
    }
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[10..12].fill(0);
    let sum = checksum::of(&packet[..20]);
    packet[10..12].copy_from_slice(&sum);
}

/// Completes the checksum of a GSO packet, which packetdrill treats as one large packet, as it does
/// Linux's.
fn complete(frame: &mut [u8], meta: &TxMeta) {
    let place = meta.tcp_at + 16..meta.tcp_at + 18;
    frame[place.clone()].fill(0);
    let packet = match frame[ETHERNET] >> 4 {
        4 => ip::parse_v4(&frame[ETHERNET..], true).ok(),
        _ => ip::parse_v6(&frame[ETHERNET..]).ok(),
    };
    let Some(packet) = packet else { return };
    let mut sum = ip::pseudo_header(
        packet.source,
        packet.destination,
        ip::TCP,
        packet.payload.len(),
    );
    sum.add(packet.payload);
    let sum = sum.finish();
    frame[place].copy_from_slice(&sum);
}
