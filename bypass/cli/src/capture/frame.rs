//! Frames as a capture file holds them: segments of same-host connections get headers, and checksums that a
//! device was to complete are completed.

use std::net::IpAddr;

use bypass_stats::capture::Segment;

const ETHERNET: usize = 14;
const IP_4: usize = 20;
const IP_6: usize = 40;
const TCP: u8 = 6;
const UDP: u8 = 17;
const SYN: u8 = 2;
/// Of a SYN: the loopback's largest segment, and a window that is never full.
const SYN_OPTIONS: [u8; 8] = [2, 4, 0xff, 0xc3, 1, 3, 3, 14];

/// A segment as an Ethernet frame without link addresses, as on the loopback; `length` counts its whole
/// payload, of which these bytes are kept.
pub(super) fn of_segment(segment: &Segment, payload: &[u8], length: usize) -> Vec<u8> {
    let options: &[u8] = match segment.flags & SYN {
        0 => &[],
        _ => &SYN_OPTIONS,
    };
    let header = 20 + options.len();
    let mut frame = vec![0; 12];
    match (segment.from.ip(), segment.to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            frame.extend([0x08, 0x00, 0x45, 0]);
            frame.extend(((IP_4 + header + length) as u16).to_be_bytes());
            frame.extend([0, 0, 0x40, 0, 64, TCP, 0, 0]);
            frame.extend(from.octets());
            frame.extend(to.octets());
            let sum = !folded(sum_of(&frame[ETHERNET..]));
            frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&sum.to_be_bytes());
        }
        (from, to) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(((header + length) as u16).to_be_bytes());
            frame.extend([TCP, 64]);
            frame.extend(sixteen(from));
            frame.extend(sixteen(to));
        }
    }
    frame.extend(segment.from.port().to_be_bytes());
    frame.extend(segment.to.port().to_be_bytes());
    frame.extend(segment.sequence.to_be_bytes());
    frame.extend(segment.acknowledgment.to_be_bytes());
    frame.extend([
        (header as u8 / 4) << 4,
        segment.flags,
        0xff,
        0xff,
        0,
        0,
        0,
        0,
    ]);
    frame.extend(options);
    frame.extend(payload);
    complete(&mut frame);
    frame
}

/// How much longer the frame of a segment is than its payload.
pub(super) fn overhead(segment: &Segment) -> usize {
    let ip = match segment.from.ip() {
        IpAddr::V4(_) if segment.to.is_ipv4() => IP_4,
        _ => IP_6,
    };
    let options = if segment.flags & SYN == 0 {
        0
    } else {
        SYN_OPTIONS.len()
    };
    ETHERNET + ip + 20 + options
}

fn sixteen(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// A TCP or UDP checksum in a frame.
struct Field {
    at: usize,
    /// Of the pseudo header.
    pseudo: u64,
    summed: std::ops::Range<usize>,
    protocol: u8,
}

impl Field {
    /// None in a frame that was cut, a fragment, and what is neither TCP nor UDP.
    fn of(frame: &[u8]) -> Option<Self> {
        let (addresses, protocol, start, end) = transport(frame)?;
        let at = match protocol {
            TCP => start + 16,
            UDP => start + 6,
            _ => return None,
        };
        (at + 2 <= end && end <= frame.len()).then(|| Self {
            at,
            pseudo: sum_of(&frame[addresses]) + (end - start) as u64 + u64::from(protocol),
            summed: start..end,
            protocol,
        })
    }

    fn is_partial(&self, frame: &[u8]) -> bool {
        frame[self.at..self.at + 2] == folded(self.pseudo).to_be_bytes()
    }

    fn complete(self, frame: &mut [u8]) {
        frame[self.at..self.at + 2].fill(0);
        let sum = match !folded(self.pseudo + sum_of(&frame[self.summed])) {
            0 if self.protocol == UDP => 0xffff,
            sum => sum,
        };
        frame[self.at..self.at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

fn complete(frame: &mut [u8]) {
    if let Some(field) = Field::of(frame) {
        field.complete(frame);
    }
}

/// Completes the TCP or UDP checksum of a frame whose field holds the sum over the pseudo header alone. Any
/// other frame stays as it is, so that a damaged one is shown as such.
pub(super) fn complete_partial(frame: &mut [u8]) {
    if let Some(field) = Field::of(frame).filter(|field| field.is_partial(frame)) {
        field.complete(frame);
    }
}

/// Where addresses lie, which protocol, and where its header begins and the packet ends.
fn transport(frame: &[u8]) -> Option<(std::ops::Range<usize>, u8, usize, usize)> {
    let two = |at: usize| -> Option<usize> {
        let bytes: [u8; 2] = frame.get(at..at + 2)?.try_into().ok()?;
        Some(usize::from(u16::from_be_bytes(bytes)))
    };
    match two(12)? {
        0x0800 => {
            let start = ETHERNET + usize::from(frame.get(ETHERNET)? & 15) * 4;
            let is_fragment = two(ETHERNET + 6)? & 0x3fff != 0;
            let protocol = *frame.get(ETHERNET + 9)?;
            let end = ETHERNET + two(ETHERNET + 2)?;
            (!is_fragment && end >= start && frame.len() >= ETHERNET + IP_4).then_some((
                ETHERNET + 12..ETHERNET + IP_4,
                protocol,
                start,
                end,
            ))
        }
        0x86dd => {
            let start = ETHERNET + IP_6;
            let end = start + two(ETHERNET + 4)?;
            let protocol = *frame.get(ETHERNET + 6)?;
            (frame.len() >= start).then_some((ETHERNET + 8..start, protocol, start, end))
        }
        _ => None,
    }
}

/// RFC 1071.
fn sum_of(bytes: &[u8]) -> u64 {
    let mut pairs = bytes.chunks_exact(2);
    let sum: u64 = pairs
        .by_ref()
        .map(|pair| u64::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    sum + pairs
        .remainder()
        .first()
        .map_or(0, |last| u64::from(*last) << 8)
}

fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(from: &str, to: &str, flags: u8) -> Segment {
        Segment {
            from: from.parse().expect("an address"),
            to: to.parse().expect("an address"),
            sequence: 1,
            acknowledgment: 2,
            flags,
            by_client: true,
        }
    }

    /// The sum over a packet with its checksum in place is all ones (RFC 1071).
    fn is_right(frame: &[u8]) -> bool {
        let (addresses, protocol, start, end) = transport(frame).expect("an IP packet");
        let pseudo = sum_of(&frame[addresses]) + (end - start) as u64 + u64::from(protocol);
        let header = frame[12] != 8 || folded(sum_of(&frame[ETHERNET..ETHERNET + IP_4])) == 0xffff;
        end == frame.len() && header && folded(pseudo + sum_of(&frame[start..end])) == 0xffff
    }

    #[test]
    fn segments_become_packets_with_right_checksums() {
        for (from, to) in [("127.0.0.1:1", "127.0.0.1:80"), ("[::1]:1", "[::1]:80")] {
            for (flags, payload) in [(2, &b""[..]), (16, b""), (24, b"odd"), (24, b"even")] {
                let segment = segment(from, to, flags);
                let frame = of_segment(&segment, payload, payload.len());
                assert!(is_right(&frame), "{from} {flags} {payload:?}");
                assert_eq!(frame.len(), overhead(&segment) + payload.len());
            }
        }
    }

    #[test]
    fn a_part_of_a_sum_is_completed_and_what_is_cut_stays_as_it_is() {
        let whole = of_segment(&segment("10.0.0.1:1", "10.0.0.2:2", 24), b"bytes", 5);
        let mut partial = whole.clone();
        let field = Field::of(&whole).expect("a segment");
        partial[field.at..field.at + 2].copy_from_slice(&folded(field.pseudo).to_be_bytes());
        let cut = partial[..partial.len() - 1].to_vec();
        complete_partial(&mut partial);
        assert_eq!(partial, whole);
        let mut damaged = whole.clone();
        *damaged.last_mut().expect("bytes") ^= 1;
        for before in [cut, whole, damaged] {
            let mut frame = before.clone();
            complete_partial(&mut frame);
            assert_eq!(frame, before);
        }
    }

    #[test]
    fn frames_of_any_length_and_content_are_taken() {
        let whole = of_segment(&segment("[::1]:1", "[::1]:2", 24), b"bytes", 5);
        let shorter = (0..whole.len()).map(|length| whole[..length].to_vec());
        let odd = [
            vec![0xff; 80],
            [&[0; 12][..], &[8, 0], &[0xff; 30]].concat(),
        ];
        for mut frame in shorter.chain(odd) {
            complete(&mut frame);
            complete_partial(&mut frame);
        }
    }
}
