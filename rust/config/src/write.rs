//! Writes a configuration for `SaveConfig`.

use std::fmt::{Display, Write};

use zeroize::Zeroizing;

use crate::{
    base64::encode_key,
    config::{Config, Interface, KillSwitch, Nat, Peer},
    located::Located,
};

/// The text of `NAME.conf`, in the order of `wg-quick save`; it contains the keys.
///
/// Comments are lost, as in `wg-quick save`, but `#convoy:` keys and friendly names are kept. Keys that
/// come from files are named, not written. Peers of `NAME.d` stay there.
#[must_use]
pub fn to_wg_quick(config: &Config) -> Zeroizing<String> {
    let own = || {
        config
            .peers
            .iter()
            .filter(|peer| !peer.public_key.at.is_drop_in())
    };
    // Growing would leave copies of keys behind.
    let prefixes: usize = own().map(|peer| peer.allowed_ips.len()).sum();
    let size = 4096 + 1024 * own().count() + 64 * prefixes;
    let mut text = Text(Zeroizing::new(String::with_capacity(size)));
    text.interface(&config.interface);
    for peer in own() {
        text.peer(peer);
    }
    text.0
}

struct Text(Zeroizing<String>);

impl Text {
    fn interface(&mut self, it: &Interface) {
        self.0.push_str("[Interface]\n");
        self.all("Address", &it.addresses);
        self.all("DNS", &it.dns_servers);
        self.all("DNS", &it.dns_domains);
        self.one("MTU", it.mtu.as_ref());
        self.one("Table", it.table.as_ref());
        self.one("SaveConfig", it.save_config.as_ref());
        self.all("PreUp", &it.pre_up);
        self.all("PostUp", &it.post_up);
        self.all("PreDown", &it.pre_down);
        self.all("PostDown", &it.post_down);
        self.one("ListenPort", it.listen_port.as_ref());
        if let Some(mark) = &it.fwmark {
            self.line("FwMark", format_args!("{:#x}", mark.value));
        }
        match (&it.private_key_file, &it.private_key) {
            (Some(file), _) => self.line("#convoy: PrivateKeyFile", file.display()),
            (None, Some(key)) => self.key("PrivateKey", &key.0),
            (None, None) => {}
        }
        self.one::<KillSwitch>("#convoy: KillSwitch", it.kill_switch.as_ref());
        if let Some(allow) = &it.allow_lan {
            self.line("#convoy: AllowLAN", if allow.value { "yes" } else { "no" });
        }
        if it.exclude_local.is_some() {
            self.line("#convoy: ExcludedIPs", "local");
        }
        for prefix in &it.excluded_ips {
            self.line("#convoy: ExcludedIPs", prefix.value);
        }
        for (key, value) in &it.forwarding.written {
            self.line(&format!("#convoy: {}", key.name()), value);
        }
        self.nat(&it.nat);
    }

    fn nat(&mut self, nat: &Nat) {
        if let Some(is_on) = &nat.is_on {
            self.line("#convoy: Nat", if is_on.value { "user" } else { "off" });
        }
        for (key, list) in [("NatAllow", &nat.allow), ("NatDeny", &nat.deny)] {
            for prefix in list {
                self.line(&format!("#convoy: {key}"), prefix.value);
            }
        }
        if let Some(dns) = &nat.dns {
            self.line("#convoy: NatDNS", if dns.value { "yes" } else { "no" });
        }
    }

    fn peer(&mut self, peer: &Peer) {
        self.0.push_str("\n[Peer]\n");
        if let Some(name) = &peer.friendly_name {
            self.line("# friendly_name", name);
        }
        self.key("PublicKey", &peer.public_key.0);
        match (&peer.preshared_key_file, &peer.preshared_key) {
            (Some(file), _) => self.line("#convoy: PresharedKeyFile", file.display()),
            (None, Some(key)) => self.key("PresharedKey", &key.0),
            (None, None) => {}
        }
        let prefixes = peer.allowed_ips.iter();
        let prefixes: Vec<_> = prefixes.map(|it| it.value.to_string()).collect();
        if !prefixes.is_empty() {
            self.line("AllowedIPs", prefixes.join(", "));
        }
        if let Some((first, further)) = peer.endpoints.split_first() {
            self.line("Endpoint", &first.value);
            self.all("#convoy: Endpoints", further);
        }
        self.one("PersistentKeepalive", peer.persistent_keepalive.as_ref());
    }

    fn all<T: Display>(&mut self, key: &str, values: &[Located<T>]) {
        for value in values {
            self.line(key, &value.value);
        }
    }

    fn one<T: Display>(&mut self, key: &str, value: Option<&Located<T>>) {
        if let Some(value) = value {
            self.line(key, &value.value);
        }
    }

    fn key(&mut self, name: &str, key: &[u8; 32]) {
        self.line(name, encode_key(key).as_str());
    }

    fn line(&mut self, key: &str, value: impl Display) {
        // INVARIANT: writing to a string succeeds.
        let _ = writeln!(self.0, "{key} = {value}");
    }
}

#[cfg(test)]
mod tests;
