//! The keys that a file may contain, and the nearest one to a word that is none of them.

/// A section of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Interface,
    Peer,
}

/// Where a key is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `Key = value`, as in wg-quick's files.
    WgQuick,
    /// `#convoy: Key = value`.
    Convoy,
}

/// A key of either dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyName {
    PrivateKey,
    ListenPort,
    FwMark,
    Address,
    Dns,
    Mtu,
    Table,
    PreUp,
    PostUp,
    PreDown,
    PostDown,
    SaveConfig,
    PublicKey,
    PresharedKey,
    AllowedIps,
    Endpoint,
    PersistentKeepalive,
    KillSwitch,
    AllowLan,
    ExcludedIps,
    PrivateKeyFile,
    Forward,
    ForwardUdp,
    Reverse,
    Socks5,
    HttpConnect,
    Allow,
    Deny,
    LoginFile,
    Buffer,
    Nat,
    NatAllow,
    NatDeny,
    NatDns,
    Endpoints,
    PresharedKeyFile,
}

/// Another program whose files have keys of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    /// AmneziaWG, a variant of WireGuard with other messages.
    Amnezia,
    /// WireGuard for Android.
    Android,
}

impl Foreign {
    /// The program that has a key, and the key as it writes it; `word` has no white space.
    pub(crate) fn find(word: &str) -> Option<(Self, &'static str)> {
        const AMNEZIA: [&str; 21] = [
            "Jc",
            "Jmin",
            "Jmax",
            "S1",
            "S2",
            "S3",
            "S4",
            "H1",
            "H2",
            "H3",
            "H4",
            "I1",
            "I2",
            "I3",
            "I4",
            "I5",
            "J1",
            "J2",
            "J3",
            "Itime",
            "AdvancedSecurity",
        ];
        const ANDROID: [&str; 2] = ["IncludedApplications", "ExcludedApplications"];
        let find = |names: &[&'static str]| {
            let mut names = names.iter();
            names.find(|name| name.eq_ignore_ascii_case(word)).copied()
        };
        let amnezia = || find(&AMNEZIA).map(|name| (Self::Amnezia, name));
        find(&ANDROID)
            .map(|name| (Self::Android, name))
            .or_else(amnezia)
    }
}

/// A key's name and its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyInfo {
    pub(crate) key: KeyName,
    pub(crate) name: &'static str,
    pub(crate) section: Section,
    pub(crate) dialect: Dialect,
}

const fn of(key: KeyName, name: &'static str, section: Section, dialect: Dialect) -> KeyInfo {
    KeyInfo {
        key,
        name,
        section,
        dialect,
    }
}

/// All keys.
pub(crate) const KEYS: [KeyInfo; 36] = {
    use Dialect::{Convoy, WgQuick};
    use Section::{Interface, Peer};
    [
        of(KeyName::PrivateKey, "PrivateKey", Interface, WgQuick),
        of(KeyName::ListenPort, "ListenPort", Interface, WgQuick),
        of(KeyName::FwMark, "FwMark", Interface, WgQuick),
        of(KeyName::Address, "Address", Interface, WgQuick),
        of(KeyName::Dns, "DNS", Interface, WgQuick),
        of(KeyName::Mtu, "MTU", Interface, WgQuick),
        of(KeyName::Table, "Table", Interface, WgQuick),
        of(KeyName::PreUp, "PreUp", Interface, WgQuick),
        of(KeyName::PostUp, "PostUp", Interface, WgQuick),
        of(KeyName::PreDown, "PreDown", Interface, WgQuick),
        of(KeyName::PostDown, "PostDown", Interface, WgQuick),
        of(KeyName::SaveConfig, "SaveConfig", Interface, WgQuick),
        of(KeyName::PublicKey, "PublicKey", Peer, WgQuick),
        of(KeyName::PresharedKey, "PresharedKey", Peer, WgQuick),
        of(KeyName::AllowedIps, "AllowedIPs", Peer, WgQuick),
        of(KeyName::Endpoint, "Endpoint", Peer, WgQuick),
        of(
            KeyName::PersistentKeepalive,
            "PersistentKeepalive",
            Peer,
            WgQuick,
        ),
        of(KeyName::KillSwitch, "KillSwitch", Interface, Convoy),
        of(KeyName::AllowLan, "AllowLAN", Interface, Convoy),
        of(KeyName::ExcludedIps, "ExcludedIPs", Interface, Convoy),
        of(KeyName::PrivateKeyFile, "PrivateKeyFile", Interface, Convoy),
        of(KeyName::Forward, "Forward", Interface, Convoy),
        of(KeyName::ForwardUdp, "ForwardUDP", Interface, Convoy),
        of(KeyName::Reverse, "Reverse", Interface, Convoy),
        of(KeyName::Socks5, "Socks5", Interface, Convoy),
        of(KeyName::HttpConnect, "HttpConnect", Interface, Convoy),
        of(KeyName::Allow, "Allow", Interface, Convoy),
        of(KeyName::Deny, "Deny", Interface, Convoy),
        of(KeyName::LoginFile, "LoginFile", Interface, Convoy),
        of(KeyName::Buffer, "Buffer", Interface, Convoy),
        of(KeyName::Nat, "Nat", Interface, Convoy),
        of(KeyName::NatAllow, "NatAllow", Interface, Convoy),
        of(KeyName::NatDeny, "NatDeny", Interface, Convoy),
        of(KeyName::NatDns, "NatDNS", Interface, Convoy),
        of(KeyName::Endpoints, "Endpoints", Peer, Convoy),
        of(KeyName::PresharedKeyFile, "PresharedKeyFile", Peer, Convoy),
    ]
};

impl KeyInfo {
    /// Finds a key by its name in any case; `word` has no white space.
    pub(crate) fn find(word: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.name.eq_ignore_ascii_case(word))
    }

    /// The key that `word` was probably meant to be.
    pub(crate) fn nearest(word: &str) -> Option<&'static Self> {
        let name = nearest_word(word, &KEYS.map(|key| key.name))?;
        Self::find(name)
    }

    /// How a line with this key begins.
    pub(crate) fn written(&self) -> String {
        match self.dialect {
            Dialect::WgQuick => format!("{} = …", self.name),
            Dialect::Convoy => format!("#convoy: {} = …", self.name),
        }
    }
}

impl KeyName {
    /// Whether the value is a key: a secret one, or a public one for which it may be mistaken.
    pub(crate) fn is_a_key(self) -> bool {
        matches!(
            self,
            Self::PrivateKey | Self::PresharedKey | Self::PublicKey
        )
    }
}

impl Section {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Interface => "[Interface]",
            Self::Peer => "[Peer]",
        }
    }
}

/// The nearest of some words to `word`, if it is near enough to be meant.
pub(crate) fn nearest_word<'a>(word: &str, words: &[&'a str]) -> Option<&'a str> {
    if word.len() > LONGEST_GUESSED {
        return None;
    }
    let word = word.to_ascii_lowercase();
    let rated = words.iter().map(|it| {
        let likeness = strsim::normalized_damerau_levenshtein(&it.to_ascii_lowercase(), &word);
        (likeness, *it)
    });
    let (likeness, nearest) = rated.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (likeness >= LIKE).then_some(nearest)
}

/// No longer word is compared: it is no misspelt one.
const LONGEST_GUESSED: usize = 32;
/// The least likeness of a misspelt word.
const LIKE: f64 = 0.6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_in_any_case_and_guessed_from_misspellings() {
        assert_eq!(
            KeyInfo::find("allowedips").unwrap().key,
            KeyName::AllowedIps
        );
        assert!(KeyInfo::find("AllowedIP").is_none());
        for (word, meant) in [
            ("AllowedIP", "AllowedIPs"),
            ("Adress", "Address"),
            ("PreSharedKeys", "PresharedKey"),
            ("Kilswitch", "KillSwitch"),
            ("EndPiont", "Endpoint"),
        ] {
            let found = KeyInfo::nearest(word).map(|key| key.name);
            assert_eq!(found, Some(meant), "{word}");
        }
        assert!(KeyInfo::nearest("Colour").is_none());
        assert!(KeyInfo::nearest(&"PrivateKey".repeat(9)).is_none());
    }
}
