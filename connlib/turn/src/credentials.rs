//! Long-term credentials.

use turn_client_proto::types::TurnCredentials;
use zeroize::Zeroizing;

use crate::error::InvalidCredentials;

/// Longest user name and password, in bytes (RFC 8489 §14.3).
const MAX_CREDENTIAL_BYTES: usize = 508;

/// A user name with its password, which no output shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: String,
    password: Zeroizing<String>,
}

impl Credentials {
    /// Checks the lengths, which a STUN message bounds.
    ///
    /// # Errors
    /// See [`InvalidCredentials`].
    pub fn new(user: String, password: String) -> Result<Self, InvalidCredentials> {
        let password = Zeroizing::new(password);
        let fits = |text: &str| (1..=MAX_CREDENTIAL_BYTES).contains(&text.len());
        if !fits(&user) {
            return Err(InvalidCredentials::UserName);
        }
        if !fits(&password) {
            return Err(InvalidCredentials::Password);
        }
        Ok(Self { user, password })
    }

    /// The user name.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The password.
    #[must_use]
    pub fn password(&self) -> &str {
        &self.password
    }

    pub(crate) fn for_library(&self) -> TurnCredentials {
        TurnCredentials::new(&self.user, &self.password)
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}
