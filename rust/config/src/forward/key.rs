//! Keys of a forwarder's file, or of a tunnel's.

/// A key of a forwarder's file, or of a tunnel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Forward,
    ForwardUdp,
    Reverse,
    Socks5,
    HttpConnect,
    Allow,
    Deny,
    TargetAllow,
    TargetDeny,
    LoginFile,
    Buffer,
}

/// Keys of a forwarder's file.
pub(super) const KEYS: [(&str, Key); 10] = [
    ("Forward", Key::Forward),
    ("ForwardUDP", Key::ForwardUdp),
    ("Socks5", Key::Socks5),
    ("HttpConnect", Key::HttpConnect),
    ("Allow", Key::Allow),
    ("Deny", Key::Deny),
    ("TargetAllow", Key::TargetAllow),
    ("TargetDeny", Key::TargetDeny),
    ("LoginFile", Key::LoginFile),
    ("Buffer", Key::Buffer),
];

impl Key {
    /// The key of a forwarder's file that has this name, in any case.
    pub(super) fn of_file(word: &str) -> Option<Self> {
        let found = KEYS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(word));
        found.map(|(_, key)| *key)
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        let named = KEYS.iter().find(|(_, key)| *key == self);
        named.map_or("Reverse", |(name, _)| name)
    }
}
