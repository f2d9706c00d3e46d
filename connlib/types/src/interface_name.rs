//! Names of interfaces.

use std::{fmt, path::Path, str::FromStr};

/// A name that wg-quick and the kernel accept: 1 to 15 of `a-z A-Z 0-9 _ = + . -`, but not `.` or `..`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InterfaceName(String);

/// Why a text is not an interface's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It has no character.
    #[error("an interface's name has 1 to 15 characters")]
    Empty,
    /// It has this many characters, more than the kernel accepts.
    #[error("an interface's name is too long: {0} characters, at most 15")]
    Long(usize),
    /// It has this character, which wg-quick does not accept.
    #[error("an interface's name consists of letters, digits and _ = + . - (not of {0:?})")]
    Character(char),
    /// It is `.` or `..`.
    #[error("an interface's name is not `.` or `..`")]
    Dots,
    /// The file's name does not end in `.conf`.
    #[error(
        "a configuration file is named like its interface, followed by .conf (in small letters)"
    )]
    Suffix,
}

/// IFNAMSIZ of the kernel, without the NUL.
const LONGEST: usize = 15;

impl InterfaceName {
    /// The name that a file gives its interface: `wg0` for `/etc/wireguard/wg0.conf`.
    ///
    /// # Errors
    /// If the file's name is not an interface's name followed by `.conf`.
    pub fn of_file(path: &Path) -> Result<Self, NameError> {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.and_then(|name| name.strip_suffix(".conf"));
        name.ok_or(NameError::Suffix)?.parse()
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for InterfaceName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_=+.-".contains(c);
        if let Some(strange) = name.chars().find(|c| !is_allowed(*c)) {
            return Err(NameError::Character(strange));
        }
        match name {
            "." | ".." => Err(NameError::Dots),
            "" => Err(NameError::Empty),
            _ if name.len() > LONGEST => Err(NameError::Long(name.len())),
            _ => Ok(Self(name.to_owned())),
        }
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_its_interface_as_in_wg_quick() {
        for (path, expected) in [
            ("/etc/wireguard/wg0.conf", Ok("wg0")),
            ("a_b=c+d.e-f.conf", Ok("a_b=c+d.e-f")),
            ("fifteen-bytes-x.conf", Ok("fifteen-bytes-x")),
            ("sixteen-bytes-xx.conf", Err(NameError::Long(16))),
            (".conf", Err(NameError::Empty)),
            ("...conf", Err(NameError::Dots)),
            ("wg 0.conf", Err(NameError::Character(' '))),
            ("größe.conf", Err(NameError::Character('ö'))),
            ("WG0.CONF", Err(NameError::Suffix)),
            ("wg0", Err(NameError::Suffix)),
            ("/", Err(NameError::Suffix)),
        ] {
            let name = InterfaceName::of_file(Path::new(path));
            assert_eq!(
                name.as_ref().map(InterfaceName::as_str),
                expected.as_ref().map(|it| *it)
            );
        }
    }
}
