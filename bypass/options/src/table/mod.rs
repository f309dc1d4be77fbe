//! The table of options: one file for each theme, one row for each option.

mod clusters;
mod hardware;
mod process;
mod sockets;
mod spinning;
mod tcp;

use crate::definition::{Definition, Group};

/// Every option, grouped by file; a name stands in exactly one row.
pub static OPTIONS: &[&[Definition]] = &[
    spinning::OPTIONS,
    sockets::OPTIONS,
    clusters::OPTIONS,
    tcp::OPTIONS,
    hardware::OPTIONS,
    process::OPTIONS,
];

/// Every option in the order of the table.
pub fn all() -> impl Iterator<Item = &'static Definition> {
    OPTIONS.iter().flat_map(|group| group.iter())
}

/// The options of one section.
pub fn of(group: Group) -> impl Iterator<Item = &'static Definition> {
    all().filter(move |option| option.group == group)
}

/// The row of a name, written exactly.
pub fn find(name: &str) -> Option<&'static Definition> {
    all().find(|option| option.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_default_fits_its_own_bounds() {
        for option in all() {
            assert_eq!(
                option.default_value().to_string(),
                option.default,
                "{}",
                option.name
            );
        }
    }

    #[test]
    fn every_name_stands_once_and_begins_with_ef() {
        let mut seen = HashSet::new();
        for option in all() {
            assert!(option.name.starts_with("EF_"), "{}", option.name);
            assert!(seen.insert(option.name), "{} twice", option.name);
        }
    }

    #[test]
    fn every_row_says_what_it_means_and_what_it_does_here() {
        for option in all() {
            assert!(option.text.len() > 10, "{}: no text", option.name);
            assert!(
                option.state.reason().len() > 10,
                "{}: no reason",
                option.name
            );
        }
    }

    #[test]
    fn every_section_of_the_page_has_rows() {
        for group in Group::ALL {
            assert!(of(group).next().is_some(), "{group:?} is empty");
        }
    }
}
