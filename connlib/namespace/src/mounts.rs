//! The files of programs inside: name servers of their own, and none of the host's services that look up names.
//!
//! A file that is mounted over `/etc/resolv.conf` is not enough: as soon as somebody on the host renames another file
//! to that name, the kernel removes the mount, in all namespaces. Therefore a directory of our own takes the place of
//! `/etc` and of `/run`. It has the entries of the host's, save those that are to be others:
//!
//! - a directory is mounted;
//! - a file of `/etc` is a link to where the host's `/etc` is mounted, so that it follows renames, too;
//! - a file or socket of `/run` is mounted; where the host removes it, an empty file remains.
//!
//! Files that the host adds to the two directories later are not seen inside. The directories that the caller names are
//! replaced like `/run`. What is to be hidden elsewhere is covered, each by something empty.

use std::{
    fs::{self, DirBuilder, DirEntry, File, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, symlink},
    },
    path::{Path, PathBuf},
};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::{Files, protocol::Refusal};

const ETC: &str = "/etc";
const RESOLV_CONF: &str = "resolv.conf";
const NSSWITCH_CONF: &str = "nsswitch.conf";

/// Where the host's `/etc` is, in our own.
const HOST: &str = ".host";

/// A directory that every system has, for the moment.
const STAGE: &str = "/tmp";

/// Every system has it, and nobody can connect to it.
const NOTHING: &str = "/dev/null";

/// The directories whose sockets lead to the host's services; the second is usually a link to the first.
const RUN: [&str; 2] = ["/run", "/var/run"];

/// Gives programs inside the files that they are to see.
pub(super) fn make_private(files: &Files) -> Result<(), Refusal> {
    let (none, slave) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_SLAVE);
    let parted = mount(none, "/", none, slave, none);
    parted.map_err(|errno| Refusal::at("part with the host's mounts")(errno.into()))?;
    replace_etc(files).map_err(Refusal::at("make /etc private"))?;
    let mut directories: Vec<_> = RUN.iter().flat_map(fs::canonicalize).collect();
    directories.dedup();
    let hidden = with_targets(&files.hidden);
    let is_within = |path: &Path, all: &[PathBuf]| all.iter().any(|it| path.starts_with(it));
    for directory in files.replaced.iter().flat_map(fs::canonicalize) {
        if directory.is_dir() && !is_within(&directory, &directories) {
            directories.push(directory);
        }
    }
    for path in hidden.iter().filter(|path| !is_within(path, &directories)) {
        cover(path).map_err(Refusal::at(format!("hide {}", path.display())))?;
    }
    for directory in directories {
        let doing = format!("hide the host's services in {}", directory.display());
        replace_run(&directory, &hidden).map_err(Refusal::at(doing))?;
    }
    Ok(())
}

/// The paths, and those that links among them lead to.
fn with_targets(paths: &[PathBuf]) -> Vec<PathBuf> {
    let targets = paths.iter().flat_map(fs::canonicalize);
    let mut all: Vec<_> = paths.iter().cloned().chain(targets).collect();
    all.sort();
    all.dedup();
    all
}

/// Mounts an empty directory over a directory, or something that is no socket over anything else.
fn cover(path: &Path) -> io::Result<()> {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        // It does not exist, or the user cannot reach it either.
        return Ok(());
    };
    if metadata.is_symlink() {
        return Ok(());
    }
    if metadata.is_dir() {
        let flags = PLAIN | MsFlags::MS_RDONLY;
        return Ok(mount(TMPFS, path, TMPFS, flags, Some("mode=0555,size=4k"))?);
    }
    bind(Path::new(NOTHING), path)
}

fn replace_etc(files: &Files) -> io::Result<()> {
    let etc = Path::new(ETC);
    let name_services = fs::read_to_string(etc.join(NSSWITCH_CONF)).unwrap_or_default();
    let staged = Staged::begin(etc)?;
    let replaced = Replaced::begin(etc)?;
    let host = etc.join(HOST);
    make_directory(&host, 0o755)?;
    staged.move_to(&host)?;
    for entry in &replaced.entries {
        let name = entry.file_name();
        let (from, to) = (replaced.host().join(&name), etc.join(&name));
        let kind = entry.file_type()?;
        let is_ours = name == RESOLV_CONF || name == NSSWITCH_CONF || name == HOST;
        // One that cannot be mounted stays empty.
        let _ = match () {
            () if is_ours => Ok(()),
            () if kind.is_dir() => make_directory(&to, 0o755).and_then(|()| bind(&from, &to)),
            () if kind.is_symlink() => fs::read_link(&from).and_then(|target| symlink(target, &to)),
            () => symlink(Path::new(HOST).join(&name), &to),
        };
    }
    write(&etc.join(RESOLV_CONF), &files.resolv_conf)?;
    write(&etc.join(NSSWITCH_CONF), &own_name_services(&name_services))?;
    // It is the user's own, who could not write to the host's either.
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | PLAIN;
    Ok(mount(None::<&str>, etc, None::<&str>, flags, None::<&str>)?)
}

/// Host names come from `/etc/hosts` and the name servers; all else stays.
fn own_name_services(host: &str) -> String {
    let is_other = |line: &&str| {
        let line = line.trim_start();
        !line.starts_with("hosts:") && !line.starts_with('#')
    };
    let others = host
        .lines()
        .filter(is_other)
        .map(|line| format!("{line}\n"));
    others.chain(["hosts: files dns\n".to_owned()]).collect()
}

fn replace_run(run: &Path, hidden: &[PathBuf]) -> io::Result<()> {
    let replaced = Replaced::begin(run)?;
    fill(&replaced.host(), run, &replaced.entries, hidden);
    Ok(())
}

/// Shows the host's entries in `to`, save those that are hidden. What cannot be shown stays away.
fn fill(from: &Path, to: &Path, entries: &[DirEntry], hidden: &[PathBuf]) {
    for entry in entries {
        let name = entry.file_name();
        let (from, to) = (from.join(&name), to.join(&name));
        if !hidden.contains(&to) {
            let _ = show(&from, &to, entry, hidden);
        }
    }
}

fn show(from: &Path, to: &Path, entry: &DirEntry, hidden: &[PathBuf]) -> io::Result<()> {
    let metadata = entry.metadata()?;
    let has_hidden = hidden.iter().any(|it| it.starts_with(to));
    if metadata.is_symlink() {
        return symlink(fs::read_link(from)?, to);
    }
    if metadata.is_dir() {
        make_directory(to, metadata.mode() & 0o777)?;
        match has_hidden {
            true => fill(from, to, &entries_of(from)?, hidden),
            false => bind(from, to)?,
        }
        return Ok(());
    }
    write(to, "")?;
    bind(from, to)
}

/// A directory of the host's, mounted where it can be moved from once something else has its place.
struct Staged(PathBuf);

impl Staged {
    fn begin(directory: &Path) -> io::Result<Self> {
        mount(TMPFS, STAGE, TMPFS, MsFlags::empty(), None::<&str>)?;
        let staged = Path::new(STAGE).join("host");
        make_directory(&staged, 0o755)?;
        bind(directory, &staged)?;
        Ok(Self(staged))
    }

    fn move_to(self, place: &Path) -> io::Result<()> {
        let (from, none) = (Some(&self.0), None::<&str>);
        mount(from, place, none, MsFlags::MS_MOVE, none)?;
        Ok(umount2(STAGE, MntFlags::MNT_DETACH)?)
    }
}

/// A directory of the host's in whose place there is an empty one now.
struct Replaced {
    /// Leads to the host's.
    host: File,
    entries: Vec<DirEntry>,
}

const TMPFS: Option<&str> = Some("tmpfs");
const PLAIN: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);

impl Replaced {
    fn begin(directory: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true);
        options.custom_flags(libc::O_PATH | libc::O_DIRECTORY);
        let host = options.open(directory)?;
        let entries = entries_of(directory)?;
        let mode = fs::metadata(directory)?.mode() & 0o777;
        let options = format!("mode={mode:04o},size=16m");
        mount(TMPFS, directory, TMPFS, PLAIN, Some(options.as_str()))?;
        Ok(Self { host, entries })
    }

    fn host(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.host.as_raw_fd()))
    }
}

fn entries_of(directory: &Path) -> io::Result<Vec<DirEntry>> {
    Ok(fs::read_dir(directory)?.flatten().collect())
}

fn bind(from: &Path, to: &Path) -> io::Result<()> {
    // The kernel refuses a mount without those below it.
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    Ok(mount(Some(from), to, None::<&str>, flags, None::<&str>)?)
}

fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_hosts_of_the_name_services_change() {
        let host = "# comment\npasswd: files systemd\nhosts: mymachines resolve [!UNAVAIL=return] dns\n\
                    services: db files\n";
        let own = "passwd: files systemd\nservices: db files\nhosts: files dns\n";
        assert_eq!(own_name_services(host), own);
        assert_eq!(own_name_services(""), "hosts: files dns\n");
    }
}
