//! The file of an interface, and the one place where its name is put into commands.

use std::path::{Path, PathBuf};

use convoy_types::{InterfaceName, NameError};

/// The file that a user means: a path, or the name of an interface with a file in `/etc/wireguard`, also one that is too
/// long for an interface.
///
/// Unlike in wg-quick, a name that ends in `.conf` is a path even without a slash.
#[must_use]
pub fn path_of(file_or_name: &Path) -> PathBuf {
    let text = file_or_name.to_str().unwrap_or_default();
    let is_name = matches!(
        text.parse::<InterfaceName>(),
        Ok(_) | Err(NameError::Long(_))
    );
    match is_name && !text.ends_with(".conf") {
        true => Path::new("/etc/wireguard").join(format!("{text}.conf")),
        false => file_or_name.to_owned(),
    }
}

/// A hook's command with each `%i` replaced by the interface's name, which no shell interprets, and each `%p` by the
/// port that a provider forwards; without one that is wanted, `%p` stays.
#[must_use]
pub fn expand_hook(command: &str, name: &InterfaceName, port: Option<u16>) -> String {
    let command = match port {
        Some(port) => command.replace("%p", &port.to_string()),
        None => command.to_owned(),
    };
    command.replace("%i", name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_a_file_in_etc() {
        for (given, expected) in [
            ("wg0", "/etc/wireguard/wg0.conf"),
            ("wg0.conf", "wg0.conf"),
            ("./wg0", "./wg0"),
            ("racknerd2_mailbox", "/etc/wireguard/racknerd2_mailbox.conf"),
            ("/etc/wg0.conf", "/etc/wg0.conf"),
            ("", ""),
        ] {
            assert_eq!(path_of(Path::new(given)), Path::new(expected));
        }
    }

    #[test]
    fn every_mark_in_a_hook_is_replaced() {
        let name = "wg0".parse().unwrap();
        let expanded = expand_hook("up %i %%i i% %p", &name, None);
        assert_eq!(expanded, "up wg0 %wg0 i% %p");
        let expanded = expand_hook("%p %i %%p", &name, Some(4000));
        assert_eq!(expanded, "4000 wg0 %4000");
    }
}
