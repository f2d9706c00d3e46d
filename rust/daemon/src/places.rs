//! The files of tunnels that are up.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use convoy_config::InterfaceName;

use convoy_uapi::socket;

/// Sockets, states and journals.
pub const RUN: &str = "/run/convoy";

/// Journals that outlive a power cut.
const LASTING: &str = "/var/lib/convoy";

/// The sockets of a tunnel process.
#[derive(Clone, Debug)]
pub struct Sockets {
    /// Socket of `wg`.
    pub uapi: PathBuf,
    /// Where supervisors connect.
    pub supervisors: PathBuf,
    /// Where a service manager may listen that starts tunnel processes.
    pub launcher: Option<PathBuf>,
}

impl Sockets {
    /// Removes those of a tunnel process that has ended.
    pub fn remove(&self) {
        for path in [&self.uapi, &self.supervisors] {
            // It may be gone already.
            let _ = fs::remove_file(path);
        }
    }
}

/// The sockets of the tunnel of `convoy up`.
pub fn sockets(name: &InterfaceName) -> Sockets {
    Sockets {
        uapi: uapi(name),
        supervisors: tunnel(name),
        launcher: Some(Path::new(RUN).join(format!("{name}.launch"))),
    }
}

/// The socket on which the tunnel of `name` accepts supervisors.
pub fn tunnel(name: &InterfaceName) -> PathBuf {
    Path::new(RUN).join(format!("{name}.tunnel"))
}

/// The supervisor's socket.
pub fn control(name: &InterfaceName) -> PathBuf {
    Path::new(RUN).join(format!("{name}.control"))
}

/// The file of a supervisor's state.
pub fn state(name: &InterfaceName) -> PathBuf {
    Path::new(RUN).join(format!("{name}.state"))
}

/// The file of what the configuration gave the tunnel.
pub fn given(name: &InterfaceName) -> PathBuf {
    Path::new(RUN).join(format!("{name}.given"))
}

/// The socket of `wg`.
pub fn uapi(name: &InterfaceName) -> PathBuf {
    socket::path(name.as_str())
}

/// The directory of the sockets of `wg`.
pub fn uapi_directory() -> &'static Path {
    Path::new(socket::DIRECTORY)
}

/// The interface that a user means, by its name or its file.
pub fn name_of(name_or_file: &Path) -> anyhow::Result<InterfaceName> {
    let file = convoy_config::path_of(name_or_file);
    let name = InterfaceName::of_file(&file);
    name.with_context(|| format!("{} names no interface", name_or_file.display()))
}

/// The interfaces that are up, or of which something was left.
pub fn all() -> Vec<InterfaceName> {
    let directories = [RUN, LASTING].map(fs::read_dir).into_iter().flatten();
    let files = directories.flatten().flatten();
    let mut names: Vec<_> = files.filter_map(|file| owner(&file.file_name())).collect();
    names.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    names.dedup();
    names
}

/// The interface that a file of ours belongs to.
fn owner(file: &OsStr) -> Option<InterfaceName> {
    let (name, kind) = file.to_str()?.rsplit_once('.')?;
    match kind {
        "control" | "journal" | "state" | "tunnel" => name.parse().ok(),
        _ => None,
    }
}

/// Returns whether a supervisor that is dead, or a power cut, left something of this interface.
pub fn has_remains(name: &InterfaceName) -> bool {
    let journal = format!("{name}.journal");
    let journals = [RUN, LASTING].map(|directory| Path::new(directory).join(&journal));
    let others = [state(name), tunnel(name), control(name)];
    journals.iter().chain(&others).any(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_ours_tells_its_interface() {
        let owner = |file: &str| owner(OsStr::new(file)).map(|name| name.to_string());
        for file in ["wg0.control", "wg0.journal", "wg0.state", "wg0.tunnel"] {
            assert_eq!(owner(file).as_deref(), Some("wg0"));
        }
        assert_eq!(owner("a.b.state").as_deref(), Some("a.b"));
        for file in ["wg0", "wg0.sock", ".state", "a b.state", ".tmpXYZ"] {
            assert_eq!(owner(file), None, "{file}");
        }
    }

    #[test]
    fn an_interface_is_meant_by_its_name_or_its_file() {
        for text in ["wg0", "wg0.conf", "/etc/wireguard/wg0.conf", "./wg0.conf"] {
            assert_eq!(name_of(Path::new(text)).unwrap().as_str(), "wg0", "{text}");
        }
        for text in ["", "/etc/wireguard/wg0", "a name", "../"] {
            assert!(name_of(Path::new(text)).is_err(), "{text}");
        }
    }
}
