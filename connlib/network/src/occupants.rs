//! Flows of datagrams by holder: where there is no room for another one, the holder of most gives one up.
//!
//! Holders are members of groups: clients of a rule, or inner addresses of a peer. The group that holds most gives way,
//! and in it the member that holds most, so that neither a client nor a rule can take what others use. Whoever asks
//! gives way itself if it holds as many as any other.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{expiry::Expiry, shares::Share};

/// How many of a holder's flows are spared because they were used since their last turn. It bounds the time for one.
const CHANCES: u64 = 8;
/// Milliseconds after its last turn in which a use does not count: a flow's first datagrams are none.
const SLACK: u64 = 100;

/// The holder of a flow or connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The rule or peer.
    pub group: u32,
    member: Member,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Member {
    Peer(u32),
    /// An address of IPv4, or a network of 64 bits of IPv6.
    Network(IpAddr),
}

impl Holder {
    /// A member by its address; of IPv6, its network of 64 bits.
    pub fn new(group: u32, address: IpAddr) -> Self {
        let member = match address {
            IpAddr::V6(it) => Ipv6Addr::from_bits(it.to_bits() >> 64 << 64).into(),
            IpAddr::V4(_) => address,
        };
        let member = Member::Network(member);
        Self { group, member }
    }

    /// A member by its number among the tunnel's peers, whatever its addresses.
    pub fn of_peer(group: u32, peer: u32) -> Self {
        let member = Member::Peer(peer);
        Self { group, member }
    }
}

/// The flows of all holders. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Occupants(Arc<Mutex<State>>);

/// A flow's place, which is given back when this is dropped.
#[derive(Debug)]
pub struct Occupant {
    all: Occupants,
    holder: Holder,
    serial: Arc<AtomicU64>,
}

/// Maps of std, as others choose their keys.
#[derive(Debug, Default)]
struct State {
    groups: HashMap<u32, Group>,
    by_count: BTreeSet<(usize, u32)>,
    count: usize,
    serial: u64,
}

#[derive(Debug, Default)]
struct Group {
    count: usize,
    members: HashMap<Member, BTreeMap<u64, Entry>>,
    /// How many each member holds, and since when its oldest one; the last gives way.
    by_count: BTreeSet<(usize, Reverse<u64>, Member)>,
}

#[derive(Debug)]
struct Entry {
    flow: Arc<Expiry>,
    /// Its number among the holder's flows, which changes when it is spared.
    serial: Arc<AtomicU64>,
    /// When it was used before its last turn.
    seen: u64,
    /// Given back with the place.
    _share: Option<Share>,
}

impl Occupants {
    /// Adds a flow.
    pub fn add(&self, holder: Holder, flow: &Arc<Expiry>, share: Option<Share>) -> Occupant {
        let serial = Arc::default();
        let entry = Entry {
            flow: Arc::clone(flow),
            serial: Arc::clone(&serial),
            seen: flow.last(),
            _share: share,
        };
        self.state().add(holder, entry);
        let all = self.clone();
        Occupant {
            all,
            holder,
            serial,
        }
    }

    /// Adds a flow where there are `most` places; another one gives way if they are taken. `None` without any.
    pub fn admit(&self, holder: Holder, flow: &Arc<Expiry>, most: usize) -> Option<Occupant> {
        while self.count() >= most {
            let group = self.fullest(holder.group);
            if !self.make_room(holder, group) {
                return None;
            }
        }
        Some(self.add(holder, flow, None))
    }

    /// The group that holds most; the given one if none holds more.
    pub fn fullest(&self, group: u32) -> u32 {
        let state = self.state();
        let own = state.groups.get(&group).map_or(0, |it| it.count);
        let fullest = state.by_count.last().filter(|(count, _)| *count > own);
        fullest.map_or(group, |(_, fullest)| *fullest)
    }

    /// Ends a flow of a group so that a holder can have another one; whether there was any.
    pub fn make_room(&self, holder: Holder, group: u32) -> bool {
        let removed = self.state().pop(holder, group);
        // Whatever the entry gives back has a lock of its own.
        removed.inspect(|it| it.flow.replace()).is_some()
    }

    /// Returns the number of a group's flows.
    pub fn held(&self, group: u32) -> usize {
        let state = self.state();
        state.groups.get(&group).map_or(0, |it| it.count)
    }

    /// Returns the number of all flows.
    pub fn count(&self) -> usize {
        self.state().count
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn move_to(self, serial: u64, flows: &mut BTreeMap<u64, Self>) {
        self.serial.store(serial, Ordering::Relaxed);
        flows.insert(serial, self);
    }
}

impl Drop for Occupant {
    fn drop(&mut self) {
        let mut state = self.all.state();
        let removed = state.remove(self.holder, self.serial.load(Ordering::Relaxed));
        drop(state);
        drop(removed);
    }
}

impl State {
    fn add(&mut self, holder: Holder, entry: Entry) {
        self.serial += 1;
        let serial = self.serial;
        self.change(holder, |flows| entry.move_to(serial, flows));
    }

    fn remove(&mut self, holder: Holder, serial: u64) -> Option<Entry> {
        self.change(holder, |flows| flows.remove(&serial))
    }

    /// Removes the flow of a group that gives way to another one.
    fn pop(&mut self, holder: Holder, group: u32) -> Option<Entry> {
        let found = self.groups.get(&group)?;
        let &(most, _, fullest) = found.by_count.last()?;
        let own = found.members.get(&holder.member).map_or(0, BTreeMap::len);
        let is_own = group == holder.group && own == most;
        let member = if is_own { holder.member } else { fullest };
        let serial = self.oldest(Holder { group, member })?;
        self.remove(Holder { group, member }, serial)
    }

    /// The flow of a holder that was not used for longest, about.
    fn oldest(&mut self, holder: Holder) -> Option<u64> {
        let serial = self.serial;
        let oldest = self.change(holder, |flows| {
            for chance in 1..=CHANCES {
                let first = flows.first_entry()?;
                if first.get().flow.last() <= first.get().seen + SLACK {
                    break;
                }
                let mut used = first.remove();
                used.seen = used.flow.last();
                used.move_to(serial + chance, flows);
            }
            flows.first_key_value().map(|(serial, _)| *serial)
        });
        self.serial += CHANCES;
        oldest
    }

    /// Changes a holder's flows, and all counts accordingly.
    fn change<T>(
        &mut self,
        holder: Holder,
        with: impl FnOnce(&mut BTreeMap<u64, Entry>) -> T,
    ) -> T {
        let group = self.groups.entry(holder.group).or_default();
        self.by_count.remove(&(group.count, holder.group));
        self.count -= group.count;
        let flows = group.members.entry(holder.member).or_default();
        let rank = |flows: &BTreeMap<u64, Entry>| {
            let oldest = flows.first_key_value().map(|(serial, _)| *serial);
            (flows.len(), Reverse(oldest.unwrap_or(0)), holder.member)
        };
        group.by_count.remove(&rank(flows));
        group.count -= flows.len();
        let outcome = with(flows);
        group.count += flows.len();
        self.count += group.count;
        match flows.is_empty() {
            true => drop(group.members.remove(&holder.member)),
            false => drop(group.by_count.insert(rank(flows))),
        }
        match group.count {
            0 => drop(self.groups.remove(&holder.group)),
            count => drop(self.by_count.insert((count, holder.group))),
        }
        outcome
    }
}

#[cfg(test)]
mod tests;
