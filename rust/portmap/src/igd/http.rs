//! HTTP to the router, by connections that stay outside of the tunnel: bounded in size and time, without redirects.

use std::{io, net::Ipv4Addr, time::Duration};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Method, Request, StatusCode,
    body::Bytes,
    client::conn::http1,
    header::{CONNECTION, CONTENT_TYPE, HOST},
};
use hyper_util::rt::TokioIo;
use nix::sys::socket::{setsockopt, sockopt};
use thiserror::Error;
use tokio::{
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use super::Place;

/// Most bytes of an answer's body.
const MAX_BODY: usize = 64 << 10;
/// Most bytes of an answer's head.
const MAX_HEAD: usize = 16 << 10;
/// Most headers of an answer.
const MAX_HEADERS: usize = 64;
/// Time for one request and all of its answer.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(3);

/// The router, and the way to it.
#[derive(Clone, Debug)]
pub(super) struct Router {
    pub(super) address: Ipv4Addr,
    pub(super) interface: String,
    pub(super) mark: Option<u32>,
}

/// Why there is no answer of use.
#[derive(Debug, Error)]
pub(super) enum HttpError {
    #[error("no connection: {0}")]
    Connection(#[from] io::Error),
    #[error("no HTTP: {0}")]
    Protocol(#[from] hyper::Error),
    #[error("no request: {0}")]
    Request(#[from] hyper::http::Error),
    #[error("the answer's body is too long or breaks off: {0}")]
    Body(#[from] Box<dyn std::error::Error + Send + Sync>),
    #[error("the status {0}")]
    Status(StatusCode),
    #[error("no answer within {} s", TIME_LIMIT.as_secs())]
    Late,
}

impl Router {
    /// Reads a document.
    pub(super) async fn get(&self, place: &Place) -> Result<Bytes, HttpError> {
        let request = self.request(Method::GET, place);
        let request = request.body(Full::default())?;
        match self.exchange(place, request).await? {
            (StatusCode::OK, body) => Ok(body),
            (status, _) => Err(HttpError::Status(status)),
        }
    }

    /// Sends a SOAP request; returns the status and the body of its answer.
    pub(super) async fn post(
        &self,
        place: &Place,
        action: &str,
        body: String,
    ) -> Result<(StatusCode, Bytes), HttpError> {
        let request = self.request(Method::POST, place);
        let request = request.header(CONTENT_TYPE, "text/xml; charset=\"utf-8\"");
        let request = request.header("SOAPAction", format!("\"{action}\""));
        let request = request.body(Full::from(body))?;
        self.exchange(place, request).await
    }

    fn request(&self, method: Method, place: &Place) -> hyper::http::request::Builder {
        let host = format!("{}:{}", self.address, place.port);
        let request = Request::builder().method(method).uri(&place.path);
        request.header(HOST, host).header(CONNECTION, "close")
    }

    async fn exchange(
        &self,
        place: &Place,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), HttpError> {
        let exchanged = timeout(TIME_LIMIT, self.exchange_now(place, request)).await;
        exchanged.unwrap_or(Err(HttpError::Late))
    }

    async fn exchange_now(
        &self,
        place: &Place,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), HttpError> {
        let stream = self.connect(place.port).await?;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(MAX_HEAD).max_headers(MAX_HEADERS);
        let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        let answer = async {
            let response = sender.send_request(request).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_BODY);
            let body = body.collect().await?;
            Ok((status, body.to_bytes()))
        };
        let mut connection = std::pin::pin!(connection);
        let mut answer = std::pin::pin!(answer);
        tokio::select! {
            answer = &mut answer => answer,
            // What has arrived is still to be read.
            ended = &mut connection => match ended {
                Ok(()) => answer.await,
                Err(error) => Err(error.into()),
            },
        }
    }

    async fn connect(&self, port: u16) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        if let Some(mark) = self.mark {
            setsockopt(&socket, sockopt::Mark, &mark)?;
        }
        if !self.interface.is_empty() {
            socket.bind_device(Some(self.interface.as_bytes()))?;
        }
        socket.connect((self.address, port).into()).await
    }
}
