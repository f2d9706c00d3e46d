//! Where metrics are served.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    str::FromStr,
};

use thiserror::Error;

/// The longest path of a Unix socket in bytes (unix(7)).
const MAX_PATH: usize = 107;

/// A Unix socket, or a port that only this machine can reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// The path is absolute: the working directory changes.
    Unix(PathBuf),
    /// Path of a Unix socket.
    /// A loopback address.
    Tcp(SocketAddr),
}

/// Why a text is no [`Address`].
#[derive(Debug, Error)]
pub enum AddressError {
    /// It has neither form.
    #[error("write unix:PATH or an address and port of this machine, such as 127.0.0.1:9586")]
    Unknown,
    /// Other machines could reach it.
    #[error(
        "{0} is not a loopback address: metrics are served on 127.0.0.1, [::1] or a Unix socket only, as \
         they are not encrypted"
    )]
    NotLoopback(IpAddr),
    /// Nobody would find the port that the kernel chooses.
    #[error("the port is 0")]
    NoPort,
    /// See [`MAX_PATH`].
    #[error("the path of a Unix socket has 1 to {MAX_PATH} bytes")]
    PathLength,
    /// There is no working directory.
    #[error("cannot find the working directory: {0}")]
    Directory(#[from] io::Error),
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(AddressError::PathLength);
            }
            let path = std::path::absolute(path)?;
            return match path.as_os_str().len() <= MAX_PATH {
                true => Ok(Self::Unix(path)),
                false => Err(AddressError::PathLength),
            };
        }
        let address: SocketAddr = text.parse().map_err(|_| AddressError::Unknown)?;
        match (address.ip().is_loopback(), address.port()) {
            (false, _) => Err(AddressError::NotLoopback(address.ip())),
            (true, 0) => Err(AddressError::NoPort),
            (true, _) => Ok(Self::Tcp(address)),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unix_socket_or_a_loopback_port_is_accepted() {
        for text in [
            "unix:/run/convoy/wg0.metrics",
            "127.0.0.1:9586",
            "127.1.2.3:1",
            "[::1]:65535",
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
    }

    #[test]
    fn a_relative_path_is_that_of_the_callers_directory() {
        let here = std::env::current_dir().unwrap();
        let address: Address = "unix:wg0.metrics".parse().unwrap();
        assert_eq!(address, Address::Unix(here.join("wg0.metrics")));
    }

    #[test]
    fn an_address_that_others_can_reach_is_refused_by_name() {
        for text in [
            "0.0.0.0:9586",
            "[::]:9586",
            "192.168.1.2:9586",
            "[::ffff:127.0.0.1]:9586",
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(
                error.contains("is not a loopback address"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn a_text_that_is_no_address_gets_an_example() {
        for text in [
            "",
            "9586",
            "localhost:9586",
            "127.0.0.1",
            "/run/metrics",
            "tcp:127.0.0.1:1",
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.to_string().contains("unix:PATH"), "{text}: {error}");
        }
        for text in [
            "unix:",
            &format!("unix:/{}", "x".repeat(MAX_PATH)),
            "127.0.0.1:0",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
