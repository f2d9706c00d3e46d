use std::collections::HashMap as Map;

use proptest::prelude::*;

use super::*;

fn holder(group: u32, member: u8) -> Holder {
    Holder::new(group, [10, 0, 0, member].into())
}

struct Table {
    all: Occupants,
    most: usize,
    held: Vec<(Holder, Arc<Expiry>, Occupant)>,
}

impl Table {
    fn new(most: usize) -> Self {
        Self {
            all: Occupants::default(),
            most,
            held: Vec::new(),
        }
    }

    /// Admits a flow and removes those that were replaced; returns their holders.
    fn admit(&mut self, holder: Holder) -> Vec<Holder> {
        let flow = Arc::new(Expiry::of_datagrams());
        let place = self.all.admit(holder, &flow, self.most).unwrap();
        let gone = self.held.iter().filter(|(_, flow, _)| flow.is_replaced());
        let gone = gone.map(|(holder, ..)| *holder).collect();
        self.held.retain(|(_, flow, _)| !flow.is_replaced());
        self.held.push((holder, flow, place));
        gone
    }

    fn count(&self, of: impl Fn(&Holder) -> bool) -> usize {
        self.held.iter().filter(|(holder, ..)| of(holder)).count()
    }
}

#[test]
fn whoever_holds_most_gives_way_and_its_oldest_first() {
    let mut table = Table::new(10);
    for _ in 0..9 {
        assert_eq!(table.admit(holder(0, 1)), []);
    }
    assert_eq!(table.admit(holder(0, 2)), []);
    let oldest = Arc::clone(&table.held[0].1);
    assert_eq!(table.admit(holder(0, 3)), [holder(0, 1)]);
    assert!(oldest.is_replaced());
    // Whoever holds most replaces its own.
    assert_eq!(table.admit(holder(0, 1)), [holder(0, 1)]);
    // Another group has room as long as it holds less, however its members share that.
    for member in 1..=5 {
        assert_eq!(table.admit(holder(1, member))[0].group, 0);
    }
    assert_eq!(table.admit(holder(1, 6))[0].group, 1);
    assert_eq!(table.count(|it| it.group == 0), 5);
    assert_eq!(table.count(|it| *it == holder(0, 2)), 1);
}

#[test]
fn a_network_of_ipv6_is_one_holder() {
    let [one, two] = ["2001:db8::1", "2001:db8::ffff:0:0:1"].map(|it| it.parse().unwrap());
    assert_eq!(Holder::new(1, one), Holder::new(1, two));
    let other = "2001:db8:0:1::1".parse().unwrap();
    assert_ne!(Holder::new(1, one), Holder::new(1, other));
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_is_in_use_outlasts_newer_ones_that_are_not() {
    let mut table = Table::new(10);
    for _ in 0..10 {
        table.admit(holder(0, 1));
    }
    let call = Arc::clone(&table.held[0].1);
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    call.question();
    for _ in 0..100 {
        tokio::time::advance(std::time::Duration::from_millis(20)).await;
        call.question();
        table.admit(holder(0, 1));
    }
    assert!(!call.is_replaced());
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_outlasted_others_gives_its_place_back_when_it_ends() {
    let mut table = Table::new(2);
    table.admit(holder(0, 1));
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    table.held[0].1.question();
    table.admit(holder(0, 1));
    table.admit(holder(0, 1));
    assert!(!table.held[0].1.is_replaced());
    table.held.remove(0);
    assert_eq!(table.all.count(), table.held.len());
}

#[test]
fn no_room_is_no_room() {
    let flow = Arc::new(Expiry::of_datagrams());
    assert!(Occupants::default().admit(holder(0, 1), &flow, 0).is_none());
}

proptest! {
    #[test]
    fn counts_hold_and_nobody_loses_to_one_that_holds_as_much(
        events in prop::collection::vec((0..3_u32, 0..4_u8, 0..4_u8), 0..200),
    ) {
        let mut table = Table::new(12);
        for (group, member, action) in events {
            if action == 0 && !table.held.is_empty() {
                let index = usize::from(member) * 3 % table.held.len();
                table.held.swap_remove(index);
            } else {
                let before = table.count(|it| it.group == group);
                let counts: Map<u32, usize> =
                    (0..3).map(|it| (it, table.count(|holder| holder.group == it))).collect();
                for gone in table.admit(holder(group, member)) {
                    prop_assert!(gone.group == group || counts[&gone.group] > before);
                    prop_assert!(counts.values().all(|it| *it <= counts[&gone.group].max(before)));
                }
            }
            prop_assert_eq!(table.all.count(), table.held.len());
            prop_assert!(table.held.len() <= 12);
        }
        table.held.clear();
        let state = table.all.state();
        prop_assert!(state.groups.is_empty() && state.by_count.is_empty() && state.count == 0);
    }
}
