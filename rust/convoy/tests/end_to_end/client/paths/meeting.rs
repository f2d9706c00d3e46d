//! Waiting until two friends have a direct path.

use std::{thread, time::Instant};

use convoy_lab::eventually;

use super::{
    friend::Friend,
    numbers::{Numbers, Tallies},
};
use crate::scene::DEADLINE;

/// Waits until the friends have a direct path, to addresses of these kinds, at the first and at the second, while the
/// first sends numbers to the second. Prints how long it took from the first packet on.
pub(crate) fn meet([a, b]: [&Friend; 2], kinds: [&str; 2]) -> Tallies {
    // What the hub gets before it knows both, it has nowhere to send.
    [a, b].into_iter().for_each(Friend::reaches_hub);
    let numbers = Numbers::start(a, b);
    let begun = Instant::now();
    let are_direct = || (a.path(b).is_ok() && b.path(a).is_ok()).then(|| begun.elapsed());
    let took = eventually(2 * DEADLINE, are_direct);
    let took = took.unwrap_or_else(|| panic!("{:?} {:?}", a.path(b), b.path(a)));
    // The best path may answer after the first.
    let are_there = || {
        let found = [a.path(b), b.path(a)].map(|path| path.map(|(kind, _)| kind));
        let wanted = kinds.map(|kind| Ok(kind.to_owned()));
        (found == wanted).then_some(())
    };
    let found = eventually(DEADLINE, are_there);
    assert!(found.is_some(), "{:?} {:?}", a.path(b), b.path(a));
    let current = thread::current();
    let test = current.name().unwrap_or_default();
    let test = test.rsplit("::").next().unwrap_or_default();
    numbers.end(&format!("{test}: met after {} ms", took.as_millis()))
}
