//! The bearer token (RFC 6750) of those who may read metrics.

use std::{
    fmt,
    fs::File,
    io::{self, Read as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use hyper::header::HeaderValue;
use nix::fcntl::OFlag;
use subtle::ConstantTimeEq as _;
use thiserror::Error;
use tracing::warn;
use zeroize::Zeroizing;

/// How many characters a token has.
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=1024;

const SCHEME: &str = "Bearer ";

/// A secret; it is never shown.
pub(super) struct Token(Zeroizing<Vec<u8>>);

/// Why a file holds no token.
#[derive(Debug, Error)]
pub(super) enum TokenError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is a pipe, a device, or a directory.
    #[error("it is not a regular file")]
    NotAFile,
    /// See [`LENGTHS`].
    #[error(
        "a token has {} to {} characters (fix: `openssl rand -hex 32`)",
        LENGTHS.start(),
        LENGTHS.end()
    )]
    Length,
    /// It could not be sent in a header.
    #[error("a token has letters, digits and -._~+/= only")]
    Character,
}

impl Token {
    /// Reads the token in a regular file; white space around it is ignored.
    pub(super) fn read(path: &Path) -> Result<Self, TokenError> {
        // Opening a FIFO would wait for its writer, and no signal would end that.
        let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let file = File::options()
            .read(true)
            .custom_flags(flags.bits())
            .open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(TokenError::NotAFile);
        }
        if metadata.permissions().mode() & 0o004 != 0 {
            let path = path.display();
            warn!("everybody on this machine can read the token in {path} (fix: chmod o-r {path})");
        }
        // Never moved to a larger buffer, which would leave a copy.
        let mut text = Zeroizing::new(Vec::with_capacity(2 * LENGTHS.end()));
        let most = text.capacity() as u64;
        file.take(most).read_to_end(&mut text)?;
        let token = text.trim_ascii();
        let is_sendable = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte);
        if !LENGTHS.contains(&token.len()) {
            return Err(TokenError::Length);
        }
        match token.iter().all(is_sendable) {
            true => Ok(Self(Zeroizing::new(token.to_owned()))),
            false => Err(TokenError::Character),
        }
    }

    /// Returns whether the header `Authorization` bears it. Takes as long for any token of the same length.
    pub(super) fn is_borne_by(&self, header: Option<&HeaderValue>) -> bool {
        let Some((scheme, token)) =
            header.and_then(|it| it.as_bytes().split_at_checked(SCHEME.len()))
        else {
            return false;
        };
        scheme.eq_ignore_ascii_case(SCHEME.as_bytes()) && bool::from(token.ct_eq(&self.0))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;

    const TOKEN: &str = "0123456789abcdef-._~+/=";

    #[test]
    fn only_the_whole_token_is_accepted() {
        let token = read(&format!("{TOKEN}\n")).unwrap();
        let is_accepted = |text: &str| {
            let header = HeaderValue::from_str(text).unwrap();
            token.is_borne_by(Some(&header))
        };
        assert!(is_accepted(&format!("Bearer {TOKEN}")));
        assert!(is_accepted(&format!("bearer {TOKEN}")));
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            TOKEN,
            &format!("Basic {TOKEN}"),
            &format!("Bearer {TOKEN}x"),
            &format!("Bearer {}", &TOKEN[1..]),
            &format!("Bearer {}", TOKEN.to_uppercase()),
        ] {
            assert!(!is_accepted(wrong), "{wrong}");
        }
        assert!(!token.is_borne_by(None));
    }

    #[test]
    fn a_file_that_holds_no_token_is_refused_without_showing_it() {
        for text in [
            "",
            "\n",
            "short",
            &"x".repeat(1_025),
            "two words, long enough",
            "0123456789abcdeé",
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(text.len() < 2 || !error.contains(text), "{error}");
        }
        Token::read(Path::new("/nowhere/token")).unwrap_err();
    }

    #[test]
    fn a_pipe_or_device_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("token");
        mkfifo(&pipe, Mode::S_IRUSR).unwrap();
        let (refused, told) = mpsc::channel();
        thread::spawn(move || {
            for path in [&pipe, Path::new("/dev/zero")] {
                let _ = refused.send(Token::read(path).unwrap_err());
            }
        });
        for _ in 0..2 {
            let error = told.recv_timeout(Duration::from_secs(20));
            assert!(matches!(error.unwrap(), TokenError::NotAFile));
        }
    }

    #[test]
    fn a_token_is_not_shown() {
        assert_eq!(format!("{:?}", read(TOKEN).unwrap()), "Token(..)");
    }

    fn read(text: &str) -> Result<Token, TokenError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, text).unwrap();
        Token::read(&path)
    }
}
