//! A lock of an interface's name, for a process that changes nothing on the host for it.

use crate::{desired::check_name, error::HostError, journal::Journal, options::Options};

/// Keeps other processes from changing the host for an interface, at most until this process ends.
#[derive(Debug)]
pub struct Lock {
    journal: Journal,
    has_changes: bool,
}

impl Lock {
    /// Locks the journal of `interface`.
    ///
    /// # Errors
    /// [`HostError::Busy`] if another process holds it.
    pub fn take(interface: &str, options: &Options) -> Result<Self, HostError> {
        check_name(interface)?;
        let (journal, _, made) = Journal::open_both(options, interface)?;
        Ok(Self {
            journal,
            has_changes: !made.is_empty(),
        })
    }

    /// Returns whether an earlier process has left changes on the host.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        self.has_changes
    }

    /// Lets go; no file stays unless there are changes to undo.
    ///
    /// # Errors
    /// If the file cannot be removed.
    pub fn release(self) -> Result<(), HostError> {
        match self.has_changes {
            true => Ok(()),
            false => self.journal.remove(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs, thread,
        time::{Duration, Instant},
    };

    use super::*;

    /// A change that is still to be undone.
    const CHANGE: &str = r#"{"id":1,"change":{"what":{"sysctl":{"path":"/proc/sys/net/ipv4/conf/all/src_valid_mark","value":"1"}},"before":{"content":"0"}}}"#;

    #[test]
    fn a_lock_is_held_by_one_and_leaves_no_file_unless_there_are_changes() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options {
            journals: directory.path().join("run"),
            lasting_journals: directory.path().join("lib"),
            ..Options::default()
        };
        let path = options.journals.join("hop.journal");
        let lock = take(&options);
        assert!(matches!(
            Lock::take("hop", &options),
            Err(HostError::Busy { .. })
        ));
        assert!(!lock.has_changes());
        lock.release().unwrap();
        assert!(!path.exists());
        // One whose process was killed is in nobody's way.
        drop(take(&options));
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{text}{CHANGE}\n")).unwrap();
        let lock = take(&options);
        assert!(lock.has_changes());
        lock.release().unwrap();
        assert!(path.exists());
        fs::remove_file(&path).unwrap();
        // What outlives a power cut counts as well.
        fs::create_dir_all(&options.lasting_journals).unwrap();
        fs::write(
            options.lasting_journals.join("hop.journal"),
            format!("{text}{CHANGE}\n"),
        )
        .unwrap();
        assert!(take(&options).has_changes());
    }

    /// A child that another test forks holds the lock until it executes its program.
    fn take(options: &Options) -> Lock {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            match Lock::take("hop", options) {
                Err(HostError::Busy { .. }) if Instant::now() < deadline => thread::yield_now(),
                taken => return taken.unwrap(),
            }
        }
    }
}
