//! Places in files, and values that know theirs.

use std::{
    fmt,
    ops::{Deref, Range},
    path::{Path, PathBuf},
};

/// A span of a file of one [`Files`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// 0 for `NAME.conf`, then those of `NAME.d` in their order.
    pub(crate) file: u32,
    /// In bytes.
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// A value and the place that it was read from.
///
/// Equality concerns the value only: a file that is laid out differently configures the same.
#[derive(Clone, Debug)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub at: Place,
}

/// The files of a configuration, without their secrets.
#[derive(Debug, Default)]
pub struct Files(pub(crate) Vec<Shown>);

/// One file, as diagnostics show it.
#[derive(Clone)]
pub(crate) struct Shown {
    pub(crate) path: PathBuf,
    /// Text of the same length as the file, without its secrets.
    pub(crate) text: String,
}

impl Place {
    pub(crate) fn new(file: usize, range: Range<usize>) -> Self {
        // INVARIANT: `crate::MAX_FILE_BYTES` and the number of files are below 2^32.
        Self {
            file: file as u32,
            start: range.start as u32,
            end: range.end as u32,
        }
    }

    /// The same place if `files` others precede its file.
    pub(crate) fn shifted(self, files: usize) -> Self {
        Self {
            file: self.file + files as u32,
            ..self
        }
    }

    pub(crate) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Returns whether this is in `NAME.d`.
    #[must_use]
    pub fn is_drop_in(self) -> bool {
        self.file > 0
    }
}

impl<T> Located<T> {
    /// A value that was read from no file.
    pub fn nowhere(value: T) -> Self {
        let at = Place::default();
        Self { value, at }
    }

    /// Another value that comes from the same place.
    pub(crate) fn with<U>(&self, value: U) -> Located<U> {
        let at = self.at;
        Located { value, at }
    }
}

impl<T> Deref for Located<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: PartialEq> PartialEq for Located<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Files {
    /// The path, line and column of a place, for messages of one line; lines and columns count from 1.
    #[must_use]
    pub fn position(&self, at: Place) -> Option<(&Path, usize, usize)> {
        let shown = self.0.get(at.file as usize)?;
        let (line, start) = shown.line_of(at.start as usize);
        let column = shown.text.get(start..at.start as usize)?.chars().count() + 1;
        Some((&shown.path, line, column))
    }

    /// Names the file and line of a place in parentheses, after a space; nothing if there is no such place.
    #[must_use]
    pub fn mention(&self, at: Place) -> String {
        match self.position(at) {
            Some((path, line, _)) => format!(" ({}:{line})", path.display()),
            None => String::new(),
        }
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.path.display(), self.text.len())
    }
}

impl Shown {
    /// The number of the line at an offset, from 1, and the offset of its first character.
    pub(crate) fn line_of(&self, offset: usize) -> (usize, usize) {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        let number = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let start = before.iter().rposition(|byte| *byte == b'\n');
        let has_mark = start.is_none() && self.text.starts_with('\u{feff}') && offset >= 3;
        let first = if has_mark { 3 } else { 0 };
        (number, start.map_or(first, |feed| feed + 1))
    }
}
