//! The user and the password that a proxy asks for.

use std::fmt;

use subtle::ConstantTimeEq;

/// A user and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// Without a colon, which HTTP could not carry.
    pub user: String,
    /// The password.
    pub password: String,
}

impl Login {
    /// Returns whether a client gave the same; it cannot learn by the time how much of it was right.
    pub(crate) fn matches(&self, user: &[u8], password: &[u8]) -> bool {
        let is_user = self.user.as_bytes().ct_eq(user);
        let is_password = self.password.as_bytes().ct_eq(password);
        (is_user & is_password).into()
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}
