//! Identifiers of other network namespaces.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use rtnetlink::{
    packet_core::NLM_F_ACK,
    packet_route::{
        RouteNetlinkMessage,
        nsid::{NsidAttribute, NsidMessage},
    },
};

use crate::{Netlink, error::NetlinkError};

/// Stands for a namespace without an identifier (`NETNSA_NSID_NOT_ASSIGNED`).
const NOT_ASSIGNED: i32 = -1;

impl Netlink {
    /// Finds the identifier that another network namespace has in this one; `None` if it has none.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub async fn namespace_id(
        &self,
        namespace: BorrowedFd<'_>,
    ) -> Result<Option<i32>, NetlinkError> {
        let request = RouteNetlinkMessage::GetNsId(about(namespace));
        let found = self.ask(request, 0).await;
        let answer = found.and_then(|found| {
            let mut answers = found.into_iter().filter_map(|answer| match answer {
                RouteNetlinkMessage::NewNsId(message) => Some(message),
                _ => None,
            });
            let none = || io::Error::other("the kernel did not answer");
            answers.next().ok_or_else(none)
        });
        let answer = answer.map_err(NetlinkError::on("look up", "a network namespace"))?;
        let mut ids = answer.attributes.iter().filter_map(|it| match it {
            NsidAttribute::Id(id) => Some(*id),
            _ => None,
        });
        Ok(ids.next().filter(|id| *id != NOT_ASSIGNED))
    }

    /// Gives an identifier to another network namespace, which the kernel chooses.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub async fn assign_namespace_id(&self, namespace: BorrowedFd<'_>) -> Result<(), NetlinkError> {
        let mut message = about(namespace);
        message.attributes.push(NsidAttribute::Id(NOT_ASSIGNED));
        let assigned = self.ask(RouteNetlinkMessage::NewNsId(message), NLM_F_ACK);
        let object = "an identifier to a network namespace";
        assigned.await.map_err(NetlinkError::on("assign", object))?;
        Ok(())
    }
}

fn about(namespace: BorrowedFd<'_>) -> NsidMessage {
    let mut message = NsidMessage::default();
    // Descriptors are never negative.
    let fd = namespace.as_raw_fd() as u32;
    message.attributes.push(NsidAttribute::Fd(fd));
    message
}
