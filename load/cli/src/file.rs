//! Result files that are put in place whole.

use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Writes a text next to its destination and moves it there, so that no reader sees half of it and a
/// full disk leaves the file that was there before.
///
/// A device, a pipe or a link (`/dev/stdout` is one) is written to as it is: what is moved there would
/// take its place. So is a file of another owner, which would become this user's, and one whose folder
/// takes no other, as one that a container was given alone. A file that may not be written stays.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let known = path.symlink_metadata().ok();
    if known.as_ref().is_some_and(|known| !known.is_file()) {
        return std::fs::write(path, text);
    }
    if known.is_some() {
        OpenOptions::new().write(true).open(path)?;
    }
    let beside = beside(path);
    let file = match File::create(&beside) {
        Ok(file) => file,
        Err(error) if known.is_some() && takes_no_other(&error) => {
            return std::fs::write(path, text);
        }
        Err(error) => return Err(error),
    };
    let moved = match &known {
        Some(known) if !has_owner(&file, known) => Ok(false),
        Some(known) => {
            // a file that was kept from others stays so; where that cannot be, it is still the user's own
            let _ = file.set_permissions(known.permissions());
            move_there(file, text, &beside, path)
        }
        None => move_there(file, text, &beside, path),
    };
    if !matches!(moved, Ok(true)) {
        drop(std::fs::remove_file(&beside));
    }
    if moved? {
        Ok(())
    } else {
        std::fs::write(path, text)
    }
}

/// Whether a new file belongs to whom the known one belongs.
fn has_owner(file: &File, known: &Metadata) -> bool {
    let made = file.metadata();
    made.is_ok_and(|made| (made.uid(), made.gid()) == (known.uid(), known.gid()))
}

/// Writes a text next to its place and moves it there; false where the folder keeps what is there.
fn move_there(file: File, text: &str, beside: &Path, path: &Path) -> io::Result<bool> {
    write_all(file, text)?;
    match std::fs::rename(beside, path) {
        Ok(()) => Ok(true),
        // something is mounted there, or the folder does not let this user replace it
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::ResourceBusy | ErrorKind::PermissionDenied
            ) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Where a text is before it is moved to `path`.
fn beside(path: &Path) -> PathBuf {
    let mut beside = OsString::from(path);
    beside.push(".part");
    beside.into()
}

fn takes_no_other(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
    )
}

fn write_all(mut file: File, text: &str) -> io::Result<()> {
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("load-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a new name");
        folder
    }

    #[test]
    fn a_file_is_replaced_and_a_link_leads_where_it_led() {
        let folder = folder("file");
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

    #[test]
    fn a_reader_of_the_old_file_keeps_it_and_its_mode_stays() {
        let folder = folder("mode");
        let file = folder.join("file");
        std::fs::write(&file, "old").expect("written");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("ours");
        let mut reader = File::open(&file).expect("there");
        replace(&file, "new").expect("written");
        let seen = io::read_to_string(&mut reader).expect("open");
        assert_eq!(seen, "old", "not cut off under its reader");
        let known = file.metadata().expect("there");
        assert_eq!(known.permissions().mode() & 0o777, 0o600);
        std::fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn a_file_that_may_not_be_written_stays_and_that_of_another_owner_keeps_its_owner() {
        let folder = folder("owner");
        let (kept, theirs) = (folder.join("kept"), folder.join("theirs"));
        std::fs::write(&kept, "old").expect("written");
        std::fs::set_permissions(&kept, PermissionsExt::from_mode(0o444)).expect("ours");
        // root may write it
        let is_root = OpenOptions::new().write(true).open(&kept).is_ok();
        assert_eq!(replace(&kept, "new").is_ok(), is_root);
        std::fs::write(&theirs, "old").expect("written");
        if is_root && std::os::unix::fs::chown(&theirs, Some(1), Some(2)).is_ok() {
            replace(&theirs, "new").expect("written");
            let known = theirs.metadata().expect("there");
            assert_eq!((known.uid(), known.gid()), (1, 2));
            assert_eq!(std::fs::read_to_string(&theirs).expect("there"), "new");
        }
        assert_eq!(std::fs::read_dir(&folder).expect("there").count(), 2);
        std::fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn a_text_for_a_folders_place_leaves_no_part_of_it() {
        let folder = folder("place");
        let place = folder.join("taken");
        std::fs::create_dir(&place).expect("a new name");
        assert!(replace(&place, "text").is_err(), "it is a folder");
        assert!(!beside(&place).exists());
        std::fs::remove_dir_all(&folder).expect("ours");
    }
}
