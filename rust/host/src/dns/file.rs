//! resolv.conf itself.

use std::{
    fs::{self, OpenOptions, Permissions},
    io::{self, ErrorKind, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{desired::Dns, error::HostError};

/// The original at the path of resolv.conf.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Original {
    /// Nothing.
    Absent,
    /// A file with this content, in hexadecimal digits, as it need not be UTF-8.
    File { content: String, mode: u32 },
    /// A symbolic link.
    Link {
        target: PathBuf,
        /// Content of its target, in hexadecimal digits: a link that cannot be replaced has our text behind it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        behind: Option<String>,
    },
}

impl Original {
    /// Reads the state of `path` now.
    pub(crate) fn read(path: &Path) -> Result<Self, HostError> {
        let read = || -> io::Result<Self> {
            let metadata = fs::symlink_metadata(path)?;
            if metadata.is_symlink() {
                return Ok(Self::Link {
                    target: fs::read_link(path)?,
                    behind: fs::read(path).ok().map(hex::encode),
                });
            }
            Ok(Self::File {
                content: hex::encode(fs::read(path)?),
                mode: metadata.permissions().mode() & 0o7777,
            })
        };
        match read() {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::Absent),
            outcome => outcome.map_err(HostError::file("read", path)),
        }
    }

    /// Returns whether the file at `path` has this content now.
    pub(crate) fn is_text(path: &Path, content: &str) -> bool {
        fs::read(path).is_ok_and(|now| now == content.as_bytes())
    }

    /// Returns the content of the target if this is the link that still stands at `path`.
    pub(crate) fn behind(&self, path: &Path) -> Option<Vec<u8>> {
        let Self::Link { target, behind } = self else {
            return None;
        };
        let stands = fs::read_link(path).is_ok_and(|now| now == *target);
        hex::decode(behind.as_ref().filter(|_| stands)?).ok()
    }

    /// Returns whether the path was absent or empty: another program is about to write it.
    pub(crate) fn is_in_transit(&self) -> bool {
        match self {
            Self::Absent => true,
            Self::File { content, .. } => content.is_empty(),
            Self::Link { .. } => false,
        }
    }
}

/// The lines that resolv.conf(5) and resolvconf(8) take.
pub(crate) fn content(interface: &str, dns: &Dns) -> String {
    let mut text =
        format!("# Written by convoy for {interface}, until `convoy down {interface}`\n");
    for server in &dns.servers {
        text += &format!("nameserver {server}\n");
    }
    // Only systemd-resolved can route by domain.
    let search = dns.search.iter().map(String::as_str);
    let search: Vec<_> = search.filter(|domain| !domain.starts_with('~')).collect();
    if !search.is_empty() {
        text += &format!("search {}\n", search.join(" "));
    }
    text
}

/// Replaces the file atomically, or writes it in place where it is a mount point, as in containers.
pub(super) fn write(path: &Path, content: &str) -> Result<(), HostError> {
    replace(path, content.as_bytes(), 0o644).map_err(HostError::file("write", path))
}

/// Removes a new file that was not moved to `path` yet.
pub(super) fn remove_unfinished(path: &Path) {
    // It almost never exists.
    let _ = fs::remove_file(beside(path));
}

/// Puts the original back.
pub(super) fn restore(path: &Path, original: &Original) -> Result<(), HostError> {
    if let Some(content) = original.behind(path) {
        return overwrite(path, &content).map_err(HostError::file("restore", path));
    }
    let restored = match original {
        Original::Absent => match fs::remove_file(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        },
        Original::Link { target, .. } => {
            let new = beside(path);
            let _ = fs::remove_file(&new);
            symlink(target, &new).and_then(|()| fs::rename(&new, path))
        }
        Original::File { content, mode } => hex::decode(content)
            .map_err(io::Error::other)
            .and_then(|content| replace(path, &content, *mode)),
    };
    restored.map_err(HostError::file("restore", path))
}

fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let new = beside(path);
    let renamed = write_new(&new, content, mode).and_then(|()| fs::rename(&new, path));
    let Err(error) = renamed else {
        return Ok(());
    };
    let _ = fs::remove_file(&new);
    // A mount point cannot be renamed over, and its directory may be read-only.
    overwrite(path, content).map_err(|_| error)
}

fn overwrite(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).truncate(true).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

fn write_new(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(mode);
    let mut file = options.open(path)?;
    file.write_all(content)?;
    // Whatever the umask is.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".convoy-new");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_that_only_routes_completes_no_name() {
        let dns = |search: &[&str]| Dns {
            servers: vec!["10.0.0.1".parse().unwrap()],
            search: search.iter().map(|domain| (*domain).to_owned()).collect(),
        };
        let lines = |search: &[&str]| content("wg0", &dns(search));
        let text = lines(&["a.example", "~b.example", "c.example"]);
        assert!(text.ends_with("\nsearch a.example c.example\n"), "{text}");
        assert!(!lines(&["~b.example"]).contains("search"));
    }

    #[test]
    fn a_file_a_link_and_an_absent_file_come_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("resolv.conf");
        let check = || {
            let original = Original::read(&path).unwrap();
            write(&path, "nameserver 10.0.0.1\n").unwrap();
            assert!(Original::is_text(&path, "nameserver 10.0.0.1\n"));
            restore(&path, &original).unwrap();
            assert_eq!(Original::read(&path).unwrap(), original);
            assert!(fs::read_dir(&directory).unwrap().count() <= 2);
        };
        check();
        fs::write(&path, b"nameserver 192.0.2.1 # \xff\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        check();
        fs::rename(&path, directory.path().join("stub")).unwrap();
        symlink("stub", &path).unwrap();
        check();
    }
}
