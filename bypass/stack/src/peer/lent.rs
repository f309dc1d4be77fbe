//! The numbers under which the other side knows the contents that we share with it without copying.

use core::sync::atomic::AtomicU64;

/// Contents whose numbers are remembered, by their identity modulo this.
const PLACES: usize = 256;

/// By content: its identity above, its number (or how often it was sent) below.
#[derive(Debug)]
pub struct Lent(Box<[AtomicU64]>);

impl Lent {
    /// Nothing yet.
    pub fn new() -> Self {
        Self((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }

    /// Where content `id` is remembered, with others.
    pub fn place(&self, id: u32) -> &AtomicU64 {
        &self.0[id as usize % PLACES]
    }
}
