//! Reads the configuration of a tunnel: wg-quick's files, unchanged, and Convoy's own keys in comments
//! that wg-quick skips.
//!
//! 1. [`read()`] reads `NAME.conf` and the directory `NAME.d` beside it. It returns a [`Config`] and
//!    warnings, or a [`Report`] of all errors.
//! 2. [`Report::render`] shows either as a compiler does: file, line, column and a way to mend it.
//! 3. [`difference()`] is the update for a running device; [`to_wg_quick`] writes a configuration
//!    back.
//!
//! `cargo run -p convoy-config --example edit` reads a file, changes it and prints it.
//!
//! A crate of its own, without network, runtime, privileges or protocol, so configurations can be checked
//! anywhere and fuzzed without the daemon. Any crate of the client may call it.
//!
//! # Keys
//!
//! [`keys()`] lists them with their meanings. Those of wg-quick mean what wg-quick(8) and wg(8) say. Convoy's own stand
//! in comments on lines of their own, in the section that they concern: `#convoy: Key = value`.
//!
//! `# friendly_name = X` in a `[Peer]`, or in the comments directly above it, names the peer.
//!
//! Files of `NAME.d` whose names end in `.conf` and do not begin with a dot contain `[Peer]` sections
//! only. They are read in byte order of their names, as one state of the directory, never as a mixture of
//! two. A ConfigMap's symlink `..data` is followed.
//!
//! # Differences from wg-quick
//!
//! Refused, although wg-quick or wg accepts it: a file without `[Interface]`, bytes that are not UTF-8,
//! names of services in place of ports, port 0 of an endpoint, ports beyond 65535 (which wraps in wg),
//! shortened IPv4 addresses (`10.1`), net masks, a private key of zeros, names that are not ASCII, DNS
//! servers with a zone, two sections with one public key, and values that fail later, such as `MTU = x`.
//!
//! Accepted, although wg-quick or wg refuses it: a byte order mark, white space in `[ Interface ]` and in
//! wg-quick's keys, `Table = Off`.
//!
//! A prefix that two peers of `NAME.conf` list belongs to the later one, as in wg, with a warning. If one
//! of the two is in `NAME.d`, that is an error.
//!
//! # Secrets
//!
//! No message contains a key: reports are made from a copy of the text in which all values are masked
//! that are not known to be public. The text itself is wiped once it is parsed.

mod assignment;
mod authorities;
mod base64;
mod boot;
mod bounds;
mod check;
mod config;
mod difference;
mod draft;
mod drop_in;
mod file_text;
mod forward;
#[cfg(test)]
mod fuzz;
mod key;
mod key_file;
mod keys;
mod loaded;
mod located;
mod mask;
mod name;
mod nearest;
mod number;
mod open;
mod parse;
mod read;
mod reference;
mod report;
mod route_tables;
mod routed;
mod source;
mod text;
mod trust;
mod values;
mod via;
mod write;
mod writer;

use std::path::Path;

pub use authorities::Certificates;
pub use base64::{ENCODED_KEY_LENGTH, decode_key, encode_key};
pub use boot::{AtBoot, read_at_boot};
pub use bounds::{
    MAX_DIRECT_PREFIXES, MAX_DROP_INS, MAX_FILE_BYTES, MAX_TOTAL_BYTES, MAX_TURN_SERVERS,
};
pub use config::{
    Config, Direct, Endpoint, Host, Interface, KillSwitch, Nat, Peer, PortForward, SearchDomain,
    Table, Turn, Via,
};
pub use convoy_types::{InterfaceName, MAX_DIRECT_PEERS, NameError, Prefix};
pub use difference::difference;
pub use forward::{
    AccessLists, Forwarding, Imported, Listener, Offer, Side, UserPassword, import_rinetd,
    parse_listener, parse_prefix, read_forwarding, read_login,
};
pub use key::Key;
pub use keys::{of_tunnel as keys, parse_stun_server};
pub use loaded::Loaded;
pub use located::{Files, Located, Place};
pub use name::{expand_hook, path_of};
pub use read::Reader;
pub use reference::EXAMPLE;
pub use report::{MAX_SHOWN, Report};
pub use route_tables::SYSTEM_TABLES;
pub use routed::Routed;
pub use source::{SaveError, Saved, Source};
pub use trust::{Untrusted, hooks_are_trusted};
pub use via::{MAX_OUTER_PEERS, MAX_OUTER_PREFIXES};
pub use write::{flaw_of_saved, to_wg_quick};

/// Reads a configuration: [`Reader::read`] with this machine's files and environment.
///
/// # Errors
/// All errors in all files.
pub fn read(path: &Path) -> Result<Loaded, Report> {
    Reader::from_environment().read(path)
}
