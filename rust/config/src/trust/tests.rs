use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
};

use nix::unistd::{Gid, chown};
use tempfile::TempDir;

use super::*;

#[test]
fn a_path_that_only_the_caller_can_write_is_trusted() {
    let Some(directory) = directory() else { return };
    let file = file(&directory, "wg0.conf");
    assert_eq!(hooks_are_trusted(&file), Ok(()));
    let dotted = directory.path().join("a/../wg0.conf");
    fs::create_dir(directory.path().join("a")).unwrap();
    assert_eq!(hooks_are_trusted(&dotted), Ok(()));
}

#[test]
fn a_sticky_directory_that_all_can_write_is_not_trusted() {
    let Some(directory) = directory() else { return };
    let shared = directory.path().join("tmp");
    fs::create_dir(&shared).unwrap();
    set_mode(&shared, 0o1777);
    let file = shared.join("wg0.conf");
    fs::write(&file, "").unwrap();
    let path = shared.canonicalize().unwrap();
    let expected = Untrusted::Writable { path, mode: 0o1777 };
    assert_eq!(hooks_are_trusted(&file), Err(expected));
}

#[test]
fn a_file_that_its_group_can_write_is_not_trusted() {
    let Some(directory) = directory() else { return };
    let file = file(&directory, "wg0.conf");
    for mode in [0o660, 0o602] {
        set_mode(&file, mode);
        let error = hooks_are_trusted(&file).unwrap_err();
        assert!(matches!(error, Untrusted::Writable { mode: found, .. } if found == mode));
    }
}

#[test]
fn the_path_and_the_target_of_a_symlink_are_examined() {
    let Some(directory) = directory() else { return };
    let open = directory.path().join("open");
    fs::create_dir(&open).unwrap();
    set_mode(&open, 0o777);
    let good = file(&directory, "good.conf");
    let link = |name: &str, target: &Path| {
        let link = directory.path().join(name);
        symlink(target, &link).unwrap();
        link
    };
    assert_eq!(hooks_are_trusted(&link("a.conf", &good)), Ok(()));
    assert_eq!(
        hooks_are_trusted(&link("b.conf", Path::new("good.conf"))),
        Ok(())
    );
    let detour = link("c.conf", Path::new("open/../good.conf"));
    assert!(matches!(
        hooks_are_trusted(&detour),
        Err(Untrusted::Writable { .. })
    ));
    symlink(&good, open.join("wg0.conf")).unwrap();
    let through = link("d.conf", &open.join("wg0.conf"));
    assert!(matches!(
        hooks_are_trusted(&through),
        Err(Untrusted::Writable { .. })
    ));
    let endless = link("e.conf", Path::new("e.conf"));
    assert!(matches!(
        hooks_are_trusted(&endless),
        Err(Untrusted::Unreachable { .. })
    ));
    let nowhere = link("f.conf", Path::new("absent"));
    assert!(matches!(
        hooks_are_trusted(&nowhere),
        Err(Untrusted::Unreachable { .. })
    ));
}

#[test]
fn a_part_of_the_path_that_belongs_to_somebody_else_is_not_trusted() {
    let Some(directory) = directory() else { return };
    if !Uid::effective().is_root() {
        return eprintln!("skipped: needs root to give files away");
    }
    let inner = directory.path().join("home");
    fs::create_dir(&inner).unwrap();
    let file = inner.join("wg0.conf");
    fs::write(&file, "").unwrap();
    for given in [&file, &inner] {
        chown(given, Some(Uid::from_raw(12_345)), Some(Gid::from_raw(0))).unwrap();
        let error = hooks_are_trusted(&file).unwrap_err();
        assert!(
            matches!(error, Untrusted::Owner { uid: 12_345, .. }),
            "{error}"
        );
        chown(given, Some(Uid::from_raw(0)), None).unwrap();
    }
    assert_eq!(hooks_are_trusted(&file), Ok(()));
}

#[test]
fn a_file_that_replaced_the_one_that_was_read_is_not_trusted() {
    let Some(directory) = directory() else { return };
    let old = file(&directory, "old");
    let path = file(&directory, "wg0.conf");
    let opened = fs::File::open(&path).unwrap();
    let read = fstat(&opened).unwrap();
    assert_eq!(hooks_of_are_trusted(&path, &read), Ok(()));
    fs::rename(&old, &path).unwrap();
    let error = hooks_of_are_trusted(&path, &read).unwrap_err();
    assert!(matches!(error, Untrusted::Replaced { .. }));
}

/// A directory with a trusted path, which /tmp has not: beside this program. `None` if that is not trusted.
fn directory() -> Option<TempDir> {
    let program = std::env::current_exe().unwrap();
    let directory = TempDir::new_in(program.parent().unwrap()).unwrap();
    set_mode(directory.path(), 0o700);
    let is_safe = |path: &&Path| {
        let found = path.metadata().unwrap();
        let is_owned = [0, Uid::effective().as_raw()].contains(&found.uid());
        is_owned && found.mode() & 0o022 == 0
    };
    if let Some(unsafe_) = directory.path().ancestors().find(|path| !is_safe(path)) {
        eprintln!("skipped: others can write to {}", unsafe_.display());
        return None;
    }
    Some(directory)
}

fn file(directory: &TempDir, name: &str) -> PathBuf {
    let file = directory.path().join(name);
    fs::write(&file, "").unwrap();
    set_mode(&file, 0o644);
    file
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}
