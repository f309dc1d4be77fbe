//! The option nearest to an unknown name.

use crate::table;

/// Closest name in the table: fewest letters to change, and the shorter name when equal.
pub fn nearest(name: &str) -> &'static str {
    let wanted = normal(name);
    table::OPTIONS
        .iter()
        .flat_map(|group| group.iter())
        .min_by_key(|option| (distance(&wanted, option.name), option.name.len()))
        .map_or("EF_POLL_USEC", |option| option.name)
}

/// Names that users expect, and what does what they want.
const EXPECTED: &[(&str, &str)] = &[(
    "EF_TCP",
    "TCP has no switch of its own: EF_DONT_ACCELERATE=1 leaves a whole program to the kernel",
)];

/// The one line about a name that does not exist.
pub fn unknown_option(name: &str) -> String {
    let wanted = normal(name);
    if let Some((name, instead)) = EXPECTED.iter().find(|(known, _)| *known == wanted) {
        return format!("{name}: unknown option ({instead})");
    }
    format!(
        "{}: unknown option (nearest: {})",
        name.escape_debug(),
        nearest(name)
    )
}

/// Blanks that a document's page layout put in place of underscores do not count as mistakes.
fn normal(name: &str) -> String {
    name.trim().to_ascii_uppercase().replace([' ', '-'], "_")
}

/// Damerau's distance without repeated edits: insert, delete, change, or swap neighbours.
fn distance(left: &str, right: &str) -> usize {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for (row, letter) in left.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, other) in right.iter().enumerate() {
            let change = above[column] + usize::from(letter != other);
            let mut best = change.min(above[column + 1] + 1).min(current[column] + 1);
            let swapped =
                row > 0 && column > 0 && *letter == right[column - 1] && left[row - 1] == *other;
            if swapped {
                best = best.min(before[column - 1] + 1);
            }
            current.push(best);
        }
        before = std::mem::replace(&mut above, current);
    }
    above[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_inserted_deleted_changed_and_swapped_letters() {
        assert_eq!(distance("EF_POL_USEC", "EF_POLL_USEC"), 1);
        assert_eq!(distance("EF_POLL_USECC", "EF_POLL_USEC"), 1);
        assert_eq!(distance("EF_PULL_USEC", "EF_POLL_USEC"), 1);
        assert_eq!(distance("EF_POLL_UESC", "EF_POLL_USEC"), 1);
        assert_eq!(distance("", "abc"), 3);
    }

    #[test]
    fn an_unknown_switch_is_answered_with_the_option_that_does_it() {
        let line = unknown_option("EF_TCP");
        assert!(line.contains("EF_DONT_ACCELERATE=1"), "{line}");
        let is_there = |name| {
            table::OPTIONS
                .iter()
                .any(|group| group.iter().any(|one| one.name == name))
        };
        assert!(is_there("EF_DONT_ACCELERATE"));
        assert!(EXPECTED.iter().all(|(name, _)| !is_there(name)));
    }

    #[test]
    fn names_broken_by_a_page_layout_lead_to_the_real_one() {
        assert_eq!(nearest("EF TCP_BACKLOG_MAX"), "EF_TCP_BACKLOG_MAX");
        assert_eq!(nearest("EF_ACCEPTO_MIN_BACKLOG"), "EF_ACCEPTQ_MIN_BACKLOG");
        assert_eq!(
            unknown_option("EF_POL_USEC"),
            "EF_POL_USEC: unknown option (nearest: EF_POLL_USEC)"
        );
    }
}
