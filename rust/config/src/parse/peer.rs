//! The keys of `[Peer]`.

use std::path::PathBuf;

use convoy_types::{PresharedKey, PublicKey};

use super::{PeerDraft, notes::Notes};
use crate::{
    config::{Endpoint, Peer},
    keys::{KeyInfo, KeyName},
    report::Diagnostic,
    text::Text,
    values::{Parsed, allowed_ip, endpoint, keepalive, key},
};

impl PeerDraft {
    /// Takes one key and its value.
    pub(super) fn value(&mut self, notes: &mut Notes<'_>, info: &KeyInfo, value: Text<'_>) {
        let name = info.name;
        match info.key {
            KeyName::PublicKey => {
                let parsed = key(value).map(|key| PublicKey(*key));
                notes.set(name, &mut self.public_key, value, parsed);
            }
            KeyName::PresharedKey => self.preshared_key(notes, name, value),
            KeyName::PresharedKeyFile => {
                let path = PathBuf::from(value.text);
                notes.set(name, &mut self.peer.preshared_key_file, value, Ok(path));
            }
            KeyName::AllowedIps => {
                for item in value.split(|c| c == ',') {
                    self.allowed_ip(notes, name, item);
                }
            }
            KeyName::Endpoint => {
                let parsed = checked_endpoint(notes, value);
                notes.set(name, &mut self.endpoint, value, parsed);
            }
            KeyName::Endpoints => {
                for item in value.split(|c| c == ',') {
                    let parsed = checked_endpoint(notes, item);
                    notes.push(name, &mut self.peer.endpoints, item, parsed);
                }
            }
            KeyName::PersistentKeepalive => {
                let slot = &mut self.peer.persistent_keepalive;
                notes.set(name, slot, value, keepalive(value));
            }
            _ => unreachable!("INVARIANT: the caller checks the section"),
        }
    }

    /// The peer, if its section has a valid public key; reports its absence.
    pub(super) fn finish(self, notes: &mut Notes<'_>) -> Option<Peer> {
        let mut peer = self.peer;
        peer.endpoints.splice(..0, self.endpoint);
        if !self.has_public_key {
            let title = "missing `PublicKey`";
            let error = Diagnostic::error(title, self.header, "in this section");
            notes.report.push(error.help("the file may be cut off"));
            return None;
        }
        peer.public_key = self.public_key?;
        Some(peer)
    }

    /// A key of zeros is none, as in wg.
    fn preshared_key(&mut self, notes: &mut Notes<'_>, name: &str, value: Text<'_>) {
        let slot = &mut self.peer.preshared_key;
        let parsed = key(value).map(|key| PresharedKey(*key));
        notes.set(name, slot, value, parsed);
        if slot.as_ref().is_some_and(|key| key.0 == [0; 32]) {
            *slot = None;
        }
    }

    fn allowed_ip(&mut self, notes: &mut Notes<'_>, name: &str, item: Text<'_>) {
        let parsed = allowed_ip(item);
        if let Ok((network, true)) = &parsed {
            let title = "a prefix with host bits set";
            let label = format!("means {network}");
            let warning = Diagnostic::warning(title, notes.at(item), label);
            notes.report.push(warning.help(format!("write {network}")));
        }
        let network = parsed.map(|(network, _)| network);
        notes.push(name, &mut self.peer.allowed_ips, item, network);
    }
}

/// Warns of an address whose last part may have been meant as one of the address.
fn checked_endpoint(notes: &mut Notes<'_>, item: Text<'_>) -> Parsed<Endpoint> {
    let (endpoint, lacks_brackets) = endpoint(item)?;
    if lacks_brackets {
        let title = "an IPv6 address without brackets";
        let label = format!("the port is {}", endpoint.port);
        let warning = Diagnostic::warning(title, notes.at(item), label);
        notes.report.push(warning.help(format!("write {endpoint}")));
    }
    Ok(endpoint)
}
