//! The addresses of a target's name, and which of them a connection goes to.

use crate::plan::Target;
use crate::sys::socket::RawAddress;
use std::io;

/// The addresses of one target, in the order in which they are tried.
pub(super) struct Addresses {
    all: Vec<RawAddress>,
    /// Connections begin here in the list: one place further for each that failed.
    first: usize,
}

impl Addresses {
    /// Those of a target.
    pub fn of(target: &Target) -> io::Result<Addresses> {
        let all = std::iter::once(&target.address).chain(&target.others);
        Ok(Addresses {
            all: all
                .map(|address| address.raw())
                .collect::<io::Result<_>>()?,
            first: 0,
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Where connection number `index` goes: to the address that is in use, or to its own; its place in
    /// the list.
    #[inline]
    pub fn of_connection(&self, index: usize, is_dealt: bool) -> (RawAddress, u8) {
        let place = self.place(index, is_dealt);
        (self.all[place], place as u8)
    }

    fn place(&self, index: usize, is_dealt: bool) -> usize {
        let own = if is_dealt { index } else { 0 };
        (self.first + own) % self.all.len()
    }

    /// A connection to the address in this place could not be opened: the next try goes to another one,
    /// unless each connection has its own. Of many that fail together the first one decides; each of two
    /// would lead back to where the other came from.
    pub fn note_failure(&mut self, place: u8, is_dealt: bool) {
        if !is_dealt && place == self.first as u8 {
            self.first = (self.first + 1) % self.all.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::socket::Address;

    fn two() -> Addresses {
        let address = |port: u16| Address::Inet(([127, 0, 0, 1], port).into());
        let all = [address(1), address(2)];
        Addresses {
            all: all
                .iter()
                .map(|one| one.raw().expect("an address"))
                .collect(),
            first: 0,
        }
    }

    #[test]
    fn connections_share_the_first_address_until_it_fails() {
        let mut addresses = two();
        assert_eq!([0, 1].map(|index| addresses.place(index, false)), [0, 0]);
        addresses.note_failure(0, false);
        assert_eq!([0, 1].map(|index| addresses.place(index, false)), [1, 1]);
        // another connection to the first, which failed with it
        addresses.note_failure(0, false);
        assert_eq!([0, 1].map(|index| addresses.place(index, false)), [1, 1]);
        addresses.note_failure(1, false);
        assert_eq!([0, 1].map(|index| addresses.place(index, false)), [0, 0]);
    }

    #[test]
    fn connections_are_dealt_to_all_addresses_where_that_is_wanted() {
        let mut addresses = two();
        addresses.note_failure(0, true);
        assert_eq!(
            [0, 1, 2].map(|index| addresses.place(index, true)),
            [0, 1, 0]
        );
    }
}
