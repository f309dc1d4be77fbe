//! The secret behind sequence numbers and timestamps: one for all engines of this host as long as it runs, so that a
//! server which still keeps a connection of one process understands the next one of another (RFC 6191).

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use bypass_sys::kernel;

/// Gone with the next start of the host, as the clock is to which the numbers belong.
const FOLDER: &str = "/run/wirespeed";
const NAME: &str = "secret";
const LENGTH: usize = 16;

/// The material of the numbers.
pub type Secret = [u8; LENGTH];

/// The one of this host; of a process that may neither read nor make it, one of its own.
pub fn of_host() -> Secret {
    of_folder(Path::new(FOLDER))
}

fn of_folder(folder: &Path) -> Secret {
    let place = folder.join(NAME);
    read(&place)
        .or_else(|| {
            // A name for others of the same number of a process in another namespace, too.
            let own = folder.join(format!("{NAME}.{:x}", kernel::random()));
            make(folder, &own, &place);
            let _ = fs::remove_file(own);
            read(&place)
        })
        .unwrap_or_else(random)
}

/// Whole, and root's alone: no other user may know it, or choose it.
fn read(place: &Path) -> Option<Secret> {
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let mut file = File::options()
        .read(true)
        .custom_flags(flags)
        .open(place)
        .ok()?;
    let about = file.metadata().ok()?;
    let is_roots = about.is_file() && about.uid() == 0 && about.mode() & 0o077 == 0;
    let mut secret = [0; LENGTH];
    file.read_exact(&mut secret).ok().filter(|()| is_roots)?;
    Some(secret)
}

/// Under a name of its own first: whoever reads finds all of it, and of two processes the first has made it.
fn make(folder: &Path, own: &Path, place: &Path) {
    let _ = DirBuilder::new().mode(0o755).create(folder);
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(own)
        .and_then(|mut file| file.write_all(&random()));
    if made.is_ok() {
        let _ = fs::hard_link(own, place);
    }
}

fn random() -> Secret {
    let halves = [kernel::random(), kernel::random()].map(u64::to_ne_bytes);
    let mut secret = [0; LENGTH];
    secret.copy_from_slice(&halves.concat());
    secret
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn one_is_kept_that_only_root_can_read_and_no_other_is_believed() {
        let folder = std::env::temp_dir().join(format!("bypass-secret-{}", std::process::id()));
        let first = of_folder(&folder);
        let place = folder.join(NAME);
        let about = fs::metadata(&place).expect("a file");
        assert_eq!((about.mode() & 0o777, about.len()), (0o600, 16));
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1);
        if about.uid() == 0 {
            assert_eq!(of_folder(&folder), first);
            fs::set_permissions(&place, fs::Permissions::from_mode(0o644)).expect("ours");
        }
        assert_ne!(of_folder(&folder), first);
        fs::write(&place, b"half").expect("written");
        assert_ne!(of_folder(&folder), of_folder(&folder));
        fs::remove_dir_all(&folder).expect("removed");
    }
}
