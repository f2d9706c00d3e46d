//! Sources of news about the host: rtnetlink, nftables, resolv.conf's directory, D-Bus.

mod directory;

use std::{future::pending, path::Path};

use convoy_netlink::{Notice, Notices, Topic, nftables};
use futures_util::StreamExt as _;

use crate::{dns::Owners, error::HostError, route::connected};

use directory::Directory;

const TOPICS: [Topic; 4] = [Topic::Links, Topic::Addresses, Topic::Routes, Topic::Rules];

/// News of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Something of ours may be missing.
    Ours,
    /// Our nftables tables may be missing.
    Firewall,
    /// A way to the endpoints may have changed.
    Underlay,
    /// systemd-resolved has started.
    ResolverStarted,
    /// The interface was deleted.
    Gone,
    /// The interface is in another network namespace.
    Moved,
}

/// Our objects, to tell our news from others'.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interest {
    /// The interface.
    pub(crate) index: u32,
    /// Our own routing tables.
    pub(crate) tables: Vec<u32>,
    /// Our nftables table.
    pub(crate) nftables: Option<String>,
}

/// All sources. Those that nothing depends on are closed.
pub(crate) struct Sources {
    notices: Notices,
    nftables: Option<nftables::Changes>,
    resolv_conf: Option<Directory>,
    owners: Option<Owners>,
    pub(crate) interest: Interest,
}

impl Sources {
    pub(crate) fn open() -> Result<Self, HostError> {
        let notices = Notices::subscribe(&TOPICS);
        Ok(Self {
            notices: notices.map_err(HostError::kernel("watch", "rtnetlink"))?,
            nftables: None,
            resolv_conf: None,
            owners: None,
            interest: Interest::default(),
        })
    }

    /// Starts or stops watching nftables.
    pub(crate) fn watch_nftables(&mut self, wanted: bool) {
        if wanted == self.nftables.is_some() {
            return;
        }
        self.nftables = None;
        if wanted {
            match nftables::Changes::subscribe() {
                Ok(opened) => self.nftables = Some(opened),
                Err(error) => {
                    let error = std::io::Error::from(error);
                    tracing::warn!(%error, "Cannot watch nftables: flushed rules stay away")
                }
            }
        }
    }

    /// Starts watching a file, or stops.
    pub(crate) fn watch_file(&mut self, path: Option<&Path>) {
        self.resolv_conf = path.and_then(|path| {
            Directory::watch(path)
                .inspect_err(|error| {
                    let path = path.display();
                    tracing::warn!(%path, %error, "Cannot watch the file: foreign changes stay");
                })
                .ok()
        });
    }

    /// Starts watching systemd-resolved, or stops.
    pub(crate) fn watch_resolver(&mut self, owners: Option<Owners>) {
        self.owners = owners;
    }

    /// Waits for news. May be cancelled: no news is lost.
    pub(crate) async fn next(&mut self) -> News {
        loop {
            let interest = &self.interest;
            let news = tokio::select! {
                heard = self.notices.next() => match heard {
                    Ok((notice, _)) => about(&notice, interest),
                    // News that the kernel did not tell are as good as lost.
                    Err(_) => Some(News::Ours),
                },
                is_ours = changed_table(self.nftables.as_mut(), interest.nftables.as_deref()) => {
                    is_ours.then_some(News::Firewall)
                }
                () = changed(self.resolv_conf.as_mut()) => Some(News::Ours),
                () = started(self.owners.as_mut()) => Some(News::ResolverStarted),
            };
            if let Some(news) = news {
                return news;
            }
        }
    }
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources")
            .field("interest", &self.interest)
            .finish_non_exhaustive()
    }
}

async fn changed_table(source: Option<&mut nftables::Changes>, table: Option<&str>) -> bool {
    match source {
        Some(source) => source.next_is_of(table).await,
        None => pending().await,
    }
}

async fn changed(source: Option<&mut Directory>) {
    match source {
        Some(source) => source.changed().await,
        None => pending().await,
    }
}

async fn started(source: Option<&mut Owners>) {
    let started = match source {
        Some(source) => source.next().await,
        None => None,
    };
    // A bus that is gone has no more news.
    if started.is_none() {
        pending::<()>().await;
    }
}

fn about(notice: &Notice, interest: &Interest) -> Option<News> {
    match notice {
        Notice::LinkGone { index, is_moved } if *index == interest.index => {
            Some(if *is_moved { News::Moved } else { News::Gone })
        }
        Notice::Link { link, .. } if link.index == interest.index => Some(News::Ours),
        // Wireless drivers tell of every scan.
        Notice::Link { link, is_scan } => (!is_scan && !link.is_loopback).then_some(News::Underlay),
        Notice::LinkGone { .. } => Some(News::Underlay),
        Notice::Address { link, is_gone } if *link == interest.index => {
            is_gone.then_some(News::Ours)
        }
        Notice::Address { .. } => Some(News::Underlay),
        Notice::Route { route, is_gone } => {
            let is_ours =
                interest.tables.contains(&route.table) || route.device == Some(interest.index);
            match is_ours {
                true => is_gone.then_some(News::Ours),
                false => {
                    let is_near = route.to.is_default() || connected(route).is_some();
                    is_near.then_some(News::Underlay)
                }
            }
        }
        Notice::Rule { is_gone } => is_gone.then_some(News::Ours),
        Notice::Lost => Some(News::Ours),
        Notice::Unreadable | Notice::Other => None,
    }
}
