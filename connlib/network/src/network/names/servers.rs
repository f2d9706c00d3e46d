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
        op::ResponseCode,
        rr::{Name, RecordType},
    },
};
use tokio::time::{Instant, timeout};

/// Time for a server's answer before the next one is asked.
const PATIENCE: Duration = Duration::from_millis(2_500);
/// Number of times that all servers are asked, since queries and answers may be lost.
const ROUNDS: u32 = 2;
/// Time for which a server that did not help is asked last.
const REMEMBERED: Duration = Duration::from_secs(30);

/// A resolver for each name server, in their order.
pub struct Servers<P: ConnectionProvider>(Vec<Server<P>>);

/// One of them.
pub struct Server<P: ConnectionProvider> {
    /// The address of the server.
    pub at: SocketAddr,
    resolver: Resolver<P>,
    /// Time at which it last did not help.
    failed: Mutex<Option<Instant>>,
}

impl<P: ConnectionProvider> Servers<P> {
    /// Creates it of resolvers, each of which asks one server, in the order in which they are to be asked.
    pub fn new(resolvers: impl IntoIterator<Item = (SocketAddr, Resolver<P>)>) -> Self {
        let server = |(at, resolver)| Server {
            at,
            resolver,
            failed: Mutex::new(None),
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
        self.ask(|server| Box::pin(server.resolver.lookup(name.clone(), kind)))
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
                let found = timeout(PATIENCE, ask(server)).await;
                let found = found.unwrap_or(Err(NetError::Timeout));
                let helps = found.as_ref().map_or_else(is_final, |_| true);
                let is_remembered = found.as_ref().is_err_and(is_about_all_names);
                *server.failed() = is_remembered.then(Instant::now);
                match found {
                    Err(error) if !helps => failure = error,
                    found => return found,
                }
            }
        }
        Err(failure)
    }

    /// The servers in their order, but last those that lately did not help.
    fn in_order(&self) -> impl Iterator<Item = &Server<P>> {
        let (mut last, mut first) = (Vec::new(), Vec::new());
        for server in &self.0 {
            let has_failed = |at: Instant| at.elapsed() < REMEMBERED;
            match server.failed().is_some_and(has_failed) {
                true => last.push(server),
                false => first.push(server),
            }
        }
        first.into_iter().chain(last)
    }
}

impl<P: ConnectionProvider> Server<P> {
    fn failed(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a server that does not help would not help with other names, either. `SERVFAIL` is about one: whoever chooses
/// that name could otherwise have the others asked of the next server.
fn is_about_all_names(error: &NetError) -> bool {
    let is_about_one = matches!(
        error,
        NetError::Dns(DnsError::ResponseCode(ResponseCode::ServFail))
    );
    !is_about_one && !is_final(error)
}

/// Whether another server would know no better.
fn is_final(error: &NetError) -> bool {
    matches!(error, NetError::Dns(DnsError::NoRecordsFound(_)))
}
