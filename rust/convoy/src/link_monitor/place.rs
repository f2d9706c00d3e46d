//! Finds the interface, which may have been renamed or moved to another network namespace.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use anyhow::{Context, bail};
use convoy_tun::Device;
use futures_util::{StreamExt, TryStreamExt};
use nix::{libc::ino_t, sys::stat::fstat};
use rtnetlink::{
    Error, Handle,
    packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload},
    packet_route::{
        RouteNetlinkMessage,
        link::{LinkAttribute, LinkMessage},
        nsid::{NsidAttribute, NsidMessage},
    },
};

/// Attempts to find the interface while it is being renamed or moved.
const ATTEMPTS: usize = 5;
/// Stands for a namespace without an identifier (`NETNSA_NSID_NOT_ASSIGNED`).
const NOT_ASSIGNED: i32 = -1;

/// An interface, as seen from this network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Identifier of its network namespace; `None` for our own.
    pub(super) namespace: Option<i32>,
    pub(super) index: u32,
}

pub(super) enum Located {
    At(Place, LinkMessage),
    /// It was deleted.
    Gone,
    /// It is in another network namespace, which this process has no right to look at.
    OutOfReach,
}

/// Finds the interface of `device` and its current state.
pub(super) async fn locate(
    handle: &Handle,
    device: &Device,
    own: Option<ino_t>,
) -> anyhow::Result<Located> {
    let mut attempts = 0..ATTEMPTS;
    while let Ok(name) = device.name() {
        if attempts.next().is_none() {
            if is_hidden(device) {
                return Ok(Located::OutOfReach);
            }
            bail!("cannot find the interface {name} in any network namespace within reach");
        }
        let namespace = namespace_of(handle, device, own).await?;
        if let Some(link) = link_by_name(handle, name, namespace).await? {
            let index = link.header.index;
            return Ok(Located::At(Place { namespace, index }, link));
        }
    }
    Ok(Located::Gone)
}

/// Whether this process may not know the interface's network namespace.
fn is_hidden(device: &Device) -> bool {
    let namespace = device.network_namespace();
    namespace.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// Returns the identifier of the interface's network namespace; `None` for our own.
async fn namespace_of(
    handle: &Handle,
    device: &Device,
    own: Option<ino_t>,
) -> anyhow::Result<Option<i32>> {
    let Ok(theirs) = device.network_namespace() else {
        // The kernel lacks TUNGETDEVNETNS, or there is no permission: assume it is here.
        return Ok(None);
    };
    let own = own.context("cannot find this network namespace (fix: mount /proc)")?;
    if fstat(&theirs)?.st_ino == own {
        return Ok(None);
    }
    if identifier(handle, &theirs).await? == NOT_ASSIGNED {
        assign_identifier(handle, &theirs).await?;
    }
    match identifier(handle, &theirs).await? {
        NOT_ASSIGNED => bail!("the interface's network namespace has no identifier"),
        assigned => Ok(Some(assigned)),
    }
}

async fn identifier(handle: &Handle, namespace: &OwnedFd) -> anyhow::Result<i32> {
    let message = RouteNetlinkMessage::GetNsId(about(namespace));
    let mut request = NetlinkMessage::from(message);
    request.header.flags = NLM_F_REQUEST;
    let mut answers = handle.clone().request(request)?;
    while let Some(answer) = answers.next().await {
        match answer.payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNsId(message)) => {
                let id = message.attributes.iter().find_map(|a| match a {
                    NsidAttribute::Id(id) => Some(*id),
                    _ => None,
                });
                return Ok(id.unwrap_or(NOT_ASSIGNED));
            }
            NetlinkPayload::Error(error) => return Err(error.to_io().into()),
            _ => {}
        }
    }
    bail!("the kernel did not answer about a network namespace")
}

async fn assign_identifier(handle: &Handle, namespace: &OwnedFd) -> anyhow::Result<()> {
    let mut message = about(namespace);
    // Lets the kernel choose.
    message.attributes.push(NsidAttribute::Id(NOT_ASSIGNED));
    let mut request = NetlinkMessage::from(RouteNetlinkMessage::NewNsId(message));
    request.header.flags = NLM_F_REQUEST | NLM_F_ACK;
    let mut answers = handle.clone().request(request)?;
    while let Some(answer) = answers.next().await {
        match answer.payload {
            NetlinkPayload::Error(error) if error.code.is_some() => {
                return Err(error.to_io())
                    .context("cannot assign an identifier to the interface's network namespace");
            }
            _ => {}
        }
    }
    Ok(())
}

fn about(namespace: &OwnedFd) -> NsidMessage {
    let mut message = NsidMessage::default();
    // Descriptors are never negative.
    let fd = namespace.as_raw_fd() as u32;
    message.attributes.push(NsidAttribute::Fd(fd));
    message
}

/// `None` if no link has this name there.
async fn link_by_name(
    handle: &Handle,
    name: String,
    namespace: Option<i32>,
) -> anyhow::Result<Option<LinkMessage>> {
    let mut request = handle.link().get().match_name(name);
    let there = namespace.map(LinkAttribute::IfNetnsId);
    request.message_mut().attributes.extend(there);
    match request.execute().try_next().await {
        Ok(link) => Ok(link),
        Err(Error::NetlinkError(error)) if error.raw_code() == -libc::ENODEV => Ok(None),
        Err(error) => Err(error).context("cannot query the interface"),
    }
}
