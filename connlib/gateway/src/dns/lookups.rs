//! Look-ups: which queries are admitted, and their answers.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use hickory_resolver::{
    net::{DnsError, NetError},
    proto::op::ResponseCode,
};
use tokio::time::timeout;

use super::{
    message::{Over, Question, Rejected},
    upstream::{Resolvers, Source},
};
use convoy_network::{
    Datagrams,
    counters::{Counters, Refusal},
    shares::{Share, Shares},
};

/// Time limit for a look-up.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest query that is understood. Those of today's programs are below 300 bytes.
pub(super) const LONGEST_QUERY: usize = 4096;

/// The state of a name server.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) source: Source,
    pub(super) queries: Shares,
    pub(super) connections: Shares,
    pub(super) counters: Counters,
}

/// A query that is being looked up.
pub(super) struct Admitted {
    question: Question,
    resolvers: Arc<Resolvers>,
    inner: Arc<Inner>,
    _share: Share,
}

impl Inner {
    /// Begins a look-up; fails with the answer that refuses it, if there is to be one.
    pub(super) fn admit(
        self: &Arc<Self>,
        query: &[u8],
        peer: u32,
        over: Over,
    ) -> Result<Admitted, Option<Vec<u8>>> {
        self.counters.moved.count_outbound(query.len());
        let question = match Question::read(query, over) {
            Ok(question) => question,
            Err(Rejected { reason, answer }) => {
                self.counters.refuse(reason);
                return Err(answer);
            }
        };
        match self.queries.take(peer) {
            Ok(share) => Ok(Admitted {
                question,
                resolvers: self.source.resolvers(),
                inner: Arc::clone(self),
                _share: share,
            }),
            Err(refusal) => {
                self.counters.refuse(refusal);
                Err(Some(question.answer_without_records(ResponseCode::Refused)))
            }
        }
    }

    pub(super) fn send(&self, socket: &Datagrams, answer: &[u8], client: SocketAddr) {
        match socket.try_send_to(answer, client) {
            Ok(sent) => self.counters.moved.count_inbound(sent),
            Err(_) => self.counters.drop_datagrams(1),
        }
    }
}

impl Admitted {
    pub(super) async fn answer(self) -> Vec<u8> {
        let _open = self.inner.counters.open();
        let Self {
            question,
            resolvers,
            ..
        } = &self;
        if question.passes() && !resolvers.know(&question.query) {
            return match self.in_time(resolvers.pass(question)).await {
                Ok(response) => question.pass(&response),
                Err(error) => question.answer(Err(&error)),
            };
        }
        let found = self.in_time(resolvers.lookup(&question.query)).await;
        question.answer(found.as_ref())
    }

    /// Waits for the result, and counts the reason if there is none.
    async fn in_time<T>(
        &self,
        finding: impl Future<Output = Result<T, NetError>>,
    ) -> Result<T, NetError> {
        // Boxed, as it is most of the task.
        let found = timeout(PATIENCE, Box::pin(finding)).await;
        let found = found.unwrap_or(Err(NetError::Timeout));
        if let Some(refusal) = found.as_ref().err().and_then(reason) {
            self.inner.counters.refuse(refusal);
        }
        found
    }
}

/// Returns why a look-up failed; `None` if it found that there is nothing.
fn reason(error: &NetError) -> Option<Refusal> {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(_)) => None,
        NetError::Dns(DnsError::ResponseCode(_)) => Some(Refusal::TargetRefused),
        NetError::Timeout => Some(Refusal::TimedOut),
        NetError::Io(error) => Some(convoy_network::dial::reason(error)),
        _ => Some(Refusal::Unreachable),
    }
}
