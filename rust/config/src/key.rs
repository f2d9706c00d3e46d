//! A key of a file: one entry of the table in [`keys`](mod@crate::keys).

use convoy_types::{DeviceUpdate, PeerUpdate};

use crate::{
    assignment::Assignment,
    config::{Interface, Peer},
    draft::PeerDraft,
    forward::Forwarding,
    located::Place,
    text::Text,
    values::Parsed,
    writer::Writer,
};

/// A key: how it is written, what it means, and how its value is taken, written and compared.
pub struct Key {
    /// Its name; files may write it in any case.
    pub name: &'static str,
    pub(crate) dialect: Dialect,
    pub(crate) form: Form,
    pub(crate) files: Files,
    /// Values that may be written after the `=`.
    pub values: &'static str,
    /// Value that applies without the key.
    pub default: &'static str,
    /// Effect of the key, in sentences.
    pub meaning: &'static str,
    /// A valid value, as a saved file has it.
    pub example: &'static str,
    /// Position in a saved section, where wg-quick has an order of its own; other keys follow in the table's.
    pub(crate) saved: u8,
    pub(crate) take: Take,
    pub(crate) write: Write,
    pub(crate) change: Change,
}

/// A key of wg-quick, for what an entry of the table does not say otherwise.
pub(crate) const WG_QUICK: Key = Key {
    name: "",
    dialect: Dialect::WgQuick,
    form: Form::Plain,
    files: Files::Tunnel,
    values: "",
    default: "none",
    meaning: "",
    example: "",
    saved: u8::MAX,
    take: Take::Forwarding(|_, _, _| Ok(())),
    write: Write::AsTaken,
    change: Change::Nothing,
};

/// A key of Convoy's own, likewise.
pub(crate) const CONVOY: Key = Key {
    dialect: Dialect::Convoy,
    ..WG_QUICK
};

/// Where a key is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `Key = value`, as in wg-quick's files.
    WgQuick,
    /// `#convoy: Key = value`; in a forwarder's file without the comment.
    Convoy,
}

/// The form of a key's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Plain,
    /// wg-quick takes an empty value of its own keys for none.
    MayBeEmpty,
    /// A shell command, with any characters or none.
    Command,
    PublicKey,
    SecretKey,
    /// A server, and words that must not contain its password.
    Server,
}

/// The files that have a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Files {
    Tunnel,
    Forwarder,
    Both,
}

/// A section of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Interface,
    Peer,
}

/// Takes a value into the section that the key is of.
pub(crate) enum Take {
    Interface(fn(&mut Interface, &mut Assignment<'_>)),
    Peer(fn(&mut PeerDraft, &mut Assignment<'_>)),
    /// In a tunnel's file, this is part of `[Interface]`.
    Forwarding(fn(&mut Forwarding, Text<'_>, Place) -> Parsed<()>),
}

/// Writes the key's lines.
pub(crate) enum Write {
    Interface(fn(&Interface, &mut Writer)),
    Peer(fn(&Peer, &mut Writer)),
    /// Forwarding keeps its lines: lists concern the listener above.
    AsTaken,
}

/// Adds the difference to an update of the running device; without a former peer, all of it.
pub(crate) enum Change {
    Interface(fn(&Interface, &Interface, &mut DeviceUpdate)),
    Peer(fn(Option<&Peer>, &Peer, &mut PeerUpdate)),
    /// The device has no such value.
    Nothing,
}

impl Key {
    /// Returns the name of its section: `[Interface]` or `[Peer]`.
    #[must_use]
    pub fn section_name(&self) -> &'static str {
        self.section().name()
    }

    /// Returns the beginning of a line with this key, up to the `=`: wg-quick skips Convoy's own, in comments.
    #[must_use]
    pub fn head(&self) -> String {
        match self.dialect {
            Dialect::WgQuick => self.name.to_owned(),
            Dialect::Convoy => format!("#convoy: {}", self.name),
        }
    }

    pub(crate) fn section(&self) -> Section {
        match self.take {
            Take::Interface(_) | Take::Forwarding(_) => Section::Interface,
            Take::Peer(_) => Section::Peer,
        }
    }

    /// Returns the beginning of a line with this key, for messages.
    pub(crate) fn written(&self) -> String {
        format!("{} = …", self.head())
    }
}

impl Form {
    /// Returns whether the value is a key: a secret one, or a public one for which it may be mistaken.
    pub(crate) fn is_a_key(self) -> bool {
        matches!(self, Self::PublicKey | Self::SecretKey)
    }
}

impl Section {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Interface => "[Interface]",
            Self::Peer => "[Peer]",
        }
    }
}
