//! Which of the programs that a command starts are accelerated: `bypass run --only` and `--except`.
//!
//! The library is loaded into each of them anyway, because a program on the kernel may start an
//! accelerated one.

/// Names of programs, separated by commas: only these are accelerated.
pub const ONLY_VARIABLE: &str = "WIRESPEED_ONLY";
/// Names of programs, separated by commas, that are not accelerated.
pub const EXCEPT_VARIABLE: &str = "WIRESPEED_EXCEPT";

/// Whether to accelerate a program with these names: the name of its file, and the name by which it
/// was called.
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
