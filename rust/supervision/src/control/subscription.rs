//! A client that follows the events: after the answer to its request, each is a line of JSON, until either end closes.

use std::sync::Arc;

use convoy_process::message::Connection;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::timeout,
};

use super::requests::{Asked, PATIENCE, Reply, Request, answer};
use crate::events::{Event, QUEUE};

/// The most subscribers at once; further ones are refused. They do not count as clients, whose places may be needed to
/// take the tunnel down.
pub(super) const MAX_SUBSCRIBERS: usize = 8;

/// Serves a client that has asked for events.
pub(super) async fn serve(
    mut subscriber: Connection,
    requests: mpsc::Sender<Asked>,
    client: OwnedSemaphorePermit,
    places: Arc<Semaphore>,
) {
    let place = places.try_acquire_owned();
    let (sender, events) = mpsc::channel(QUEUE);
    let reply = match &place {
        Ok(_) => answer(Request::Subscribe, Some(sender), &requests).await,
        Err(_) => Reply::Failed {
            reason: format!("{MAX_SUBSCRIBERS} programs follow its events already"),
        },
    };
    let written = timeout(PATIENCE, subscriber.send(&reply)).await;
    drop(client);
    if matches!((written, reply), (Ok(Ok(())), Reply::Done { .. })) {
        pass_on(subscriber, events).await;
    }
    drop(place);
}

async fn pass_on(mut subscriber: Connection, mut events: mpsc::Receiver<Event>) {
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            // A subscriber sends nothing more, so it has left.
            _ = subscriber.next::<Request>() => return,
        };
        let queued = event.is_some_and(|event| subscriber.queue(&event).is_ok());
        if !queued {
            return;
        }
        while subscriber.is_behind() {
            match subscriber.next_or_flushed::<Request>().await {
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
        net::UnixStream,
    };

    use super::*;
    use crate::{control::Control, events::What};

    #[tokio::test]
    async fn a_subscriber_gets_events_until_it_leaves() {
        let scene = Scene::new();
        let mut control = Control::listen(&scene.path).unwrap();
        let mut client = scene.subscribe().await;
        let events = accepted(&mut control).await;
        assert_eq!(line(&mut client).await, r#"{"done":{"warnings":[]}}"#);
        for what in [What::WokeUp, What::NetworkChanged] {
            let event = Event::now("wg0", what);
            let expected = serde_json::to_string(&event).unwrap();
            events.send(event).await.unwrap();
            assert_eq!(line(&mut client).await, expected);
        }
        drop(client);
        events.closed().await;
    }

    #[tokio::test]
    async fn a_subscription_ends_with_the_supervisors_interest() {
        let scene = Scene::new();
        let mut control = Control::listen(&scene.path).unwrap();
        let mut client = scene.subscribe().await;
        drop(accepted(&mut control).await);
        line(&mut client).await;
        assert_eq!(client.next_line().await.unwrap(), None);
    }

    #[tokio::test]
    async fn further_subscribers_are_refused_and_clients_are_not() {
        let scene = Scene::new();
        let mut control = Control::listen(&scene.path).unwrap();
        let mut subscribed = Vec::new();
        for _ in 0..MAX_SUBSCRIBERS {
            let mut client = scene.subscribe().await;
            let events = accepted(&mut control).await;
            line(&mut client).await;
            subscribed.push((client, events));
        }
        let refused = line(&mut scene.subscribe().await).await;
        assert!(refused.contains("follow its events already"), "{refused}");
        let _client = scene.ask("\"status\"\n").await;
        assert_eq!(control.next().await.request, Request::Status);
        drop(subscribed.pop());
        // Its place is free as soon as its client sees the end.
        loop {
            let mut client = scene.subscribe().await;
            tokio::select! {
                asked = control.next() => break assert_eq!(asked.request, Request::Subscribe),
                refused = line(&mut client) => assert!(refused.contains("failed"), "{refused}"),
            }
        }
    }

    struct Scene {
        path: std::path::PathBuf,
        _directory: tempfile::TempDir,
    }

    impl Scene {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            Self {
                path: directory.path().join("wg0.control"),
                _directory: directory,
            }
        }

        async fn subscribe(&self) -> Lines<BufReader<UnixStream>> {
            self.ask("\"subscribe\"\n").await
        }

        async fn ask(&self, request: &str) -> Lines<BufReader<UnixStream>> {
            let mut client = UnixStream::connect(&self.path).await.unwrap();
            client.write_all(request.as_bytes()).await.unwrap();
            BufReader::new(client).lines()
        }
    }

    async fn accepted(control: &mut Control) -> mpsc::Sender<Event> {
        let asked = control.next().await;
        assert_eq!(asked.request, Request::Subscribe);
        let warnings = Vec::new();
        asked.reply.send(Reply::Done { warnings }).unwrap();
        asked.subscriber.unwrap()
    }

    async fn line(client: &mut Lines<BufReader<UnixStream>>) -> String {
        client.next_line().await.unwrap().unwrap()
    }
}
