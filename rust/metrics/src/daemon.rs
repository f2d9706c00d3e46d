//! The tunnel of this process, and the metrics of a daemon.

use std::{convert::Infallible, sync::Arc};

use anyhow::Context;
use convoy_daemon::{Metrics, supervised::Consenting};
use convoy_process::socket::SocketFile;
use convoy_proto::{config::Snapshot, leave_no_trace};
use convoy_report::Report;
use convoy_stats as stats;
use convoy_tunnel::Tunnel;
use convoy_uapi::{Control, Reporter};
use tokio::sync::{Semaphore, mpsc};

use super::{Listening, MetricsArgs, Observation, Source, serve};

/// Observes the tunnel in this process.
#[derive(Debug)]
pub(crate) struct OwnTunnel<C> {
    reporter: Arc<Reporter<C>>,
    /// One observation at a time: each blocks a thread until the event loop answers.
    turn: Arc<Semaphore>,
}

impl<C: Control> OwnTunnel<C> {
    pub(crate) fn new(reporter: Arc<Reporter<C>>) -> Self {
        Self {
            reporter,
            turn: Arc::new(Semaphore::new(1)),
        }
    }
}

impl<C: Control> Source for OwnTunnel<C> {
    async fn observe(&self) -> Observation {
        let reporter = Arc::clone(&self.reporter);
        let turn = Arc::clone(&self.turn).acquire_owned().await;
        let observed = tokio::task::spawn_blocking(move || {
            // Until the answer has come, even if nobody waits for it any more.
            let _turn = turn;
            // A snapshot holds the private key.
            leave_no_trace(|| reporter.report())
        });
        let report = match observed.await {
            Ok(report) => report.map_err(|error| error.to_string()),
            Err(_) => Err("it is ending".to_owned()),
        };
        Observation {
            interface: self.reporter.interface().to_owned(),
            report,
            client: None,
        }
    }
}

impl Metrics for MetricsArgs {
    type Listening = Listening;

    fn report(interface: &str, snapshot: &Snapshot) -> Report {
        stats::report(interface, snapshot)
    }

    fn listen(&self) -> anyhow::Result<Option<Listening>> {
        Listening::open(self)
    }

    fn file(listening: &Listening) -> Option<&SocketFile> {
        listening.file()
    }

    async fn serve(
        listening: Listening,
        reporter: Arc<Reporter<Consenting<Tunnel>>>,
    ) -> anyhow::Result<Infallible> {
        let (_, never_paused) = mpsc::channel(1);
        let served = serve(listening, OwnTunnel::new(reporter), never_paused).await;
        served.context("cannot serve metrics")
    }
}
