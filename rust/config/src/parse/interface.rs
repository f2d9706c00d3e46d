//! The keys of `[Interface]`.

use std::path::PathBuf;

use convoy_types::PrivateKey;

use super::notes::Notes;
use crate::{
    config::Interface,
    forward::Key,
    keys::{KeyInfo, KeyName},
    located::Located,
    route_tables::RouteTables,
    text::{Text, is_space},
    values::{
        Bad, Parsed, allowed_ip, domain, fwmark, interface_address, ip_address, key, kill_switch,
        listen_port, mtu, table, truth,
    },
};

/// Takes one key and its value.
pub(super) fn value(
    interface: &mut Interface,
    notes: &mut Notes<'_>,
    tables: &RouteTables,
    info: &KeyInfo,
    value: Text<'_>,
) {
    let name = info.name;
    let it = interface;
    match info.key {
        KeyName::PrivateKey => notes.set(name, &mut it.private_key, value, private_key(value)),
        KeyName::PrivateKeyFile => {
            let path = PathBuf::from(value.text);
            notes.set(name, &mut it.private_key_file, value, Ok(path));
        }
        KeyName::ListenPort => notes.set(name, &mut it.listen_port, value, listen_port(value)),
        KeyName::FwMark => notes.set(name, &mut it.fwmark, value, fwmark(value)),
        KeyName::Mtu if value.is_empty() => it.mtu = None,
        KeyName::Mtu => notes.set(name, &mut it.mtu, value, mtu(value)),
        KeyName::Table if value.is_empty() => it.table = None,
        KeyName::Table => notes.set(name, &mut it.table, value, table(value, tables)),
        KeyName::PreUp | KeyName::PostUp | KeyName::PreDown | KeyName::PostDown
            if value.is_empty() => {}
        KeyName::PreUp => notes.push(name, &mut it.pre_up, value, command(value)),
        KeyName::PostUp => notes.push(name, &mut it.post_up, value, command(value)),
        KeyName::PreDown => notes.push(name, &mut it.pre_down, value, command(value)),
        KeyName::PostDown => notes.push(name, &mut it.post_down, value, command(value)),
        KeyName::SaveConfig => {
            notes.set(
                name,
                &mut it.save_config,
                value,
                truth(value, "true", "false"),
            );
        }
        KeyName::KillSwitch => notes.set(name, &mut it.kill_switch, value, kill_switch(value)),
        KeyName::AllowLan => notes.set(name, &mut it.allow_lan, value, truth(value, "yes", "no")),
        KeyName::Address => {
            for item in words(value) {
                notes.push(name, &mut it.addresses, item, interface_address(item));
            }
        }
        KeyName::Dns => {
            for item in words(value) {
                dns(it, notes, name, item);
            }
        }
        KeyName::ExcludedIps => {
            for item in value.split(|c| c == ',') {
                excluded(it, notes, name, item);
            }
        }
        KeyName::Nat => notes.set(name, &mut it.nat.is_on, value, truth(value, "user", "off")),
        KeyName::NatDns => notes.set(name, &mut it.nat.dns, value, truth(value, "yes", "no")),
        KeyName::NatAllow | KeyName::NatDeny => {
            let list = match info.key {
                KeyName::NatAllow => &mut it.nat.allow,
                _ => &mut it.nat.deny,
            };
            for item in value.split(|c| c == ',') {
                let parsed = allowed_ip(item).map(|(prefix, _)| prefix);
                notes.push(name, list, item, parsed);
            }
        }
        key => {
            let taken = match forward_key(key) {
                Some(key) => it.forwarding.take(key, value, notes.file),
                None => unreachable!("INVARIANT: the caller checks the section"),
            };
            notes.accept(name, value, taken);
        }
    }
}

fn forward_key(name: KeyName) -> Option<Key> {
    match name {
        KeyName::Forward => Some(Key::Forward),
        KeyName::ForwardUdp => Some(Key::ForwardUdp),
        KeyName::Reverse => Some(Key::Reverse),
        KeyName::Socks5 => Some(Key::Socks5),
        KeyName::HttpConnect => Some(Key::HttpConnect),
        KeyName::Allow => Some(Key::Allow),
        KeyName::Deny => Some(Key::Deny),
        KeyName::LoginFile => Some(Key::LoginFile),
        KeyName::Buffer => Some(Key::Buffer),
        _ => None,
    }
}

/// wg-quick separates these by commas or white space.
fn words(value: Text<'_>) -> impl Iterator<Item = Text<'_>> {
    let items = value.split(|c| c == ',' || is_space(c));
    items.filter(|item| !item.is_empty())
}

fn private_key(value: Text<'_>) -> Parsed<PrivateKey> {
    let key = key(value)?;
    if key.iter().all(|byte| *byte == 0) {
        return Err(Bad::new(value, "a key other than zero").help("`convoy genkey` generates one"));
    }
    Ok(clamped(*key))
}

/// The canonical form of a Curve25519 scalar (RFC 7748 §5), as the UAPI lists it.
pub(crate) fn clamped(mut key: [u8; 32]) -> PrivateKey {
    key[0] &= 248;
    key[31] = (key[31] & 127) | 64;
    PrivateKey(key)
}

fn command(value: Text<'_>) -> Parsed<String> {
    Ok(value.text.to_owned())
}

/// wg-quick takes digits and dots, or anything with a colon, for an address.
fn dns(interface: &mut Interface, notes: &mut Notes<'_>, name: &str, item: Text<'_>) {
    let is_address =
        item.text.contains(':') || item.text.bytes().all(|b| b == b'.' || b.is_ascii_digit());
    if is_address {
        notes.push(name, &mut interface.dns_servers, item, ip_address(item));
    } else {
        notes.push(name, &mut interface.dns_domains, item, domain(item));
    }
}

fn excluded(interface: &mut Interface, notes: &mut Notes<'_>, name: &str, item: Text<'_>) {
    if item.is("local") {
        let at = notes.at(item);
        interface.exclude_local = Some(Located { value: (), at });
        return;
    }
    let parsed = allowed_ip(item).map_err(|bad| match bad.help {
        None => bad.help("`local` stands for the local network"),
        Some(_) => bad,
    });
    let network = parsed.map(|(network, _)| network);
    notes.push(name, &mut interface.excluded_ips, item, network);
}
