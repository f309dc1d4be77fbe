//! Result files that are put in place whole.

use std::ffi::OsString;
use std::io;
use std::path::Path;

/// Writes a text next to its destination and moves it there, so that no reader sees half of it.
///
/// A device, a pipe or a link (`/dev/stdout` is one) is written to as it is: what is moved there would
/// take its place.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let is_special = path
        .symlink_metadata()
        .is_ok_and(|known| !known.is_file() && !known.is_dir());
    if is_special {
        return std::fs::write(path, text);
    }
    let mut beside = OsString::from(path);
    beside.push(".part");
    let written = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path));
    written.inspect_err(|_| drop(std::fs::remove_file(&beside)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_a_link_leads_where_it_led() {
        let folder = std::env::temp_dir().join(format!("load-file-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a new name");
        let (file, link) = (folder.join("file"), folder.join("link"));
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        for (place, text) in [(&file, "one"), (&link, "two"), (&file, "three")] {
            replace(place, text).expect("written");
            assert_eq!(std::fs::read_to_string(&file).expect("there"), text);
        }
        let kind = link.symlink_metadata().expect("there").file_type();
        assert!(kind.is_symlink(), "the link is still one");
        assert_eq!(std::fs::read_dir(&folder).expect("there").count(), 2);
        std::fs::remove_dir_all(&folder).expect("ours");
    }
}
