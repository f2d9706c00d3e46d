//! Other network namespaces of this machine, whose interfaces may have the same names as ours.

use std::{fmt, fs, io, os::unix::fs::MetadataExt as _, path::Path};

/// Directory where ip-netns(8) keeps names of namespaces.
const NAMES: &str = "/run/netns";

/// A network namespace, as the kernel identifies it, such as `net:[4026531840]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkNamespace(pub(crate) String);

impl NetworkNamespace {
    /// Returns this thread's namespace.
    ///
    /// # Errors
    /// If `/proc` is not there.
    pub fn here() -> io::Result<Self> {
        Self::of(Path::new("/proc/thread-self/ns/net"))
    }

    /// Returns a process's namespace, unless it cannot be seen.
    #[must_use]
    pub fn of_process(pid: u32) -> Option<Self> {
        Self::of(&Path::new("/proc").join(pid.to_string()).join("ns/net")).ok()
    }

    /// Returns whether a process is in it, or it has a name.
    pub(crate) fn exists(&self) -> bool {
        self.process().is_some() || self.name().is_some()
    }

    /// Returns the command prefix that runs a command there.
    #[must_use]
    pub fn entry(&self) -> String {
        match (self.name(), self.process()) {
            (Some(name), _) => format!("ip netns exec {name}"),
            (None, Some(pid)) => format!("nsenter --net --target {pid}"),
            (None, None) => "nsenter".to_owned(),
        }
    }

    fn of(link: &Path) -> io::Result<Self> {
        let target = fs::read_link(link)?;
        Ok(Self(target.display().to_string()))
    }

    fn name(&self) -> Option<String> {
        let names = fs::read_dir(NAMES).into_iter().flatten().flatten();
        let mut names = names.filter(|name| {
            let metadata = fs::metadata(name.path());
            metadata.is_ok_and(|it| format!("net:[{}]", it.ino()) == self.0)
        });
        names.next()?.file_name().into_string().ok()
    }

    /// Finds the process with the lowest number, which is likely to last.
    fn process(&self) -> Option<u32> {
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = all.filter_map(|it| it.file_name().to_str()?.parse().ok());
        pids.filter(|pid| Self::of_process(*pid).as_ref() == Some(self))
            .min()
    }
}

impl fmt::Display for NetworkNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "the network namespace {name}"),
            None => write!(f, "another network namespace ({})", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_namespace_exists_and_others_need_not() {
        let here = NetworkNamespace::here().unwrap();
        assert!(here.exists());
        assert_eq!(NetworkNamespace::of_process(std::process::id()), Some(here));
        assert!(!NetworkNamespace("net:[1]".to_owned()).exists());
        assert_eq!(NetworkNamespace::of_process(0), None);
    }
}
