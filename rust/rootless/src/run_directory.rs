//! The directory of the sockets, which only its owner may enter.

use std::{
    env,
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use convoy_config::InterfaceName;
use convoy_daemon::places::{RUN, Sockets};
use convoy_process::trust::own_directory;
use nix::unistd::{Uid, geteuid};

/// For root.
const ROOTS: &str = "/run/convoy/exec";

/// For users without a runtime directory.
const SHARED: &str = "/tmp";

/// Suffix of control sockets.
const CONTROL: &str = "control";

/// A directory that belongs to this user.
#[derive(Debug)]
pub(super) struct RunDirectory(PathBuf);

impl RunDirectory {
    /// Creates it if it does not exist.
    ///
    /// # Errors
    /// If it belongs to somebody else.
    pub(super) fn open() -> anyhow::Result<Self> {
        let path = usual();
        if geteuid().is_root() {
            own_directory(Path::new(RUN)).with_context(|| format!("cannot use {RUN}"))?;
        } else if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)
                .with_context(|| format!("cannot make {}", parent.display()))?;
        }
        if is_taken(&path) {
            // Anyone may write to /tmp, and only the owner can remove the directory.
            return match instead_of(&path) {
                Some(ours) => Ok(Self(ours)),
                None => make_instead_of(&path),
            };
        }
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| format!("cannot make {}", path.display()));
            }
            _ => {}
        }
        ensure!(
            is_for_us_alone(&path),
            "{} is not a directory for this user alone (fix: remove it)",
            path.display()
        );
        Ok(Self(path))
    }

    /// Returns the existing directory; `None` also if it belongs to another user.
    pub(super) fn find() -> Option<Self> {
        let path = usual();
        match is_for_us_alone(&path) {
            true => Some(Self(path)),
            false => instead_of(&path).map(Self),
        }
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the socket where commands join the tunnel `name`.
    pub(super) fn commands(&self, name: &InterfaceName) -> PathBuf {
        self.0.join(format!("{name}.exec"))
    }

    /// Returns the socket where `convoy status` and `convoy down` ask the supervisor of the tunnel `name`.
    pub(super) fn control(&self, name: &InterfaceName) -> PathBuf {
        self.0.join(format!("{name}.{CONTROL}"))
    }

    /// Lists the tunnels that have a supervisor, or had one that was killed.
    pub(super) fn names(&self) -> Vec<InterfaceName> {
        let files = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let names = files.filter_map(|file| {
            let file = file.file_name();
            let (name, kind) = file.to_str()?.rsplit_once('.')?;
            (kind == CONTROL).then(|| name.parse().ok())?
        });
        names.collect()
    }

    /// The sockets of its tunnel process.
    pub(super) fn sockets(&self, name: &InterfaceName) -> Sockets {
        Sockets {
            uapi: self.0.join(format!("{name}.sock")),
            supervisors: self.0.join(format!("{name}.tunnel")),
            launcher: None,
        }
    }
}

fn is_for_us_alone(path: &Path) -> bool {
    let found = fs::symlink_metadata(path);
    found.is_ok_and(|it| it.is_dir() && it.uid() == geteuid().as_raw() && it.mode() & 0o077 == 0)
}

/// Returns whether another user's file or directory has its name.
fn is_taken(path: &Path) -> bool {
    let found = fs::symlink_metadata(path);
    found.is_ok_and(|it| it.uid() != geteuid().as_raw()) && path.starts_with(SHARED)
}

/// Returns the prefix of directories created when `path` belongs to another user.
fn prefix_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    format!("{name}.")
}

/// Finds the directory that was created because `path` belongs to another user, if any.
fn instead_of(path: &Path) -> Option<PathBuf> {
    let (parent, prefix) = (path.parent()?, prefix_of(path));
    let files = fs::read_dir(parent).ok()?.flatten();
    let named = files.filter(|file| file.file_name().to_string_lossy().starts_with(&prefix));
    let mut ours: Vec<_> = named.map(|file| file.path()).collect();
    ours.retain(|path| is_for_us_alone(path));
    ours.sort();
    ours.into_iter().next()
}

fn make_instead_of(path: &Path) -> anyhow::Result<RunDirectory> {
    let made = tempfile::Builder::new()
        .prefix(&prefix_of(path))
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir_in(SHARED)
        .with_context(|| format!("cannot make a directory in {SHARED}"))?;
    Ok(RunDirectory(made.keep()))
}

/// Returns its usual place, which another user may have taken.
fn usual() -> PathBuf {
    let (user, given) = (geteuid(), env::var_os("XDG_RUNTIME_DIR"));
    let logind = PathBuf::from(format!("/run/user/{user}"));
    let logind = is_for_us_alone(&logind).then_some(logind);
    path(user, given.map(PathBuf::from).or(logind))
}

fn path(user: Uid, runtime: Option<PathBuf>) -> PathBuf {
    match runtime {
        _ if user.is_root() => ROOTS.into(),
        Some(runtime) if runtime.is_absolute() => runtime.join("convoy"),
        _ => Path::new(SHARED).join(format!("convoy-{user}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_a_directory_of_its_own() {
        let (user, root) = (Uid::from_raw(7), Uid::from_raw(0));
        let runtime = || Some(PathBuf::from("/run/user/7"));
        assert_eq!(path(user, runtime()), Path::new("/run/user/7/convoy"));
        assert_eq!(path(user, None), Path::new("/tmp/convoy-7"));
        assert_eq!(path(user, Some("".into())), Path::new("/tmp/convoy-7"));
        assert_eq!(path(root, runtime()), Path::new(ROOTS));
    }
}
