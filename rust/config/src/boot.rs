//! Reads the kill switch that closes at boot from a file, whatever else the file says.

use std::{os::fd::AsFd as _, path::Path};

use zeroize::Zeroizing;

use convoy_types::InterfaceName;

use crate::{
    MAX_FILE_BYTES,
    config::KillSwitch,
    draft::Draft,
    file_text::{cannot_read, file_report, text_of},
    open::{OpenError, open_directory, read_file, read_start},
    parse::parse,
    report::{Diagnostic, Report},
    route_tables::RouteTables,
};

/// The value that closes.
const PERSISTENT: &str = "persistent";

/// The kill switch of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtBoot {
    /// The interface.
    pub name: InterfaceName,
    /// Whether it is to be closed while the tunnel is not up.
    pub is_persistent: bool,
    /// Whether the local network stays reachable.
    pub allow_lan: bool,
    /// The mark of the tunnel's datagrams, if the file has one.
    pub fwmark: Option<u32>,
    /// Whether the file is understood as far as this goes. If not, there are no exceptions.
    pub is_understood: bool,
}

/// Reads `KillSwitch`, `AllowLAN` and `FwMark` of `NAME.conf`, and neither keys nor `NAME.d`. Errors elsewhere in the
/// file do not matter. One that contains the word `persistent` but whose `KillSwitch` is not understood counts as
/// persistent.
///
/// # Errors
/// If there is no file, or it cannot be read.
pub fn read_at_boot(path: &Path) -> Result<AtBoot, Report> {
    let name = InterfaceName::of_file(path).map_err(|error| {
        let diagnostic = Diagnostic::file_error("the file is not named like an interface", path);
        file_report(diagnostic.help(error.to_string()))
    })?;
    let bytes = bytes_of(path).map_err(|error| file_report(cannot_read(path, &error)))?;
    let (text, _) = text_of(&bytes);
    let (mut draft, mut report) = (Draft::default(), Report::default());
    let tables = RouteTables::of_this_machine();
    parse(0, &text, &tables, &mut draft, &mut report);
    let it = &draft.interface;
    let switch = it.kill_switch.as_ref().map(|it| it.value);
    let is_guessed = switch.is_none() && report.has_errors() && mentions_persistent(&text);
    let mark = it.fwmark.as_ref().map(|it| it.value);
    Ok(AtBoot {
        name,
        is_persistent: is_guessed || switch == Some(KillSwitch::Persistent),
        allow_lan: !is_guessed && it.allow_lan.as_ref().is_some_and(|it| it.value),
        fwmark: mark.filter(|mark| *mark != 0 && !is_guessed),
        is_understood: !is_guessed,
    })
}

fn bytes_of(path: &Path) -> Result<Zeroizing<Vec<u8>>, OpenError> {
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let directory = open_directory(directory)?;
    let file = Path::new(path.file_name().unwrap_or_default());
    match read_file(directory.as_fd(), file, MAX_FILE_BYTES) {
        Ok(read) => Ok(read.bytes),
        Err(OpenError::TooLarge(_)) => read_start(&directory, file, MAX_FILE_BYTES),
        Err(error) => Err(error),
    }
}

/// Returns whether the text has the word, as a whole, in whatever encoding has ASCII's letters.
fn mentions_persistent(text: &str) -> bool {
    let letters = Zeroizing::new(text.replace('\0', ""));
    let mut words = letters.split(|c: char| !c.is_ascii_alphanumeric());
    words.any(|word| word.eq_ignore_ascii_case(PERSISTENT))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const PLAIN: &str =
        "[Interface]\n#convoy: KillSwitch = persistent\n#convoy: AllowLAN = yes\nFwMark = 0x55\n";

    fn read(text: impl AsRef<[u8]>) -> AtBoot {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.conf");
        fs::write(&path, text).unwrap();
        read_at_boot(&path).unwrap()
    }

    #[test]
    fn only_three_keys_matter() {
        let expected = AtBoot {
            name: "wg0".parse().unwrap(),
            is_persistent: true,
            allow_lan: true,
            fwmark: Some(0x55),
            is_understood: true,
        };
        assert_eq!(read(PLAIN), expected);
        for more in [
            "PrivateKey = nonsense\n",
            "#convoy: PrivateKeyFile = /nowhere\n",
            "MTU = many\nPostUp = true\n",
            "[Peer\n",
            "[Peer]\nPublicKey = x\nAllowedIPs = everything\n",
            "nonsense\n",
        ] {
            assert_eq!(read(format!("{PLAIN}{more}")), expected, "{more}");
        }
        assert_eq!(read([PLAIN.as_bytes(), b"# \xff\n"].concat()), expected);
    }

    #[test]
    fn what_is_not_understood_but_says_persistent_has_no_exceptions() {
        let utf16: Vec<u8> = [0xff, 0xfe]
            .into_iter()
            .chain(PLAIN.encode_utf16().flat_map(u16::to_le_bytes))
            .collect();
        for text in [
            PLAIN.replace("[Interface]", "[Interfaces]").into_bytes(),
            PLAIN.replace("[Interface]", "").into_bytes(),
            PLAIN
                .replace("= persistent", "= persistent, please")
                .into_bytes(),
            PLAIN.replace("= persistent", "persistent").into_bytes(),
            PLAIN
                .replace("#convoy: KillSwitch", "KillSwitch")
                .into_bytes(),
            PLAIN.replace("KillSwitch", "KilSwitch").into_bytes(),
            utf16,
        ] {
            let read = read(&text);
            let text = String::from_utf8_lossy(&text);
            assert!(read.is_persistent && !read.is_understood, "{text}");
            assert!(!read.allow_lan && read.fwmark.is_none(), "{text}");
        }
    }

    #[test]
    fn what_does_not_say_persistent_stays_open() {
        for text in [
            "",
            "[Interface]\n",
            "[Interface]\n#convoy: KillSwitch = on\n",
            "[Interface]\n#convoy: KillSwitch = off\nMTU = many\n# not persistent\n",
            "[Interfaces]\n[Peer]\nPersistentKeepalive = many\n",
        ] {
            assert!(!read(text).is_persistent, "{text}");
        }
    }

    #[test]
    fn a_file_beyond_the_limit_is_understood_as_far_as_it_is_read() {
        let long = format!("{PLAIN}{}", "# more\n".repeat(MAX_FILE_BYTES / 7 + 1));
        assert!(read(long).is_persistent);
    }

    #[test]
    fn a_missing_file_says_nothing() {
        read_at_boot(Path::new("/nonexistent/wg0.conf")).unwrap_err();
    }
}
