//! The folders of profiles, and the file for a name.

use std::path::{Path, PathBuf};

/// Folders searched for a profile's name, first hit wins: the user's own, `$WIRESPEED_ROOT`'s, and
/// the one two levels above the program, where a build puts it.
pub fn folders(variable: &dyn Fn(&str) -> Option<String>, program: Option<&Path>) -> Vec<PathBuf> {
    let own = variable("HOME").map(|home| Path::new(&home).join(".config/wirespeed/profiles"));
    let root = variable("WIRESPEED_ROOT").map(|root| Path::new(&root).join("profiles"));
    let beside = program.and_then(Path::parent).and_then(|folder| {
        folder
            .ancestors()
            .skip(1)
            .take(2)
            .map(|above| above.join("profiles"))
            .find(|p| p.is_dir())
    });
    [own, root, beside].into_iter().flatten().collect()
}

/// The file for a name: a path if it contains a slash, else looked up, with `.opf` added and with
/// `_` accepted for `-`, as in the published documents.
pub fn file_name(name: &str, folders: &[PathBuf]) -> Result<PathBuf, String> {
    if name.contains('/') {
        let exact = PathBuf::from(name);
        let with_ending = PathBuf::from(format!("{name}.opf"));
        return [exact, with_ending]
            .into_iter()
            .find(|path| path.is_file())
            .ok_or_else(|| format!("profile {name}: no such file"));
    }
    let stem = name.strip_suffix(".opf").unwrap_or(name);
    for folder in folders {
        for stem in [stem.to_owned(), stem.replace('_', "-")] {
            let path = folder.join(format!("{stem}.opf"));
            if path.is_file() {
                return Ok(path);
            }
        }
    }
    Err(not_found(name, folders))
}

fn not_found(name: &str, folders: &[PathBuf]) -> String {
    let mut names = names(folders);
    names.sort();
    names.dedup();
    if names.is_empty() {
        let looked: Vec<_> = folders
            .iter()
            .map(|folder| folder.display().to_string())
            .collect();
        return format!("profile {name}: not found; looked in {}", looked.join(", "));
    }
    format!(
        "profile {name}: not found; there are {}, or give a path",
        names.join(", ")
    )
}

fn names(folders: &[PathBuf]) -> Vec<String> {
    let entries = folders
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten();
    entries
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".opf")?.to_owned()))
        .collect()
}
