//! Servers, the requests to them, and their shares of connections and requests.

use crate::sys::socket::Address;
use load_http1::request;
use std::cmp::{Ordering, Reverse};
use std::collections::binary_heap::{BinaryHeap, PeekMut};
use std::sync::Arc;

/// One request, rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The bytes of one batch: as many copies of the request as the plan's depth. Connections share
    /// them: an upload is in memory once.
    pub bytes: Arc<[u8]>,
    /// It is a HEAD request, whose answer has no body.
    pub head_only: bool,
    /// Which requests of a batch are HEAD requests, where not all are or are not.
    pub mixed: Option<Arc<[bool]>>,
}

impl Rendered {
    /// Method and path, where it is a request of HTTP/1.
    pub fn name(&self) -> Option<String> {
        let line = self.bytes.split(|byte| *byte == b'\r').next()?;
        let line = std::str::from_utf8(line).ok()?;
        Some(line.rsplit_once(" HTTP/")?.0.to_string())
    }

    /// Requests that a script has rendered.
    pub fn of_text(bytes: Vec<u8>) -> Rendered {
        let heads = request::heads(&bytes).unwrap_or_default();
        let head_only = heads.first().is_some_and(|head| *head);
        let is_mixed = heads.iter().any(|head| *head != head_only);
        Rendered {
            bytes: bytes.into(),
            head_only,
            mixed: is_mixed.then(|| heads.into()),
        }
    }
}

/// A server, and what it is asked.
#[derive(Clone, Debug)]
pub struct Target {
    /// As typed.
    pub url: String,
    /// Where it listens.
    pub address: Address,
    /// Other addresses of the same name.
    pub others: Vec<Address>,
    /// Name for the TLS handshake; `None` for plain connections.
    pub tls_name: Option<String>,
    /// The head of the upgrade to WebSocket without its key; `None` for HTTP.
    pub upgrade: Option<Vec<u8>>,
    /// Its requests.
    pub requests: Vec<Rendered>,
    /// Numbers of requests in the order in which they are sent, again and again.
    pub order: Vec<u32>,
    /// Its share of the requests of an open loop, and of the connections of a closed one, relative to
    /// the other targets.
    pub weight: u32,
}

impl Target {
    /// The bytes of each request, for protocols that send them as they are.
    pub(crate) fn messages(&self) -> Vec<Arc<[u8]>> {
        let each = self.requests.iter().map(|one| Arc::clone(&one.bytes));
        each.collect()
    }

    /// The same target with batches of one request each instead of `depth` copies.
    pub(super) fn single(&self, depth: usize) -> Target {
        let one = |request: &Rendered| Rendered {
            bytes: request.bytes[..request.bytes.len() / depth].into(),
            head_only: request.head_only,
            mixed: None,
        };
        Target {
            requests: self.requests.iter().map(one).collect(),
            ..self.clone()
        }
    }
}

/// Deals `connections` to targets by weight. The first ones go to one target each, so that every
/// target has one; a full round has the weights' shares.
pub fn dealt(weights: &[u32], connections: usize) -> Vec<usize> {
    let order = weighted_order(weights);
    let mut has_none = vec![true; weights.len()];
    let later = order
        .iter()
        .map(|&target| target as usize)
        .cycle()
        .filter(move |&target| !std::mem::take(&mut has_none[target]));
    (0..weights.len()).chain(later).take(connections).collect()
}

/// Spreads requests by weight so that equal ones do not follow each other more than they must: of a
/// weight of w the k-th stands at (2k + 1)/(2w) of the whole order, the first one where several meet.
pub fn weighted_order(weights: &[u32]) -> Vec<u32> {
    let weighted = weights.iter().zip(0..).filter(|(weight, _)| **weight > 0);
    let mut next: BinaryHeap<_> = weighted
        .map(|(&weight, index)| {
            Reverse(Place {
                weight,
                index,
                k: 0,
            })
        })
        .collect();
    let mut order = Vec::new();
    while let Some(mut first) = next.peek_mut() {
        order.push(first.0.index);
        first.0.k += 1;
        if first.0.k == first.0.weight {
            PeekMut::pop(first);
        }
    }
    order
}

/// Where in an order a request stands for the k-th time.
#[derive(PartialEq, Eq)]
struct Place {
    weight: u32,
    index: u32,
    k: u32,
}

impl Ord for Place {
    fn cmp(&self, other: &Place) -> Ordering {
        // (2k + 1)/(2w) of both, brought to one denominator
        let scaled = |own: &Place, by: u32| (2 * u64::from(own.k) + 1) * u64::from(by);
        let (own, theirs) = (scaled(self, other.weight), scaled(other, self.weight));
        own.cmp(&theirs).then(self.index.cmp(&other.index))
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Place) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_kept_and_spread() {
        assert_eq!(weighted_order(&[1, 1, 1]), [0, 1, 2]);
        assert_eq!(weighted_order(&[3, 1]), [0, 0, 1, 0]);
        let order = weighted_order(&[5, 2, 1]);
        let count = |which| order.iter().filter(|&&index| index == which).count();
        assert_eq!([count(0), count(1), count(2)], [5, 2, 1]);
        assert_eq!(weighted_order(&[0, 2, 0, 2]), [1, 3, 1, 3]);
    }

    #[test]
    fn connections_are_dealt_by_weight_and_every_target_has_one() {
        assert_eq!(dealt(&[1], 3), [0, 0, 0]);
        assert_eq!(dealt(&[1, 1, 1], 5), [0, 1, 2, 0, 1]);
        assert_eq!(dealt(&[9, 1], 2), [0, 1]);
        let many = dealt(&[9, 1], 20);
        assert_eq!(many.iter().filter(|&&target| target == 0).count(), 18);
    }

    #[test]
    fn a_long_list_is_spread_at_once() {
        let order = weighted_order(&vec![1; 100_000]);
        assert!(order.into_iter().eq(0..100_000));
    }
}
