//! Identifiers of other network namespaces.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use rtnetlink::packet_route::{
    RouteNetlinkMessage,
    nsid::{NsidAttribute, NsidMessage},
};

use crate::{Netlink, error::NetlinkError};

/// Stands for a namespace without an identifier (`NETNSA_NSID_NOT_ASSIGNED`).
const NOT_ASSIGNED: i32 = -1;

impl Netlink {
    /// Finds the identifier that another network namespace has in this one. If it has none, the kernel gives it one.
    pub async fn namespace_id(&self, namespace: BorrowedFd<'_>) -> Result<i32, NetlinkError> {
        if let Some(known) = self.known_id(namespace).await.map_err(about_id("find"))? {
            return Ok(known);
        }
        let mut message = about(namespace);
        message.attributes.push(NsidAttribute::Id(NOT_ASSIGNED));
        let assigned = self.change(RouteNetlinkMessage::NewNsId(message)).await;
        assigned.map_err(about_id("assign"))?;
        let found = self.known_id(namespace).await;
        let found = found.and_then(|id| id.ok_or_else(|| io::ErrorKind::NotFound.into()));
        found.map_err(about_id("find"))
    }

    async fn known_id(&self, namespace: BorrowedFd<'_>) -> io::Result<Option<i32>> {
        let request = RouteNetlinkMessage::GetNsId(about(namespace));
        let found = self.look_up(request).await?;
        let mut attributes = found.iter().flat_map(|answer| match answer {
            RouteNetlinkMessage::NewNsId(message) => &message.attributes[..],
            _ => &[],
        });
        Ok(attributes.find_map(|attribute| match attribute {
            NsidAttribute::Id(id) => Some(*id).filter(|id| *id != NOT_ASSIGNED),
            _ => None,
        }))
    }
}

fn about_id(operation: &'static str) -> impl FnOnce(io::Error) -> NetlinkError {
    NetlinkError::on(operation, "the identifier of a network namespace")
}

fn about(namespace: BorrowedFd<'_>) -> NsidMessage {
    let mut message = NsidMessage::default();
    // Descriptors are never negative.
    let fd = namespace.as_raw_fd() as u32;
    message.attributes.push(NsidAttribute::Fd(fd));
    message
}
