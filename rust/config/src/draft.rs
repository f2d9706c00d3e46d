//! Files that have been parsed, but not checked as a whole.

use convoy_types::PublicKey;

use crate::{
    config::{Endpoint, Interface, Peer},
    located::{Located, Place},
};

/// The files parsed so far; not checked as a whole.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// The first `[Interface]`.
    pub(crate) header: Option<Place>,
    pub(crate) interface: Interface,
    pub(crate) peers: Vec<Peer>,
}

/// A peer whose section has not ended.
pub(crate) struct PeerDraft {
    pub(crate) header: Place,
    /// Whether there is a `PublicKey`, valid or not.
    pub(crate) has_public_key: bool,
    pub(crate) public_key: Option<Located<PublicKey>>,
    pub(crate) endpoint: Option<Located<Endpoint>>,
    pub(crate) peer: Peer,
}

impl PeerDraft {
    /// Creates an empty section.
    pub(crate) fn new(header: Place) -> Self {
        Self {
            header,
            has_public_key: false,
            public_key: None,
            endpoint: None,
            peer: Peer::new(Located::nowhere(PublicKey([0; 32]))),
        }
    }
}
