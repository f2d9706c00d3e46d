//! The text of a forwarder's file.

use std::{
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::Arc,
};

use convoy_types::controls_terminal;

use crate::{
    MAX_FILE_BYTES,
    file_text::{cannot_read, file_report, text_of},
    keys::find_of_forwarder,
    located::{Files, Place, Shown},
    mask::{masked, unmasked},
    open::{open_directory, read_file},
    report::{Diagnostic, Report},
    text::{Content, lines},
};

/// A file's text, and as diagnostics show it.
pub(super) struct Source {
    /// The directory of the file.
    pub(super) directory: OwnedFd,
    pub(super) text: String,
    pub(super) files: Arc<Files>,
}

impl Source {
    pub(super) fn read(path: &Path) -> Result<Self, Report> {
        let directory = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let name = path.file_name().unwrap_or_default().as_ref();
        let (directory, read) = open_directory(directory)
            .and_then(|it| read_file(it.as_fd(), name, MAX_FILE_BYTES).map(|read| (it, read)))
            .map_err(|error| file_report(cannot_read(path, &error)))?;
        let (text, flaw) = text_of(&read.bytes);
        let shown = Shown {
            path: path.to_owned(),
            text: shown(&text),
        };
        let files = Arc::new(Files(vec![shown]));
        if let Some((at, title, help)) = flaw {
            let mut report = Report::default();
            report.push(Diagnostic::error(title, Place::new(0, at..at + 1), "here").help(help));
            report.files = files;
            return Err(report);
        }
        let text = text.to_string();
        Ok(Self {
            directory,
            text,
            files,
        })
    }

    /// Shows every line as it is.
    pub(super) fn show_all(&mut self) {
        if let Some(Files(files)) = Arc::get_mut(&mut self.files) {
            for shown in files {
                shown.text = unmasked(&self.text);
            }
        }
    }

    pub(super) fn finish<T>(self, value: T, mut report: Report) -> Result<(T, Report), Report> {
        report.files = self.files;
        match report.has_errors() {
            true => Err(report),
            false => Ok((value, report)),
        }
    }
}

/// The text without what may be a secret: somebody may take a tunnel's file for a forwarder's.
fn shown(text: &str) -> String {
    let mut shown = masked(text).into_bytes();
    for line in lines(text) {
        if let Content::Pair(key, value) = line.classify().content
            && find_of_forwarder(&key.compact()).is_some()
        {
            shown[key.range()].copy_from_slice(key.text.as_bytes());
            let is_plain = !value.text.chars().any(controls_terminal);
            if is_plain {
                shown[value.range()].copy_from_slice(value.text.as_bytes());
            }
        }
    }
    String::from_utf8(shown).unwrap_or_default()
}
