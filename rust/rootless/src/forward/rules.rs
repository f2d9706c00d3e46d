//! Turns a file's listeners into the rules of a forwarder.

use std::sync::Arc;

use convoy_config::{AccessLists, Forwarding, Listener, Offer, UserPassword};
use convoy_forward::{Access, Login, Rule, Service};
use convoy_network::dial::Target;

/// Returns the rules of a file.
pub(crate) fn of(forwarding: Forwarding) -> Vec<Rule> {
    let of_all = access(&forwarding.access);
    let rule = |listener| rule(listener, of_all.clone());
    forwarding.listeners.into_iter().map(rule).collect()
}

/// Returns the rule for a listener on this host; `of_all` must allow its clients, too.
pub(crate) fn rule(listener: Listener, of_all: Access) -> Rule {
    let login = listener
        .login
        .map(|UserPassword { user, password }| Login { user, password });
    Rule {
        listen: listener.addresses.value,
        service: match listener.offer {
            Offer::Tcp(host, port) => Service::Tcp(Target { host, port }),
            Offer::Udp(host, port) => Service::Udp(Target { host, port }),
            Offer::Socks5 => Service::Socks5(login),
            Offer::HttpConnect => Service::HttpConnect(login),
        },
        access: vec![of_all, access(&listener.access)],
        peers: Arc::default(),
    }
}

/// Returns whether all listeners can be reached only from this host.
pub(crate) fn are_local(forwarding: &Forwarding) -> bool {
    let addresses = forwarding.listeners.iter().flat_map(|it| &*it.addresses);
    let mut ips = addresses.map(|at| at.ip().to_canonical());
    ips.all(|ip| ip.is_loopback())
}

/// Returns the lists for a rule.
pub(crate) fn access(lists: &AccessLists) -> Access {
    Access {
        allow: lists.allow.clone(),
        deny: lists.deny.clone(),
    }
}
