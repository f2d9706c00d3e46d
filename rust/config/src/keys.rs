//! The table of keys: to add one is to add an entry, and its field in [`config`](crate::config).

mod direct;
mod forwarding;
mod interface;
mod nat;
mod peer;
mod port_forward;
mod turn;
mod via;

use crate::{
    key::{Dialect, Files, Key, Section},
    nearest::nearest_word,
};

pub use direct::parse_stun_server;
pub(crate) use interface::clamped;
pub(crate) use turn::may_have_password;

/// Lists all keys, those of `[Interface]` first.
pub(crate) fn all() -> impl Iterator<Item = &'static Key> {
    let interface = interface::INTERFACE.iter().chain(&forwarding::FORWARDING);
    let interface = interface.chain(&nat::NAT).chain(&direct::INTERFACE);
    let interface = interface
        .chain(&port_forward::INTERFACE)
        .chain(&turn::INTERFACE)
        .chain(&via::INTERFACE);
    interface.chain(&peer::PEER).chain(&direct::DIRECT)
}

/// Lists the keys of a tunnel's file, those of `[Interface]` first.
pub fn of_tunnel() -> impl Iterator<Item = &'static Key> {
    all().filter(|key| key.files != Files::Forwarder)
}

/// Lists the keys of a forwarder's file.
pub(crate) fn of_forwarder() -> impl Iterator<Item = &'static Key> {
    all().filter(|key| key.files != Files::Tunnel)
}

/// Lists the keys of a section in the order of a saved file.
pub(crate) fn saved(section: Section) -> Vec<&'static Key> {
    let mut keys: Vec<_> = of_tunnel().filter(|key| key.section() == section).collect();
    keys.sort_by_key(|key| key.saved);
    keys
}

/// Finds a key of a tunnel's file by its name in any case; `word` has no white space.
pub(crate) fn find(word: &str) -> Option<&'static Key> {
    of_tunnel().find(|key| key.name.eq_ignore_ascii_case(word))
}

/// Finds a key of a forwarder's file likewise.
pub(crate) fn find_of_forwarder(word: &str) -> Option<&'static Key> {
    of_forwarder().find(|key| key.name.eq_ignore_ascii_case(word))
}

/// Guesses the key of a tunnel's file that `word` was meant to be.
pub(crate) fn nearest(word: &str) -> Option<&'static Key> {
    let of = |dialect| of_tunnel().filter(move |key| key.dialect == dialect);
    let names = of(Dialect::WgQuick).chain(of(Dialect::Convoy));
    find(nearest_word(word, names.map(|key| key.name))?)
}

#[cfg(test)]
mod tests;
