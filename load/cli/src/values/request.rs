//! The parts of requests as options give them: methods, header fields, sizes of messages.

use super::{Number, Value};
use crate::refusal::{wrong, Refusal, Wrong};

/// Largest message, and largest answer, over TCP.
const SIZE_MAX_BYTES: usize = 64 << 20;

/// The method of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method(pub String);

impl Value for Method {
    fn read(name: &'static str, text: &str) -> Result<Method, Refusal> {
        let is_token = |byte: u8| byte.is_ascii_uppercase() || byte == b'-';
        if text.is_empty() || !text.bytes().all(is_token) {
            return wrong(
                name,
                Wrong::Invalid("method", text.to_string(), "for example GET"),
            );
        }
        Ok(Method(text.to_string()))
    }
}

/// A header field; without a name it is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderField(pub String, pub String);

impl Value for HeaderField {
    fn read(option: &'static str, text: &str) -> Result<HeaderField, Refusal> {
        if text.trim().is_empty() {
            // as under wrk and curl: of a shell's variable that is not set
            return Ok(HeaderField(String::new(), String::new()));
        }
        match text.split_once(':') {
            Some((name, value)) if !name.is_empty() && !text.contains(['\r', '\n']) => {
                let value = value.trim_start();
                Ok(HeaderField(name.to_string(), value.to_string()))
            }
            _ => wrong(
                option,
                Wrong::Invalid("field", text.to_string(), "write 'Name: value'"),
            ),
        }
    }
}

/// The size of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub usize);

impl Value for Bytes {
    fn read(name: &'static str, text: &str) -> Result<Bytes, Refusal> {
        let figure = Number::read(name, text)?.0;
        if !(1.0..=SIZE_MAX_BYTES as f64).contains(&figure) || figure.fract() != 0.0 {
            return wrong(
                name,
                Wrong::OutOfRange(
                    format!("bytes, a whole number from 1 to {SIZE_MAX_BYTES}").into(),
                ),
            );
        }
        Ok(Bytes(figure as usize))
    }
}
