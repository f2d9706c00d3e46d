//! Metrics of a client, served by its supervisor: the tunnel's report and the supervisor's own facts.

use std::{
    convert::Infallible,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    time::Duration,
};

use anyhow::Context;
use convoy_config::InterfaceName;
use convoy_keeper::tunnel;
use convoy_metrics::{self as metrics, Client, DaemonArgs, Listening, Observation, Pause, Source};
use convoy_process::socket::SocketFile;
use tokio::{
    sync::{mpsc, oneshot},
    task::AbortHandle,
    time::{Instant, sleep_until, timeout},
};
use tracing::error;

/// Time limit for the supervisor's answer: it may be changing the host.
const PATIENCE: Duration = Duration::from_secs(4);

/// Time limit for answers in progress when another version is about to take over: none that waits for this process is cut
/// off, even on a busy machine.
const FINISH_TIME: Duration = PATIENCE.saturating_add(Duration::from_secs(1));

/// The most questions that wait for the supervisor: one per connection.
const MAX_QUESTIONS: usize = 8;

/// A request for the supervisor's own facts.
pub(crate) type Question = oneshot::Sender<Client>;

/// The supervisor's end of the server. Dropping it ends the server and removes its socket.
#[derive(Debug)]
pub(crate) struct Metrics {
    questions: mpsc::Receiver<Question>,
    serving: AbortHandle,
    file: Option<SocketFile>,
    pauses: mpsc::Sender<Pause>,
    /// Descriptor of the listening socket, handed to another version.
    descriptor: OwnedFd,
}

/// The server accepts nothing until this is dropped.
#[derive(Debug)]
pub(crate) struct Paused {
    _until: oneshot::Sender<Infallible>,
}

impl Metrics {
    /// Serves the metrics of the tunnel `name` if the command line says where; call it within a tokio runtime.
    pub(crate) fn serve(args: &DaemonArgs, name: &InterfaceName) -> anyhow::Result<Option<Self>> {
        let Some(listening) = Listening::inherit(&args.metrics)? else {
            return Ok(None);
        };
        let file = listening.file().cloned();
        let descriptor = listening.descriptor();
        let descriptor = descriptor.context("cannot duplicate the metrics' socket")?;
        let (pauses, paused) = mpsc::channel(1);
        let (sender, questions) = mpsc::channel(MAX_QUESTIONS);
        let source = Supervised {
            name: name.clone(),
            questions: sender,
        };
        let serving = tokio::spawn(async {
            let Err(error) = metrics::serve(listening, source, paused).await;
            error!("cannot serve metrics: {error}");
        });
        Ok(Some(Self {
            questions,
            serving: serving.abort_handle(),
            file,
            pauses,
            descriptor,
        }))
    }

    /// Lets the server finish its answers within [`FINISH_TIME`] and accept no more connections.
    pub(crate) async fn pause(&mut self, answer: impl AsyncFn() -> Client) -> Paused {
        let (idle, mut is_idle) = oneshot::channel();
        let (until, over) = oneshot::channel();
        let paused = Paused { _until: until };
        if self.pauses.try_send(Pause { idle, over }).is_err() {
            return paused;
        }
        let deadline = Instant::now() + FINISH_TIME;
        loop {
            tokio::select! {
                // The client may have left.
                Some(question) = self.questions.recv() => drop(question.send(answer().await)),
                _ = &mut is_idle => return paused,
                () = sleep_until(deadline) => return paused,
            }
        }
    }

    /// The listening socket.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.serving.abort();
        if let Some(file) = &self.file {
            file.remove();
        }
    }
}

/// The next question; none if there are no metrics. Cancel-safe.
pub(crate) async fn next_question(metrics: &mut Option<Metrics>) -> Question {
    match metrics {
        // It ends only if the server does, which has been logged.
        Some(metrics) => match metrics.questions.recv().await {
            Some(question) => question,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

/// Returns the tunnel as its supervisor and its process see it.
#[derive(Debug)]
struct Supervised {
    name: InterfaceName,
    questions: mpsc::Sender<Question>,
}

impl Source for Supervised {
    async fn observe(&self) -> Observation {
        let interface = self.name.as_str().to_owned();
        let Ok(Some(client)) = timeout(PATIENCE, self.ask()).await else {
            let reason = "its supervisor is busy, or brings it up or down";
            return Observation {
                interface,
                report: Err(reason.to_owned()),
                client: None,
            };
        };
        let report = tunnel::report(&self.name).await;
        Observation {
            interface,
            report: report.map_err(|error| format!("{error:#}")),
            client: Some(client),
        }
    }
}

impl Supervised {
    async fn ask(&self) -> Option<Client> {
        let (question, answer) = oneshot::channel();
        self.questions.send(question).await.ok()?;
        answer.await.ok()
    }
}
