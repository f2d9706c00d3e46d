use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    thread,
    time::{Duration, Instant},
};

use super::*;
use crate::change::{Before, What};

fn entry(id: u64, value: &str) -> Entry {
    let what = What::Sysctl {
        path: "/proc/sys/net/ipv4/conf/all/src_valid_mark".into(),
        value: value.to_owned(),
    };
    let before = Before::Content("0".to_owned());
    Entry {
        id,
        change: Change { what, before },
    }
}

pub(crate) fn open(directory: &Path) -> (Journal, Vec<Entry>) {
    try_to_open(directory).unwrap()
}

/// Opens a journal that nobody else uses. A child that another test forks holds its lock until it executes its program.
fn try_to_open(directory: &Path) -> Result<(Journal, Vec<Entry>), HostError> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match Journal::open(directory, "wg0") {
            Err(HostError::Busy { .. }) if Instant::now() < deadline => thread::yield_now(),
            opened => return opened,
        }
    }
}

#[test]
fn entries_come_back_in_order_without_those_undone() {
    let directory = tempfile::tempdir().unwrap();
    let (mut journal, none) = open(directory.path());
    assert_eq!(none, []);
    for id in 1..=3 {
        journal.record(&entry(id, "1")).unwrap();
    }
    journal.record(&entry(1, "2")).unwrap();
    journal.undone(2).unwrap();
    drop(journal);
    let (journal, entries) = open(directory.path());
    assert_eq!(entries, [entry(1, "2"), entry(3, "1")]);
    journal.remove().unwrap();
    drop(journal);
    assert_eq!(open(directory.path()).1, []);
}

#[test]
fn a_file_that_ends_anywhere_is_read_up_to_its_last_whole_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wg0.journal");
    let (mut journal, _) = open(directory.path());
    journal.record(&entry(1, "1")).unwrap();
    journal.record(&entry(2, "1")).unwrap();
    drop(journal);
    let whole = fs::read(&path).unwrap();
    for end in 0..whole.len() {
        fs::write(&path, &whole[..end]).unwrap();
        let (mut journal, mut entries) = open(directory.path());
        assert!(entries.len() < 2);
        // What is recorded next is not glued to the rest of a line.
        journal.record(&entry(9, "1")).unwrap();
        drop(journal);
        entries.push(entry(9, "1"));
        assert_eq!(open(directory.path()).1, entries, "cut at {end}");
    }
}

#[test]
fn a_journal_is_held_by_one_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let (journal, _) = open(directory.path());
    let second = Journal::open(directory.path(), "wg0");
    assert!(matches!(second, Err(HostError::Busy { .. })));
    drop(journal);
    open(directory.path());
}

#[test]
fn a_journal_that_has_grown_is_shortened_to_what_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wg0.journal");
    let (mut journal, _) = open(directory.path());
    journal.record(&entry(1, "1")).unwrap();
    assert!(journal.shorten().unwrap().is_none(), "it is short");
    let long = "1".repeat(4 << 10);
    let mut locks = Vec::new();
    for id in 2..80 {
        journal.record(&entry(id, &long)).unwrap();
        locks.extend(journal.shorten().unwrap());
        journal.undone(id).unwrap();
        assert!(fs::metadata(&path).unwrap().len() < SHORTENED_AT * 2);
    }
    assert!(locks.len() > 1);
    // As long as anybody has the newest lock.
    drop(journal);
    let lock = locks.pop();
    locks.clear();
    let second = Journal::open(directory.path(), "wg0");
    assert!(matches!(second, Err(HostError::Busy { .. })));
    drop(lock);
    assert_eq!(open(directory.path()).1, [entry(1, "1")]);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
}

#[test]
fn a_journal_that_cannot_be_shortened_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(directory.path());
    let long = "1".repeat(4 << 10);
    for id in 1..20 {
        journal.record(&entry(id, &long)).unwrap();
    }
    let obstacle = directory.path().join("wg0.journal-new");
    fs::create_dir(&obstacle).unwrap();
    journal.shorten().unwrap_err();
    assert!(journal.shorten().unwrap().is_none(), "it has not grown");
    journal.undone(1).unwrap();
    drop(journal);
    fs::remove_dir(&obstacle).unwrap();
    assert_eq!(open(directory.path()).1.len(), 18);
}

#[test]
fn the_remainder_of_a_shorter_journal_goes() {
    let directory = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(directory.path());
    journal.record(&entry(1, "1")).unwrap();
    drop(journal);
    fs::write(directory.path().join("wg0.journal-new"), "{").unwrap();
    assert_eq!(open(directory.path()).1, [entry(1, "1")]);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
}

#[test]
fn after_a_reboot_nothing_of_the_kernel_is_left_to_undo() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wg0.journal");
    let (mut journal, _) = open(directory.path());
    journal.record(&entry(1, "1")).unwrap();
    drop(journal);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(
        &path,
        text.replacen("\"boot\":\"", "\"boot\":\"another ", 1),
    )
    .unwrap();
    let (mut journal, none) = open(directory.path());
    assert_eq!(none, []);
    journal.record(&entry(2, "1")).unwrap();
    drop(journal);
    assert_eq!(open(directory.path()).1, [entry(2, "1")]);
}

#[test]
fn another_format_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wg0.journal");
    fs::write(&path, "{\"convoy\":9,\"boot\":\"x\",\"namespace\":\"y\"}\n").unwrap();
    let refused = try_to_open(directory.path()).unwrap_err();
    assert!(
        refused.to_string().contains("line 1: version 9"),
        "{refused}"
    );
}

#[test]
fn a_journal_that_others_could_have_written_is_not_believed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wg0.journal");
    let (mut journal, _) = open(directory.path());
    journal.record(&entry(1, "1")).unwrap();
    drop(journal);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    try_to_open(directory.path()).unwrap_err();
    assert_eq!(peek(&path), []);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(peek(&path).len(), 1);
    // Nor one in a directory that others may write to.
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    try_to_open(directory.path()).unwrap_err();
}

#[test]
fn only_a_parameter_that_is_ever_changed_is_put_back() {
    let directory = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(directory.path());
    let mut planted = entry(1, "1");
    planted.change.what = What::Sysctl {
        path: "/etc/passwd".into(),
        value: "1".to_owned(),
    };
    journal.record(&planted).unwrap();
    drop(journal);
    let error = try_to_open(directory.path()).unwrap_err();
    assert!(
        error.to_string().contains("/etc/passwd is never changed"),
        "{error}"
    );
}
