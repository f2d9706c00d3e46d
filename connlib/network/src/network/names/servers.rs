//! Name servers, of which the next one is asked only if those before it do not help.

use std::{
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;
use hickory_resolver::{
    ConnectionProvider, Resolver,
    config::ResolverOpts,
    lookup::Lookup,
    net::{DnsError, NetError},
    proto::{
        op::{Message, ResponseCode},
        rr::{Name, RecordType},
    },
};
use tokio::time::{Instant, timeout};

/// Time for a server's answer before the next one is asked.
const PATIENCE: Duration = Duration::from_millis(2_500);
/// Number of times that all servers are asked, since queries and answers may be lost.
const ROUNDS: u32 = 2;
/// Time for which a server that was silent is asked last.
const REMEMBERED: Duration = Duration::from_secs(30);

/// Bytes of a long answer: one that no datagram without EDNS carries (RFC 1035, section 2.3.4).
const LONG: usize = 512;
/// Bytes of long answers after which a server's answers are forgotten: a resolver bounds the number of those that it
/// remembers, and needs up to fifty times as many bytes for each.
const MOST_LONG: usize = 256 << 10;

/// A resolver for each name server, in their order.
pub struct Servers<P: ConnectionProvider>(Vec<Server<P>>);

/// One of them.
pub struct Server<P: ConnectionProvider> {
    /// The address of the server.
    pub at: SocketAddr,
    resolver: Resolver<P>,
    state: Mutex<State>,
}

/// Knowledge of a server's answers.
#[derive(Clone, Copy, Default)]
struct State {
    /// Time of its last answer, whatever that was.
    answered: Option<Instant>,
    /// Time at which it was last found silent.
    silent: Option<Instant>,
    /// Bytes of its long answers since all were forgotten.
    long: usize,
}

impl<P: ConnectionProvider> Servers<P> {
    /// Creates it of resolvers, each of which asks one server, in the order in which they are to be asked.
    pub fn new(resolvers: impl IntoIterator<Item = (SocketAddr, Resolver<P>)>) -> Self {
        let server = |(at, resolver)| Server {
            at,
            resolver,
            state: Mutex::default(),
        };
        Self(resolvers.into_iter().map(server).collect())
    }

    /// Sets the options of each resolver: it asks once and has one server, so that the order is kept here.
    pub fn limit(options: &mut ResolverOpts) {
        options.timeout = PATIENCE;
        options.attempts = 0;
        options.num_concurrent_reqs = 1;
    }

    /// Asks the servers for a name's records until one knows whether there are some.
    pub async fn lookup(&self, name: Name, kind: RecordType) -> Result<Lookup, NetError> {
        self.ask(|server| Box::pin(server.lookup(name.clone(), kind)))
            .await
    }

    /// Asks the servers, by a function that asks one of them, until one helps.
    pub async fn ask<'a, T>(
        &'a self,
        ask: impl Fn(&'a Server<P>) -> BoxFuture<'a, Result<T, NetError>>,
    ) -> Result<T, NetError> {
        let mut failure = NetError::NoConnections;
        for _ in 0..ROUNDS {
            for server in self.in_order() {
                let begun = Instant::now();
                let found = timeout(PATIENCE, ask(server)).await;
                let found = found.unwrap_or(Err(NetError::Timeout));
                let helps = found.as_ref().map_or_else(is_final, |_| true);
                let is_silent = found.as_ref().is_err_and(is_silence);
                server.state().note(begun, is_silent);
                match found {
                    Err(error) if !helps => failure = error,
                    found => return found,
                }
            }
        }
        Err(failure)
    }

    /// The servers in their order, but last those that were silent lately.
    fn in_order(&self) -> impl Iterator<Item = &Server<P>> {
        let (mut last, mut first) = (Vec::new(), Vec::new());
        for server in &self.0 {
            let is_lately = |at: Instant| at.elapsed() < REMEMBERED;
            match server.state().silent.is_some_and(is_lately) {
                true => last.push(server),
                false => first.push(server),
            }
        }
        first.into_iter().chain(last)
    }
}

impl<P: ConnectionProvider> Server<P> {
    /// Asks it for a name's records. If it only refers to other servers, it has refused.
    async fn lookup(&self, name: Name, kind: RecordType) -> Result<Lookup, NetError> {
        let found = self.resolver.lookup(name, kind).await;
        if self.state().has_too_many_long(length(&found)) {
            self.resolver.clear_cache();
        }
        found.map_err(|error| match is_referral(&error) {
            true => DnsError::ResponseCode(ResponseCode::Refused).into(),
            false => error,
        })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes note of what became of a question that was asked at `begun`.
    ///
    /// A server that answers others meanwhile is not silent. Nor is one that fails for a name, whatever its reason is:
    /// whoever chooses that name could otherwise have the others asked of the next server, which may not know them.
    fn note(&mut self, begun: Instant, is_silent: bool) {
        let now = Instant::now();
        if !is_silent {
            (self.answered, self.silent) = (Some(now), None);
        } else if self.answered.is_none_or(|at| at <= begun) {
            self.silent = Some(now);
        }
    }

    /// Counts an answer of this length, which may be one that was remembered; returns whether all are to be forgotten.
    fn has_too_many_long(&mut self, length: usize) -> bool {
        if length > LONG {
            self.long += length;
        }
        let has_too_many = self.long > MOST_LONG;
        if has_too_many {
            self.long = 0;
        }
        has_too_many
    }
}

/// The length of what a resolver remembers of an answer, as a message.
fn length(found: &Result<Lookup, NetError>) -> usize {
    let encoded = match found {
        Ok(found) => found.message().to_vec(),
        Err(NetError::Dns(DnsError::NoRecordsFound(none))) => {
            let mut message = Message::query();
            let authorities = none.authorities.iter().flat_map(|it| it.iter());
            message.authorities = authorities.cloned().collect();
            let servers = none.ns.iter().flat_map(|it| it.iter());
            message.additionals = servers.flat_map(|it| it.glue.iter().cloned()).collect();
            message.to_vec()
        }
        Err(_) => return 0,
    };
    encoded.map_or(usize::from(u16::MAX), |it| it.len())
}

/// Returns whether nothing has come from a server.
fn is_silence(error: &NetError) -> bool {
    matches!(
        error,
        NetError::Timeout | NetError::Io(_) | NetError::NoConnections | NetError::Busy
    )
}

/// Returns whether another server would know no better: there is no such name, or it has no such records.
fn is_final(error: &NetError) -> bool {
    matches!(error, NetError::Dns(DnsError::NoRecordsFound(_)))
}

/// Returns whether a server only refers to those of a zone, so that it looks no names up: there are some, and no start
/// of authority (RFC 2308, section 2.2).
fn is_referral(error: &NetError) -> bool {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => {
            let is_error = none.response_code != ResponseCode::NoError;
            !is_error && none.ns.is_some() && none.soa.is_none()
        }
        _ => false,
    }
}
