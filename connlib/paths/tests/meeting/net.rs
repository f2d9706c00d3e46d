//! Machines, NATs between them, and a bad network.

use std::{collections::HashMap, net::SocketAddr};

/// Networks: the internet and those behind NATs.
pub const INTERNET: usize = 0;

/// How a NAT maps and filters (RFC 4787).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependence {
    /// Endpoint-independent.
    None,
    /// Address-dependent.
    Address,
    /// Address- and port-dependent.
    Port,
}

/// A router between an inner and an outer network; with `mapping` `None` on IPv6 it stands for a firewall.
#[derive(Debug)]
pub struct Nat {
    pub inner: usize,
    pub outer: usize,
    pub address: [u8; 4],
    pub mapping: Dependence,
    pub filtering: Dependence,
    pub hairpin: bool,
    next_port: u16,
    /// The outer port by inner source, and by what it depends on.
    ports: HashMap<(SocketAddr, Option<SocketAddr>), u16>,
    /// The inner source by outer port.
    inside: HashMap<u16, SocketAddr>,
    /// Destinations that inner sources have sent to, by outer port.
    opened: HashMap<u16, Vec<SocketAddr>>,
}

#[derive(Debug, Default)]
pub struct Net {
    /// The network of each machine, and its address.
    pub machines: Vec<(usize, SocketAddr)>,
    pub nats: Vec<Nat>,
}

/// A datagram that has arrived: the machine and the source it sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    pub machine: usize,
    pub from: SocketAddr,
}

impl Net {
    pub fn add_nat(
        &mut self,
        (inner, outer): (usize, usize),
        address: [u8; 4],
        (mapping, filtering): (Dependence, Dependence),
        hairpin: bool,
    ) {
        self.nats.push(Nat {
            inner,
            outer,
            address,
            mapping,
            filtering,
            hairpin,
            next_port: 20_000 + 1000 * self.nats.len() as u16,
            ports: HashMap::new(),
            inside: HashMap::new(),
            opened: HashMap::new(),
        });
    }

    /// Carries a datagram from a machine; returns where it arrives.
    pub fn carry(&mut self, machine: usize, to: SocketAddr) -> Option<Arrived> {
        let (network, from) = self.machines[machine];
        self.forward(network, from, to, 0)
    }

    /// The address of a machine as the internet sees it, if its NATs map all destinations alike.
    pub fn reflexive(&mut self, machine: usize, server: SocketAddr) -> SocketAddr {
        let (mut network, mut from) = self.machines[machine];
        while let Some(nat) = self.nats.iter_mut().find(|nat| nat.inner == network) {
            from = nat.translate(from, server);
            network = nat.outer;
        }
        from
    }

    fn forward(
        &mut self,
        network: usize,
        from: SocketAddr,
        to: SocketAddr,
        hops: usize,
    ) -> Option<Arrived> {
        if hops > 8 {
            return None;
        }
        let found = self.machines.iter().position(|it| *it == (network, to));
        if let Some(machine) = found {
            return Some(Arrived { machine, from });
        }
        // A router whose outer side is here.
        let is_here = |nat: &&mut Nat| nat.outer == network && to.ip() == nat.outer_ip();
        if let Some(nat) = self.nats.iter_mut().find(is_here) {
            let (inner, inside) = (nat.inner, nat.admit(from, to.port())?);
            return self.forward(inner, from, inside, hops + 1);
        }
        let nat = self.nats.iter_mut().find(|nat| nat.inner == network)?;
        let is_hairpin = to.ip() == nat.outer_ip();
        if is_hairpin && !nat.hairpin {
            return None;
        }
        let from = nat.translate(from, to);
        let outer = nat.outer;
        self.forward(outer, from, to, hops + 1)
    }
}

impl Nat {
    fn outer_ip(&self) -> std::net::IpAddr {
        self.address.into()
    }

    /// The outer source of a datagram from inside.
    fn translate(&mut self, from: SocketAddr, to: SocketAddr) -> SocketAddr {
        let key = (from, dependent(self.mapping, to));
        let next = &mut self.next_port;
        let port = *self.ports.entry(key).or_insert_with(|| {
            *next += 7;
            *next
        });
        self.inside.insert(port, from);
        self.opened.entry(port).or_default().push(to);
        (self.address, port).into()
    }

    /// The inner destination of a datagram from outside, if it may pass.
    fn admit(&self, from: SocketAddr, port: u16) -> Option<SocketAddr> {
        let inside = self.inside.get(&port)?;
        let key = |to: SocketAddr| dependent(self.filtering, to);
        let is_open = self.opened[&port].iter().any(|to| key(*to) == key(from));
        is_open.then_some(*inside)
    }

    /// Forgets all mappings, as after a restart.
    pub fn restart(&mut self) {
        self.ports.clear();
        self.inside.clear();
        self.opened.clear();
        self.next_port += 500;
    }
}

fn dependent(dependence: Dependence, to: SocketAddr) -> Option<SocketAddr> {
    match dependence {
        Dependence::None => None,
        Dependence::Address => Some((to.ip(), 0).into()),
        Dependence::Port => Some(to),
    }
}
