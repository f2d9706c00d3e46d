//! Takes keys and values, line by line: of a forwarder's file, of a tunnel's, or of a command line.

use std::{net::SocketAddr, path::PathBuf};

use convoy_types::Prefix;

use super::{AccessLists, Forwarding, Listener, Offer, Side, UserPassword, values};
use crate::{
    located::{Located, Place},
    report::{Diagnostic, Report},
    text::Text,
    values::{Bad, Parsed, allowed_ip},
};

impl Forwarding {
    /// Takes the value of a key in a file.
    pub(crate) fn take(
        &mut self,
        name: &'static str,
        take: fn(&mut Self, Text<'_>, Place) -> Parsed<()>,
        value: Text<'_>,
        file: usize,
    ) -> Parsed<()> {
        take(self, value, Place::new(file, value.range()))?;
        self.written.push((name, value.text.to_owned()));
        Ok(())
    }

    /// Adds a listener that leads to one target.
    pub(crate) fn add_fixed(
        &mut self,
        side: Side,
        value: Text<'_>,
        at: Place,
        offer: fn(String, u16) -> Offer,
    ) -> Parsed<()> {
        let (listen, host, port) = values::forward(value, side)?;
        self.add(side, at, listen, offer(host, port));
        Ok(())
    }

    /// Adds a proxy on this host.
    pub(crate) fn add_proxy(&mut self, value: Text<'_>, at: Place, offer: Offer) -> Parsed<()> {
        let listen = values::listen(value, Side::Host)?;
        self.add(Side::Host, at, listen, offer);
        Ok(())
    }

    /// Sets the file of the proxy above, or else that of every proxy.
    pub(crate) fn set_login_file(&mut self, value: Text<'_>, at: Place) -> Parsed<()> {
        let slot = match self.listeners.last_mut() {
            Some(listener) if !listener.offer.is_proxy() => {
                let expected = "a proxy above it: only these ask for a password";
                return Err(Bad::new(value, expected));
            }
            Some(listener) => &mut listener.login_file,
            None => &mut self.login_file,
        };
        let value = PathBuf::from(value.text);
        *slot = Some(Located { value, at });
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
    pub(crate) fn lists(&mut self) -> &mut AccessLists {
        match self.listeners.last_mut() {
            Some(listener) => &mut listener.access,
            None => &mut self.access,
        }
    }

    /// The targets of the proxy above, or else those of every proxy.
    pub(crate) fn targets(&mut self, value: Text<'_>) -> Parsed<&mut AccessLists> {
        match self.listeners.last_mut() {
            Some(listener) if !listener.offer.is_proxy() => Err(Bad::new(
                value,
                "a proxy above it: the target of other listeners is fixed",
            )),
            Some(listener) => Ok(&mut listener.targets),
            None => Ok(&mut self.targets),
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

/// Adds prefixes to a list, or none of them.
pub(crate) fn add_to(list: &mut Vec<Prefix>, value: Text<'_>) -> Parsed<()> {
    let items = value.split(|c| c == ',');
    let prefixes: Parsed<Vec<_>> = items.map(|item| Ok(allowed_ip(item)?.0)).collect();
    list.extend(prefixes?);
    Ok(())
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

/// Returns whether only this host can use a listener, or something tells who else may: inside a tunnel, its peers'
/// AllowedIPs.
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
    /// Returns whether clients name the target.
    pub fn is_proxy(&self) -> bool {
        matches!(self, Self::Socks5 | Self::HttpConnect)
    }
}
