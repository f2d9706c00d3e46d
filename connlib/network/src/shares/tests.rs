use std::{
    sync::{
        Barrier,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;

const LIMITS: Limits = Limits {
    total: 100,
    peer: 60,
    peers: 5,
};

#[test]
fn a_peer_gets_its_reserve_and_what_is_common_until_it_has_all_that_one_may_have() {
    let shares = Shares::new(LIMITS);
    assert_eq!(shares.free(1), 60);
    let (greedy, refusal) = take_all(&shares, 1);
    assert_eq!((greedy.len(), refusal), (60, Refusal::TooManyOfPeer));
    assert_eq!(shares.free(1), 0);
    // The reserve is 10 for each, and 50 are common.
    for peer in 2..=5 {
        assert_eq!(shares.free(peer), 10);
        let (held, refusal) = take_all(&shares, peer);
        assert_eq!((held.len(), refusal), (10, Refusal::TooMany));
        drop(held);
    }
}

#[test]
fn a_dropped_share_is_given_back_to_whoever_may_have_it() {
    let shares = Shares::new(LIMITS);
    let (mut greedy, _) = take_all(&shares, 1);
    let (modest, _) = take_all(&shares, 2);
    greedy.pop();
    let common = shares.take(2).unwrap();
    assert_eq!(shares.take(1).unwrap_err(), Refusal::TooMany);
    drop(common);
    greedy.push(shares.take(1).unwrap());
    assert_eq!(shares.taken(), 70);
    drop((greedy, modest));
    assert_eq!(shares.taken(), 0);
    assert!(shares.state().by_peer.is_empty());
}

#[test]
fn without_peers_everything_is_common_and_with_too_many_nothing_is_reserved() {
    for peers in [0, 51, u32::MAX] {
        let shares = Shares::new(Limits {
            peer: 100,
            peers,
            ..LIMITS
        });
        let (held, _) = take_all(&shares, 1);
        assert_eq!(held.len(), 100);
        assert_eq!(shares.take(2).unwrap_err(), Refusal::TooMany);
    }
}

#[test]
fn a_peer_that_joins_gets_its_reserve_as_soon_as_others_have_given_back_theirs() {
    let shares = Shares::new(Limits {
        peer: 100,
        peers: 1,
        ..LIMITS
    });
    let (mut held, _) = take_all(&shares, 1);
    assert_eq!(held.len(), 100);
    shares.set_peers(2);
    assert_eq!(shares.take(2).unwrap_err(), Refusal::TooMany);
    held.truncate(75);
    assert_eq!(shares.take(1).unwrap_err(), Refusal::TooMany);
    assert_eq!(take_all(&shares, 2).0.len(), 25);
}

#[test]
fn threads_that_take_all_they_can_get_never_touch_a_reserve_or_exceed_the_total() {
    let shares = Shares::new(LIMITS);
    let begin = Barrier::new(5);
    let alive = AtomicU32::new(0);
    let most = AtomicU32::new(0);
    let take = |peer| {
        let share = shares.take(peer)?;
        let now = alive.fetch_add(1, Ordering::SeqCst) + 1;
        most.fetch_max(now, Ordering::SeqCst);
        Ok(share)
    };
    let give_back = |held: Vec<Share>| {
        alive.fetch_sub(held.len() as u32, Ordering::SeqCst);
        drop(held);
    };
    thread::scope(|scope| {
        for peer in 1..=4 {
            let (begin, take, give_back) = (&begin, &take, &give_back);
            scope.spawn(move || {
                begin.wait();
                for round in 0..2_000 {
                    let all = std::iter::from_fn(|| take(peer).ok());
                    // Not always as many, so that threads do not keep step.
                    let held: Vec<_> = all.take(20 + round % 50).collect();
                    assert!(held.len() >= 10, "{}", held.len());
                    give_back(held);
                }
            });
        }
        begin.wait();
        for _ in 0..2_000 {
            let held: Result<Vec<_>, Refusal> = (0..10).map(|_| take(5)).collect();
            give_back(held.unwrap());
        }
    });
    assert_eq!(shares.taken(), 0);
    assert!(most.into_inner() <= LIMITS.total);
}

#[derive(Clone, Debug)]
enum Step {
    Take(u32),
    GiveBack(Index),
    SetPeers(u32),
}

proptest! {
    /// The model lists the peer of each share, and counts them each time.
    #[test]
    fn every_answer_follows_from_what_is_held(
        total in 0..40_u32,
        peer in 0..30_u32,
        peers in 0..6_u32,
        steps in vec(any_step(), 1..200),
    ) {
        let mut limits = Limits { total, peer, peers };
        let shares = Shares::new(limits);
        let mut held: Vec<(u32, Share)> = Vec::new();
        for step in steps {
            match step {
                Step::Take(peer) => {
                    let holders: Vec<u32> = held.iter().map(|(peer, _)| *peer).collect();
                    let answer = shares.take(peer);
                    let expected = expected(&holders, peer, limits);
                    prop_assert_eq!(answer.as_ref().err(), expected.as_ref().err());
                    held.extend(answer.ok().map(|share| (peer, share)));
                }
                Step::GiveBack(index) if !held.is_empty() => {
                    drop(held.swap_remove(index.index(held.len())));
                }
                Step::GiveBack(_) => {}
                Step::SetPeers(peers) => {
                    limits.peers = peers;
                    shares.set_peers(peers);
                }
            }
            prop_assert_eq!(shares.taken() as usize, held.len());
            prop_assert!(shares.taken() <= limits.total);
        }
    }

    #[test]
    fn whatever_others_hold_every_peer_gets_its_reserve(
        total in 0..200_u32,
        peer in 0..100_u32,
        peers in 1..6_u32,
        steps in vec(any_step(), 1..400),
    ) {
        let shares = Shares::new(Limits { total, peer, peers });
        let mut held: Vec<(u32, Share)> = Vec::new();
        for step in steps {
            match step {
                Step::Take(peer) => held.extend(shares.take(peer % peers).ok().map(|it| (peer % peers, it))),
                Step::GiveBack(index) if !held.is_empty() => drop(held.swap_remove(index.index(held.len()))),
                _ => {}
            }
        }
        let reserve = (total / 2 / peers).min(peer);
        // All at once.
        for peer in 0..peers {
            while held.iter().filter(|(it, _)| *it == peer).count() < reserve as usize {
                held.push((peer, shares.take(peer).unwrap()));
            }
        }
    }
}

/// Decides as the documentation of [`Limits`] says.
fn expected(holders: &[u32], peer: u32, limits: Limits) -> Result<(), Refusal> {
    let held_by = |peer: u32| holders.iter().filter(|it| **it == peer).count() as u32;
    let reserve = match limits.peers {
        0 => 0,
        peers => (limits.total / 2 / peers).min(limits.peer),
    };
    let mut peers = holders.to_vec();
    peers.sort_unstable();
    peers.dedup();
    let beyond = peers.iter().map(|it| held_by(*it).saturating_sub(reserve));
    let is_common_left = beyond.sum::<u32>() < limits.total - reserve * limits.peers;
    match held_by(peer) {
        held if held >= limits.peer => Err(Refusal::TooManyOfPeer),
        _ if holders.len() as u32 >= limits.total => Err(Refusal::TooMany),
        held if held >= reserve && !is_common_left => Err(Refusal::TooMany),
        _ => Ok(()),
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..6_u32).prop_map(Step::Take),
        3 => any::<Index>().prop_map(Step::GiveBack),
        1 => (0..6_u32).prop_map(Step::SetPeers),
    ]
}

fn take_all(shares: &Shares, peer: u32) -> (Vec<Share>, Refusal) {
    let mut held = Vec::new();
    loop {
        match shares.take(peer) {
            Ok(share) => held.push(share),
            Err(refusal) => return (held, refusal),
        }
    }
}
