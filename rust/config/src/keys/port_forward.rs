//! Keys of a port that a provider forwards through the tunnel: `PortForward` and `PostPortForward`.

use std::net::{IpAddr, Ipv4Addr};

use crate::{
    config::{NAT_PMP, PortForward},
    key::{CONVOY, Form, Key, Take, Write},
    text::{Text, is_space},
    values::{Bad, Parsed, ip_address},
};

pub(super) static INTERFACE: [Key; 2] = [
    Key {
        name: "PortForward",
        values: "nat-pmp, or nat-pmp ADDRESS",
        meaning: "Asks the provider's gateway inside the tunnel for a port, of UDP and TCP, which it forwards to the \
             same port of this machine, and asks again every 45 s, as ProtonVPN and others want it. Without an address, \
             the gateway is the first address of the network that Address connects, or the first name server of DNS \
             in a private network. The port is in `convoy status`, `convoy events` and metrics, and %p in hooks.",
        example: "nat-pmp 10.2.0.1",
        take: Take::Interface(|it, line| line.set(&mut it.port_forward, port_forward)),
        write: Write::Interface(|it, out| out.each(&it.port_forward)),
        ..CONVOY
    },
    Key {
        name: "PostPortForward",
        form: Form::Command,
        values: "a shell command; may be repeated",
        meaning: "Runs while the tunnel is up, each time PortForward gets a port or another one, and when the port is \
             lost. %p stands for the port, or 0 once it is lost; likewise in the other hooks, where it is mostly 0 in \
             PreUp and PostUp, since a gateway can be asked only through the tunnel, and PostDown has the last port. \
             A command that fails is logged, and the tunnel stays up.",
        example: "transmission-remote --port %p",
        take: Take::Interface(|it, line| line.push_command(&mut it.post_port_forward)),
        write: Write::Interface(|it, out| out.each(&it.post_port_forward)),
        ..CONVOY
    },
];

fn port_forward(value: Text<'_>) -> Parsed<PortForward> {
    let (word, rest) = match value.text.find(is_space) {
        Some(at) => (value.text.split_at(at).0, &value.text[at..]),
        None => (value.text, ""),
    };
    if !word.eq_ignore_ascii_case(NAT_PMP) {
        return Err(Bad::new(
            value,
            "`nat-pmp`, or `nat-pmp` and the address of a gateway",
        ));
    }
    let rest = Text {
        start: value.end() - rest.len(),
        text: rest,
    };
    let rest = rest.trim();
    if rest.is_empty() {
        return Ok(PortForward::default());
    }
    match ip_address(rest)? {
        IpAddr::V4(gateway) if is_host(gateway) => Ok(PortForward {
            gateway: Some(gateway),
        }),
        _ => Err(Bad::new(rest, "the IPv4 address of one machine")),
    }
}

fn is_host(address: Ipv4Addr) -> bool {
    let is_none = address.is_unspecified() || address.is_loopback();
    !is_none && !address.is_multicast() && !address.is_broadcast()
}
