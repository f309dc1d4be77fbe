//! Where new connections may come from, by address of this host: lists that the program goes through.
//!
//! Several processes keep the same tables, each for itself, from what the kernel says of its routes. So a list is found
//! by its content: whoever needs one that is there uses it.

use std::net::IpAddr;

use bypass_netlink::Prefix;

use crate::program::{WAYS_MAX, WAY_WORDS};
use crate::sys::table::Table;

/// Lists that there may be.
pub const LISTS: usize = 64;
/// Words of a list.
pub const LIST_WORDS: usize = WAYS_MAX * WAY_WORDS;
/// The list by which every new connection is taken.
pub const ALL: usize = 0;
/// The one by which none is: it stays empty.
const NONE: usize = LISTS - 1;

/// Whether new connections from a network are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct From {
    /// The network.
    pub network: Prefix,
    /// Their answers would leave over this interface.
    pub is_ours: bool,
}

/// What decides: prefixes that say nothing else than those around them are left out. Of more than a list has room for,
/// the longest networks that would be taken are left to the kernel, which serves them too.
pub fn shortened(mut all: Vec<From>) -> Vec<From> {
    all.sort_by_key(|one| one.network.len);
    let mut kept: Vec<From> = Vec::new();
    for one in all {
        let around = kept
            .iter()
            .rev()
            .find(|other| other.network.covers(&one.network));
        if one.is_ours != around.is_some_and(|other| other.is_ours) {
            kept.push(one);
        }
    }
    if kept.len() < WAYS_MAX {
        kept.reverse();
        return kept;
    }
    // The longest prefixes are exceptions: fewest hosts are left to the kernel without them.
    let Some(last) = kept.iter().rposition(|one| one.is_ours) else {
        return Vec::new();
    };
    kept.remove(last);
    shortened(kept)
}

/// A list as it stands in the table.
fn words(list: &[From], is_v4: bool) -> Vec<u64> {
    let mut words = vec![0; LIST_WORDS];
    for (place, one) in words.chunks_exact_mut(WAY_WORDS).zip(list) {
        let [network, mask] = one.network.mapped(is_v4).map(u128::to_be_bytes);
        let halves = [&mask[..8], &mask[8..], &network[..8], &network[8..]];
        for (word, half) in place.iter_mut().zip(halves) {
            *word = half.try_into().map_or(0, u64::from_ne_bytes);
        }
        place[WAY_WORDS - 1] = u64::from(one.is_ours);
    }
    words
}

/// Fills the list by which everything is taken.
pub fn begin(table: &Table) {
    table.set(ALL * LIST_WORDS + WAY_WORDS - 1, 1);
}

/// The number of the list with this content for addresses like `of`, which is written where it was not there yet;
/// `is_used` says of which lists that cannot be. If all are used, the one by which nothing is taken.
pub fn place(table: &Table, list: &[From], of: IpAddr, is_used: impl Fn(usize) -> bool) -> usize {
    if list.is_empty() {
        return NONE;
    }
    let content = words(list, of.is_ipv4());
    let at = |number: usize| number * LIST_WORDS;
    let is_same = |number: &usize| {
        let mut words = content.iter().enumerate();
        words.all(|(word, value)| table.get(at(*number) + word) == *value)
    };
    let is_empty = |number: &usize| (0..LIST_WORDS).all(|word| table.get(at(*number) + word) == 0);
    let all = 1..NONE;
    if let Some(known) = all.clone().find(is_same) {
        return known;
    }
    let place = all.clone().find(is_empty);
    let Some(number) = place.or_else(|| all.clone().find(|number| !is_used(*number))) else {
        return NONE;
    };
    // An unfinished list takes nothing that the whole one does not: what was there is cleared from its front, which
    // ends the list, and an entry decides with its last word.
    (0..LIST_WORDS).for_each(|word| table.set(at(number) + word, 0));
    let entries = content.chunks_exact(WAY_WORDS).enumerate();
    for (entry, words) in entries {
        // The network before the mask: until both are there, nothing fits that should not.
        for word in [2, 3, 0, 1, 4] {
            table.set(at(number) + entry * WAY_WORDS + word, words[word]);
        }
    }
    // Another process may have written another list there at the same time.
    if is_same(&number) {
        number
    } else {
        NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(network: &str, len: u8, is_ours: bool) -> From {
        let network = Prefix::new(network.parse().expect("an address"), len);
        From { network, is_ours }
    }

    #[test]
    fn only_what_differs_from_its_surroundings_is_kept_the_longest_first() {
        let list = shortened(vec![
            from("0.0.0.0", 0, true),
            from("10.0.0.0", 8, true),
            from("10.1.0.0", 16, false),
            from("10.1.2.0", 24, false),
            from("10.1.3.0", 24, true),
        ]);
        let expected = [
            from("10.1.3.0", 24, true),
            from("10.1.0.0", 16, false),
            from("0.0.0.0", 0, true),
        ];
        assert_eq!(list, expected);
        assert!(shortened(vec![from("10.0.0.0", 8, false)]).is_empty());
    }

    #[test]
    fn beyond_the_room_of_a_list_less_is_taken_and_never_more() {
        let mut all = vec![from("0.0.0.0", 0, true)];
        let ours = (0..40).map(|net| from(&format!("11.{net}.0.0"), 16, true));
        all.push(from("11.0.0.0", 8, false));
        all.extend(ours);
        let list = shortened(all);
        assert!(list.len() < WAYS_MAX && list.contains(&from("11.0.0.0", 8, false)));
        let others = (0..40).map(|net| from(&format!("11.{net}.0.0"), 16, false));
        let list = shortened(
            [from("0.0.0.0", 0, true)]
                .into_iter()
                .chain(others)
                .collect(),
        );
        assert!(list.is_empty(), "{list:?}");
    }
}
