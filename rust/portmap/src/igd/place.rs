//! Addresses of HTTP at the router.

use std::net::Ipv4Addr;

use hyper::Uri;
use serde::{Deserialize, Serialize};

/// Longest path that is believed, in bytes.
const LONGEST_PATH: usize = 1_024;

/// An address at the router, whose host is not part of it: no other can be meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The port of TCP.
    pub(crate) port: u16,
    /// The path and query, beginning with a slash.
    pub(crate) path: String,
}

impl Place {
    /// Reads an address; `None` unless it is one of HTTP at the router.
    pub(crate) fn of(url: &str, router: Ipv4Addr) -> Option<Self> {
        let uri: Uri = url.trim().parse().ok()?;
        let authority = uri.authority()?;
        let host: Ipv4Addr = authority.host().parse().ok()?;
        let is_there = uri.scheme_str() == Some("http") && host == router;
        if !is_there || authority.as_str().contains('@') {
            return None;
        }
        let port = match authority.as_str().split_once(':') {
            Some((_, port)) => port.parse().ok()?,
            None => 80,
        };
        let path = uri.path_and_query().map_or("/", |it| it.as_str());
        Self::at(port, path)
    }

    /// Reads an address that may leave out what this one has.
    pub(crate) fn join(&self, reference: &str, router: Ipv4Addr) -> Option<Self> {
        let reference = reference.trim();
        if reference.contains("://") || reference.starts_with("//") {
            return Self::of(reference, router);
        }
        if reference.starts_with('/') {
            return Self::at(self.port, reference);
        }
        let path = self.path.split('?').next().unwrap_or_default();
        let end = path.rfind('/').map_or(0, |slash| slash);
        Self::at(self.port, &format!("{}/{reference}", &path[..end]))
    }

    fn at(port: u16, path: &str) -> Option<Self> {
        let is_usable = port != 0 && path.starts_with('/') && path.len() <= LONGEST_PATH;
        let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic());
        (is_usable && is_plain).then(|| Self {
            port,
            path: path.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 1);

    fn shown(place: Option<Place>) -> Option<String> {
        place.map(|it| format!("{}{}", it.port, it.path))
    }

    #[test]
    fn an_address_is_at_the_router() {
        let of = |url| shown(Place::of(url, ROUTER));
        let read = of(" http://192.168.0.1:5000/root.xml?a=1 ");
        assert_eq!(read.as_deref(), Some("5000/root.xml?a=1"));
        assert_eq!(of("http://192.168.0.1").as_deref(), Some("80/"));
    }

    #[test]
    fn an_address_anywhere_else_is_refused() {
        for url in [
            "http://192.168.0.2:5000/root.xml",
            "https://192.168.0.1/root.xml",
            "http://user@192.168.0.1/",
            "http://192.168.0.1@192.168.0.2/",
            "http://192.168.0.2/?http://192.168.0.1/",
            "http://192.168.0.1.example.org/",
            "http://192.168.0.1:0/",
            "http://192.168.0.1:70000/",
            "http://[::ffff:192.168.0.1]/",
            "http://3232235521/",
            "http://router/",
            "//192.168.0.1/",
            "/root.xml",
            "file:///etc/passwd",
            "",
        ] {
            assert_eq!(Place::of(url, ROUTER), None, "{url}");
        }
        let long = format!("http://192.168.0.1/{}", "a".repeat(LONGEST_PATH));
        assert_eq!(Place::of(&long, ROUTER), None);
    }

    #[test]
    fn an_address_may_be_relative_but_stays_at_the_router() {
        let base = Place::of("http://192.168.0.1:5000/dir/root.xml?a/b", ROUTER).unwrap();
        let join = |reference| shown(base.join(reference, ROUTER));
        assert_eq!(join("/ctl").as_deref(), Some("5000/ctl"));
        assert_eq!(join("ctl").as_deref(), Some("5000/dir/ctl"));
        assert_eq!(join("http://192.168.0.1:49/c").as_deref(), Some("49/c"));
        for elsewhere in [
            "http://192.168.0.2/ctl",
            "//192.168.0.2/ctl",
            "/a\r\nHost: b",
        ] {
            assert_eq!(join(elsewhere), None, "{elsewhere}");
        }
    }

    proptest! {
        #[test]
        fn no_text_does_harm(text in ".{0,60}") {
            let base = Place { port: 80, path: "/".to_owned() };
            let _ = (Place::of(&text, ROUTER), base.join(&text, ROUTER));
        }
    }
}
