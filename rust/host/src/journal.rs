//! The journal: every change is on disk before it is made.
//!
//! ```text
//! {"convoy":1,"boot":"…","namespace":"net:[4026531840]"}
//! {"id":1,"change":{…}}      about to be made
//! {"id":2,"change":{…}}
//! {"undone":2}
//! ```
//! Records are appended and synced. A truncated last line is a record whose change was never made, and is
//! dropped. A record with the identity of an earlier one replaces it. A journal that has grown is replaced by one with
//! the changes that are left, since whoever makes the host's network change would fill the disk.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use convoy_process::trust::{ensure_own, own_directory};
use serde::{Deserialize, Serialize};

use crate::{
    change::{Change, What, is_ever_changed},
    elsewhere::NetworkNamespace,
    error::HostError,
    options::Options,
};

/// Version of the format.
const VERSION: u32 = 1;

/// The size in bytes at which a journal is shortened for the first time; the next time, at twice what that has left.
const SHORTENED_AT: u64 = 64 << 10;

/// An open, locked journal. The lock ends with the process, and with what holds a [`Journal::lock`].
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    /// Size in bytes at which it is shortened.
    shortened_at: u64,
}

/// A change in the journal that has not been undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) change: Change,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
enum Line {
    Head(Head),
    Made { id: u64, change: Box<Change> },
    Undone { undone: u64 },
}

#[derive(Debug, Deserialize, PartialEq, Eq, Serialize)]
struct Head {
    convoy: u32,
    boot: String,
    namespace: String,
}

impl Journal {
    /// Opens or creates the journal of `interface` and returns it with its entries, oldest first.
    pub(crate) fn open(directory: &Path, interface: &str) -> Result<(Self, Vec<Entry>), HostError> {
        let path = directory.join(format!("{interface}.journal"));
        own_directory(directory).map_err(HostError::file("use", directory))?;
        let mut file = lock(&path, interface)?;
        // It is there only after a crash.
        let _ = fs::remove_file(beside(&path));
        let mut text = Vec::new();
        file.read_to_end(&mut text)
            .map_err(HostError::file("read", &path))?;
        text.truncate(whole_lines(&text));
        let here = Head::here()?;
        if let Some(head) = last_head(&text)
            && head.is_in_another_namespace(&here)
            && !entries(&path, &text, &head)?.1.is_empty()
            && head.namespace().exists()
        {
            return Err(head.elsewhere(interface));
        }
        let (is_current, entries) = entries(&path, &text, &here)?;
        let mut journal = Self {
            path,
            file,
            shortened_at: SHORTENED_AT,
        };
        journal.rewind_to(text.len() as u64)?;
        if !is_current {
            let begun = journal.append(&Line::Head(here));
            let begun = begun.and_then(|()| sync_directory(directory));
            if begun.is_err() && text.is_empty() {
                // It must not look like something to undo.
                let _ = journal.remove();
            }
            begun?;
        }
        Ok((journal, entries))
    }

    /// Opens the journal of `interface`, and the one that outlives a power cut if there is one; returns the entries of
    /// both, oldest first.
    pub(crate) fn open_both(
        options: &Options,
        interface: &str,
    ) -> Result<(Self, Option<Self>, Vec<Entry>), HostError> {
        let (journal, mut made) = Self::open(&options.journals, interface)?;
        let mut lasting = None;
        let path = options
            .lasting_journals
            .join(format!("{interface}.journal"));
        if fs::exists(path).unwrap_or(false) {
            let (journal, more) = Self::open(&options.lasting_journals, interface)?;
            match more.is_empty() {
                // A crash came between its last change and its end.
                true => journal.remove()?,
                false => lasting = Some(journal),
            }
            made.extend(more);
        }
        made.sort_by_key(|entry| entry.id);
        Ok((journal, lasting, made))
    }

    /// The lock, which lasts for as long as a descriptor of it is open.
    pub(crate) fn lock(&self) -> Result<File, HostError> {
        let lock = self.file.try_clone();
        lock.map_err(HostError::file("lock", &self.path))
    }

    /// Records a change that is about to be made.
    pub(crate) fn record(&mut self, entry: &Entry) -> Result<(), HostError> {
        let change = Box::new(entry.change.clone());
        self.append(&Line::Made {
            id: entry.id,
            change,
        })
    }

    /// Records that a change has been undone.
    pub(crate) fn undone(&mut self, id: u64) -> Result<(), HostError> {
        self.append(&Line::Undone { undone: id })
    }

    /// Replaces the file, if it has grown, by one without the changes that were undone. Returns the lock of the new file,
    /// which holds instead of earlier ones.
    ///
    /// # Errors
    /// If the new file cannot be written. The former one stays and is used.
    pub(crate) fn shorten(&mut self) -> Result<Option<File>, HostError> {
        let length = self.file.stream_position();
        let length = length.map_err(HostError::file("read", &self.path))?;
        if length < self.shortened_at {
            return Ok(None);
        }
        // After a failure, too, it has to grow first.
        self.shortened_at = length.saturating_mul(2);
        let new = beside(&self.path);
        let shortened = self.write_shorter(&new);
        let (mut shorter, lock) = shortened.inspect_err(|_| drop(fs::remove_file(&new)))?;
        let left = shorter.file.stream_position().unwrap_or(length);
        shorter.shortened_at = SHORTENED_AT.max(left.saturating_mul(2));
        *self = shorter;
        Ok(Some(lock))
    }

    fn write_shorter(&self, new: &Path) -> Result<(Self, File), HostError> {
        let text = fs::read(&self.path).map_err(HostError::file("read", &self.path))?;
        let here = Head::here()?;
        let (_, entries) = entries(&self.path, &text, &here)?;
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600);
        let file = file.open(new).map_err(HostError::file("create", new))?;
        // Before anybody else can find it.
        let locked = file.try_lock().map_err(io::Error::from);
        locked.map_err(HostError::file("lock", new))?;
        let mut shorter = Self {
            path: self.path.clone(),
            file,
            shortened_at: SHORTENED_AT,
        };
        shorter.append(&Line::Head(here))?;
        for entry in &entries {
            shorter.record(entry)?;
        }
        let lock = shorter.lock()?;
        let renamed = fs::rename(new, &self.path);
        renamed.map_err(HostError::file("write", &self.path))?;
        // From here on the new file is the journal, whatever fails.
        let _ = self.path.parent().map(sync_directory);
        Ok((shorter, lock))
    }

    /// Removes the file: nothing is left to undo.
    pub(crate) fn remove(&self) -> Result<(), HostError> {
        fs::remove_file(&self.path).map_err(HostError::file("remove", &self.path))
    }

    fn append(&mut self, line: &Line) -> Result<(), HostError> {
        let mut text = serde_json::to_vec(line)
            .map_err(io::Error::from)
            .map_err(HostError::file("write", &self.path))?;
        text.push(b'\n');
        let end = self.file.stream_position();
        let written = end.and_then(|end| {
            let outcome = self
                .file
                .write_all(&text)
                .and_then(|()| self.file.sync_data());
            // A full disk must not leave half a line before the next record.
            outcome.inspect_err(|_| {
                let _ = self.file.set_len(end);
                let _ = self.file.seek(SeekFrom::Start(end));
            })
        });
        written.map_err(HostError::file("write", &self.path))
    }

    fn rewind_to(&mut self, end: u64) -> Result<(), HostError> {
        let cut = self.file.set_len(end);
        cut.and_then(|()| self.file.seek(SeekFrom::Start(end)))
            .map(drop)
            .map_err(HostError::file("write", &self.path))
    }
}

/// The entries of another interface's journal; none if it cannot be read.
pub(crate) fn peek(path: &Path) -> Vec<Entry> {
    let read = || -> Option<Vec<Entry>> {
        let mut file = File::open(path).ok()?;
        ensure_own(&file.metadata().ok()?).ok()?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).ok()?;
        text.truncate(whole_lines(&text));
        let (_, entries) = entries(path, &text, &Head::here().ok()?).ok()?;
        Some(entries)
    };
    read().unwrap_or_default()
}

/// The length without a last line that was cut short: its change was never made.
fn whole_lines(text: &[u8]) -> usize {
    text.iter()
        .rposition(|b| *b == b'\n')
        .map_or(0, |at| at + 1)
}

/// Path of a shorter journal until it is complete: fixed, so that a remainder of a crash can be found.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-new");
    name.into()
}

/// Opens and locks the file, unless its owner removes or replaces it at the same moment.
fn lock(path: &Path, interface: &str) -> Result<File, HostError> {
    loop {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o600);
        let file = options
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)
            .map_err(HostError::file("create", path))?;
        // What it says is undone by root.
        let owned = file.metadata().and_then(|found| ensure_own(&found));
        owned.map_err(HostError::file("believe", path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(busy(path, interface)),
            Err(TryLockError::Error(error)) => return Err(HostError::file("lock", path)(error)),
        }
        let ours = file.metadata().map(|m| m.ino()).ok();
        if ours.is_some() && fs::metadata(path).map(|m| m.ino()).ok() == ours {
            return Ok(file);
        }
    }
}

/// Returns why a journal cannot be locked.
fn busy(path: &Path, interface: &str) -> HostError {
    let text = fs::read(path).unwrap_or_default();
    match (last_head(&text), Head::here()) {
        (Some(head), Ok(here)) if head.is_in_another_namespace(&here) => head.elsewhere(interface),
        _ => HostError::Busy {
            interface: interface.to_owned(),
            path: path.to_owned(),
        },
    }
}

/// The last head of a journal of this version.
fn last_head(text: &[u8]) -> Option<Head> {
    let lines = text.split(|b| *b == b'\n').rev();
    let mut heads = lines.filter_map(|line| serde_json::from_slice::<Head>(line).ok());
    heads.next().filter(|head| head.convoy == VERSION)
}

/// The entries that may still be as they were left, and whether the file's last head is `here`. A reboot or
/// another network namespace leaves only files.
fn entries(path: &Path, text: &[u8], here: &Head) -> Result<(bool, Vec<Entry>), HostError> {
    // A change with another state before it keeps its place: later changes may depend on it.
    let (mut last, mut entries) = (None, BTreeMap::<u64, Entry>::new());
    for (number, line) in text.split(|b| *b == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        let wrong = |reason: String| HostError::Journal {
            path: path.to_owned(),
            line: number + 1,
            reason,
        };
        match serde_json::from_slice(line).map_err(|error| wrong(error.to_string()))? {
            Line::Head(head) if head.convoy != VERSION => {
                return Err(wrong(format!("version {} is not {VERSION}", head.convoy)));
            }
            Line::Head(head) => {
                entries.retain(|_, entry| last.is_none() || entry.change.what.survives_reboot());
                last = Some(head);
            }
            Line::Undone { undone } => drop(entries.remove(&undone)),
            Line::Made { id, change } => {
                let change = *change;
                if let What::Sysctl { path, .. } = &change.what
                    && !is_ever_changed(path)
                {
                    return Err(wrong(format!("{} is never changed", path.display())));
                }
                entries.insert(id, Entry { id, change });
            }
        }
    }
    let is_current = last.as_ref() == Some(here);
    let entries = entries.into_values();
    let left = entries.filter(|entry| is_current || entry.change.what.survives_reboot());
    Ok((is_current, left.collect()))
}

impl Head {
    fn namespace(&self) -> NetworkNamespace {
        NetworkNamespace(self.namespace.clone())
    }

    fn is_in_another_namespace(&self, here: &Self) -> bool {
        self.boot == here.boot && self.namespace != here.namespace
    }

    fn elsewhere(&self, interface: &str) -> HostError {
        HostError::Elsewhere {
            interface: interface.to_owned(),
            namespace: self.namespace(),
        }
    }

    fn here() -> Result<Self, HostError> {
        let boot = "/proc/sys/kernel/random/boot_id";
        let namespace = NetworkNamespace::here();
        Ok(Self {
            convoy: VERSION,
            boot: fs::read_to_string(boot)
                .map_err(HostError::file("read", boot))?
                .trim()
                .to_owned(),
            namespace: namespace
                .map_err(HostError::file("read", "/proc/thread-self/ns/net"))?
                .0,
        })
    }
}

fn sync_directory(directory: &Path) -> Result<(), HostError> {
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(HostError::file("sync", directory))
}

#[cfg(test)]
pub(crate) mod tests;
