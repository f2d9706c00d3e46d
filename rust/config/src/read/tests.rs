use std::{
    fs::{self, Permissions},
    os::unix::{
        fs::{PermissionsExt, symlink},
        net::UnixListener,
    },
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use nix::{sys::stat::Mode, unistd::mkfifo};
use tempfile::TempDir;

use super::*;

const KEY: &str = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";

#[test]
fn a_file_without_peers_is_enough() {
    let directory = Directory::new();
    let path = directory.write("wg0.conf", "[Interface]\nListenPort = 1");
    let config = reader().read(&path).unwrap().config;
    assert_eq!(config.name.as_str(), "wg0");
    assert!(config.peers.is_empty());
    let port = config.interface.listen_port.unwrap();
    assert_eq!(
        config.files.position(port.at),
        Some((path.as_path(), 2, 14))
    );
    let error = Report::about(&config.files, port.at, "in use", "by another program");
    assert!(error.to_string().contains("2 | ListenPort = 1"), "{error}");
}

#[test]
fn binary_files_are_refused_at_their_first_wrong_byte() {
    for (bytes, expected) in [
        (&b"[Interface]\nDNS = a\xffb\xfe\n"[..], "wg0.conf:2:8"),
        (b"[Interface]\nMTU = 14\x00\n", "NUL byte"),
        (b"\xff\xfe[\0I\0", "UTF-16"),
        (b"\x7fELF\x02\x01\x01\0\0\0", "NUL byte"),
        (b"", "missing `[Interface]` section"),
        (b"\xef\xbb\xbf", "missing `[Interface]` section"),
        (
            b"[Interface]\n[Peer]\nPublicKey = xTIBA5",
            "expected 32 bytes in base64",
        ),
    ] {
        let report = refused(bytes);
        assert!(report.contains(expected), "{report}");
    }
    let junk: Vec<u8> = (0..100_000_u32)
        .map(|it| (it.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    assert!(refused(&junk).len() < 2_000);
    let text: Vec<_> = junk.iter().map(|byte| byte % 95 + 32).collect();
    assert!(refused(&[b"[Peer]\n", &text[..]].concat()).len() < 2_000);
}

#[test]
fn a_byte_order_mark_and_carriage_returns_are_accepted() {
    let directory = Directory::new();
    let path = directory.write("wg0.conf", "\u{feff}[Interface]\r\nMTU = 1400\r\n");
    assert!(reader().read(&path).is_ok());
    directory.write("wg0.conf", "\u{feff}MTU = 1400");
    let report = reader().read(&path).unwrap_err().to_string();
    assert!(report.contains("wg0.conf:1:1"), "{report}");
}

#[test]
fn only_files_are_read_and_nothing_waits() {
    let directory = Directory::new();
    let path = |name: &str| directory.0.path().join(name);
    fs::create_dir(path("dir.conf")).unwrap();
    mkfifo(&path("fifo.conf"), Mode::S_IRWXU).unwrap();
    let _socket = UnixListener::bind(path("sock.conf")).unwrap();
    symlink("/dev/zero", path("dev.conf")).unwrap();
    let large = fs::File::create(path("large.conf")).unwrap();
    large.set_len(MAX_FILE_BYTES as u64 + 1).unwrap();
    for (name, expected) in [
        ("dir.conf", "it is a directory"),
        ("fifo.conf", "it is a FIFO"),
        ("sock.conf", "it is a socket"),
        ("dev.conf", "it is a device"),
        ("large.conf", "it has more than 16777216 bytes"),
        ("absent.conf", "it does not exist"),
        ("none/wg0.conf", "it does not exist"),
        ("wg0", "followed by .conf"),
    ] {
        let report = reader().read(&path(name)).unwrap_err().to_string();
        assert!(report.contains(expected), "{name}: {report}");
        assert!(report.contains(name), "{name}: {report}");
    }
}

#[test]
fn keys_may_stand_in_files_of_their_own() {
    let (directory, credentials) = (Directory::new(), Directory::new());
    let path = directory.write(
        "wg0.conf",
        &format!(
            "[Interface]\n#convoy: PrivateKeyFile = own.key\n\
             [Peer]\nPublicKey = {KEY}\n#convoy: PresharedKeyFile = psk\n"
        ),
    );
    let report = reader().read(&path).unwrap_err().to_string();
    assert!(
        report.contains("cannot read the key file: it does not exist"),
        "{report}"
    );
    assert!(report.contains("wg0.conf:2:27"), "{report}");
    directory.write("own.key", &format!("{KEY}\n"));
    directory.write("psk", "a key\n");
    let report = reader().read(&path).unwrap_err().to_string();
    assert!(report.contains("invalid key file"), "{report}");
    assert!(!report.contains("a key\n"), "{report}");
    credentials.write("psk", KEY);
    let reader = reader().with_credentials(credentials.0.path());
    let config = reader.read(&path).unwrap().config;
    fs::set_permissions(
        directory.0.path().join("own.key"),
        Permissions::from_mode(0o640),
    )
    .unwrap();
    let warnings = reader.read(&path).unwrap().warnings.to_string();
    assert_eq!(warnings.matches("warning: ").count(), 1, "{warnings}");
    assert!(
        warnings.contains("others can read this key file (mode 0640)"),
        "{warnings}"
    );
    let preshared = config.peers[0].preshared_key.as_ref().unwrap();
    assert_eq!(STANDARD.encode(preshared.0), KEY);
    assert!(config.interface.private_key.is_some());
    fs::remove_file(directory.0.path().join("own.key")).unwrap();
    mkfifo(&directory.0.path().join("own.key"), Mode::S_IRWXU).unwrap();
    assert!(
        reader
            .read(&path)
            .unwrap_err()
            .to_string()
            .contains("it is a FIFO")
    );
}

#[test]
fn a_file_with_keys_that_others_can_read_is_warned_about() {
    let directory = Directory::new();
    let path = directory.write("wg0.conf", &format!("[Interface]\nPrivateKey = {KEY}\n"));
    let warnings = |file, dir| {
        fs::set_permissions(&path, Permissions::from_mode(file)).unwrap();
        fs::set_permissions(directory.0.path(), Permissions::from_mode(dir)).unwrap();
        reader().read(&path).unwrap().warnings.to_string()
    };
    assert_eq!(warnings(0o600, 0o755), "");
    assert_eq!(warnings(0o644, 0o700), "");
    let shown = warnings(0o640, 0o755);
    assert!(
        shown.contains("(mode 0640)") && shown.contains("chmod go= "),
        "{shown}"
    );
    assert!(warnings(0o604, 0o711).contains("others can read"));
    directory.write("wg0.conf", "[Interface]\nPostUp = wg set %i private-key x");
    assert!(!warnings(0o644, 0o755).contains("others can read"));
}

#[test]
fn hooks_of_a_file_in_a_shared_directory_are_warned_about() {
    let directory = Directory::new();
    let path = directory.write("wg0.conf", "[Interface]\nPostUp = wg set %i private-key x");
    fs::set_permissions(directory.0.path(), Permissions::from_mode(0o777)).unwrap();
    let loaded = reader().read(&path).unwrap();
    assert!(loaded.config.hooks_trusted.is_err());
    let warnings = loaded.warnings.to_string();
    assert!(
        warnings.contains("this file's hooks will not run"),
        "{warnings}"
    );
}

#[test]
fn drop_ins_are_read_in_order_and_others_skipped() {
    let directory = Directory::new();
    let path = directory.write("wg0.conf", "[Interface]\nMTU = 1400");
    directory.write("wg0.d/b.conf", &peer(2));
    directory.write("wg0.d/a.conf", &peer(1));
    directory.write("wg0.d/.c.conf", "junk");
    directory.write("wg0.d/README", "junk");
    let config = reader().read(&path).unwrap().config;
    assert_eq!(numbers(&config), [1, 2]);
    assert!(
        config
            .peers
            .iter()
            .all(|peer| peer.public_key.at.is_drop_in())
    );
    directory.write("wg0.d/c.conf", "[Peer]\nPublicKey = x\n");
    directory.write("wg0.d/d.conf", "[Peer]\nPublicKey = x\n");
    let report = reader().read(&path).unwrap_err().to_string();
    assert!(
        report.contains("wg0.d/c.conf:2:13") && report.contains("wg0.d/d.conf:2:13"),
        "{report}"
    );
    symlink("absent", directory.0.path().join("wg0.d/e.conf")).unwrap();
    let report = reader().read(&path).unwrap_err().to_string();
    assert!(report.contains("wg0.d/e.conf"), "{report}");
}

#[test]
fn a_config_map_that_is_swapped_meanwhile_gives_one_set_or_the_other() {
    let directory = Directory::new();
    let path = directory.write("wg0.conf", "[Interface]\nMTU = 1400");
    let root = directory.0.path().join("wg0.d");
    fs::create_dir(&root).unwrap();
    swap(&root, 0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for version in 1..200 {
                swap(&root, version);
                thread::sleep(Duration::from_millis(1));
            }
            done.store(true, Relaxed);
        });
        let mut versions = Vec::new();
        while !done.load(Relaxed) {
            let config = reader().read(&path).unwrap().config;
            let found = numbers(&config);
            let version = found[0] / 100;
            let expected: Vec<_> = (0..files(version))
                .map(|file| version * 100 + file)
                .collect();
            assert_eq!(found, expected);
            versions.push(version);
        }
        assert!(versions.is_sorted(), "{versions:?}");
        versions.dedup();
        assert!(versions.len() > 1, "{versions:?}");
    });
}

#[test]
fn a_file_that_is_renamed_over_another_is_whole() {
    let directory = Directory::new();
    let path = directory.write("wg0.conf", "[Interface]\nMTU = 1400");
    directory.write("wg0.d/a.conf", &peer(0));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for version in 1..200 {
                let new = directory.write("wg0.d/a.conf.new", &peer(version));
                fs::rename(new, directory.0.path().join("wg0.d/a.conf")).unwrap();
                thread::sleep(Duration::from_millis(1));
            }
            done.store(true, Relaxed);
        });
        while !done.load(Relaxed) {
            assert_eq!(reader().read(&path).unwrap().config.peers.len(), 1);
        }
    });
    assert_eq!(numbers(&reader().read(&path).unwrap().config), [199]);
}

/// The number of files of the ConfigMap in one version.
fn files(version: u32) -> u32 {
    5 + version % 3
}

/// Replaces the set of files as kubelet does: a new directory, a new link renamed over the old one, then
/// links to files that are new or gone, and the old directory removed file by file.
fn swap(root: &Path, version: u32) {
    let directory = root.join(format!("..{version}"));
    fs::create_dir(&directory).unwrap();
    for file in 0..files(version) {
        fs::write(
            directory.join(format!("{file}.conf")),
            peer(version * 100 + file),
        )
        .unwrap();
    }
    symlink(directory.file_name().unwrap(), root.join("..data_tmp")).unwrap();
    fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    // Long enough for a reader in between.
    thread::sleep(Duration::from_millis(1));
    for file in 0..files(2) {
        let name = format!("{file}.conf");
        let _ = match file < files(version) {
            true => symlink(format!("..data/{name}"), root.join(name)),
            false => fs::remove_file(root.join(name)),
        };
    }
    if let Some(former) = version.checked_sub(1) {
        fs::remove_dir_all(root.join(format!("..{former}"))).unwrap();
    }
}

/// A section for peer number `number`.
fn peer(number: u32) -> String {
    let mut key = [0; 32];
    key[..4].copy_from_slice(&number.to_be_bytes());
    let [.., a, b] = number.to_be_bytes();
    format!(
        "[Peer]\nPublicKey = {}\nAllowedIPs = 10.0.{a}.{b}/32\n",
        STANDARD.encode(key)
    )
}

fn numbers(config: &Config) -> Vec<u32> {
    let keys = config.peers.iter().map(|peer| peer.public_key.0);
    keys.map(|key| u32::from_be_bytes(*key.first_chunk().unwrap()))
        .collect()
}

fn refused(bytes: &[u8]) -> String {
    let directory = Directory::new();
    let path = directory.0.path().join("wg0.conf");
    fs::write(&path, bytes).unwrap();
    reader().read(&path).unwrap_err().to_string()
}

fn reader() -> Reader {
    let tables = RouteTables::parse("");
    let credentials = None;
    Reader {
        tables,
        credentials,
    }
}

struct Directory(TempDir);

impl Directory {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }
}
