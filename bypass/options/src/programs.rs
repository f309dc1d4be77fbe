//! Which programs are accelerated, of all that a command starts: `bypass run --only` and `--except`.
//!
//! The library is loaded into each of them all the same, because a program that is left to the kernel may start one that
//! is not.

/// Names of programs, joined by commas: no others are accelerated.
pub const ONLY_VARIABLE: &str = "WIRESPEED_ONLY";
/// Names of programs, joined by commas, that are not.
pub const EXCEPT_VARIABLE: &str = "WIRESPEED_EXCEPT";

/// Whether a program is to be accelerated that is known by these names: that of its file, and the one that it was called
/// by.
pub fn is_included(only: &str, except: &str, names: &[String]) -> bool {
    let has = |list: &str| {
        list.split(',')
            .any(|one| names.iter().any(|name| name == one))
    };
    (only.is_empty() || has(only)) && !has(except)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_included_by_either_name_unless_it_is_excepted() {
        let names = ["python3.11".to_owned(), "python3".to_owned()];
        assert!(is_included("", "", &names));
        assert!(is_included("nginx,python3", "", &names));
        assert!(!is_included("nginx", "", &names));
        assert!(!is_included("", "python3.11", &names));
        assert!(!is_included("python3", "python3", &names));
        assert!(is_included("", "python", &names));
    }
}
