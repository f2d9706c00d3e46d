//! Convoy and the kernel's WireGuard as each other's peers.

use std::{net::IpAddr, ops::Deref};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use convoy_lab::{
    Turn, eventually,
    wireguard::{End, Identity, KeyPair, TunnelOptions, Underlay},
};

use super::guest::{Guest, PATIENCE, Visit};
use crate::{
    scene::{convoy, output_of},
    traffic,
};

/// The end that knows the other's address and sends first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    ConvoyToKernel,
    KernelToConvoy,
}

/// A tunnel between Convoy in `left` and the kernel in the guest.
///
/// Prints the log of Convoy when the test fails.
pub(super) struct Pair {
    pub(super) role: Role,
    pub(super) left: End,
    pub(super) keys: KeyPair,
    guest: Visit,
    _turn: Turn,
}

impl Deref for Pair {
    type Target = Guest;

    fn deref(&self) -> &Guest {
        &self.guest
    }
}

impl Pair {
    /// `None` if the machine cannot provide it; the caller then skips its test.
    pub(super) fn new(role: Role) -> Option<Self> {
        Self::with(role, &TunnelOptions::default())
    }

    pub(super) fn with(role: Role, options: &TunnelOptions) -> Option<Self> {
        let turn = Turn::together();
        let guest = Visit::new()?;
        let cable = options.cable_mtu.to_string();
        for (namespace, name) in [(&guest.left, "outside"), (&guest.right, "inside")] {
            let link = namespace.link();
            link.bring_up(name, options.cable_mtu, &[""; 0]).unwrap();
        }
        guest.shell(&format!(
            "for it in outside inside; do ip link set $it mtu {cable}; done"
        ));
        let (own, kernel) = (Identity::new(1), Identity::new(2));
        let mut peer = kernel.as_peer(None);
        peer.allowed_ips
            .extend(["10.7.0.0/24".to_owned(), "fd07::/64".to_owned()]);
        if role == Role::ConvoyToKernel {
            peer.endpoint = Some(
                format!("{}:51820", outer(options.underlay))
                    .parse()
                    .unwrap(),
            );
        }
        let mtu = options.tunnel_mtu;
        let left = End::start(&guest.left, &convoy(), &own, vec![peer], mtu).unwrap();
        let routes = "ip route add 10.7.0.0/24 dev wg0; ip route add fd07::/64 dev wg0";
        output_of(&left.namespace, "sh", &["-ec", routes]);
        let endpoint = match role {
            Role::ConvoyToKernel => String::new(),
            Role::KernelToConvoy => format!("endpoint {}", left.outer(options.underlay)),
        };
        guest.shell(&format!(
            "ip link add wg0 mtu {mtu} type wireguard
             echo {private} > /run/key
             wg set wg0 listen-port 51820 private-key /run/key \
                 peer {public} allowed-ips 10.8.0.1/32,fd08::1/128 {endpoint}
             ip address add 10.8.0.2/24 dev wg0; ip address add fd08::2/64 dev wg0 nodad
             ip link set wg0 up",
            private = kernel.keys.private_base64(),
            public = own.keys.public_base64(),
        ));
        Some(Self {
            role,
            left,
            keys: kernel.keys,
            guest,
            _turn: turn,
        })
    }

    /// Pings from the end that knows the other's address.
    pub(super) fn begin(&self) {
        match self.role {
            Role::ConvoyToKernel => traffic::ping(&self.left, right_v4()),
            Role::KernelToConvoy => self.guest_pings("10.8.0.1"),
        }
    }

    /// Pings once from the guest, long enough to wait for a handshake.
    pub(super) fn guest_pings(&self, to: &str) {
        self.shell(&format!("ping -c 1 -W 60 {to}"));
    }

    /// Returns whether the other end answers a ping within a second.
    pub(super) fn answers(&self) -> bool {
        match self.role {
            Role::ConvoyToKernel => traffic::answers(&self.left, right_v4()),
            Role::KernelToConvoy => self.try_shell("ping -c 1 -W 1 10.8.0.1").1 == 0,
        }
    }

    /// Waits until the other end answers.
    pub(super) fn is_answered(&self) {
        let answered = eventually(PATIENCE, || self.answers().then_some(()));
        assert!(answered.is_some(), "{:?}: nobody answers", self.role);
    }

    /// Returns a field of Convoy in `wg show wg0 dump` of the guest.
    pub(super) fn guest_dump(&self, field: usize) -> String {
        let dump = self.shell("wg show wg0 dump");
        dump.lines()
            .nth(1)
            .unwrap()
            .split('\t')
            .nth(field)
            .unwrap()
            .to_owned()
    }

    /// Changes the tunnel's preshared key at Convoy.
    pub(super) fn set_preshared_key(&self, key: [u8; 32]) {
        let (peer, key) = (hex::encode(self.keys.public), hex::encode(key));
        let request =
            format!("set=1\npublic_key={peer}\nupdate_only=true\npreshared_key={key}\n\n");
        assert_eq!(
            self.left.daemon.request(&request).unwrap().trim(),
            "errno=0"
        );
    }

    /// Changes the tunnel's preshared key in the guest.
    pub(super) fn guest_sets_preshared_key(&self, key: [u8; 32]) {
        let (peer, key) = (self.left.keys.public_base64(), BASE64_STANDARD.encode(key));
        self.shell(&format!(
            "echo {key} > /run/psk; wg set wg0 peer {peer} preshared-key /run/psk"
        ));
    }

    /// Makes the kernel forget its sessions.
    pub(super) fn guest_forgets_sessions(&self) {
        self.shell(
            "ip link set wg0 down; ip link set wg0 up; ip address add fd08::2/64 dev wg0 nodad",
        );
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- Convoy wrote:\n{}", self.left.daemon.log());
        }
    }
}

/// Returns the address of the guest on the cable.
pub(super) fn outer(underlay: Underlay) -> &'static str {
    match underlay {
        Underlay::V4 => "10.9.0.2",
        Underlay::V6 => "[fd09::2]",
    }
}

/// Returns the address of `right`, behind the guest.
pub(super) fn right_v4() -> IpAddr {
    [10, 7, 0, 2].into()
}

/// Returns the IPv6 address of `right`, behind the guest.
pub(super) fn right_v6() -> IpAddr {
    [0xfd07, 0, 0, 0, 0, 0, 0, 2].into()
}

/// Turns each function into a module with one test for each role.
macro_rules! for_each_role {
    ($($(#[doc = $doc:literal])* fn $name:ident($role:ident: Role) $body:block)*) => {$(
        $(#[doc = $doc])*
        mod $name {
            use super::*;

            fn test($role: Role) $body

            #[test]
            #[ignore = "make interop-kernel"]
            fn from_convoy_to_the_kernel() {
                test(Role::ConvoyToKernel);
            }

            #[test]
            #[ignore = "make interop-kernel"]
            fn from_the_kernel_to_convoy() {
                test(Role::KernelToConvoy);
            }
        }
    )*};
}

pub(super) use for_each_role;
