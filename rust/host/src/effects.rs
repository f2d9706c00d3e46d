//! Makes and undoes changes, and checks whether they are still in place.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    fs, io,
    path::{Path, PathBuf},
};

use convoy_netlink::{Address, LinkChange, Netlink, NetlinkError};

use crate::{
    change::{Before, Change, What},
    dns::{Bus, Original, Resolving},
    error::HostError,
    firewall::{Listing, Nft, Ruleset},
    journal,
    route::{self, Route, Via},
    rule,
};

/// The host.
#[derive(Debug)]
pub(crate) struct Effects {
    pub(crate) netlink: Netlink,
    pub(crate) bus: Bus,
    pub(crate) nft: Nft,
    /// The listing by nft(8) right after the last load.
    listing: Option<(Ruleset, Listing)>,
    /// The name servers that a service got from us.
    served: Option<Resolving>,
    /// The routes of the tables that were read in this pass.
    routes: HashMap<(u32, bool), HashSet<Route>>,
    /// The journals of other interfaces, which may hold changes of the same files.
    others: Others,
}

/// The directories of the journals, and the own file name in them.
#[derive(Debug)]
pub(crate) struct Others {
    pub(crate) directories: Vec<PathBuf>,
    pub(crate) own: String,
}

impl Effects {
    pub(crate) fn new(netlink: Netlink, bus: Bus, nft: Nft, others: Others) -> Self {
        Self {
            netlink,
            bus,
            nft,
            listing: None,
            served: None,
            routes: HashMap::new(),
            others,
        }
    }

    /// Returns whether the host is in this state.
    pub(crate) async fn stands(&mut self, what: &What) -> Result<bool, HostError> {
        let stands = match what {
            What::Firewall(ruleset) => return Ok(self.is_loaded(ruleset).await),
            What::Dns(resolving) => return Ok(self.is_served(resolving)),
            What::Sysctl { path, value } => {
                return Ok(read(path).is_ok_and(|now| now == *value));
            }
            What::Link { index, mtu } => self
                .netlink
                .link_by_index(*index)
                .await
                .map(|link| link.is_some_and(|link| link.mtu == *mtu && link.is_up)),
            What::Address {
                index,
                prefix,
                is_bare,
            } => {
                let addresses = self.netlink.addresses(Some(*index)).await;
                let is_ours = |it: &Address| it.prefix == *prefix && it.is_bare == *is_bare;
                addresses.map(|addresses| addresses.iter().any(is_ours))
            }
            What::Route(route) => self.has_route(route).await,
            What::Rule(rule) => rule::exists(&self.netlink, rule).await,
        };
        stands.map_err(HostError::kernel("look up", what.to_string()))
    }

    /// Returns whether another interface of ours changed the same file, so that the last one to go down undoes it.
    pub(crate) fn is_shared(&self, what: &What) -> bool {
        let is_file = matches!(
            what,
            What::Sysctl { .. } | What::Dns(Resolving::File { .. })
        );
        is_file && self.others.holding(what).next().is_some()
    }

    /// The state before a change. If another interface of ours changed it first, the state before that.
    pub(crate) async fn before(&self, what: &What) -> Result<Before, HostError> {
        match what {
            What::Link { index, .. } => {
                let link = self.netlink.link_by_index(*index).await;
                let link = link.map_err(HostError::kernel("look up", what.to_string()))?;
                Ok(link.map_or(Before::Absent, |link| Before::Link {
                    mtu: link.mtu,
                    up: link.is_up,
                }))
            }
            What::Sysctl { path, .. } => match self.others.holding(what).next() {
                Some(other) => Ok(other.before),
                None => read(path).map(Before::Content),
            },
            What::Dns(Resolving::File { path, .. }) => {
                let mut others = self.others.holding(what);
                match others.find(|other| is_in_place(&other.what)) {
                    Some(other) => Ok(other.before),
                    None => Original::read(path).map(Before::ResolvConf),
                }
            }
            _ => Ok(Before::Absent),
        }
    }

    pub(crate) async fn make(&mut self, what: &What) -> Result<(), HostError> {
        let made = match what {
            What::Firewall(ruleset) => {
                let listing = self.nft.load(ruleset).await?;
                self.listing = Some((ruleset.clone(), listing));
                return Ok(());
            }
            What::Dns(resolving) => {
                resolving.make(&mut self.bus, &self.nft.programs).await?;
                self.served = Some(resolving.clone());
                return Ok(());
            }
            What::Sysctl { path, value } => return write(path, value),
            What::Link { index, mtu } => {
                // The kernel adds and removes routes with links and addresses.
                self.routes.clear();
                self.set_link(*index, *mtu, true).await
            }
            What::Address {
                index,
                prefix,
                is_bare,
            } => {
                let address = Address {
                    is_bare: *is_bare,
                    ..Address::from(*prefix)
                };
                self.netlink.add_address(*index, address).await
            }
            What::Route(route) => {
                self.forget(route);
                match self.netlink.add_route(&route.for_kernel()).await {
                    Err(error) if error.cause.kind() == io::ErrorKind::AlreadyExists => {
                        return Err(self.taken(route, error).await);
                    }
                    outcome => outcome,
                }
            }
            What::Rule(rule) => rule::add(&self.netlink, rule).await,
        };
        made.map_err(HostError::kernel("add", what.to_string()))
    }

    /// Names the route that conflicts with one of ours.
    async fn taken(&self, route: &Route, error: NetlinkError) -> HostError {
        match route::rival(&self.netlink, route).await {
            Ok(Some((by, is_connected))) => HostError::RouteTaken {
                route: route.to_string(),
                by,
                is_connected,
            },
            _ => HostError::kernel("add", route.to_string())(error),
        }
    }

    /// Restores the former state, unless another program has changed it since.
    pub(crate) async fn unmake(&mut self, change: &Change) -> Result<(), HostError> {
        match (&change.what, &change.before) {
            (What::Firewall(ruleset), _) => {
                self.listing = None;
                return self.nft.remove(&ruleset.table).await;
            }
            (What::Dns(resolving), before) => {
                self.served = None;
                let none = Original::Absent;
                let original = match before {
                    Before::ResolvConf(original) => original,
                    _ => &none,
                };
                let below = self.others.content_below(&change.what);
                return resolving
                    .unmake(
                        &mut self.bus,
                        &self.nft.programs,
                        original,
                        below.as_deref(),
                    )
                    .await;
            }
            (What::Sysctl { path, value }, Before::Content(before)) => {
                let is_ours = read(path).is_ok_and(|now| now == *value);
                return match is_ours && !self.is_shared(&change.what) {
                    true => write(path, before),
                    false => Ok(()),
                };
            }
            _ => {}
        }
        let undone = self.unmake_in_kernel(change).await;
        undone.map_err(HostError::kernel("remove", change.what.to_string()))
    }

    async fn unmake_in_kernel(&mut self, change: &Change) -> Result<(), NetlinkError> {
        match (&change.what, &change.before) {
            (What::Link { index, mtu }, Before::Link { mtu: former, up }) => {
                self.routes.clear();
                let Some(link) = self.netlink.link_by_index(*index).await? else {
                    return Ok(());
                };
                let is_ours = link.mtu == *mtu;
                let mtu = if is_ours { *former } else { link.mtu };
                let up = *up && link.is_up;
                self.set_link(*index, mtu, up).await
            }
            (What::Address { index, prefix, .. }, _) => {
                self.routes.clear();
                let addresses = self.netlink.addresses(Some(*index)).await?;
                match addresses.iter().any(|known| known.prefix == *prefix) {
                    true => self.netlink.remove_address(*index, *prefix).await,
                    false => Ok(()),
                }
            }
            (What::Route(route), _) => match self.has_route(route).await? {
                true => {
                    self.forget(route);
                    self.netlink.remove_route(&route.for_kernel()).await
                }
                false => Ok(()),
            },
            (What::Rule(rule), _) => match rule::exists(&self.netlink, rule).await? {
                true => rule::remove(&self.netlink, rule).await,
                false => Ok(()),
            },
            _ => Ok(()),
        }
    }

    async fn set_link(&self, index: u32, mtu: u32, up: bool) -> Result<(), NetlinkError> {
        let change = LinkChange {
            up: Some(up),
            mtu: Some(mtu),
            queue: None,
        };
        self.netlink.change_link(index, change).await
    }

    /// Begins a pass: forgets earlier look-ups.
    pub(crate) fn look_again(&mut self) {
        self.routes.clear();
    }

    async fn has_route(&mut self, route: &Route) -> Result<bool, NetlinkError> {
        let table = (route.table, route.to.is_ipv6());
        let found = match self.routes.entry(table) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                unknown.insert(route::routes_in(&self.netlink, table.0, table.1).await?)
            }
        };
        Ok(found.contains(route))
    }

    /// A route that is about to be added or removed need not be looked up again in this pass.
    fn forget(&mut self, route: &Route) {
        let table = (route.table, route.to.is_ipv6());
        if let Some(known) = self.routes.get_mut(&table) {
            known.remove(route);
        }
    }

    /// Forgets that a service has our name servers: it has started again.
    pub(crate) fn resolver_restarted(&mut self) {
        self.served = None;
    }

    pub(crate) async fn is_loaded(&self, ruleset: &Ruleset) -> bool {
        let Some((loaded, listing)) = &self.listing else {
            return false;
        };
        loaded == ruleset && !listing.is_empty() && self.nft.list(ruleset).await == *listing
    }

    fn is_served(&self, resolving: &Resolving) -> bool {
        match resolving {
            // A second tunnel's content does not conflict with ours.
            Resolving::File { path, content } => {
                let what = What::Dns(resolving.clone());
                let mut others = self.others.holding(&what);
                Original::is_text(path, content) || others.any(|other| is_in_place(&other.what))
            }
            _ => self.served.as_ref() == Some(resolving),
        }
    }
}

impl Others {
    /// The changes of the same thing by other interfaces of ours.
    fn holding(&self, what: &What) -> impl Iterator<Item = Change> {
        let files = self.directories.iter().flat_map(fs::read_dir).flatten();
        let paths = files.filter_map(|file| Some(file.ok()?.path()));
        let others = paths.filter(|path| {
            let name = path.file_name().unwrap_or_default();
            name != self.own.as_str() && path.extension().is_some_and(|end| end == "journal")
        });
        let entries = others.flat_map(|path| journal::peek(&path));
        let changes = entries.map(|entry| entry.change);
        let slot = what.slot();
        changes.filter(move |change| change.what.slot() == slot)
    }

    /// The content that another interface of ours wants for the same resolv.conf.
    fn content_below(&self, what: &What) -> Option<String> {
        self.holding(what).find_map(|change| match change.what {
            What::Dns(Resolving::File { content, .. }) => Some(content),
            _ => None,
        })
    }
}

/// Returns whether a link may take this change while it is down.
pub(crate) fn survives_down(what: &What) -> bool {
    match what {
        What::Route(route) => !matches!(route.via, Via::Device(_)),
        What::Link { .. } | What::Address { .. } => false,
        _ => true,
    }
}

fn is_in_place(what: &What) -> bool {
    match what {
        What::Dns(Resolving::File { path, content }) => Original::is_text(path, content),
        _ => false,
    }
}

fn read(path: &Path) -> Result<String, HostError> {
    let text = fs::read_to_string(path).map_err(HostError::file("read", path))?;
    Ok(text.trim().to_owned())
}

fn write(path: &Path, value: &str) -> Result<(), HostError> {
    fs::write(path, value).map_err(HostError::file("write", path))
}
