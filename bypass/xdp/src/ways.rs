//! Networks that new connections may come from, for each address of this host: lists that the BPF program searches.
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
pub const NONE: usize = LISTS - 1;

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
    // Each network comes directly before those in it.
    all.sort_by_key(|one| (one.network.mapped(false)[0], one.network.len));
    let mut lens: Vec<u8> = all
        .iter()
        .filter(|one| one.is_ours)
        .map(|one| one.network.len)
        .collect();
    lens.sort_unstable();
    // Each network less that would be taken shortens the list, with the exceptions in it: so the most that fit are
    // found by halving.
    let (mut fits, mut too_many) = (0, lens.len() + 1);
    while too_many - fits > 1 {
        let middle = fits + (too_many - fits) / 2;
        match deciding(&all, &lens[..middle]) {
            Some(_) => fits = middle,
            None => too_many = middle,
        }
    }
    let mut list = deciding(&all, &lens[..fits]).unwrap_or_default();
    list.sort_by_key(|one| std::cmp::Reverse(one.network));
    list
}

/// The networks that decide, with only as many of the shortest taken ones as there are `lens`, their lengths. None: more than a list has room for.
fn deciding(all: &[From], lens: &[u8]) -> Option<Vec<From>> {
    let longest = lens.last().copied().unwrap_or(0);
    let mut left_of_longest = lens.iter().filter(|len| **len == longest).count();
    let mut kept: Vec<From> = Vec::new();
    // The kept networks around the present one, the longest last.
    let mut around: Vec<From> = Vec::new();
    for one in all {
        if one.is_ours && (lens.is_empty() || one.network.len >= longest) {
            if one.network.len > longest || left_of_longest == 0 {
                continue;
            }
            left_of_longest -= 1;
        }
        while around
            .last()
            .is_some_and(|other| !other.network.covers(&one.network))
        {
            around.pop();
        }
        if one.is_ours != around.last().is_some_and(|other| other.is_ours) {
            if kept.len() + 1 == WAYS_MAX {
                return None;
            }
            kept.push(*one);
            around.push(*one);
        }
    }
    Some(kept)
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

    /// The table of a router of the Internet, half of it by this interface.
    #[test]
    fn a_whole_table_of_the_internet_is_shortened_at_once() {
        let mut all = vec![from("0.0.0.0", 0, true)];
        for high in 1..=255u8 {
            for low in 0..=255u8 {
                all.push(from(&format!("{high}.{low}.0.0"), 16, low % 2 == 0));
                all.push(from(&format!("{high}.{low}.7.0"), 24, low % 3 == 0));
            }
        }
        let list = shortened(all.clone());
        assert!(list.len() < WAYS_MAX);
        // Nothing is taken that the whole table does not take.
        let mut ours = all;
        ours.retain(|one| !one.is_ours);
        let is_taken = |one: &From| {
            let longest = list.iter().find(|other| other.network.covers(&one.network));
            longest.is_some_and(|other| other.is_ours)
        };
        assert!(!ours.iter().any(is_taken));
    }

    #[test]
    fn of_networks_of_one_length_as_many_are_taken_as_there_is_room_for() {
        let ours = (0..40).map(|net| from(&format!("11.{net}.0.0"), 16, true));
        let list = shortened(ours.collect());
        assert_eq!(list.len(), WAYS_MAX - 1);
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
