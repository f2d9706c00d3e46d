//! Keys of a forwarder's file; a tunnel's has them in comments of `[Interface]`.

use crate::{
    forward::{Forwarding, Offer, Side, add_to, values::buffer},
    key::{CONVOY, Files, Key, Take},
};

pub(super) static FORWARDING: [Key; 11] = [
    Key {
        name: "Forward",
        values: "[ADDRESS:]PORT:HOST:PORT; may be repeated",
        meaning: "With `convoy up --userspace`: a listener on this host whose connections lead to a host behind the \
             tunnel, which is looked up there. Without an address it is on 127.0.0.1 and ::1; * is every address. \
             One that other hosts can reach needs Allow.",
        example: "8080:192.0.2.1:80",
        take: Take::Forwarding(|it, value, at| it.add_fixed(Side::Host, value, at, Offer::Tcp)),
        ..FORWARDER
    },
    Key {
        name: "ForwardUDP",
        values: "as for Forward; may be repeated",
        meaning: "The same for datagrams and their answers.",
        example: "5353:192.0.2.1:53",
        take: Take::Forwarding(|it, value, at| it.add_fixed(Side::Host, value, at, Offer::Udp)),
        ..FORWARDER
    },
    Key {
        name: "Reverse",
        values: "[ADDRESS:]PORT:HOST:PORT; may be repeated",
        meaning: "With `convoy up --userspace`: a listener inside the tunnel whose connections lead to a host that this \
             one reaches outside. Without an address it is on all addresses of the tunnel. Clients must be in AllowedIPs.",
        example: "8081:192.0.2.1:80",
        take: Take::Forwarding(|it, value, at| it.add_fixed(Side::Inside, value, at, Offer::Tcp)),
        files: Files::Tunnel,
        ..FORWARDER
    },
    Key {
        name: "Socks5",
        values: "[ADDRESS:]PORT; may be repeated",
        meaning: "With `convoy up --userspace`: a SOCKS5 proxy on this host, also for UDP, which looks names up and \
             connects inside the tunnel. One that other hosts can reach needs Allow or LoginFile.",
        example: "1080",
        take: Take::Forwarding(|it, value, at| it.add_proxy(value, at, Offer::Socks5)),
        ..FORWARDER
    },
    Key {
        name: "HttpConnect",
        values: "as for Socks5; may be repeated",
        meaning: "The same as an HTTP proxy for CONNECT.",
        example: "3128",
        take: Take::Forwarding(|it, value, at| it.add_proxy(value, at, Offer::HttpConnect)),
        ..FORWARDER
    },
    Key {
        name: "Allow",
        default: "everyone who can reach the listener",
        meaning: "Who may use the listener above. Above all listeners: who may use any on this host, besides its own lists.",
        take: Take::Forwarding(|it, value, _| add_to(&mut it.lists().allow, value)),
        ..LIST
    },
    Key {
        name: "Deny",
        default: "nobody",
        meaning: "Who may not; takes precedence over Allow.",
        take: Take::Forwarding(|it, value, _| add_to(&mut it.lists().deny, value)),
        ..LIST
    },
    Key {
        name: "TargetAllow",
        meaning: "Targets of the proxy above that are refused by default, as NatAllow for Nat. Above all listeners: of each \
             proxy.",
        take: Take::Forwarding(|it, value, _| add_to(&mut it.targets(value)?.allow, value)),
        files: Files::Forwarder,
        ..LIST
    },
    Key {
        name: "TargetDeny",
        meaning: "Further targets that the proxy refuses; takes precedence over TargetAllow.",
        take: Take::Forwarding(|it, value, _| add_to(&mut it.targets(value)?.deny, value)),
        files: Files::Forwarder,
        ..LIST
    },
    Key {
        name: "LoginFile",
        values: "a path, as in PrivateKeyFile",
        meaning: "A file whose first line is user:password, which the proxy above asks for; above all listeners, each \
             proxy without one of its own.",
        example: "login",
        take: Take::Forwarding(Forwarding::set_login_file),
        ..FORWARDER
    },
    Key {
        name: "Buffer",
        values: "8K to 256K",
        default: "64K",
        meaning: "The buffer of a forwarded connection while bytes move.",
        example: "128K",
        take: Take::Forwarding(|it, value, _| {
            it.buffer = Some(buffer(value)?);
            Ok(())
        }),
        ..FORWARDER
    },
];

const FORWARDER: Key = Key {
    files: Files::Both,
    ..CONVOY
};

const LIST: Key = Key {
    values: "prefixes, separated by commas; may be repeated",
    example: "10.0.0.0/8",
    ..FORWARDER
};
