//! Watches the interface over rtnetlink: whether it is up, its MTU, the drops of its queue, and its
//! location when it moves to another network namespace.
//!
//! Nothing polls, and nothing keeps another network namespace alive: the kernel forwards the events
//! of every namespace that has an identifier in ours (`NETLINK_LISTEN_ALL_NSID`).

mod events;
mod place;

use std::{io, time::Duration};

use anyhow::Context;
use convoy_netlink::{Link, Netlink};
use convoy_tun::Device;
use convoy_tunnel::{ApplyError, Tunnel};
use nix::{libc::ino_t, sys::stat::stat};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{Span, error, info, warn};

use events::{Event, Events};
use place::{Located, locate};

/// Pause before trying again to bind a port that is in use.
const RETRY: Duration = Duration::from_secs(5);

/// Pause before trying again to watch the link.
const WATCH_RETRY: Duration = Duration::from_secs(10);

/// Time for collecting route changes before acting on them: they come in bursts.
const SETTLE: Duration = Duration::from_millis(50);

/// A snapshot of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LinkState {
    is_up: bool,
    /// In bytes.
    mtu: Option<u16>,
}

/// Returns the number of this process's network namespace. Call it before the process loses access to files.
pub(crate) fn own_namespace() -> Option<ino_t> {
    let file = stat("/proc/thread-self/ns/net");
    file.ok().map(|file| file.st_ino)
}

/// Passes every change of the link to the tunnel; returns when the interface is gone. This process is in `namespace`.
///
/// While the link cannot be watched, treats it as up and keeps trying; logs why.
pub(crate) async fn follow(device: &Device, tunnel: &Tunnel, namespace: Option<ino_t>) {
    let on_routes = || tunnel.routes_changed();
    let attempt = async || {
        let on_change = async |state: LinkState| {
            state.mtu.into_iter().for_each(|mtu| tunnel.set_mtu(mtu));
            set_link(tunnel, state.is_up).await
        };
        watch(device, namespace, on_change, on_routes).await
    };
    let on_failure = async || {
        assume_up(tunnel).await;
        // Those that changed before the next attempt are never told.
        on_routes();
    };
    persist(attempt, on_failure, WATCH_RETRY).await;
}

/// Repeats `attempt` until it succeeds, `on_failure` and a pause after each failure.
async fn persist(
    mut attempt: impl AsyncFnMut() -> anyhow::Result<()>,
    mut on_failure: impl AsyncFnMut(),
    pause: Duration,
) {
    let mut known = None;
    while let Err(error) = attempt().await {
        let reason = format!("{error:#}");
        if known.as_ref() != Some(&reason) {
            warn!("cannot watch the link, assuming that it is up: {reason}");
        }
        known = Some(reason);
        on_failure().await;
        sleep(pause).await;
    }
}

/// Tells the tunnel that the link is up.
pub(crate) async fn assume_up(tunnel: &Tunnel) {
    while !set_link(tunnel, true).await {
        sleep(RETRY).await;
    }
}

/// Returns the number of packets dropped by the kernel so far because the interface's transmit queue was full. `None`
/// if the interface is not, or no longer, in this network namespace. Blocks.
pub(crate) fn queue_drops(index: u32) -> Option<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .ok()?;
    runtime.block_on(async {
        let netlink = Netlink::open().ok()?;
        netlink.link_by_index(index).await.ok()??.dropped
    })
}

/// Returns whether the tunnel now follows the link.
async fn set_link(tunnel: &Tunnel, is_up: bool) -> bool {
    let (tunnel, span) = (tunnel.clone(), Span::current());
    // Blocks: it waits for the data path.
    let applied = tokio::task::spawn_blocking(move || span.in_scope(|| tunnel.set_link(is_up)));
    let applied = applied.await;
    match applied {
        Ok(Err(ApplyError::Closed) | Ok(())) | Err(_) => true,
        Ok(Err(refused)) => {
            error!("the link is up but the tunnel is not: {refused}");
            false
        }
    }
}

/// Calls `on_change` with the current state and on every change, and again after [`RETRY`] while it
/// returns false. Calls `on_routes` after routes or rules change.
async fn watch(
    device: &Device,
    namespace: Option<ino_t>,
    mut on_change: impl AsyncFnMut(LinkState) -> bool,
    on_routes: impl Fn(),
) -> anyhow::Result<()> {
    let mut events = Events::listen().context("cannot listen to rtnetlink")?;
    let netlink = Netlink::open().map_err(io::Error::from);
    let netlink = netlink.context("cannot query rtnetlink")?;
    let mut is_away = false;
    let mut known = None;
    let mut is_followed = true;
    let mut tell = async |state| {
        if known.replace(state) != Some(state) || !is_followed {
            is_followed = on_change(state).await;
        }
        is_followed
    };
    // Each round finds the interface, then follows it until it is gone from there.
    loop {
        let (place, link) = match locate(&netlink, device, namespace).await? {
            Located::At(place, link) => (place, link),
            Located::Gone => return Ok(()),
            Located::OutOfReach => {
                if !std::mem::replace(&mut is_away, true) {
                    warn!("the interface is in another network namespace: assuming that it is up");
                }
                let assumed = LinkState {
                    is_up: true,
                    mtu: None,
                };
                wait_for_return(&mut events, async || tell(assumed).await, &on_routes).await?;
                continue;
            }
        };
        is_away = false;
        let is_new = events
            .follow(place)
            .context("cannot listen to the interface's network namespace")?;
        if is_new {
            // The link may have changed before we listened.
            continue;
        }
        let mut state = LinkState::of(&link);
        let mut settled: Option<Instant> = None;
        let mut retry_at: Option<Instant> = None;
        loop {
            if retry_at.is_none_or(|at| at <= Instant::now()) {
                let is_followed = tell(state).await;
                retry_at = (!is_followed).then(|| Instant::now() + RETRY);
            }
            let event = tokio::select! {
                event = events.next(place) => event?,
                () = sleep_until(settled.unwrap_or_else(Instant::now)), if settled.is_some() => {
                    settled = None;
                    on_routes();
                    continue;
                }
                () = sleep_until(retry_at.unwrap_or_else(Instant::now)), if retry_at.is_some() => {
                    continue;
                }
            };
            match event {
                Event::Changed(link) => {
                    let changed = LinkState::of(&link);
                    if changed != state {
                        (state, retry_at) = (changed, None);
                    }
                }
                Event::Routes => settled = settled.or_else(|| Some(Instant::now() + SETTLE)),
                Event::Gone => {
                    info!("the interface has left its network namespace");
                    break;
                }
                Event::Lost => break,
            }
        }
    }
}

/// Returns when the interface may be back in this network namespace. Calls `tell` now, and again after [`RETRY`] while
/// it returns false; `on_routes` as in [`watch`].
async fn wait_for_return(
    events: &mut Events,
    mut tell: impl AsyncFnMut() -> bool,
    on_routes: impl Fn(),
) -> anyhow::Result<()> {
    let mut is_followed = tell().await;
    loop {
        let event = tokio::select! {
            event = events.next_here() => event?,
            () = sleep(RETRY), if !is_followed => {
                is_followed = tell().await;
                continue;
            }
        };
        match event {
            Event::Routes => on_routes(),
            _ => return Ok(()),
        }
    }
}

impl LinkState {
    fn of(link: &Link) -> Self {
        let mtu = Some(link.mtu).filter(|mtu| *mtu > 0);
        Self {
            is_up: link.is_up,
            mtu: mtu.map(|mtu| u16::try_from(mtu).unwrap_or(u16::MAX)),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_link_that_cannot_be_watched_is_tried_again() {
        let (mut attempts, mut failures) = (0, 0);
        let attempt = async || {
            attempts += 1;
            anyhow::ensure!(attempts > 2, "no buffer space available");
            Ok(())
        };
        let persisting = persist(attempt, async || failures += 1, Duration::ZERO);
        let ended = timeout(Duration::from_secs(20), persisting).await;
        ended.expect("it tries again");
        assert_eq!((attempts, failures), (3, 2));
    }

    #[test]
    fn flags_and_mtu_are_read_from_a_message() {
        let mut link = Link::default();
        let (is_up, mtu) = (false, None);
        assert_eq!(LinkState::of(&link), LinkState { is_up, mtu });
        (link.is_up, link.mtu) = (true, 1420);
        let (is_up, mtu) = (true, Some(1420));
        assert_eq!(LinkState::of(&link), LinkState { is_up, mtu });
    }

    #[test]
    fn an_mtu_beyond_the_limit_of_ip_is_capped() {
        let link = Link {
            mtu: 70_000,
            ..Link::default()
        };
        assert_eq!(LinkState::of(&link).mtu, Some(u16::MAX));
    }
}
