//! Files that contain one key in base64, a password, or certificates.

use std::{
    env,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
};

use convoy_types::{Password, PresharedKey};
use zeroize::Zeroizing;

use crate::{
    authorities::Certificates,
    base64::decode_key,
    forward::{UserPassword, login},
    located::Located,
    open::{OpenError, ReadFile, open_directory, read_file},
    report::{Diagnostic, Report},
};

/// Where key files are looked up.
pub(crate) struct KeyFiles<'a> {
    /// Relative paths are looked up here first.
    pub(crate) credentials: Option<&'a Path>,
    /// The directory of the configuration file.
    pub(crate) directory: BorrowedFd<'a>,
}

/// Larger files contain something else.
pub(crate) const MAX_BYTES: usize = 4096;
/// Longest password in bytes (RFC 8489 §14.4).
const MAX_PASSWORD_BYTES: usize = 508;
/// Largest file of certificates: bundles of whole systems have 220 to 300 KiB, with comments for each up to twice that.
pub(crate) const MAX_AUTHORITIES_BYTES: usize = 512 << 10;

/// Returns the directory where systemd puts credentials, if this is a service.
pub(crate) fn credentials() -> Option<PathBuf> {
    env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from)
}

impl KeyFiles<'_> {
    /// Reads a key, or reports why not.
    pub(crate) fn read(
        &self,
        path: &Located<PathBuf>,
        report: &mut Report,
    ) -> Option<Zeroizing<[u8; 32]>> {
        let bytes = self.bytes(path, "key file", report)?;
        let key = std::str::from_utf8(&bytes).ok();
        let key = key.and_then(|text| decode_key(text.trim_ascii()));
        if key.is_none() {
            let title = "invalid key file";
            let label = "expected the file to contain 32 bytes in base64 and nothing else";
            report.push(Diagnostic::error(title, path.at, label));
        }
        key
    }

    /// Reads a preshared key, or reports why not; one of zeros is none, as in wg.
    pub(crate) fn read_preshared(
        &self,
        path: &Located<PathBuf>,
        report: &mut Report,
    ) -> Option<Located<PresharedKey>> {
        let key = self.read(path, report)?;
        let is_some = key.iter().any(|byte| *byte != 0);
        is_some.then(|| path.with(PresharedKey(*key)))
    }

    /// Reads a user and a password, or reports why not.
    pub(crate) fn read_login(
        &self,
        path: &Located<PathBuf>,
        report: &mut Report,
    ) -> Option<UserPassword> {
        let bytes = self.bytes(path, "file with the password", report)?;
        let login = std::str::from_utf8(&bytes).ok().and_then(login);
        if login.is_none() {
            let title = "invalid file with a password";
            let label = "expected its first line to be `user:password`";
            report.push(Diagnostic::error(title, path.at, label));
        }
        login
    }

    /// Reads a password, or reports why not.
    pub(crate) fn read_password(
        &self,
        path: &Located<PathBuf>,
        report: &mut Report,
    ) -> Option<Password> {
        let bytes = self.bytes(path, "file with the password", report)?;
        let password = std::str::from_utf8(&bytes).ok().and_then(password);
        if password.is_none() {
            let title = "invalid file with a password";
            let label = format!("expected one line of 1 to {MAX_PASSWORD_BYTES} bytes");
            report.push(Diagnostic::error(title, path.at, label));
        }
        password
    }

    /// Reads certificates of authorities in PEM form, or reports why not.
    pub(crate) fn read_authorities(
        &self,
        path: &Located<PathBuf>,
        report: &mut Report,
    ) -> Option<Certificates> {
        let what = "file with certificates";
        let (file, _) = self.found(path, what, MAX_AUTHORITIES_BYTES, report)?;
        match Certificates::new(&file.bytes) {
            Ok(certificates) => Some(certificates),
            Err(label) => {
                let title = format!("invalid {what}");
                report.push(Diagnostic::error(title, path.at, label));
                None
            }
        }
    }

    /// Reads a file that others should not be able to read.
    fn bytes(
        &self,
        path: &Located<PathBuf>,
        what: &str,
        report: &mut Report,
    ) -> Option<Zeroizing<Vec<u8>>> {
        let (file, is_credential) = self.found(path, what, MAX_BYTES, report)?;
        let mode = file.stat.st_mode & 0o7777;
        if mode & 0o044 != 0 && !is_credential {
            let title = format!("others can read this {what} (mode {mode:04o})");
            let warning = Diagnostic::warning(title, path.at, "named here");
            report.push(warning.help(format!("run: chmod go= {}", path.display())));
        }
        Some(file.bytes)
    }

    /// Reads the file, or reports why not; also says whether it is a credential.
    fn found(
        &self,
        path: &Located<PathBuf>,
        what: &str,
        limit: usize,
        report: &mut Report,
    ) -> Option<(ReadFile, bool)> {
        match self.find(path, limit) {
            Ok(found) => Some(found),
            Err(error) => {
                let title = format!("cannot read the {what}: {error}");
                let diagnostic = Diagnostic::error(title, path.at, "named here");
                report.push(match (&error, self.credentials) {
                    (OpenError::Absent, None) if path.is_relative() => diagnostic
                        .help("a relative path starts at the directory of the configuration file"),
                    (OpenError::Absent, Some(_)) if path.is_relative() => diagnostic.help(
                        "it is neither in $CREDENTIALS_DIRECTORY nor beside the configuration file",
                    ),
                    _ => diagnostic,
                });
                None
            }
        }
    }

    /// Reads the file, and says whether it is a credential.
    fn find(&self, path: &Path, limit: usize) -> Result<(ReadFile, bool), OpenError> {
        if let (Some(credentials), true) = (self.credentials, path.is_relative()) {
            let directory = open_directory(credentials);
            match directory.and_then(|directory| read_file(directory.as_fd(), path, limit)) {
                Err(OpenError::Absent) => {}
                other => return Ok((other?, true)),
            }
        }
        Ok((read_file(self.directory, path, limit)?, false))
    }
}

/// The password of a file that has nothing else: one line, with or without its end.
fn password(text: &str) -> Option<Password> {
    let line = text.strip_suffix('\n').unwrap_or(text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    let fits = (1..=MAX_PASSWORD_BYTES).contains(&line.len());
    (fits && !line.chars().any(char::is_control)).then(|| Password(line.to_owned()))
}
