//! Divides the connections of a rule among its clients, whose number nobody knows.

use std::{
    collections::{HashMap, hash_map::Entry},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use convoy_network::occupants::Holder;

/// A peer, an address of IPv4 or a network of 64 bits of IPv6 may have this many times as many connections as are free,
/// so that there is room for another client (dynamic thresholds of Choudhury and Hahne, 1998). Within it, an address may
/// have this many times as many as it could still have. So one client alone gets 64 of 81, and one of many fewer.
const FACTOR: u32 = 8;

/// Connections of all clients. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Clients(Arc<Mutex<Held>>);

/// How many connections a holder has, and each of its addresses.
type Held = HashMap<(Holder, Option<IpAddr>), u32>;

/// A client's connection, which is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    clients: Clients,
    holder: Holder,
    address: IpAddr,
}

impl Clients {
    /// Adds a connection of a client, unless it already has too many beside those that are `free`.
    pub(super) fn admit(&self, holder: Holder, address: IpAddr, free: u32) -> Option<Place> {
        let mut held = self.held();
        let count = |address| held.get(&(holder, address)).copied().unwrap_or(0);
        let (of_holder, of_address) = (count(None), count(Some(address)));
        let left = free.saturating_mul(FACTOR).saturating_sub(of_holder);
        // Each connection takes one of those that are free, too.
        let left = left.div_ceil(FACTOR + 1);
        if of_address >= left.saturating_mul(FACTOR) {
            return None;
        }
        held.insert((holder, None), of_holder + 1);
        held.insert((holder, Some(address)), of_address + 1);
        Some(Place {
            clients: self.clone(),
            holder,
            address,
        })
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = self.clients.held();
        for address in [None, Some(self.address)] {
            if let Entry::Occupied(mut entry) = held.entry((self.holder, address)) {
                match *entry.get() {
                    1 => drop(entry.remove()),
                    count => *entry.get_mut() = count - 1,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTAL: u32 = 900;

    /// Takes all places that an address gets, of those that are free.
    fn take_all(clients: &Clients, taken: &mut Vec<Place>, holder: Holder, address: IpAddr) -> u32 {
        let before = taken.len();
        while let Some(place) = clients.admit(holder, address, TOTAL - taken.len() as u32) {
            taken.push(place);
        }
        (taken.len() - before) as u32
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn no_client_takes_everything_and_each_gets_less_than_those_before() {
        let clients = Clients::default();
        let mut taken = Vec::new();
        let mut last = TOTAL;
        for number in 1..20 {
            let address = IpAddr::from([192, 0, 2, number]);
            let got = take_all(&clients, &mut taken, Holder::new(0, address), address);
            assert!(
                got > 0 && got < last || got == 1,
                "{number}: {got} after {last}"
            );
            last = got;
            if TOTAL - taken.len() as u32 <= 2 {
                break;
            }
        }
        taken.clear();
        assert!(clients.held().is_empty());
    }

    #[test]
    fn addresses_of_one_network_and_of_one_peer_leave_some_to_each_other_and_to_others() {
        for [holder, other] in [
            ["2001:db8::1", "2001:db8:0:1::1"].map(|it| Holder::new(0, ip(it))),
            [0, 1].map(|peer| Holder::of_peer(0, peer)),
        ] {
            let clients = Clients::default();
            let mut taken = Vec::new();
            for address in ["2001:db8::1", "2001:db8::2", "2001:db8::3"] {
                assert!(take_all(&clients, &mut taken, holder, ip(address)) > 0);
            }
            for number in 10..200_u16 {
                let address = ip(&format!("2001:db8::{number:x}"));
                take_all(&clients, &mut taken, holder, address);
            }
            assert!(taken.len() as u32 <= TOTAL * 8 / 9 + 1, "{}", taken.len());
            assert!(take_all(&clients, &mut taken, other, ip("2001:db8:0:1::1")) > 50);
        }
    }
}
