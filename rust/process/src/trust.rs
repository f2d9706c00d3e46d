//! Directories and records that nobody but root, or the user of this process, can have written.

use std::{
    fs::{self, DirBuilder, Metadata, Permissions},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::Path,
};

use nix::unistd::geteuid;

/// Makes a directory that everybody may read and only its owner may change, whatever the umask. Leaves one that exists
/// as it is.
///
/// # Errors
/// If somebody else owns it or may change it: what is in it cannot be believed.
pub fn own_directory(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent().filter(|parent| !parent.exists()) {
        own_directory(parent)?;
    }
    match DirBuilder::new().mode(0o755).create(path) {
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(0o755)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::metadata(path)?;
            match found.is_dir() {
                true => ensure_own(&found),
                false => Err(io::ErrorKind::NotADirectory.into()),
            }
        }
        Err(error) => Err(error),
    }
}

/// Fails if somebody other than root and the user of this process can have written it.
///
/// # Errors
/// Says which, and what to do.
pub fn ensure_own(found: &Metadata) -> io::Result<()> {
    let reason = if found.uid() != 0 && found.uid() != geteuid().as_raw() {
        "it belongs to another user (fix: look at who made it, then remove it)"
    } else if found.mode() & 0o022 != 0 {
        "others may write to it (fix: look at what is in it, then chmod go-w)"
    } else {
        return Ok(());
    };
    Err(io::Error::other(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/convoy");
        own_directory(&path).unwrap();
        let mode = || fs::metadata(&path).unwrap().mode() & 0o777;
        assert_eq!(mode(), 0o755);
        own_directory(&path).unwrap();
        for wrong in [0o777, 0o775, 0o1757] {
            fs::set_permissions(&path, Permissions::from_mode(wrong)).unwrap();
            own_directory(&path).unwrap_err();
        }
        fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        own_directory(&path).unwrap();
        assert_eq!(mode(), 0o700);
    }

    #[test]
    fn a_file_in_its_place_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("convoy");
        fs::write(&path, "").unwrap();
        own_directory(&path).unwrap_err();
    }
}
