//! Changes the host's network for a VPN client, and puts everything back.
//!
//! ```text
//!  Desired ──▶ plan ──▶ changes ──▶ journal, then the kernel, nft, DNS
//!                ▲                      │
//!  Facts ────────┘◀── rtnetlink, nftables, inotify, D-Bus: watch
//! ```
//!
//! 1. [`Host::open`] locks the interface's journal and takes over the changes in it.
//! 2. [`Host::pick_mark`] chooses the mark that a default route needs; the caller gives it to the tunnel first.
//! 3. [`Host::apply`] changes the host where it differs from a [`Desired`] state. Call it again with another state.
//! 4. [`Host::watch`] restores removed changes and follows routes and links; call it in a loop.
//! 5. [`Host::pause`] lets everything out for a time, for a captive portal.
//! 6. [`Host::undo`] puts everything back; [`recover`] does so for a process that died. A kill switch that stays is closed.
//!
//! Decisions:
//!
//! - **Written down first.** Every change is synced to `/run/convoy/NAME.journal` before it is made. A replaced
//!   resolv.conf is the only one that outlives a power cut, so its record is in `/var/lib/convoy`. Only a kill switch
//!   takes the place of another although there is no room for its record.
//! - **Foreign changes stay**: to be undone, a route, rule or address must match exactly, a file must still have
//!   our content, a sysctl our value.
//! - **A restart leaks nothing**: changes in place stay there, and those that guard packets go last.
//! - **Nothing polls**, and no timer runs while nobody changes the host.
//!
//! Everything concerns the network namespace of the thread that calls [`Host::open`]. Deliberately omitted: making
//! the interface, name look-ups, hooks, and the choice among several endpoints.

mod backoff;
mod change;
mod desired;
mod dns;
mod effects;
mod elsewhere;
mod error;
mod event;
mod facts;
mod firewall;
mod host;
mod journal;
mod kill_switch;
mod link;
mod local;
mod lock;
mod missing;
mod options;
mod own_addresses;
pub mod owner;
mod pause;
mod plan;
mod programs;
mod reconcile;
mod resolv_conf;
mod route;
mod rule;
mod sources;
mod watch;

pub use convoy_types::Prefix;
pub use desired::{Desired, Dns, KillSwitch, Table, smallest_mtu};
pub use elsewhere::NetworkNamespace;
pub use error::HostError;
pub use event::Event;
pub use facts::foresee;
pub use firewall::table as firewall_table;
pub use host::{Applied, Host, recover};
pub use kill_switch::{
    Clash, close_kill_switch, end_pause, is_kill_switch_closed, open_kill_switch,
};
pub use lock::Lock;
pub use options::Options;
pub use own_addresses::{MAX_OWN_ADDRESSES, own_addresses};
pub use programs::search_path;
pub use resolv_conf::resolv_conf_without_tunnels;
