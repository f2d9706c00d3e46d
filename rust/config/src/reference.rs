//! Meaning of each key, for those who write a file.

use crate::keys::{Dialect, KEYS, KeyInfo, KeyName};

/// A key, described for the person who writes a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyDescription {
    /// Its name; files may write it in any case.
    pub name: &'static str,
    /// Its section: `[Interface]` or `[Peer]`.
    pub section: &'static str,
    /// Whether it stands in a comment of its own, `#convoy: Key = value`, which wg-quick skips.
    pub in_comment: bool,
    /// Values that may be written after the `=`.
    pub values: &'static str,
    /// Value that applies without the key.
    pub default: &'static str,
    /// Effect of the key, in sentences.
    pub meaning: &'static str,
}

/// A file with keys of both dialects, and with documentation addresses in place of real ones.
pub const EXAMPLE: &str = "\
[Interface]
PrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=
Address = 10.0.0.2/24, fd00::2/64
DNS = 10.0.0.1
#convoy: KillSwitch = on
#convoy: AllowLAN = yes

[Peer]
# friendly_name = office
PublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=
AllowedIPs = 0.0.0.0/0, ::/0
Endpoint = vpn.example.org:51820
#convoy: Endpoints = 192.0.2.7:51820, [2001:db8::7]:51820
PersistentKeepalive = 25
";

/// All keys, those of `[Interface]` first.
pub fn keys() -> impl Iterator<Item = KeyDescription> {
    let mut sorted = KEYS;
    sorted.sort_by_key(|key| key.section.name());
    sorted.into_iter().map(describe)
}

fn describe(key: KeyInfo) -> KeyDescription {
    let (values, default, meaning) = words(key.key);
    KeyDescription {
        name: key.name,
        section: key.section.name(),
        in_comment: key.dialect == Dialect::Convoy,
        values,
        default,
        meaning,
    }
}

/// The values of a key, its default and its meaning. A new key does not compile without them.
fn words(key: KeyName) -> (&'static str, &'static str, &'static str) {
    match key {
        KeyName::PrivateKey => (
            "32 bytes in base64",
            "none, and then no packet passes",
            "The private key of this end; `convoy genkey` makes one.",
        ),
        KeyName::ListenPort => (
            "0 to 65535",
            "0",
            "The UDP port of this end. With 0, the kernel chooses one.",
        ),
        KeyName::FwMark => (
            "off, or 0 to 4294967295 except 253 to 255; 0x… is hexadecimal",
            "chosen if a route or the kill switch needs one, else off",
            "The mark of the tunnel's datagrams, by which rules tell them from other packets.",
        ),
        KeyName::Address => (
            "addresses, each with or without /LENGTH; may be repeated",
            "none",
            "The addresses of the interface.",
        ),
        KeyName::Dns => (
            "addresses and domains; may be repeated",
            "the name servers stay as they are",
            "The name servers and search domains while the tunnel is up. With ~DOMAIN, only names below \
             such domains are looked up there, if this host uses systemd-resolved; it completes none.",
        ),
        KeyName::Mtu => (
            "68 to 65535",
            "what the routes to the endpoints carry",
            "The largest packet in bytes. It is lowered where a path turns out to carry less.",
        ),
        KeyName::Table => (
            "auto, off, a number, or a name from rt_tables",
            "auto",
            "Where the routes to AllowedIPs go: auto is the main table and, for a default route, a kill switch or \
             networks that hold an endpoint, a table of its own with rules; off makes no routes.",
        ),
        KeyName::PreUp => (
            "a shell command; may be repeated",
            "none",
            "Runs before the interface is made. %i stands for its name, here and in the other hooks. They run \
             only if nobody but root and the caller can write to the file.",
        ),
        KeyName::PostUp => (
            "a shell command; may be repeated",
            "none",
            "Runs once the tunnel is up.",
        ),
        KeyName::PreDown => (
            "a shell command; may be repeated",
            "none",
            "Runs before the tunnel is taken down.",
        ),
        KeyName::PostDown => (
            "a shell command; may be repeated",
            "none",
            "Runs once the tunnel has been taken down.",
        ),
        KeyName::SaveConfig => (
            "true or false",
            "false",
            "Whether the running state is written to the file when the tunnel is taken down; if the file was edited \
             meanwhile, to NAME.conf.saved beside it. Nothing is written to somebody else's file.",
        ),
        KeyName::PublicKey => (
            "32 bytes in base64",
            "none: a peer must have one",
            "The peer's public key.",
        ),
        KeyName::PresharedKey => (
            "32 bytes in base64",
            "none",
            "A secret that both ends add to their keys; `convoy genpsk` makes one.",
        ),
        KeyName::AllowedIps => (
            "prefixes, separated by commas; may be repeated",
            "none",
            "What is sent to the peer, and what it may send from.",
        ),
        KeyName::Endpoint => (
            "ADDRESS:PORT, [IPv6]:PORT or NAME:PORT",
            "where the peer was last heard from",
            "Where the peer can be reached. Names are looked up outside the tunnel, again whenever that may help.",
        ),
        KeyName::PersistentKeepalive => (
            "off, or 1 to 65535",
            "off",
            "After how many seconds of silence the peer gets an empty packet, so that a NAT remembers the way back.",
        ),
        KeyName::KillSwitch => (
            "off, on or persistent",
            "off",
            "Whether packets that would leave outside the tunnel are dropped: never, while it is up, or always, \
             even at boot. Needs nft.",
        ),
        KeyName::AllowLan => (
            "yes or no",
            "no",
            "Whether the kill switch leaves the local network reachable: connected networks that are private, without \
             those of Address and AllowedIPs.",
        ),
        KeyName::ExcludedIps => (
            "prefixes or local, separated by commas; may be repeated",
            "none",
            "What stays outside the tunnel; local is the local network, as for AllowLAN.",
        ),
        KeyName::PrivateKeyFile => (
            "a path",
            "none",
            "A file with the private key, in place of PrivateKey. A relative path begins at \
             $CREDENTIALS_DIRECTORY (systemd's credentials), else at the directory of the configuration file.",
        ),
        KeyName::Forward => (
            "[ADDRESS:]PORT:HOST:PORT; may be repeated",
            "none",
            "With `convoy up --userspace`: a listener on this host whose connections lead to a host behind the \
             tunnel, which is looked up there. Without an address it is on 127.0.0.1 and ::1; * is every address. \
             One that other hosts can reach needs Allow.",
        ),
        KeyName::ForwardUdp => (
            "as for Forward; may be repeated",
            "none",
            "The same for datagrams and their answers.",
        ),
        KeyName::Reverse => (
            "[ADDRESS:]PORT:HOST:PORT; may be repeated",
            "none",
            "With `convoy up --userspace`: a listener inside the tunnel whose connections lead to a host that this \
             one reaches outside. Without an address it is on all addresses of the tunnel. Clients must be in AllowedIPs.",
        ),
        KeyName::Socks5 => (
            "[ADDRESS:]PORT; may be repeated",
            "none",
            "With `convoy up --userspace`: a SOCKS5 proxy on this host, also for UDP, which looks names up and \
             connects inside the tunnel. One that other hosts can reach needs Allow or LoginFile.",
        ),
        KeyName::HttpConnect => (
            "as for Socks5; may be repeated",
            "none",
            "The same as an HTTP proxy for CONNECT.",
        ),
        KeyName::Allow => (
            "prefixes, separated by commas; may be repeated",
            "everyone who can reach the listener",
            "Who may use the listener above. Above all listeners: who may use any on this host, besides its own lists.",
        ),
        KeyName::Deny => (
            "prefixes, separated by commas; may be repeated",
            "nobody",
            "Who may not, even if Allow has them.",
        ),
        KeyName::LoginFile => (
            "a path, as in PrivateKeyFile",
            "none",
            "A file whose first line is user:password, which the proxy above asks for; above all listeners, each \
             proxy without one of its own.",
        ),
        KeyName::Buffer => (
            "8K to 256K",
            "64K",
            "The buffer of a forwarded connection while bytes move.",
        ),
        KeyName::Nat => (
            "user or off",
            "off",
            "With `convoy up --userspace`: whether what peers send to addresses outside the tunnel goes on from here, by \
             sockets of the user: TCP, UDP and ping. Needs no root; without nft, it is slower.",
        ),
        KeyName::NatAllow => (
            "prefixes, separated by commas; may be repeated",
            "none",
            "Targets of Nat that are refused by default: this host, its links, multicast, reserved addresses, and the \
             metadata of clouds. A prefix opens what is within it, but an address of this host only if it names that.",
        ),
        KeyName::NatDeny => (
            "prefixes, separated by commas; may be repeated",
            "none",
            "Further targets that Nat refuses, even if NatAllow has them.",
        ),
        KeyName::NatDns => (
            "yes or no",
            "no",
            "Whether DNS queries of peers to the addresses of this end of the tunnel are answered, by the resolver of this \
             host.",
        ),
        KeyName::Endpoints => (
            "endpoints, separated by commas; may be repeated",
            "none",
            "Further endpoints of the peer, in order of preference: the next is tried when it does not answer.",
        ),
        KeyName::PresharedKeyFile => (
            "a path, as in PrivateKeyFile",
            "none",
            "A file with the preshared key, in place of PresharedKey.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_key_is_described_in_its_section() {
        let all: Vec<_> = keys().collect();
        assert_eq!(all.len(), KEYS.len());
        assert!(all.is_sorted_by_key(|key| key.section));
        for key in all {
            assert!(key.meaning.ends_with('.'), "{}", key.name);
            let texts = [key.values, key.default, key.meaning];
            assert!(texts.iter().all(|text| !text.is_empty()), "{}", key.name);
        }
    }

    #[test]
    fn a_default_that_is_a_value_is_one() {
        // The others are described: no file can contain them.
        let written = ["0", "auto", "off", "false", "no"];
        for key in keys().filter(|key| written.contains(&key.default)) {
            let comment = if key.in_comment { "#convoy: " } else { "" };
            let line = format!("{comment}{} = {}\n", key.name, key.default);
            let text = match key.section {
                "[Peer]" => EXAMPLE.replace("PersistentKeepalive = 25\n", &line),
                section => {
                    // It has no effect without one.
                    let switch = match key.name {
                        "AllowLAN" => "#convoy: KillSwitch = on\n",
                        _ => "",
                    };
                    let private_key = "A".repeat(42) + "E=";
                    format!("{section}\nPrivateKey = {private_key}\n{switch}{line}")
                }
            };
            read(&text);
        }
    }

    #[test]
    fn the_example_is_valid() {
        read(EXAMPLE);
    }

    fn read(text: &str) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("wg0.conf");
        fs::write(&path, text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(&path, mode).unwrap();
        let loaded = crate::read(&path).unwrap_or_else(|report| panic!("{}", report.render(false)));
        assert!(
            loaded.warnings.is_empty(),
            "{}",
            loaded.warnings.render(false)
        );
    }
}
