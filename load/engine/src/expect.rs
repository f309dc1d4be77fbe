//! Properties that responses must have.

/// Properties of a response; one without them counts as an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expect {
    /// Its status.
    pub status: Option<u16>,
    /// The length of its body.
    pub length: Option<u64>,
    /// A text that its body contains.
    pub body: Option<Vec<u8>>,
}

impl Expect {
    /// What is wrong about a response, if anything is.
    pub fn fault(&self, status: u16, length: u64, body: Option<&[u8]>) -> Option<String> {
        if let Some(wanted) = self.status.filter(|&wanted| wanted != status) {
            return Some(format!("status {status} instead of {wanted}"));
        }
        if let Some(wanted) = self.length.filter(|&wanted| wanted != length) {
            return Some(format!("{length} bytes instead of {wanted}"));
        }
        let (wanted, body) = (self.body.as_ref()?, body?);
        let is_there = wanted.is_empty() || body.windows(wanted.len()).any(|part| part == wanted);
        (!is_there).then(|| format!("a body without '{}'", wanted.escape_ascii()))
    }

    /// Whether anything is expected.
    pub fn is_any(&self) -> bool {
        *self != Expect::default()
    }
}
