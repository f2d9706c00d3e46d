//! Keys of `[Peer]`.

use std::collections::HashSet;

use convoy_types::{AllowedIpUpdate, PeerUpdate, PresharedKey, PublicKey};

use crate::{
    assignment::Assignment,
    config::{Endpoint, Peer},
    draft::PeerDraft,
    key::{CONVOY, Change, Form, Key, Take, WG_QUICK, Write},
    report::Diagnostic,
    text::Text,
    values::{Parsed, allowed_ip, endpoint, keepalive, key},
    writer::Writer,
};

pub(super) static PEER: [Key; 7] = [
    Key {
        name: "PublicKey",
        form: Form::PublicKey,
        values: "32 bytes in base64",
        default: "none: a peer must have one",
        meaning: "The peer's public key.",
        example: "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=",
        saved: 1,
        take: Take::Peer(|it, line| {
            line.set(&mut it.public_key, |value| Ok(PublicKey(*key(value)?)))
        }),
        write: Write::Peer(|it, out| out.key(&it.public_key.0)),
        ..WG_QUICK
    },
    Key {
        name: "PresharedKey",
        form: Form::SecretKey,
        values: "32 bytes in base64",
        meaning: "A secret that both ends add to their keys; `convoy genpsk` makes one.",
        example: "/UwcSPg38hW/D9Y3tcS1FOV0K1wuURMbS0sesJEP5ak=",
        saved: 2,
        take: Take::Peer(take_preshared_key),
        write: Write::Peer(|it, out| {
            if let (None, Some(key)) = (&it.preshared_key_file, &it.preshared_key) {
                out.key(&key.0);
            }
        }),
        change: Change::Peer(|old, new, update| {
            if old.is_none_or(|old| old.preshared_key != new.preshared_key) {
                update.preshared_key = Some(new.preshared_key.clone().map(|key| key.value));
            }
        }),
        ..WG_QUICK
    },
    Key {
        name: "AllowedIPs",
        values: "prefixes, separated by commas; may be repeated",
        meaning: "What is sent to the peer, and what it may send from.",
        example: "10.192.122.3/32, fd00:1::/64",
        saved: 3,
        take: Take::Peer(take_allowed_ips),
        write: Write::Peer(write_allowed_ips),
        change: Change::Peer(gain_allowed_ips),
        ..WG_QUICK
    },
    // Both keys of endpoints are one list; `difference` compares it, as the device gets an address.
    Key {
        name: "Endpoint",
        values: "ADDRESS:PORT, [IPv6]:PORT or NAME:PORT",
        default: "where the peer was last heard from",
        meaning: "Where the peer can be reached. Names are looked up outside the tunnel, again whenever that may help.",
        example: "192.0.2.7:51820",
        saved: 4,
        take: Take::Peer(|it, line| {
            let parsed = checked_endpoint(line, line.value);
            line.set(&mut it.endpoint, |_| parsed);
        }),
        write: Write::Peer(|it, out| out.each(it.endpoints.first())),
        ..WG_QUICK
    },
    Key {
        name: "PersistentKeepalive",
        values: "off, or 1 to 65535",
        default: "off",
        meaning: "After how many seconds of silence the peer gets an empty packet, so that a NAT remembers the way back.",
        example: "25",
        saved: 6,
        take: Take::Peer(|it, line| line.set(&mut it.peer.persistent_keepalive, keepalive)),
        write: Write::Peer(|it, out| out.each(&it.persistent_keepalive)),
        change: Change::Peer(|old, new, update| {
            let seconds = |it: &Peer| it.persistent_keepalive.as_ref().map_or(0, |it| it.value);
            if old.is_none_or(|old| seconds(old) != seconds(new)) {
                update.persistent_keepalive = Some(seconds(new));
            }
        }),
        ..WG_QUICK
    },
    Key {
        name: "Endpoints",
        values: "endpoints, separated by commas; may be repeated",
        meaning: "Further endpoints of the peer, in order of preference: the next is tried when it does not answer.",
        example: "vpn.example.org:443",
        saved: 5,
        take: Take::Peer(|it, line| {
            for item in line.items() {
                let parsed = checked_endpoint(line, item);
                it.peer.endpoints.extend(line.accept(item, parsed));
            }
        }),
        write: Write::Peer(|it, out| out.each(it.endpoints.iter().skip(1))),
        ..CONVOY
    },
    Key {
        name: "PresharedKeyFile",
        values: "a path, as in PrivateKeyFile",
        meaning: "A file with the preshared key, in place of PresharedKey.",
        example: "preshared.key",
        saved: 2,
        take: Take::Peer(|it, line| line.set_path(&mut it.peer.preshared_key_file)),
        write: Write::Peer(|it, out| {
            if let Some(file) = &it.preshared_key_file {
                out.line(file.display());
            }
        }),
        ..CONVOY
    },
];

/// Takes a key; one of zeros is none, as in wg.
fn take_preshared_key(it: &mut PeerDraft, line: &mut Assignment<'_>) {
    let slot = &mut it.peer.preshared_key;
    line.set(slot, |value| Ok(PresharedKey(*key(value)?)));
    if slot.as_ref().is_some_and(|key| key.0 == [0; 32]) {
        *slot = None;
    }
}

fn take_allowed_ips(it: &mut PeerDraft, line: &mut Assignment<'_>) {
    for item in line.items() {
        let parsed = allowed_ip(item);
        if let Ok((network, true)) = &parsed {
            let title = "a prefix with host bits set";
            let warning = Diagnostic::warning(title, line.at(item), format!("means {network}"));
            line.report.push(warning.help(format!("write {network}")));
        }
        let network = line.accept(item, parsed.map(|(network, _)| network));
        it.peer.allowed_ips.extend(network);
    }
}

/// Writes all of them on one line.
fn write_allowed_ips(it: &Peer, out: &mut Writer) {
    let prefixes: Vec<_> = it.allowed_ips.iter().map(|it| it.to_string()).collect();
    if !prefixes.is_empty() {
        out.line(prefixes.join(", "));
    }
}

/// Adds what the peer gains; `difference` removes what it loses only once others have gained it.
fn gain_allowed_ips(old: Option<&Peer>, new: &Peer, update: &mut PeerUpdate) {
    let former = old.into_iter().flat_map(|old| &old.allowed_ips);
    let former: HashSet<_> = former.map(|it| it.value).collect();
    let gained = new.allowed_ips.iter().map(|it| it.value);
    let gained = gained.filter(|network| !former.contains(network));
    update.allowed_ips = gained
        .map(|network| AllowedIpUpdate {
            network,
            remove: false,
        })
        .collect();
}

/// Warns of an address whose last part may have been meant as one of the address.
fn checked_endpoint(line: &mut Assignment<'_>, item: Text<'_>) -> Parsed<Endpoint> {
    let (endpoint, lacks_brackets) = endpoint(item)?;
    if lacks_brackets {
        let title = "an IPv6 address without brackets";
        let label = format!("the port is {}", endpoint.port);
        let warning = Diagnostic::warning(title, line.at(item), label);
        line.report.push(warning.help(format!("write {endpoint}")));
    }
    Ok(endpoint)
}
