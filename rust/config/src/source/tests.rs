use std::{fs::Permissions, os::unix::fs::symlink};

use tempfile::TempDir;

use super::*;

const TEXT: &str = "[Interface]\nListenPort = 1\n";
const NEW: &str = "[Interface]\nListenPort = 2\n";

#[test]
fn an_unchanged_file_is_replaced_and_a_link_to_it_stays() {
    let (directory, path) = file(0o640);
    let link = directory.path().join("link.conf");
    symlink(&path, &link).unwrap();
    let source = source(&link);
    // As a crash may leave it.
    fs::write(directory.path().join("wg0.conf.convoy-new"), "half a").unwrap();
    source.remove_unfinished();
    assert_eq!(save(&source, true), Saved::InPlace { narrowed_to: None });
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&path).unwrap(), NEW);
    assert_eq!(mode(&path), 0o640);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 2);
}

#[test]
fn a_key_comes_into_no_file_that_others_can_read() {
    for (has_keys, expected) in [(true, 0o600), (false, 0o644)] {
        let (directory, path) = file(0o644);
        fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
        let narrowed_to = has_keys.then_some(expected);
        let saved = save(&source(&path), has_keys);
        assert_eq!(saved, Saved::InPlace { narrowed_to });
        assert_eq!(mode(&path), expected);
    }
}

#[test]
fn a_file_that_was_edited_or_exchanged_stays_and_a_new_one_is_beside_it() {
    type Edit = fn(&Path);
    let edits: [Edit; 5] = [
        |path| fs::write(path, "[Interface]\n# guest\n").unwrap(),
        |path| fs::remove_file(path).unwrap(),
        |path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        },
        |path| {
            let victim = path.with_file_name("victim");
            // With the same text: a link is not followed, wherever it leads.
            fs::rename(path, &victim).unwrap();
            symlink(victim, path).unwrap();
        },
        |path| {
            fs::remove_file(path).unwrap();
            nix::unistd::mkfifo(path, Mode::S_IRWXU).unwrap();
        },
    ];
    for (number, edit) in edits.into_iter().enumerate() {
        let (directory, path) = file(0o644);
        let source = source(&path);
        edit(&path);
        let victim = directory.path().join("victim");
        // A FIFO would be waited for.
        let text = || path.is_file().then(|| fs::read_to_string(&path).unwrap());
        let before = text();
        for name in ["wg0.conf.saved", "wg0.conf.saved-2"] {
            let beside = directory.path().join(name);
            assert_eq!(
                save(&source, true),
                Saved::Beside(beside.clone()),
                "{number}"
            );
            assert_eq!(fs::read_to_string(&beside).unwrap(), NEW);
            assert_eq!(mode(&beside), 0o600);
        }
        assert_eq!(text(), before, "{number}");
        if victim.exists() {
            assert_eq!(fs::read_to_string(victim).unwrap(), TEXT);
        }
        let left = fs::read_dir(&directory).unwrap().flatten();
        let is_unfinished = |name: OsString| name.to_string_lossy().ends_with("convoy-new");
        assert!(!left.map(|it| it.file_name()).any(is_unfinished));
    }
}

#[test]
fn what_is_to_be_beside_a_file_leaves_it_as_it_is() {
    let (directory, path) = file(0o640);
    let saved = source(&path).save_beside(NEW).unwrap();
    let Saved::Beside(beside) = saved else {
        panic!("{saved:?}");
    };
    assert_eq!(fs::read_to_string(&path).unwrap(), TEXT);
    assert_eq!(fs::read_to_string(&beside).unwrap(), NEW);
    assert_eq!(mode(&beside), 0o600);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 2);
}

#[test]
fn nothing_is_beside_a_file_that_has_the_text_already() {
    let (directory, path) = file(0o600);
    let source = source(&path);
    let saved = source.save_beside(TEXT).unwrap();
    assert_eq!(saved, Saved::InPlace { narrowed_to: None });
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    fs::write(&path, NEW).unwrap();
    let saved = source.save_beside(TEXT).unwrap();
    assert!(matches!(saved, Saved::Beside(_)), "{saved:?}");
}

#[test]
fn a_file_is_saved_where_it_was_when_its_directory_is_exchanged() {
    let directory = tempfile::tempdir().unwrap();
    let [here, elsewhere] = ["here", "elsewhere"].map(|name| directory.path().join(name));
    for directory in [&here, &elsewhere] {
        fs::create_dir(directory).unwrap();
        fs::set_permissions(directory, Permissions::from_mode(0o700)).unwrap();
        fs::write(directory.join("wg0.conf"), TEXT).unwrap();
    }
    let source = source(&here.join("wg0.conf"));
    let moved = directory.path().join("moved");
    fs::rename(&here, &moved).unwrap();
    symlink(&elsewhere, &here).unwrap();
    assert_eq!(save(&source, true), Saved::InPlace { narrowed_to: None });
    let text = |directory: &Path| fs::read_to_string(directory.join("wg0.conf")).unwrap();
    assert_eq!((text(&moved), text(&elsewhere)), (NEW.into(), TEXT.into()));
}

/// `wg0.conf` in a directory of its own, which nobody else can enter.
fn file(mode: u32) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
    let path = directory.path().join("wg0.conf");
    fs::write(&path, TEXT).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    (directory, path)
}

fn source(path: &Path) -> Source {
    let loaded = crate::read(path).unwrap();
    let source = loaded.config.source.unwrap();
    std::sync::Arc::into_inner(source).unwrap()
}

fn save(source: &Source, has_keys: bool) -> Saved {
    source.save(NEW, has_keys).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}
