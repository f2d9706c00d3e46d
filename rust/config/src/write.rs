//! Writes a configuration for `SaveConfig`.

use zeroize::Zeroizing;

use crate::{
    MAX_FILE_BYTES,
    check::check,
    config::{Config, Interface, Peer},
    draft::Draft,
    key::{Section, Write},
    keys::saved,
    open::OpenError,
    parse::parse,
    report::Report,
    route_tables::RouteTables,
    writer::Writer,
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
    let mut out = Writer {
        text: Zeroizing::new(String::with_capacity(size)),
        key: String::new(),
    };
    interface(&config.interface, &mut out);
    for it in own() {
        peer(it, &mut out);
    }
    out.text
}

/// Names what is wrong with a text in place of the `NAME.conf` of `config`, beside its `NAME.d`; `None` if it is valid.
#[must_use]
pub fn flaw_of_saved(config: &Config, text: &str) -> Option<String> {
    if text.len() > MAX_FILE_BYTES {
        return Some(OpenError::TooLarge(MAX_FILE_BYTES).to_string());
    }
    let (mut draft, mut report) = (Draft::default(), Report::default());
    let tables = RouteTables::of_this_machine();
    parse(0, text, &tables, &mut draft, &mut report);
    let others = config.peers.iter();
    let others = others.filter(|peer| peer.public_key.at.is_drop_in());
    draft.peers.extend(others.cloned());
    check(&mut draft, &mut report);
    report.first_error().map(str::to_owned)
}

fn interface(it: &Interface, out: &mut Writer) {
    out.text.push_str("[Interface]\n");
    let mut forwarding = it.forwarding.written.iter();
    for key in saved(Section::Interface) {
        out.key = key.head();
        match key.write {
            Write::Interface(write) => write(it, out),
            Write::AsTaken => {
                for (name, value) in forwarding.by_ref() {
                    out.key = format!("#convoy: {name}");
                    out.line(value);
                }
            }
            Write::Peer(_) => {}
        }
    }
}

fn peer(it: &Peer, out: &mut Writer) {
    out.text.push_str("\n[Peer]\n");
    if let Some(name) = &it.friendly_name {
        out.key = "# friendly_name".to_owned();
        out.line(name);
    }
    for key in saved(Section::Peer) {
        out.key = key.head();
        if let Write::Peer(write) = key.write {
            write(it, out);
        }
    }
}

#[cfg(test)]
mod tests;
