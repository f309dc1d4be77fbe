//! Frames as a client writes them (RFC 6455, 5.2).

/// Longest payload of a control frame (RFC 6455, 5.5).
pub const CONTROL_MAX_BYTES: usize = 125;

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// A continuation of a message.
    Continuation = 0x0,
    /// A text message, or its first fragment.
    Text = 0x1,
    /// A binary message, or its first fragment.
    Binary = 0x2,
    /// The end of the connection.
    Close = 0x8,
    /// A check whether the other side is alive.
    Ping = 0x9,
    /// The response to a ping.
    Pong = 0xa,
}

impl Opcode {
    /// By its number; `None` for undefined ones.
    pub fn of(number: u8) -> Option<Opcode> {
        let all = [
            Opcode::Continuation,
            Opcode::Text,
            Opcode::Binary,
            Opcode::Close,
            Opcode::Ping,
            Opcode::Pong,
        ];
        all.into_iter().find(|opcode| *opcode as u8 == number)
    }

    /// Whether frames of this type may appear between the fragments of a message.
    pub fn is_control(self) -> bool {
        self as u8 >= Opcode::Close as u8
    }
}

/// Bytes of a mask.
const MASK_BYTES: usize = 4;

/// Appends one masked frame that holds a whole message.
pub fn push(bytes: &mut Vec<u8>, opcode: Opcode, payload: &[u8], mask: [u8; MASK_BYTES]) {
    const FINAL: u8 = 0x80;
    const MASKED: u8 = 0x80;
    bytes.push(FINAL | opcode as u8);
    match payload.len() {
        length @ 0..=125 => bytes.push(MASKED | length as u8),
        length @ 126..=0xffff => {
            bytes.push(MASKED | 126);
            bytes.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            bytes.push(MASKED | 127);
            bytes.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    bytes.extend_from_slice(&mask);
    let masked = payload.iter().zip(mask.iter().cycle());
    bytes.extend(masked.map(|(byte, mask)| byte ^ mask));
}

/// Frames of [`push`] with the mask 0: the same for the same messages, whatever masks they have.
pub fn unmasked(mut frames: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(frames.len());
    while let Some((head, payload, rest)) = split(frames) {
        let (head, mask) = head.split_at(head.len() - MASK_BYTES);
        bytes.extend_from_slice(head);
        bytes.extend_from_slice(&[0; MASK_BYTES]);
        let masked = payload.iter().zip(mask.iter().cycle());
        bytes.extend(masked.map(|(byte, mask)| byte ^ mask));
        frames = rest;
    }
    bytes
}

/// The head with the mask, and the payload, of the first frame of [`push`], and what follows it.
fn split(frames: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let short = usize::from(*frames.get(1)? & 0x7f);
    let number_bytes = match short {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let number = frames.get(2..2 + number_bytes)?.iter();
    let long = number.fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let length = if number_bytes > 0 { long } else { short };
    let (head, rest) = frames.split_at_checked(2 + number_bytes + MASK_BYTES)?;
    let (payload, rest) = rest.split_at_checked(length)?;
    Some((head, payload, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_the_same_messages_are_the_same_without_their_masks() {
        for length in [0, 5, 125, 126, 65_535, 65_536] {
            let payload: Vec<u8> = (0..length).map(|place| place as u8).collect();
            let [one, other, plain] = [[1, 2, 3, 4], [9; 4], [0; 4]].map(|mask| {
                let mut bytes = Vec::new();
                push(&mut bytes, Opcode::Text, &payload, mask);
                bytes.repeat(2)
            });
            assert_eq!(unmasked(&one), plain, "{length}");
            assert_eq!(unmasked(&other), plain, "{length}");
        }
    }

    #[test]
    fn the_masked_example_of_the_rfc_is_written() {
        let mut bytes = Vec::new();
        push(&mut bytes, Opcode::Text, b"Hello", [0x37, 0xfa, 0x21, 0x3d]);
        let rfc = [
            0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58,
        ];
        assert_eq!(bytes, rfc);
    }

    #[test]
    fn lengths_are_written_in_their_shortest_form() {
        for (length, head) in [
            (125, vec![0x82, 0x80 | 125]),
            (126, vec![0x82, 0x80 | 126, 0, 126]),
            (65_535, vec![0x82, 0x80 | 126, 0xff, 0xff]),
            (65_536, vec![0x82, 0x80 | 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] {
            let mut bytes = Vec::new();
            push(&mut bytes, Opcode::Binary, &vec![7; length], [0; 4]);
            assert_eq!(bytes[..head.len()], head);
            assert_eq!(bytes.len(), head.len() + 4 + length);
        }
    }
}
