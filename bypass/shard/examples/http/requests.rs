//! Requests counted and answered: no more of HTTP than a load generator needs.

/// Longest head of a request.
const HEAD_MAX: usize = 8192;

/// What is known of one client's bytes.
#[derive(Debug, Default)]
pub struct Requests {
    rest: Vec<u8>,
    /// Answers that could not be sent yet.
    pub unsent: Vec<u8>,
    /// The connection ends when everything is sent.
    pub is_last: bool,
}

/// The answer to every request.
pub fn answer(size: u32) -> Vec<u8> {
    let mut answer =
        format!("HTTP/1.1 200 OK\r\nServer: shard\r\nContent-Length: {size}\r\n\r\n").into_bytes();
    answer.resize(answer.len() + size as usize, b'x');
    answer
}

impl Requests {
    /// Takes bytes and appends an answer for each request that they complete.
    pub fn take(&mut self, bytes: &[u8], answer: &[u8]) {
        // The usual case: nothing is left over, and a request came whole.
        if self.rest.is_empty() && bytes.ends_with(b"\r\n\r\n") && count(bytes) == 1 {
            return self.reply(bytes, answer);
        }
        self.rest.extend(bytes);
        while let Some(end) = end_of_head(&self.rest) {
            let head: Vec<u8> = self.rest.drain(..end).collect();
            self.reply(&head, answer);
        }
        self.is_last |= self.rest.len() > HEAD_MAX;
    }

    fn reply(&mut self, head: &[u8], answer: &[u8]) {
        self.unsent.extend(answer);
        let says = |word: &[u8]| {
            head.windows(word.len())
                .any(|part| part.eq_ignore_ascii_case(word))
        };
        self.is_last |= says(b"connection: close") || says(b" http/1.0\r\n");
    }
}

fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .map(|at| at + 4)
}

fn count(bytes: &[u8]) -> usize {
    bytes.windows(4).filter(|four| *four == b"\r\n\r\n").count()
}
