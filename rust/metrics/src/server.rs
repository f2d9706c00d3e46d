//! The HTTP server: one request per connection, so that nobody occupies a connection that is not in use.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use bytes::Bytes;
use convoy_process as process;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{sleep, timeout},
};
use tracing::{debug, warn};

use super::{Listening, Observation, Source, families, health, listen::Stream, token::Token};

/// The most connections at once.
const MAX_CONNECTIONS: usize = 8;

const LIMITS: Limits = Limits {
    request: Duration::from_secs(5),
    observation: Duration::from_secs(8),
    connection: Duration::from_secs(30),
};

/// How long a request, an observation and a whole connection may take.
#[derive(Clone, Copy, Debug)]
struct Limits {
    request: Duration,
    observation: Duration,
    connection: Duration,
}

/// Most bytes of a request.
const MAX_REQUEST: usize = 16 << 10;
/// Most headers of a request.
const MAX_HEADERS: usize = 64;

/// How long to wait when the process is out of file descriptors.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// After an answer of at least this many bytes, freed memory goes back to the kernel.
const LARGE: usize = 1 << 20;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// Stops the server from accepting: further connections wait in the kernel.
#[derive(Debug)]
pub struct Pause {
    /// Told once all connections are closed.
    pub idle: oneshot::Sender<()>,
    /// Closed at the end of the pause.
    pub over: oneshot::Receiver<Infallible>,
}

/// Answers for ever, except while it is paused. Dropping the future closes all connections.
///
/// # Errors
/// If the socket cannot be used.
pub async fn serve(
    listening: Listening,
    source: impl Source,
    pauses: mpsc::Receiver<Pause>,
) -> io::Result<Infallible> {
    serve_within(listening, source, pauses, LIMITS).await
}

async fn serve_within(
    listening: Listening,
    source: impl Source,
    mut pauses: mpsc::Receiver<Pause>,
    limits: Limits,
) -> io::Result<Infallible> {
    let (accepting, token) = listening.accepting()?;
    let service = Arc::new(Service {
        token,
        source,
        limits,
    });
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = accepting.next(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok(stream) => drop(connections.spawn(converse(stream, Arc::clone(&service)))),
                Err(error) => {
                    warn!("metrics: cannot accept a connection: {error}");
                    sleep(EXHAUSTED_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
            Some(Pause { idle, over }) = pauses.recv() => {
                while connections.join_next().await.is_some() {}
                // Whoever has asked may have lost patience.
                let _ = idle.send(());
                let _ = over.await;
            }
        }
    }
}

#[derive(Debug)]
struct Service<S> {
    token: Option<Token>,
    source: S,
    limits: Limits,
}

/// Answers one request.
async fn converse<S: Source>(stream: Box<dyn Stream>, service: Arc<Service<S>>) {
    let limits = service.limits;
    let respond = service_fn(|request: Request<Incoming>| {
        let service = Arc::clone(&service);
        // The body is not read.
        let request = request.map(drop);
        async move { Ok::<_, Infallible>(service.respond(&request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.request)
        .max_buf_size(MAX_REQUEST)
        .max_headers(MAX_HEADERS)
        .keep_alive(false)
        // A client may close its half of the connection once it has sent its request.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), respond);
    match timeout(limits.connection, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!("metrics: a connection ended early: {error}"),
        Err(_) => debug!(
            "metrics: a connection took longer than {:?}",
            limits.connection
        ),
    }
}

impl<S: Source> Service<S> {
    async fn respond(&self, request: &Request<()>) -> Response<Full<Bytes>> {
        let borne = request.headers().get(AUTHORIZATION);
        if self
            .token
            .as_ref()
            .is_some_and(|token| !token.is_borne_by(borne))
        {
            let mut response = say(
                StatusCode::UNAUTHORIZED,
                "the bearer token is missing or wrong",
            );
            let wanted = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, wanted);
            return response;
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = say(StatusCode::METHOD_NOT_ALLOWED, "use GET");
            let allowed = HeaderValue::from_static("GET, HEAD");
            response.headers_mut().insert(ALLOW, allowed);
            return response;
        }
        let answer = match request.uri().path() {
            "/metrics" => metrics,
            "/healthz" => healthz,
            _ => return say(StatusCode::NOT_FOUND, "there are /metrics and /healthz"),
        };
        let time = self.limits.observation;
        match timeout(time, self.source.observe()).await {
            Ok(observation) => answer(observation),
            Err(_) => say(
                StatusCode::SERVICE_UNAVAILABLE,
                &format!("the tunnel does not answer within {time:?}"),
            ),
        }
    }
}

fn metrics(observation: Observation) -> Response<Full<Bytes>> {
    match families::text(observation, jiff::Timestamp::now()) {
        Ok(text) => {
            if text.len() >= LARGE {
                process::return_freed_memory();
            }
            response(StatusCode::OK, OPEN_METRICS, text)
        }
        // It writes to a string, which takes everything.
        Err(error) => say(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn healthz(observation: Observation) -> Response<Full<Bytes>> {
    match health::check(&observation, jiff::Timestamp::now()) {
        Ok(()) => say(StatusCode::OK, "ok"),
        Err(ill) => say(StatusCode::SERVICE_UNAVAILABLE, &ill.to_string()),
    }
}

/// Answers with one line.
fn say(status: StatusCode, line: &str) -> Response<Full<Bytes>> {
    let line = line.replace(char::is_control, " ");
    response(status, PLAIN, format!("{line}\n"))
}

fn response(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests;
