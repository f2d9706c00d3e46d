//! Lines of a file that is written.

use std::fmt::{Display, Write as _};

use zeroize::Zeroizing;

use crate::{base64::encode_key, located::Located};

/// The text of a file, to which a key's entry adds its lines.
pub(crate) struct Writer {
    pub(crate) text: Zeroizing<String>,
    /// The beginning of a line with the current key.
    pub(crate) key: String,
}

impl Writer {
    /// Writes one line for each value: of an option, or of a list.
    pub(crate) fn each<'a, T: Display + 'a>(
        &mut self,
        values: impl IntoIterator<Item = &'a Located<T>>,
    ) {
        for value in values {
            self.line(&value.value);
        }
    }

    /// Writes a truth value in one of two words.
    pub(crate) fn truth(&mut self, value: Option<&Located<bool>>, yes: &str, no: &str) {
        if let Some(value) = value {
            self.line(if value.value { yes } else { no });
        }
    }

    /// Writes a key in base64.
    pub(crate) fn key(&mut self, key: &[u8; 32]) {
        self.line(encode_key(key).as_str());
    }

    pub(crate) fn line(&mut self, value: impl Display) {
        // INVARIANT: writing to a string succeeds.
        let _ = writeln!(self.text, "{} = {value}", self.key);
    }
}
