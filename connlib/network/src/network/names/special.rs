//! Names that have one meaning everywhere, so that no name server is asked for them.

use hickory_resolver::proto::rr::{Name, domain::usage};

/// Whether a name is this host's (RFC 6761, section 6.3).
pub fn is_own(name: &Name) -> bool {
    usage::LOCALHOST.zone_of(name)
}

/// Whether no host has a name: it ends in `onion`, and is to be found by Tor alone (RFC 7686), or in `invalid`
/// (RFC 6761, section 6.4). One of just that label may still be completed.
pub fn is_nobodys(name: &Name) -> bool {
    let is_label = name.num_labels() == 1 && !name.is_fqdn();
    !is_label && (usage::ONION.zone_of(name) || usage::INVALID.zone_of(name))
}
