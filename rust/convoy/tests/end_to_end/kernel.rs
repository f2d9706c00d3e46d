//! The kernel's WireGuard at the other end: Debian's kernel in QEMU, without KVM.
//!
//! ```text
//!  left                    guest: Linux in QEMU                     right
//!  ┌────────────────┐      ┌──────────────────────────────┐      ┌─────────────────┐
//!  │ Convoy         │      │ the kernel's WireGuard       │      │                 │
//!  │ wg0   10.8.0.1 ╪══════╪ wg0 10.8.0.2                 │      │                 │
//!  │ outside .9.0.1 ┼─ tap ┼ outside 10.9.0.2             │      │                 │
//!  │                │      │              inside 10.7.0.1 ┼ tap ─┼ inside 10.7.0.2 │
//!  └────────────────┘      └───────────────┼──────────────┘      └─────────────────┘
//!                           control: a tap to the guest's shell server
//! ```
//!
//! `right` is reached through the tunnel, so that both ends of the traffic are this process's own. Only
//! `make interop-kernel` runs these tests: it builds the guest (`build-guest`), which boots once for all of them.

mod beside;
mod changes;
mod data;
mod friends;
mod guest;
mod load;
mod network;
mod pair;
mod rekey;
mod roaming;
