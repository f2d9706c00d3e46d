//! The same values on a command line.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use convoy_types::Prefix;
use zeroize::Zeroizing;

use super::{Forwarding, Listener, UserPassword, login};
use crate::{
    key::Take, key_file::MAX_BYTES, keys::all, open::OpenError, text::Text, values::allowed_ip,
};

/// Parses the value of the key `name` as a file has it: `Forward`, `ForwardUDP`, `Reverse`, `Socks5` or `HttpConnect`.
///
/// # Errors
/// Says what was expected, and perhaps gives a hint.
pub fn parse_listener(name: &str, value: &str) -> Result<Listener, String> {
    let mut forwarding = Forwarding::default();
    if let Some(key) = all().find(|key| key.name == name)
        && let Take::Forwarding(take) = key.take
    {
        let taken = forwarding.take(key.name, take, text(value), 0);
        taken.map_err(|bad| bad.sentence())?;
    }
    let listener = forwarding.listeners.pop();
    listener.ok_or_else(|| format!("{name} is no listener"))
}

/// Parses a prefix; an address is one, too.
///
/// # Errors
/// Says what was expected.
pub fn parse_prefix(value: &str) -> Result<Prefix, String> {
    let parsed = allowed_ip(text(value));
    parsed
        .map(|(prefix, _)| prefix)
        .map_err(|bad| bad.sentence())
}

/// Reads a file whose first line is `user:password`.
///
/// # Errors
/// Why it cannot be read, or that it is not such a file.
pub fn read_login(path: &Path) -> Result<UserPassword, String> {
    let shown = path.display();
    let bytes = start_of(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    if bytes.len() > MAX_BYTES {
        return Err(format!(
            "cannot read {shown}: {}",
            OpenError::TooLarge(MAX_BYTES)
        ));
    }
    let login = str::from_utf8(&bytes).ok().and_then(login);
    login.ok_or_else(|| format!("{shown}: expected a file whose first line is `user:password`"))
}

/// Reads one byte more than a password may have; the file may be the pipe of a shell's `<(…)`.
fn start_of(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let most = MAX_BYTES + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(most));
    File::open(path)?
        .take(most as u64)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn text(value: &str) -> Text<'_> {
    Text {
        start: 0,
        text: value,
    }
}
