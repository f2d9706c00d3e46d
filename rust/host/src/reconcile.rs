//! Makes the difference between a plan and the host, each step written down first.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use tokio::time::Instant;

use crate::{
    change::{Before, Change, What},
    dns::Resolving,
    effects::survives_down,
    error::HostError,
    host::Host,
    journal::{Entry, Journal},
    missing::Missing,
};

impl Host {
    /// Makes the plan true. Returns the changes that others had removed and that are back.
    pub(crate) async fn reconcile(
        &mut self,
        plan: &[What],
        missing: Missing,
    ) -> Result<Vec<What>, HostError> {
        let slots: HashSet<What> = plan.iter().map(What::slot).collect();
        let is_stale = |entry: &Entry| !slots.contains(&entry.change.what.slot());
        self.undo_all(|entry| is_stale(entry) && !entry.change.what.guards())
            .await?;
        let mut known = HashMap::new();
        let mut superseded = Vec::new();
        for entry in &self.made {
            superseded.extend(known.insert(entry.change.what.slot(), entry.id));
        }
        let mut restored = Vec::new();
        for what in plan {
            let known = known.get(&what.slot()).and_then(|id| self.position(*id));
            match known {
                Some(at) if self.made[at].change.what == *what => {
                    if self.restore(at, missing).await? {
                        restored.push(what.clone());
                    } else if level(what).is_some_and(|level| self.disordered.contains(&level)) {
                        self.put_last(at).await?;
                    }
                }
                _ => {
                    self.make(what, known).await?;
                }
            }
        }
        self.disordered.clear();
        self.undo_all(is_stale).await?;
        // Work between a state and its successor was cancelled, failed or killed; now the successor is in place.
        superseded.into_iter().for_each(|id| self.strike(id));
        Ok(restored)
    }

    /// Puts a rule behind others of its priority: that is their order in the plan.
    async fn put_last(&mut self, at: usize) -> Result<(), HostError> {
        let change = self.made[at].change.clone();
        self.effects.unmake(&change).await?;
        self.effects.make(&change.what).await
    }

    /// Brings back a kill switch that others had removed, even if there is no interface; returns it if it did.
    pub(crate) async fn restore_kill_switch(&mut self) -> Result<Option<What>, HostError> {
        let is_one = |entry: &Entry| entry.change.what.is_kill_switch();
        let Some(at) = self.made.iter().position(is_one) else {
            return Ok(None);
        };
        let is_restored = self.restore(at, Missing::RestoreAfterPause).await?;
        Ok(is_restored.then(|| self.made[at].change.what.clone()))
    }

    /// Returns where an entry is: they are sorted.
    fn position(&self, id: u64) -> Option<usize> {
        self.made.binary_search_by_key(&id, |entry| entry.id).ok()
    }

    /// Undoes the selected changes, last first. One that fails does not stop the others: its error is
    /// returned in the end, and its record stays.
    pub(crate) async fn undo_all(
        &mut self,
        selects: impl Fn(&Entry) -> bool,
    ) -> Result<(), HostError> {
        self.effects.look_again();
        let mut outcome = Ok(());
        for entry in self.made.clone().into_iter().rev() {
            if !selects(&entry) {
                continue;
            }
            if let Err(error) = self.effects.unmake(&entry.change).await {
                tracing::warn!(interface = self.interface, %error, "A change stays behind");
                outcome = outcome.and(Err(error));
                continue;
            }
            self.strike(entry.id);
        }
        outcome
    }

    /// Forgets a change, even if its record stays, e.g. because `/run` is full: undoing a change twice is harmless.
    fn strike(&mut self, id: u64) {
        if let Err(error) = self.forget(id) {
            tracing::warn!(interface = self.interface, %error, "A record stays behind");
            self.made.retain(|made| made.id != id);
        }
    }

    /// Strikes a change from the journal.
    pub(crate) fn forget(&mut self, id: u64) -> Result<(), HostError> {
        let Some(at) = self.position(id) else {
            return Ok(());
        };
        let is_lasting = self.made[at].change.what.survives_reboot();
        self.journal(is_lasting)?.undone(id)?;
        self.made.remove(at);
        let is_needed = |entry: &Entry| entry.change.what.survives_reboot();
        match is_lasting && !self.made.iter().any(is_needed) {
            true => self.remove_lasting(),
            false => Ok(()),
        }
    }

    /// Removes the journal of changes that outlive a reboot, if there is one.
    pub(crate) fn remove_lasting(&mut self) -> Result<(), HostError> {
        match self.lasting.take() {
            Some(lasting) => lasting.remove(),
            None => Ok(()),
        }
    }

    /// Makes a change that is not in the journal, or another state of the one at `known`.
    async fn make(&mut self, what: &What, known: Option<usize>) -> Result<(), HostError> {
        if self.skipped.contains(what) {
            return Ok(());
        }
        let stands = known.is_none() && self.effects.stands(what).await?;
        if stands && !self.effects.is_shared(what) {
            return Ok(());
        }
        let before = match known {
            Some(at) => self.made[at].change.before.clone(),
            None => self.effects.before(what).await?,
        };
        let former = known.map(|at| self.made[at].id);
        self.last_id += 1;
        let change = Change {
            what: what.clone(),
            before,
        };
        let entry = Entry {
            id: self.last_id,
            change,
        };
        // The former state's record stays until its successor is in place: after a crash, either may be there.
        if let Err(error) = self.record(entry, None) {
            return match known.filter(|at| what.stays_like(&self.made[*at].change.what)) {
                Some(at) => self.replace_unrecorded(at, what, error).await,
                None => Err(error),
            };
        }
        self.disordered.extend(level(what));
        if let Err(error) = self.effects.make(what).await {
            return self.tolerate(what, error);
        }
        former.map_or(Ok(()), |id| self.forget(id))
    }

    /// Replaces a kill switch under the former one's record: a full disk must keep none open.
    async fn replace_unrecorded(
        &mut self,
        at: usize,
        what: &What,
        error: HostError,
    ) -> Result<(), HostError> {
        tracing::warn!(interface = self.interface, %error, "Replacing the kill switch without a record");
        self.effects.make(what).await?;
        self.made[at].change.what = what.clone();
        Ok(())
    }

    /// Brings back a change that others removed; returns whether it did.
    async fn restore(&mut self, at: usize, missing: Missing) -> Result<bool, HostError> {
        let change = self.made[at].change.clone();
        if self.is_link_down && !survives_down(&change.what) && missing != Missing::Restore {
            return Ok(false);
        }
        if self.effects.stands(&change.what).await? {
            return Ok(false);
        }
        let needs_link = missing != Missing::Restore && !survives_down(&change.what);
        if needs_link && self.has_gone_down().await? {
            return Ok(false);
        }
        let earliest = self.backoffs.earliest(&change.what);
        let is_early = earliest.is_some_and(|earliest| Instant::now() < earliest);
        if missing == Missing::RestoreAfterPause && is_early {
            self.later = self.later.into_iter().chain(earliest).min();
            return Ok(false);
        }
        self.adopt_foreign_content(at).await?;
        self.disordered.extend(level(&change.what));
        match self.effects.make(&change.what).await {
            Ok(()) => Ok(true),
            Err(error) => {
                self.tolerate(&change.what, error)?;
                Ok(false)
            }
        }
    }

    /// Returns whether somebody has set the link down since the look that began this pass.
    async fn has_gone_down(&mut self) -> Result<bool, HostError> {
        let index = self.facts.as_ref().map_or(0, |facts| facts.link.index);
        let link = self.effects.netlink.link_by_index(index).await;
        let link = link.map_err(HostError::kernel("look up", "the interface"))?;
        self.is_link_down |= link.is_some_and(|link| !link.is_up);
        Ok(self.is_link_down)
    }

    /// Makes `undo` restore the newest foreign resolv.conf.
    async fn adopt_foreign_content(&mut self, at: usize) -> Result<(), HostError> {
        let change = &self.made[at].change;
        if !matches!(change.what, What::Dns(Resolving::File { .. })) {
            return Ok(());
        }
        let before = self.effects.before(&change.what).await?;
        match &before {
            Before::ResolvConf(original) if !original.is_in_transit() => {}
            _ => return Ok(()),
        }
        let entry = Entry {
            id: self.made[at].id,
            change: Change {
                what: change.what.clone(),
                before,
            },
        };
        self.record(entry, Some(at))
    }

    /// Goes on without an optional change, with a warning.
    fn tolerate(&mut self, what: &What, error: HostError) -> Result<(), HostError> {
        let is_optional = match what {
            What::Firewall(ruleset) => !ruleset.is_kill_switch,
            What::Dns(_) | What::Sysctl { .. } => true,
            _ => false,
        };
        if !is_optional {
            return Err(error);
        }
        tracing::warn!(interface = self.interface, %error, "Going on without it");
        self.warnings.push(error.to_string());
        self.skipped.push(what.clone());
        let known = self
            .made
            .iter()
            .find(|entry| entry.change.what == *what)
            .map(|entry| entry.id);
        known.map_or(Ok(()), |id| self.forget(id))
    }

    fn record(&mut self, entry: Entry, known: Option<usize>) -> Result<(), HostError> {
        let is_lasting = entry.change.what.survives_reboot();
        self.journal(is_lasting)?.record(&entry)?;
        match known {
            Some(at) => self.made[at] = entry,
            None => self.made.push(entry),
        }
        self.shorten();
        Ok(())
    }

    /// Shortens journals that have grown.
    fn shorten(&mut self) {
        let lasting = self.lasting.as_mut().map(Journal::shorten).transpose();
        let shortened = lasting.and_then(|_| self.journal.shorten());
        match shortened {
            Ok(None) => {}
            Ok(Some(lock)) => self.effects.nft.lock = Some(Arc::new(lock)),
            Err(error) => {
                tracing::warn!(interface = self.interface, %error, "The journal stays as long as it is");
            }
        }
    }

    /// The journal for changes that do, or do not, outlive a reboot.
    fn journal(&mut self, is_lasting: bool) -> Result<&mut Journal, HostError> {
        if !is_lasting {
            return Ok(&mut self.journal);
        }
        if self.lasting.is_none() {
            let directory = &self.options.lasting_journals;
            match Journal::open(directory, &self.interface) {
                Ok((journal, _)) => self.lasting = Some(journal),
                // Better a record that a power cut destroys than none.
                Err(error @ HostError::File { .. }) => {
                    tracing::warn!(%error, "A power cut would leave resolv.conf changed");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(self.lasting.as_mut().unwrap_or(&mut self.journal))
    }
}

/// The family and priority of a rule.
fn level(what: &What) -> Option<(bool, u32)> {
    match what {
        What::Rule(rule) => Some((rule.ipv6, rule.priority)),
        _ => None,
    }
}
