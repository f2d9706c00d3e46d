//! Takes keys and values, line by line: of a forwarder's file, of a tunnel's, or of a command line.

use std::{net::SocketAddr, path::PathBuf};

use convoy_types::Prefix;

use super::{AccessLists, Forwarding, Key, Listener, Offer, Side, UserPassword, values};
use crate::{
    located::{Located, Place},
    report::{Diagnostic, Report},
    text::Text,
    values::{Bad, Parsed, allowed_ip},
};

impl Forwarding {
    /// Takes the value of a key in a file.
    pub(crate) fn take(&mut self, key: Key, value: Text<'_>, file: usize) -> Parsed<()> {
        let at = Place::new(file, value.range());
        match key {
            Key::Forward | Key::Reverse => {
                let side = match key {
                    Key::Reverse => Side::Inside,
                    _ => Side::Host,
                };
                let (listen, host, port) = values::forward(value, side)?;
                self.add(side, at, listen, Offer::Tcp(host, port));
            }
            Key::ForwardUdp => {
                let (listen, host, port) = values::forward(value, Side::Host)?;
                self.add(Side::Host, at, listen, Offer::Udp(host, port));
            }
            Key::Socks5 => {
                let listen = values::listen(value, Side::Host)?;
                self.add(Side::Host, at, listen, Offer::Socks5);
            }
            Key::HttpConnect => {
                let listen = values::listen(value, Side::Host)?;
                self.add(Side::Host, at, listen, Offer::HttpConnect);
            }
            Key::Allow => self.lists().allow.extend(prefixes(value)?),
            Key::Deny => self.lists().deny.extend(prefixes(value)?),
            Key::TargetAllow => self.targets(value)?.allow.extend(prefixes(value)?),
            Key::TargetDeny => self.targets(value)?.deny.extend(prefixes(value)?),
            Key::LoginFile => *self.login_slot(value)? = Some(path(value, at)),
            Key::Buffer => self.buffer = Some(values::buffer(value)?),
        }
        self.written.push((key, value.text.to_owned()));
        Ok(())
    }

    fn add(&mut self, side: Side, at: Place, addresses: Vec<SocketAddr>, offer: Offer) {
        self.listeners.push(Listener {
            side,
            addresses: Located {
                value: addresses,
                at,
            },
            offer,
            access: AccessLists::default(),
            targets: AccessLists::default(),
            login: None,
            login_file: None,
        });
    }

    /// The lists of the listener above, or else those of every listener.
    fn lists(&mut self) -> &mut AccessLists {
        match self.listeners.last_mut() {
            Some(listener) => &mut listener.access,
            None => &mut self.access,
        }
    }

    /// The targets of the proxy above, or else those of every proxy.
    fn targets(&mut self, value: Text<'_>) -> Parsed<&mut AccessLists> {
        match self.listeners.last_mut() {
            Some(listener) if !listener.offer.is_proxy() => Err(Bad::new(
                value,
                "a proxy above it: the target of other listeners is fixed",
            )),
            Some(listener) => Ok(&mut listener.targets),
            None => Ok(&mut self.targets),
        }
    }

    /// The file of the proxy above, or else that of every proxy.
    fn login_slot(&mut self, value: Text<'_>) -> Parsed<&mut Option<Located<PathBuf>>> {
        match self.listeners.last_mut() {
            Some(listener) if !listener.offer.is_proxy() => Err(Bad::new(
                value,
                "a proxy above it: only these ask for a password",
            )),
            Some(listener) => Ok(&mut listener.login_file),
            None => Ok(&mut self.login_file),
        }
    }

    /// Gives proxies their passwords; `read` reports what it cannot read.
    pub(crate) fn read_logins(
        &mut self,
        mut read: impl FnMut(&Located<PathBuf>) -> Option<UserPassword>,
    ) {
        let of_all = self.login_file.as_ref().and_then(&mut read);
        for listener in &mut self.listeners {
            listener.login = match &listener.login_file {
                Some(file) => read(file),
                None if listener.offer.is_proxy() => of_all.clone(),
                None => None,
            };
        }
    }
}

fn prefixes(value: Text<'_>) -> Parsed<Vec<Prefix>> {
    let items = value.split(|c| c == ',');
    items.map(|item| Ok(allowed_ip(item)?.0)).collect()
}

fn path(value: Text<'_>, at: Place) -> Located<PathBuf> {
    Located {
        value: PathBuf::from(value.text),
        at,
    }
}

/// Reports listeners that other hosts could use.
pub(crate) fn refuse_unguarded(forwarding: &Forwarding, report: &mut Report) {
    for listener in &forwarding.listeners {
        if !is_guarded(listener, forwarding) {
            let title = "other hosts could use this listener";
            let error = Diagnostic::error(title, listener.addresses.at, "not a loopback address");
            let help = "add a line `Allow = …` below it, or a `LoginFile` if it is a proxy";
            report.push(error.help(help));
        }
    }
}

/// Whether only this host can use a listener, or something tells who else may: inside a tunnel, its peers' AllowedIPs.
pub(super) fn is_guarded(listener: &Listener, of: &Forwarding) -> bool {
    let is_loopback = |at: &SocketAddr| at.ip().to_canonical().is_loopback();
    let has_list = !listener.access.allow.is_empty() || !of.access.allow.is_empty();
    let has_file =
        listener.login_file.is_some() || listener.offer.is_proxy() && of.login_file.is_some();
    let has_login = listener.login.is_some() || has_file;
    let is_inside = listener.side == Side::Inside;
    is_inside || has_list || has_login || listener.addresses.value.iter().all(is_loopback)
}

impl Offer {
    /// Whether clients name the target.
    pub fn is_proxy(&self) -> bool {
        matches!(self, Self::Socks5 | Self::HttpConnect)
    }
}
