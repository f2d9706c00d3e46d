//! Routers of homes and carriers in namespaces, with the NATs and firewalls that they have in the field.
//!
//! ```text
//!  host eth0 ── lan0 Router wan ── lan0 ┐
//!  host eth0 ── lan1                    ├ Router::internet: forwards, translates nothing
//!  host eth0 ─────────────────── lan1 ──┘
//! ```
//!
//! 1. [`Router::internet`] makes the middle, [`Router::router`] a router behind another one, [`Router::host`] joins a
//!    namespace to one.
//! 2. [`Router::cut`] makes a router drop what goes to and comes from an address, [`Router::mend`] ends that.
//!
//! All needs root and nft(8). Source ports stay as they are, so hosts behind one router need different ones.

mod rules;
mod tests;

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::atomic::{AtomicU8, Ordering},
};

use convoy_lab::{Lab, Namespace};

use crate::scene::output_of;
use rules::OUTSIDE;
pub(crate) use rules::{Nat, RouterOptions};

/// MTU of every link in bytes.
const MTU: u32 = 1_500;

/// A namespace that forwards packets between its links.
pub(crate) struct Router {
    /// The router's own namespace.
    pub(crate) namespace: Namespace,
    /// Its addresses outside; `None` for the internet.
    pub(crate) outside: Option<Joined>,
    options: RouterOptions,
    /// The first three parts of its addresses of IPv6.
    prefix: [u16; 3],
    links: AtomicU8,
}

/// The addresses of a host, or of a router's outside, on the link to the next router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Joined {
    /// Its address of IPv4.
    pub(crate) v4: Ipv4Addr,
    /// Its address of IPv6, if the router has that.
    pub(crate) v6: Option<Ipv6Addr>,
}

impl Router {
    /// Makes the internet: a router that translates and filters nothing, with networks for benchmarks (RFC 2544).
    pub(crate) fn internet(lab: &Lab) -> Self {
        let options = RouterOptions {
            nat: Nat::None,
            hairpin: false,
            ipv6: true,
            inside: [198, 18],
        };
        let router = Self::new(forwarding(lab, "internet"), options, None, [0x2001, 2, 0]);
        router.apply(&rules::of(&options, Ipv4Addr::UNSPECIFIED));
        router
    }

    /// Makes a router behind this one.
    pub(crate) fn router(&self, lab: &Lab, label: &str, options: RouterOptions) -> Self {
        let namespace = forwarding(lab, label);
        let (outside, link) = self.join(&namespace, OUTSIDE);
        let prefix = [self.prefix[0], self.prefix[1], u16::from(link) + 1];
        if let (Some(v6), true) = (outside.v6, options.ipv6) {
            let delegated = format!("{:x}:{:x}:{:x}::/48", prefix[0], prefix[1], prefix[2]);
            let through = self.namespace.link();
            through.add_route_through(&delegated, v6.into()).unwrap();
        }
        let router = Self::new(namespace, options, Some(outside), prefix);
        router.apply(&rules::of(&options, outside.v4));
        router
    }

    /// Joins `namespace` to this router by `interface`, which gets addresses and the default routes.
    pub(crate) fn host(&self, namespace: &Namespace, interface: &str) -> Joined {
        self.join(namespace, interface).0
    }

    /// Drops all packets to and from `address` from now on, in flows that exist, too.
    pub(crate) fn cut(&self, address: IpAddr) {
        self.apply(&rules::cut(address));
    }

    /// Ends all [cuts](Router::cut).
    pub(crate) fn mend(&self) {
        self.apply(rules::MEND);
    }

    fn new(
        namespace: Namespace,
        options: RouterOptions,
        outside: Option<Joined>,
        prefix: [u16; 3],
    ) -> Self {
        Self {
            namespace,
            outside,
            options,
            prefix,
            links: AtomicU8::new(0),
        }
    }

    /// Also returns the number of the link.
    fn join(&self, namespace: &Namespace, interface: &str) -> (Joined, u8) {
        let link = self.links.fetch_add(1, Ordering::Relaxed);
        let v4 = |host| Ipv4Addr::new(self.options.inside[0], self.options.inside[1], link, host);
        let [a, b, c] = self.prefix;
        let is_internet = self.outside.is_none();
        // Below the internet, each link is the beginning of what is delegated to a router behind it.
        let (c, d) = match is_internet {
            true => (u16::from(link) + 1, 0),
            false => (c, u16::from(link) + 1),
        };
        let v6 = |host| Ipv6Addr::new(a, b, c, d, 0, 0, 0, host);
        let has_ipv6 = self.options.ipv6;
        let addresses = |host: u8| {
            let v6 = has_ipv6.then(|| format!("{}/64", v6(host.into())));
            [format!("{}/24", v4(host))].into_iter().chain(v6)
        };
        let [near, far] = [1, 2].map(|host| addresses(host).collect::<Vec<_>>());
        let own = format!("lan{link}");
        let (inner, outer) = (self.namespace.link(), namespace.link());
        inner.add_veth(&own, namespace, interface, MTU).unwrap();
        inner.bring_up(&own, MTU, &near).unwrap();
        outer.bring_up(interface, MTU, &far).unwrap();
        outer.add_route_through("default", v4(1).into()).unwrap();
        if has_ipv6 {
            outer.add_route_through("default", v6(1).into()).unwrap();
        }
        let joined = Joined {
            v4: v4(2),
            v6: has_ipv6.then(|| v6(2)),
        };
        (joined, link)
    }

    fn apply(&self, rules: &str) {
        output_of(&self.namespace, "nft", &[rules]);
    }
}

/// Makes a namespace that forwards. Its links find neighbours of IPv6 at once, without duplicate address detection.
fn forwarding(lab: &Lab, label: &str) -> Namespace {
    let namespace = lab.namespace(label).unwrap();
    for (setting, value) in [
        ("ipv4/ip_forward", "1"),
        ("ipv6/conf/all/forwarding", "1"),
        ("ipv6/conf/default/accept_dad", "0"),
    ] {
        // /proc/sys/net shows each thread the settings of its own network namespace.
        let write = || fs::write(format!("/proc/sys/net/{setting}"), value);
        namespace.run(write).unwrap().unwrap();
    }
    namespace
}
