//! The public operations.

use std::{
    collections::{HashSet, VecDeque},
    net::IpAddr,
    ops::RangeInclusive,
    sync::Arc,
};

use convoy_netlink::{Netlink, NetlinkError};
use tokio::time::{Duration, Instant};

use crate::{
    backoff::Backoffs,
    change::What,
    desired::{Desired, check_name},
    dns::{Backend, Bus, Resolving},
    effects::{Effects, Others},
    error::HostError,
    event::Event,
    facts::Facts,
    firewall::{Nft, Ruleset},
    journal::{Entry, Journal},
    missing::Missing,
    options::Options,
    pause::Pause,
    plan::plan,
    programs::Programs,
    route::{Course, Via, Way, is_empty_table},
    sources::Sources,
};

/// The first mark and table that wg-quick(8) tries.
const FIRST_MARK: u32 = 51820;

/// The tables `default`, `main` and `local` (ip-route(8)).
const SYSTEM_TABLES: RangeInclusive<u32> = 253..=255;

/// A warning about domains that cannot be told apart.
const ALL_NAMES: &str = "DNS has domains with `~`, but this host does not look names up by systemd-resolved, which alone \
     can tell domains apart: the tunnel's name servers are asked for all names";

/// One interface's changes to the host.
///
/// Its futures must run on one tokio runtime, in the thread that opened it. They may be dropped at any point:
/// the journal lists every change that was begun, and the next call completes it.
#[derive(Debug)]
pub struct Host {
    pub(crate) interface: String,
    pub(crate) options: Options,
    pub(crate) effects: Effects,
    pub(crate) journal: Journal,
    /// Opened with the first record.
    pub(crate) lasting: Option<Journal>,
    /// The changes in the journals, oldest first.
    pub(crate) made: Vec<Entry>,
    pub(crate) last_id: u64,
    pub(crate) desired: Option<Desired>,
    /// Whether the host does not match it yet, as the last [`Host::apply`] has failed.
    pub(crate) is_behind: bool,
    backend: Option<Backend>,
    /// Optional changes that failed on this host.
    pub(crate) skipped: Vec<What>,
    pub(crate) warnings: Vec<String>,
    pub(crate) is_link_down: bool,
    pub(crate) pause: Option<Pause>,
    pub(crate) backoffs: Backoffs,
    /// Time at which `watch` must check again.
    pub(crate) due: Option<Instant>,
    /// The next such time, during the check.
    pub(crate) later: Option<Instant>,
    pub(crate) sources: Sources,
    pub(crate) events: VecDeque<Event>,
    pub(crate) facts: Option<Facts>,
    /// The MTU last reported to the caller.
    pub(crate) told_mtu: Option<u32>,
    /// The warning about another name of the interface.
    pub(crate) renamed: Option<String>,
    /// The warnings last reported to the caller.
    pub(crate) told_warnings: Vec<String>,
    /// The paths at the last check.
    pub(crate) ways: Vec<(Course, Option<Way>)>,
    /// The family and priority of rules that may stand in another order than in the plan: one was put behind the others
    /// by work that was cancelled or has failed since.
    pub(crate) disordered: HashSet<(bool, u32)>,
    /// The addresses of this machine last reported to the caller; `None` if it has not asked.
    pub(crate) told_addresses: Option<Vec<IpAddr>>,
}

/// The outcome of [`Host::apply`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The interface's MTU in bytes.
    pub mtu: u32,
    /// Parts of the desired state that this host lacks, with the reasons.
    pub warnings: Vec<String>,
}

impl Host {
    /// Locks the journal of `interface` and takes over the changes in it, which an earlier process may have left.
    ///
    /// # Errors
    /// [`HostError::Busy`] if another process holds the journal.
    pub async fn open(interface: &str, options: Options) -> Result<Self, HostError> {
        check_name(interface)?;
        let (journal, lasting, made) = Journal::open_both(&options, interface)?;
        let own = format!("{interface}.journal");
        for entry in &made {
            if let What::Dns(resolving) = &entry.change.what {
                resolving.remove_unfinished();
            }
        }
        let netlink = Netlink::open().map_err(HostError::kernel("open", "rtnetlink"))?;
        let directories = vec![options.journals.clone(), options.lasting_journals.clone()];
        let bus = Bus::new(options.system_bus.clone());
        let programs = Programs(options.programs.clone());
        let nft = Nft::new(programs, Arc::new(journal.lock()?), options.owns_tables);
        Ok(Self {
            effects: Effects::new(netlink, bus, nft, Others { directories, own }),
            sources: Sources::open()?,
            interface: interface.to_owned(),
            last_id: made.last().map_or(0, |entry| entry.id),
            options,
            journal,
            lasting,
            made,
            desired: None,
            is_behind: false,
            backend: None,
            skipped: Vec::new(),
            warnings: Vec::new(),
            is_link_down: false,
            pause: None,
            backoffs: Backoffs::default(),
            due: None,
            later: None,
            events: VecDeque::new(),
            facts: None,
            told_mtu: None,
            renamed: None,
            told_warnings: Vec::new(),
            ways: Vec::new(),
            disordered: HashSet::new(),
            told_addresses: None,
        })
    }

    /// Returns the mark that `desired` needs but lacks: that of an earlier [`Host::apply`], or else the first one whose
    /// table is free. `None` if it needs none.
    ///
    /// The caller sets it on the tunnel and in [`Desired::fwmark`] before [`Host::apply`].
    pub async fn pick_mark(&self, desired: &Desired) -> Result<Option<u32>, HostError> {
        if desired.fwmark.is_some() || !desired.needs_mark() {
            return Ok(desired.fwmark);
        }
        let earlier = self.made.iter().find_map(|entry| match &entry.change.what {
            What::Rule(rule) => rule.mark(),
            // Made before the rules, and in no table but that of the mark.
            What::Route(route) if route.via == Via::Unreachable && route.to.is_default() => {
                Some(route.table)
            }
            _ => None,
        });
        if earlier.is_some() {
            return Ok(earlier);
        }
        let free = free_mark(&self.effects.netlink).await;
        free.map(Some)
            .map_err(HostError::kernel("read", "routing tables"))
    }

    /// Makes the host match `desired`. Changes only the difference.
    ///
    /// # Errors
    /// Changes made so far stay, and [`Host::watch`] tries the others again. Call [`Host::undo`] to undo them.
    pub async fn apply(&mut self, desired: &Desired) -> Result<Applied, HostError> {
        if desired.needs_mark() && desired.fwmark.is_none() {
            return Err(HostError::MarkNeeded(self.interface.clone()));
        }
        if let Some(mark) = desired.fwmark.filter(|mark| SYSTEM_TABLES.contains(mark)) {
            return Err(HostError::SystemTable(mark));
        }
        let applied = self.apply_once(desired).await;
        self.is_behind = applied.is_err();
        if self.is_behind {
            let again = self.time_after_failure();
            self.wake_at(again);
        }
        applied
    }

    async fn apply_once(&mut self, desired: &Desired) -> Result<Applied, HostError> {
        self.desired = Some(desired.clone());
        self.skipped.clear();
        self.warnings.clear();
        self.backend = match desired.dns.servers.is_empty() {
            true => None,
            false => {
                let Effects { bus, nft, .. } = &mut self.effects;
                Some(Backend::find(bus, &nft.programs, &self.options).await)
            }
        };
        if desired.dns.routes_domains_alone() && self.backend != Some(Backend::Resolved) {
            self.warnings.push(ALL_NAMES.to_owned());
        }
        let plan = self.plan().await?;
        self.reconcile(&plan, Missing::Restore).await?;
        let addresses = plan.iter().filter_map(|what| match what {
            What::Address { prefix, .. } => Some(prefix.address()),
            _ => None,
        });
        // What follows is to use them at once.
        self.effects.netlink.await_delivery_to(addresses).await;
        self.subscribe(&plan).await;
        let mtu = self.facts.as_ref().map_or(0, |facts| facts.mtu);
        self.told_mtu = Some(mtu);
        self.told_warnings = self.all_warnings();
        Ok(Applied {
            mtu,
            warnings: self.told_warnings.clone(),
        })
    }

    /// Returns whether the journal has changes, which may still be in place.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        !self.made.is_empty()
    }

    /// Returns whether there is a kill switch: one that an earlier process has closed, or this one.
    pub async fn has_kill_switch(&self) -> bool {
        let is_one = |entry: &Entry| entry.change.what.is_kill_switch();
        self.made.iter().any(is_one) || self.effects.nft.has_kill_switch(&self.interface).await
    }

    /// Returns whether this kill switch is in the kernel as it was loaded, so that nothing leaves outside the tunnel.
    pub async fn is_kill_switch_closed(&self) -> bool {
        let mut loaded = self.made.iter().map(|entry| &entry.change.what);
        match loaded.find(|what| what.is_kill_switch()) {
            Some(What::Firewall(ruleset)) if self.pause.is_none() => {
                self.effects.is_loaded(ruleset).await
            }
            _ => false,
        }
    }

    /// Reads the interface's present MTU in bytes, whatever it should be: [`Host::apply`] may have failed at any step.
    pub async fn mtu(&mut self) -> Result<u32, HostError> {
        let link = self.effects.netlink.link_by_name(&self.interface).await;
        let link = link.map_err(HostError::kernel("look up", "the interface"))?;
        let link = link.ok_or_else(|| HostError::NoInterface(self.interface.clone()))?;
        self.told_mtu = Some(link.mtu);
        Ok(link.mtu)
    }

    /// Lets everything out, beside the tunnel, until `duration` has passed: neither kill switch nor default route
    /// nor name servers. [`Host::watch`] ends it; if this process dies, the kernel closes the kill switch in time.
    ///
    /// # Errors
    /// Everything opened so far closes again, and so does what an earlier pause has opened.
    pub async fn pause(&mut self, duration: Duration) -> Result<(), HostError> {
        let pause = Pause::begin(duration).map_err(HostError::kernel("set", "a timer"))?;
        self.pause = Some(pause);
        // The end of an earlier pause is none of this one.
        self.events.retain(|event| *event != Event::Resumed);
        let paused = self.follow_pause().await;
        if paused.is_err() {
            // The first error is the one that matters.
            self.pause = None;
            if let Err(error) = self.follow_pause().await {
                tracing::warn!(interface = self.interface, %error, "The pause is not undone yet");
            }
            self.end_pause_later();
        }
        paused
    }

    async fn follow_pause(&mut self) -> Result<(), HostError> {
        let plan = self.plan().await?;
        self.reconcile(&plan, Missing::Restore).await.map(drop)
    }

    /// Ends a pause.
    ///
    /// # Errors
    /// [`Host::watch`] goes on closing what is still open, and reports that the pause has ended.
    pub async fn resume(&mut self) -> Result<(), HostError> {
        self.pause = None;
        let resumed = self.follow_pause().await;
        if resumed.is_err() {
            self.end_pause_later();
        }
        resumed
    }

    /// Lets `watch` close what a pause has left open.
    fn end_pause_later(&mut self) {
        self.events.push_back(Event::Resumed);
        self.wake_at(Some(Instant::now()));
    }

    /// Restores everything that other programs have not changed since. A persistent kill switch stays, and a pause of it
    /// ends.
    ///
    /// # Errors
    /// The first change that could not be undone; all others have been. [`recover`] tries again.
    pub async fn undo(mut self) -> Result<(), HostError> {
        let closed = self.end_pause(|ruleset| ruleset.is_persistent).await;
        self.put_back(|ruleset| ruleset.is_persistent, closed).await
    }

    /// Like [`Host::undo`], but every kill switch stays: for a tunnel that is to come up again.
    pub async fn close(mut self) -> Result<(), HostError> {
        let closed = self.end_pause(|ruleset| ruleset.is_kill_switch).await;
        self.put_back(|ruleset| ruleset.is_kill_switch, closed)
            .await
    }

    /// Like [`Host::close`], but a pause goes on: for an interface that has left this namespace. [`end_pause`] ends it.
    /// The record of a kill switch stays, for [`recover`].
    ///
    /// [`end_pause`]: crate::end_pause
    pub async fn release(mut self) -> Result<(), HostError> {
        self.undo_all(|entry| !entry.change.what.is_kill_switch())
            .await?;
        match self.has_changes() {
            true => Ok(()),
            false => self.journal.remove(),
        }
    }

    /// Reads the host's state and makes a plan.
    pub(crate) async fn plan(&mut self) -> Result<Vec<What>, HostError> {
        let Some(desired) = &self.desired else {
            return Ok(Vec::new());
        };
        let made: Vec<&What> = self.made.iter().map(|entry| &entry.change.what).collect();
        let facts = Facts::gather(&self.effects.netlink, &self.interface, desired, &made).await?;
        let plan = plan(
            &self.interface,
            desired,
            &facts,
            self.resolving(desired, facts.link.index),
            self.pause.as_ref().map(Pause::opening),
        );
        self.is_link_down = !facts.link.is_up;
        self.note_warnings(&facts.warnings);
        self.facts = Some(facts);
        Ok(plan)
    }

    /// The warnings of [`Applied::warnings`].
    pub(crate) fn all_warnings(&self) -> Vec<String> {
        let facts = self.facts.iter().flat_map(|facts| &facts.warnings);
        facts
            .chain(&self.warnings)
            .chain(&self.renamed)
            .cloned()
            .collect()
    }

    /// Logs new warnings.
    fn note_warnings(&self, warnings: &[String]) {
        let known = self.facts.as_ref().map_or(&[][..], |facts| &facts.warnings);
        for warning in warnings.iter().filter(|warning| !known.contains(warning)) {
            tracing::warn!(interface = self.interface, "{warning}");
        }
    }

    fn resolving(&self, desired: &Desired, index: u32) -> Option<Resolving> {
        let path = &self.options.resolv_conf;
        self.backend?
            .resolving(&self.interface, index, &desired.dns, path)
    }

    /// Closes the kill switches that stay: nobody is left to end their pause.
    async fn end_pause(&mut self, stays: fn(&Ruleset) -> bool) -> Result<(), HostError> {
        let staying = self
            .made
            .iter()
            .filter_map(|entry| match &entry.change.what {
                What::Firewall(ruleset) if stays(ruleset) => Some(ruleset.table.clone()),
                _ => None,
            });
        let tables: HashSet<_> = staying.collect();
        let mut closed = Ok(());
        for table in tables {
            closed = closed.and(self.effects.nft.end_pause(&table).await);
        }
        closed
    }

    /// Undoes everything but the kill switches that stay, and removes the journals unless that or closing them failed.
    async fn put_back(
        &mut self,
        stays: fn(&Ruleset) -> bool,
        closed: Result<(), HostError>,
    ) -> Result<(), HostError> {
        let is_staying = |what: &What| matches!(what, What::Firewall(ruleset) if stays(ruleset));
        let undone = self.undo_all(|entry| !is_staying(&entry.change.what)).await;
        closed.and(undone)?;
        self.remove_lasting()?;
        self.journal.remove()
    }
}

async fn free_mark(netlink: &Netlink) -> Result<u32, NetlinkError> {
    let mut mark = FIRST_MARK;
    while !is_empty_table(netlink, mark).await? {
        mark += 1;
    }
    Ok(mark)
}

/// Undoes the changes that a dead process left for `interface`, if any.
///
/// # Errors
/// [`HostError::Busy`] if a process is still at work; else as [`Host::undo`].
pub async fn recover(interface: &str, options: Options) -> Result<(), HostError> {
    Host::open(interface, options).await?.undo().await
}
