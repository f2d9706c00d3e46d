//! Reads `NAME.conf`, `NAME.d` and the files of keys.

use std::{
    ffi::OsStr,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use convoy_types::InterfaceName;
use nix::sys::stat::{FileStat, fstat};

use crate::{
    MAX_FILE_BYTES, MAX_TOTAL_BYTES,
    check::check,
    config::{Config, Peer},
    draft::Draft,
    drop_in::DropIns,
    file_text::{cannot_read, file_report, is_readable_by_others, text_of},
    key_file::{KeyFiles, credentials},
    keys::clamped,
    loaded::Loaded,
    located::{Files, Located, Place, Shown},
    mask::masked,
    open::{ReadFile, open_directory, read_file},
    parse::parse,
    report::{Diagnostic, Report},
    route_tables::RouteTables,
    source::Source,
    trust::hooks_of_are_trusted,
    via,
};

/// Reads configurations; knows where names and keys are looked up.
#[derive(Clone, Debug)]
pub struct Reader {
    tables: RouteTables,
    /// Where systemd puts credentials.
    credentials: Option<PathBuf>,
}

/// Number of times that a directory is read again if it changes meanwhile.
const ATTEMPTS: u32 = 8;
/// The pause before the second attempt; it doubles each time. Eight take five seconds.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

impl Reader {
    /// A reader for this machine and this environment.
    #[must_use]
    pub fn from_environment() -> Self {
        Self {
            tables: RouteTables::of_this_machine(),
            credentials: credentials(),
        }
    }

    /// Looks up relative paths of key files in this directory first, in place of
    /// `$CREDENTIALS_DIRECTORY`.
    #[must_use]
    pub fn with_credentials(mut self, directory: impl Into<PathBuf>) -> Self {
        self.credentials = Some(directory.into());
        self
    }

    /// Reads `NAME.conf` and, beside it, `NAME.d`, and the files of the tunnel through which this one goes.
    ///
    /// # Errors
    /// All errors in all files.
    pub fn read(&self, path: &Path) -> Result<Loaded, Report> {
        via::complete(path, self.read_alone(path)?, |other| self.read_alone(other))
    }

    /// Reads the same, but not the files of another tunnel.
    fn read_alone(&self, path: &Path) -> Result<Loaded, Report> {
        let name = InterfaceName::of_file(path).map_err(|error| {
            let diagnostic =
                Diagnostic::file_error("the file is not named like an interface", path);
            file_report(diagnostic.help(error.to_string()))
        })?;
        let drop_ins_path = path.with_extension("d");
        let mut pause = FIRST_PAUSE;
        for _ in 0..ATTEMPTS {
            let drop_ins = DropIns::open(&drop_ins_path)
                .map_err(|error| file_report(cannot_read(&drop_ins_path, &error)))?;
            let outcome = self.attempt(&name, path, drop_ins.as_ref(), &drop_ins_path);
            if drop_ins.is_none_or(|it| it.is_unchanged()) {
                return outcome;
            }
            thread::sleep(pause);
            pause *= 2;
        }
        let title = "the files keep changing while they are read";
        Err(file_report(Diagnostic::file_error(title, drop_ins_path)))
    }

    fn attempt(
        &self,
        name: &InterfaceName,
        path: &Path,
        drop_ins: Option<&DropIns>,
        drop_ins_path: &Path,
    ) -> Result<Loaded, Report> {
        let mut loading = Loading::new(self);
        let directory = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let directory =
            open_directory(directory).map_err(|error| file_report(cannot_read(path, &error)))?;
        let main = path.file_name().unwrap_or_default();
        let read = loading.file(directory.as_fd(), main, path);
        for file in drop_ins.iter().flat_map(|it| it.files()) {
            let directory = drop_ins.map_or(directory.as_fd(), DropIns::directory);
            loading.file(directory, file, &drop_ins_path.join(file));
        }
        loading.finish(name, path, read.as_ref())
    }
}

/// A configuration that is being read.
struct Loading<'a> {
    reader: &'a Reader,
    draft: Draft,
    files: Vec<Shown>,
    total: usize,
    report: Report,
    /// Whether it is certain that something is missing from `draft`.
    is_incomplete: bool,
}

impl<'a> Loading<'a> {
    fn new(reader: &'a Reader) -> Self {
        Self {
            reader,
            draft: Draft::default(),
            files: Vec::new(),
            total: 0,
            report: Report::default(),
            is_incomplete: false,
        }
    }

    /// Reads one file, and the keys that it refers to.
    fn file(&mut self, directory: BorrowedFd<'_>, name: &OsStr, path: &Path) -> Option<ReadFile> {
        let limit = MAX_FILE_BYTES.min(MAX_TOTAL_BYTES - self.total);
        let read = match read_file(directory, Path::new(name), limit) {
            Ok(read) => read,
            Err(error) => {
                self.is_incomplete = true;
                self.files.push(Shown::empty(path));
                self.report.push(cannot_read(path, &error));
                return None;
            }
        };
        self.total += read.bytes.len();
        let file = self.files.len();
        let (text, flaw) = text_of(&read.bytes);
        self.files.push(Shown {
            path: path.to_owned(),
            text: masked(&text),
        });
        if let Some((at, title, help)) = flaw {
            self.is_incomplete = true;
            let place = Place::new(file, at..at + 1);
            self.report
                .push(Diagnostic::error(title, place, "here").help(help));
            return None;
        }
        let peers = self.draft.peers.len();
        parse(
            file,
            &text,
            &self.reader.tables,
            &mut self.draft,
            &mut self.report,
        );
        if self.draft.has_keys(file == 0, peers) {
            self.warn_if_readable(directory, path, &read.stat);
        }
        self.read_keys(directory, file == 0, peers);
        Some(read)
    }

    /// Warns if users other than the owner can read the file.
    fn warn_if_readable(&mut self, directory: BorrowedFd<'_>, path: &Path, file: &FileStat) {
        let Ok(directory) = fstat(directory) else {
            return;
        };
        if is_readable_by_others(file.st_mode, directory.st_mode) {
            let mode = file.st_mode & 0o7777;
            let title = format!("others can read this file and its keys (mode {mode:04o})");
            let help = format!("run: chmod go= {}", path.display());
            self.report
                .push(Diagnostic::file_warning(title, path).help(help));
        }
    }

    /// Reads the keys of the peers from `first` on and, for `NAME.conf`, of the interface.
    fn read_keys(&mut self, directory: BorrowedFd<'_>, is_main: bool, first: usize) {
        let files = KeyFiles {
            credentials: self.reader.credentials.as_deref(),
            directory,
        };
        let Draft {
            interface, peers, ..
        } = &mut self.draft;
        if let (Some(path), None) = (&interface.private_key_file, &interface.private_key)
            && is_main
        {
            let key = files.read(path, &mut self.report);
            interface.private_key = key.map(|key| path.with(clamped(*key)));
        }
        if is_main {
            let report = &mut self.report;
            let forwarding = &mut interface.forwarding;
            forwarding.read_logins(|path| files.read_login(path, report));
        }
        if is_main {
            for turn in &mut interface.turns {
                let read = files.read_password(&turn.value.password_file, &mut self.report);
                turn.value.password = read;
                if let Some(path) = &turn.value.ca_file {
                    turn.value.authorities = files.read_authorities(path, &mut self.report);
                }
            }
        }
        for peer in &mut peers[first..] {
            if let (Some(path), None) = (&peer.preshared_key_file, &peer.preshared_key) {
                peer.preshared_key = files.read_preshared(path, &mut self.report);
            }
            for direct in &mut peer.directs {
                if let Some(path) = &direct.value.preshared_key_file {
                    direct.value.preshared_key = files.read_preshared(path, &mut self.report);
                }
            }
        }
    }

    fn finish(
        mut self,
        name: &InterfaceName,
        path: &Path,
        read: Option<&ReadFile>,
    ) -> Result<Loaded, Report> {
        if self.draft.header.is_none() && !self.is_incomplete {
            let error = Diagnostic::file_error("missing `[Interface]` section", path);
            self.report.push(error);
        }
        check(&mut self.draft, &mut self.report);
        let hooks_trusted = match read {
            Some(read) => hooks_of_are_trusted(path, &read.stat),
            None => Ok(()),
        };
        let source = read.and_then(|read| Source::of(path, read));
        let interface = self.draft.interface;
        if let (Err(untrusted), Some(hook)) = (&hooks_trusted, interface.hooks().next()) {
            let title = "this file's hooks will not run";
            let warning = Diagnostic::warning(title, hook.at, untrusted.to_string());
            let help =
                "let nobody but root and you write to the file and to the directories above it";
            self.report.push(warning.help(help));
        }
        let is_saved = |it: &&Located<bool>| it.value;
        if let Some(wanted) = interface.save_config.as_ref().filter(is_saved)
            && let Some(uid) = source.as_ref().and_then(Source::foreign_owner)
        {
            let title = "the running configuration will not be saved";
            let label =
                format!("the file belongs to user {uid}, neither to root nor to the caller");
            let warning = Diagnostic::warning(title, wanted.at, label);
            let help = format!("run: chown root {}", path.display());
            self.report.push(warning.help(help));
        }
        let files = Arc::new(Files(self.files));
        let mut report = self.report;
        report.files = Arc::clone(&files);
        if report.has_errors() {
            return Err(report);
        }
        Ok(Loaded {
            config: Config {
                name: name.clone(),
                interface,
                peers: self.draft.peers,
                hooks_trusted,
                files,
                source: source.map(Arc::new),
                via: None,
            },
            warnings: report,
        })
    }
}

impl Draft {
    /// Returns whether there is a key within the file itself: of a peer from `first` on or, in `NAME.conf`, of
    /// the interface.
    fn has_keys(&self, is_main: bool, first: usize) -> bool {
        let own = is_main && self.interface.private_key.is_some();
        let is_inline = |peer: &Peer| peer.preshared_key.is_some();
        own || self.peers[first..].iter().any(is_inline)
    }
}

impl Shown {
    fn empty(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            text: String::new(),
        }
    }
}

#[cfg(test)]
mod tests;
