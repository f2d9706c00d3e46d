//! The name servers of the network that tunnels run over.

use std::{fs, path::Path};

use crate::{
    change::{Before, What},
    dns::{Original, Resolving},
    error::HostError,
    journal::{self, Entry},
    options::Options,
};

/// The text of resolv.conf as it would be without our tunnels: where one of them has replaced it, the original;
/// empty if there is none.
#[must_use]
pub fn resolv_conf_without_tunnels(options: &Options) -> String {
    let path = &options.resolv_conf;
    let Ok(original) = original(options) else {
        return String::new();
    };
    if let Some(content) = original.behind(path) {
        return String::from_utf8_lossy(&content).into_owned();
    }
    match original {
        Original::File { content, .. } => {
            let content = hex::decode(content).unwrap_or_default();
            String::from_utf8_lossy(&content).into_owned()
        }
        Original::Link { target, .. } => {
            let directory = path.parent().unwrap_or(Path::new("/"));
            text_of(&directory.join(target))
        }
        Original::Absent => String::new(),
    }
}

/// Returns whether programs that look names up ask systemd-resolved: by nss-resolve(8), or by resolv.conf as it would
/// be without our tunnels.
pub(crate) fn leads_to_resolved(options: &Options) -> bool {
    let is_link = || match original(options) {
        Ok(Original::Link { target, .. }) => target.to_string_lossy().contains("systemd/resolve/"),
        _ => false,
    };
    let names_resolved = |line: &str| {
        let mut words = line.split_whitespace();
        words.next() == Some("nameserver") && words.next().is_some_and(|it| STUBS.contains(&it))
    };
    let has_service = |line: &str| {
        let line = line.split('#').next().unwrap_or_default();
        let services = line.trim_start().strip_prefix("hosts:");
        services.is_some_and(|it| it.split_whitespace().any(|service| service == "resolve"))
    };
    text_of(&options.name_services).lines().any(has_service)
        || is_link()
        || resolv_conf_without_tunnels(options)
            .lines()
            .any(names_resolved)
}

/// systemd-resolved itself (systemd-resolved.service(8)).
const STUBS: [&str; 2] = ["127.0.0.53", "127.0.0.54"];

/// The file as it would be without our tunnels.
fn original(options: &Options) -> Result<Original, HostError> {
    let path = &options.resolv_conf;
    let files = fs::read_dir(&options.lasting_journals)
        .into_iter()
        .flatten();
    let paths = files.filter_map(|file| Some(file.ok()?.path()));
    let journals = paths.filter(|path| path.extension().is_some_and(|end| end == "journal"));
    let mut entries = journals.flat_map(|journal| journal::peek(&journal));
    let original = entries.find_map(|entry| original_of(entry, path));
    original.map_or_else(|| Original::read(path), Ok)
}

/// The original that `entry` keeps, if its text is what stands at `resolv_conf` now.
fn original_of(entry: Entry, resolv_conf: &Path) -> Option<Original> {
    match (entry.change.what, entry.change.before) {
        (What::Dns(Resolving::File { path, content }), Before::ResolvConf(original))
            if path == resolv_conf && Original::is_text(&path, &content) =>
        {
            Some(original)
        }
        _ => None,
    }
}

fn text_of(path: &Path) -> String {
    let content = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&content).into_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::{change::Change, journal::tests::open};

    const OURS: &str = "# Written by convoy for wg0\nnameserver 10.0.0.1\n";

    #[test]
    fn the_original_is_found_as_long_as_our_text_stands() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options {
            lasting_journals: directory.path().join("journals"),
            resolv_conf: directory.path().join("resolv.conf"),
            ..Options::default()
        };
        let path = &options.resolv_conf;
        let text = || resolv_conf_without_tunnels(&options);
        assert_eq!(text(), "");
        fs::write(path, "nameserver 192.0.2.1\n").unwrap();
        fs::write(directory.path().join("stub"), "nameserver 127.0.0.53\n").unwrap();
        assert_eq!(text(), "nameserver 192.0.2.1\n");

        let link = directory.path().join("link");
        symlink("stub", &link).unwrap();
        let link = Original::read(&link).unwrap();
        let originals = [Original::read(path).unwrap(), link, Original::Absent];
        let expected = ["nameserver 192.0.2.1\n", "nameserver 127.0.0.53\n", ""];
        for (original, expected) in originals.into_iter().zip(expected) {
            let (mut journal, _) = open(&options.lasting_journals);
            let what = What::Dns(Resolving::File {
                path: path.clone(),
                content: OURS.to_owned(),
            });
            let before = Before::ResolvConf(original);
            let change = Change { what, before };
            journal.record(&Entry { id: 1, change }).unwrap();
            fs::write(path, OURS).unwrap();
            assert_eq!(text(), expected);
        }
        fs::write(path, "nameserver 192.0.2.9\n").unwrap();
        assert_eq!(text(), "nameserver 192.0.2.9\n", "another program's");
    }

    #[test]
    fn resolved_is_asked_where_a_file_leads_to_it() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options {
            lasting_journals: directory.path().join("journals"),
            resolv_conf: directory.path().join("resolv.conf"),
            name_services: directory.path().join("nsswitch.conf"),
            ..Options::default()
        };
        let leads = |text: &str, services: &str| {
            let _ = fs::remove_file(&options.resolv_conf);
            match text.strip_prefix("-> ") {
                Some(target) => symlink(target, &options.resolv_conf).unwrap(),
                None => fs::write(&options.resolv_conf, text).unwrap(),
            }
            fs::write(&options.name_services, services).unwrap();
            leads_to_resolved(&options)
        };
        assert!(leads("nameserver 127.0.0.53\noptions edns0\n", ""));
        assert!(leads("-> ../run/systemd/resolve/resolv.conf", ""));
        assert!(leads("-> /run/systemd/resolve/stub-resolv.conf", ""));
        assert!(leads(
            "nameserver 192.0.2.1\n",
            "hosts: mymachines resolve [!UNAVAIL=return] files dns\n"
        ));
        for services in [
            "",
            "hosts: files dns\n",
            "#hosts: resolve\npasswd: resolve\n",
            "hosts: files # resolve\n",
        ] {
            assert!(!leads(
                "nameserver 192.0.2.1\n# nameserver 127.0.0.53\n",
                services
            ));
        }
    }
}
