//! Restores removed changes and follows the host.

use std::{future::pending, net::IpAddr};

use convoy_netlink::MAIN_TABLE;
use tokio::time::{Duration, Instant, sleep_until};

use crate::{
    change::What,
    dns::Resolving,
    error::HostError,
    event::Event,
    host::Host,
    missing::Missing,
    pause::Pause,
    route::{Course, Way, way},
    sources::{Interest, News},
};

/// Time for collecting news before acting on them: they come in bursts.
const SETTLE: Duration = Duration::from_millis(50);

/// The same for news of nftables: a kill switch may be open.
const FIREWALL_SETTLE: Duration = Duration::from_millis(2);

/// Addresses that only a default route leads to (RFC 5737, RFC 3849).
const ANYWHERE: [&str; 2] = ["192.0.2.1", "2001:db8::1"];

impl Host {
    /// Waits for the next event, and restores changes that others remove. Call it in a loop after [`Host::apply`].
    /// It may be cancelled; the next call then starts its work over.
    ///
    /// # Errors
    /// If something cannot be restored. It tries again after news or, at the latest, a minute; with a kill switch, a
    /// second.
    pub async fn watch(&mut self) -> Result<Event, HostError> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            let due = self.due;
            tokio::select! {
                news = self.sources.next() => match news {
                    News::Gone => return Ok(Event::Gone),
                    News::Moved => return Ok(Event::Moved),
                    News::ResolverStarted => {
                        self.effects.resolver_restarted();
                        self.wake_at(Some(Instant::now() + SETTLE));
                    }
                    News::Firewall => self.wake_at(Some(Instant::now() + FIREWALL_SETTLE)),
                    News::Ours | News::Underlay => self.wake_at(Some(Instant::now() + SETTLE)),
                },
                () = until(due) => self.look().await?,
                () = over(self.pause.as_ref()) => self.look().await?,
            }
        }
    }

    /// Finishes what is due, if anything is. A caller that cancels [`Host::watch`] for something else calls it before
    /// the next call: else whoever keeps the caller busy would keep a kill switch open.
    ///
    /// # Errors
    /// As [`Host::watch`].
    pub async fn catch_up(&mut self) -> Result<(), HostError> {
        let is_due = self.due.is_some_and(|due| due <= Instant::now());
        match is_due || self.pause.as_ref().is_some_and(Pause::is_over) {
            true => self.look().await,
            false => Ok(()),
        }
    }

    /// Makes `watch` look again at `at`, or earlier.
    pub(crate) fn wake_at(&mut self, at: Option<Instant>) {
        self.due = self.due.into_iter().chain(at).min();
    }

    /// Listens to news that concern this plan.
    pub(crate) async fn subscribe(&mut self, plan: &[What]) {
        let tables = plan.iter().filter_map(|what| match what {
            What::Route(route) if route.table != MAIN_TABLE => Some(route.table),
            _ => None,
        });
        let nftables = plan.iter().find_map(|what| match what {
            What::Firewall(ruleset) => Some(ruleset.table.clone()),
            _ => None,
        });
        self.sources.watch_nftables(nftables.is_some());
        self.sources.interest = Interest {
            index: self.facts.as_ref().map_or(0, |facts| facts.link.index),
            tables: tables.collect(),
            nftables,
        };
        let resolving = plan.iter().find_map(|what| match what {
            What::Dns(resolving) => Some(resolving),
            _ => None,
        });
        let path = match resolving {
            Some(Resolving::File { path, .. }) => Some(path.as_path()),
            _ => None,
        };
        self.sources.watch_file(path);
        let owners = match resolving {
            Some(Resolving::Resolved { .. }) => self.effects.bus.owners().await,
            _ => None,
        };
        self.sources.watch_resolver(owners);
        self.look_at_ways().await;
        // Catches changes made before the sources were open.
        self.wake_at(Some(Instant::now() + SETTLE));
    }

    /// Compares the host with the plan after news.
    async fn look(&mut self) -> Result<(), HostError> {
        // Stays due until this is complete, in case it is cancelled.
        self.later = None;
        let looked = self.follow().await;
        if looked.is_err() {
            self.later = self.time_after_failure();
        }
        self.due = self.later;
        looked
    }

    /// Returns when to try again.
    pub(crate) fn time_after_failure(&mut self) -> Option<Instant> {
        let desired = self.desired.as_ref();
        let has_kill_switch = desired.is_some_and(|it| it.kill_switch.is_some());
        self.backoffs.failed(has_kill_switch, Instant::now())
    }

    async fn follow(&mut self) -> Result<(), HostError> {
        if self.pause.as_ref().is_some_and(Pause::is_over) {
            self.pause = None;
            self.events.push_back(Event::Resumed);
        }
        let plan = match self.plan().await {
            Ok(plan) => plan,
            // News of its end follows, or has arrived, or it has another name.
            Err(HostError::NoInterface(_)) => {
                self.look_at_name().await?;
                let restored = self.restore_kill_switch().await?;
                self.note_restored(restored.into_iter().collect());
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.renamed = None;
        let restored = self.reconcile(&plan, Missing::RestoreAfterPause).await?;
        if self.is_behind {
            self.subscribe(&plan).await;
            self.is_behind = false;
            // As `subscribe` wants: `look` sets when it is due.
            self.later = self
                .later
                .into_iter()
                .chain([Instant::now() + SETTLE])
                .min();
            tracing::info!(
                interface = self.interface,
                "The host is as it should be now"
            );
        }
        self.note_restored(restored);
        let new = self.facts.as_ref().map(|facts| facts.mtu);
        if let Some(new) = new.filter(|_| new != self.told_mtu) {
            self.told_mtu = Some(new);
            tracing::info!(
                interface = self.interface,
                mtu = new,
                "MTU follows the route"
            );
            self.events.push_back(Event::MtuChanged(new));
        }
        self.tell_warnings();
        self.look_at_ways().await;
        if let Some(addresses) = self.other_addresses().await? {
            self.events.push_back(Event::OwnAddresses(addresses));
        }
        Ok(())
    }

    /// Warns if the interface has another name: all changes are made by its own.
    async fn look_at_name(&mut self) -> Result<(), HostError> {
        let index = self.facts.as_ref().map_or(0, |facts| facts.link.index);
        let link = self.effects.netlink.link_by_index(index).await;
        let link = link.map_err(HostError::kernel("look up", &self.interface))?;
        let (own, name) = (&self.interface, link.map(|link| link.name));
        self.renamed = name.filter(|name| name != own).map(|name| {
            format!(
                "the interface {own} is named {name} now: routes, addresses and rules that others remove stay away \
                 (fix: ip link set {name} name {own})"
            )
        });
        self.tell_warnings();
        Ok(())
    }

    fn tell_warnings(&mut self) {
        let warnings = self.all_warnings();
        if warnings == self.told_warnings {
            return;
        }
        if let Some(warning) = self
            .renamed
            .as_ref()
            .filter(|it| !self.told_warnings.contains(it))
        {
            tracing::warn!(interface = self.interface, "{warning}");
        }
        self.told_warnings.clone_from(&warnings);
        self.events.push_back(Event::Warnings(warnings));
    }

    fn note_restored(&mut self, restored: Vec<What>) {
        if restored.is_empty() {
            return;
        }
        self.backoffs.restored(&restored, Instant::now());
        if restored.iter().any(What::is_kill_switch) {
            self.events.push_back(Event::KillSwitchRestored);
        }
        let restored: Vec<_> = restored.iter().map(What::to_string).collect();
        tracing::warn!(
            interface = self.interface,
            "Another program removed or changed: {}; restored",
            restored.join(", ")
        );
        self.events.push_back(Event::Restored(restored));
    }

    /// Reports if datagrams leave by another way than at the last look, whoever looks: news that are acted on before
    /// anybody has looked say nothing later. Endpoints or a mark that are new have had no way before.
    async fn look_at_ways(&mut self) {
        let ways = self.ways_out().await;
        let has_changed = |(course, way): &(Course, Option<Way>)| {
            let before = self.ways.iter().find(|(former, _)| former == course);
            before.is_some_and(|(_, before)| before != way)
        };
        if ways.iter().any(has_changed) {
            self.events.push_back(Event::UnderlayChanged);
        }
        self.ways = ways;
    }

    /// Looks up how datagrams to each endpoint leave.
    async fn ways_out(&self) -> Vec<(Course, Option<Way>)> {
        let Some(desired) = &self.desired else {
            return Vec::new();
        };
        let mark = desired.fwmark.unwrap_or(0);
        let anywhere = ANYWHERE.iter().filter_map(|address| address.parse().ok());
        let all: Vec<IpAddr> = anywhere.chain(desired.endpoints.iter().copied()).collect();
        let mut ways = Vec::new();
        for to in all {
            let way = way(&self.effects.netlink, to, mark).await;
            ways.push((Course { to, mark }, way));
        }
        ways
    }
}

async fn over(pause: Option<&Pause>) {
    match pause {
        Some(pause) => pause.over().await,
        None => pending().await,
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}
