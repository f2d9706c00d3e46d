//! The same values on a command line.

use std::path::Path;

use convoy_types::Prefix;

use super::{Forwarding, Listener, UserPassword, values};
use crate::{key::Take, keys::all, text::Text, values::allowed_ip};

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
    values::login_file(path).map_err(|bad| match bad.help {
        Some(reason) => format!("cannot read {}: {reason}", path.display()),
        None => format!("{}: expected {}", path.display(), bad.expected),
    })
}

fn text(value: &str) -> Text<'_> {
    Text {
        start: 0,
        text: value,
    }
}
