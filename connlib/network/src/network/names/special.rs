//! Names that have one meaning everywhere, so that no name server is asked for them.

use std::net::IpAddr;

use hickory_resolver::{
    Hosts,
    lookup::Lookup,
    proto::{
        op::Query,
        rr::{Name, RecordType, domain::usage},
    },
};

/// Returns whether a name is this host's (RFC 6761, section 6.3).
pub fn is_own(name: &Name) -> bool {
    usage::LOCALHOST.zone_of(name)
}

/// Returns whether no host has a name: it ends in `onion`, and is to be found by Tor alone (RFC 7686), or in `invalid`
/// (RFC 6761, section 6.4). One of just that label may still be completed.
pub fn is_nobodys(name: &Name) -> bool {
    let is_label = name.num_labels() == 1 && !name.is_fqdn();
    !is_label && (usage::ONION.zone_of(name) || usage::INVALID.zone_of(name))
}

/// Returns the addresses that a file of hosts gives a name.
pub fn of_hosts(name: &Name, hosts: &Hosts) -> Vec<IpAddr> {
    let of = |kind| hosts.lookup_static_host(&Query::query(name.clone(), kind));
    let found = [RecordType::A, RecordType::AAAA].into_iter().filter_map(of);
    let addresses = |it: &Lookup| -> Vec<_> {
        let records = it.answers().iter();
        records.filter_map(|it| it.data.ip_addr()).collect()
    };
    found.flat_map(|it| addresses(&it)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_hosts_may_know_special_names() {
        let mut hosts = Hosts::default();
        let file = "192.0.2.5 app.localhost\n2001:db8::5 app.localhost\n192.0.2.6 site.onion\n";
        hosts.read_hosts_conf(file.as_bytes()).unwrap();
        for (name, expected) in [
            ("app.localhost", "192.0.2.5 2001:db8::5"),
            ("Site.Onion.", "192.0.2.6"),
            ("other.localhost", ""),
        ] {
            let found = of_hosts(&Name::from_utf8(name).unwrap(), &hosts);
            let found: Vec<_> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found.join(" "), expected, "{name}");
        }
    }
}
