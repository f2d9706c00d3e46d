//! The files that name servers are read from.

use std::{
    fs,
    path::{Path, PathBuf},
};

use convoy_host::{Options, resolv_conf_without_tunnels};

use super::servers::Texts;

/// Longest file that is read: every line of a hosts file is looked at for each name.
const MAX_BYTES: u64 = 4 << 20;
/// Most files of a directory that are read.
const MAX_FILES: usize = 64;

/// Locations on this host.
#[derive(Debug)]
pub(super) struct Sources {
    hosts: PathBuf,
    host: Options,
    /// Files, and directories of files.
    others: Vec<PathBuf>,
}

impl Default for Sources {
    fn default() -> Self {
        let others = [
            // systemd-resolved's servers.
            "/run/systemd/resolve/resolv.conf",
            // NetworkManager's, without its local resolver.
            "/run/NetworkManager/no-stub-resolv.conf",
            // The records of openresolv and of Debian's resolvconf, of which ours hides the others.
            "/run/resolvconf/keys",
            "/run/resolvconf/interfaces",
            "/run/resolvconf/interface",
        ];
        Self {
            hosts: "/etc/hosts".into(),
            host: Options::default(),
            others: others.map(PathBuf::from).into(),
        }
    }
}

impl Sources {
    pub(super) fn hosts(&self) -> String {
        read(&self.hosts)
    }

    pub(super) fn texts(&self) -> Texts {
        let others = self.others.iter().flat_map(|path| files_at(path));
        Texts {
            resolv_conf: resolv_conf_without_tunnels(&self.host),
            others: others.map(|path| read(&path)).collect(),
        }
    }

    /// Returns the texts of a host that may have nothing but a hosts file.
    #[cfg(test)]
    pub(super) fn nowhere_but(hosts: Option<&Path>) -> Self {
        let nothing = PathBuf::from("/nonexistent/convoy");
        Self {
            hosts: hosts.unwrap_or(&nothing).to_owned(),
            host: Options {
                lasting_journals: nothing.clone(),
                resolv_conf: nothing,
                ..Options::default()
            },
            others: Vec::new(),
        }
    }
}

fn files_at(path: &Path) -> Vec<PathBuf> {
    let Ok(directory) = fs::read_dir(path) else {
        return vec![path.to_owned()];
    };
    let files = directory.filter_map(|file| Some(file.ok()?.path()));
    let mut files: Vec<_> = files.take(MAX_FILES).collect();
    files.sort_unstable();
    files
}

/// The text of a regular file; empty if there is none.
fn read(path: &Path) -> String {
    let is_fit = fs::metadata(path).is_ok_and(|it| it.is_file() && it.len() <= MAX_BYTES);
    let content = is_fit.then(|| fs::read(path).ok()).flatten();
    String::from_utf8_lossy(&content.unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_directories_of_files_are_read_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("records")).unwrap();
        for (name, text) in [
            ("hosts", "192.0.2.1 a"),
            ("resolv.conf", "1"),
            ("upstream", "2"),
            ("records/b", "4"),
            ("records/a", "3"),
        ] {
            fs::write(at(name), text).unwrap();
        }
        let sources = Sources {
            hosts: at("hosts"),
            host: Options {
                lasting_journals: at("journals"),
                resolv_conf: at("resolv.conf"),
                ..Options::default()
            },
            others: ["missing", "upstream", "records"].map(at).into(),
        };
        assert_eq!(sources.hosts(), "192.0.2.1 a");
        let texts = sources.texts();
        assert_eq!(texts.resolv_conf, "1");
        assert_eq!(texts.others, ["", "2", "3", "4"]);
    }
}
