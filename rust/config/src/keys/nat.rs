//! Keys of NAT, in `[Interface]`.

use crate::{
    key::{CONVOY, Key, Take, Write},
    values::{allowed_ip, truth},
};

pub(super) static NAT: [Key; 4] = [
    Key {
        name: "Nat",
        values: "user or off",
        default: "off",
        meaning: "With `convoy up --userspace`: whether this end is a NAT gateway, which forwards peers' TCP, UDP and pings \
             through the user's sockets. Needs no root; without nft, it is slower.",
        example: "user",
        take: Take::Interface(|it, line| {
            line.set(&mut it.nat.is_on, |value| truth(value, "user", "off"))
        }),
        write: Write::Interface(|it, out| out.truth(it.nat.is_on.as_ref(), "user", "off")),
        ..CONVOY
    },
    Key {
        name: "NatAllow",
        values: "prefixes, separated by commas; may be repeated",
        meaning: "Targets of Nat that are refused by default: this host, its links, multicast, reserved addresses, and the \
             metadata of clouds. A prefix opens what is within it, but an address of this host only if it names that.",
        example: "169.254.0.0/16",
        take: Take::Interface(|it, line| {
            line.push(&mut it.nat.allow, line.items(), |item| {
                Ok(allowed_ip(item)?.0)
            })
        }),
        write: Write::Interface(|it, out| out.each(&it.nat.allow)),
        ..CONVOY
    },
    Key {
        name: "NatDeny",
        values: "prefixes, separated by commas; may be repeated",
        meaning: "Further targets that Nat refuses; takes precedence over NatAllow.",
        example: "10.0.0.0/8",
        take: Take::Interface(|it, line| {
            line.push(&mut it.nat.deny, line.items(), |item| {
                Ok(allowed_ip(item)?.0)
            })
        }),
        write: Write::Interface(|it, out| out.each(&it.nat.deny)),
        ..CONVOY
    },
    Key {
        name: "NatDNS",
        values: "yes or no",
        default: "no",
        meaning: "Whether DNS queries that peers send to this end of the tunnel are answered, with this host's resolver.",
        example: "yes",
        take: Take::Interface(|it, line| {
            line.set(&mut it.nat.dns, |value| truth(value, "yes", "no"))
        }),
        write: Write::Interface(|it, out| out.truth(it.nat.dns.as_ref(), "yes", "no")),
        ..CONVOY
    },
];
