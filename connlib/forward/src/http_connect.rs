//! HTTP's CONNECT (RFC 9110, section 9.3.6): a client names a target and is connected with it.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use convoy_network::{
    Network, Stream,
    counters::Refusal,
    dial::{Target, dial},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use crate::{lingering, login::Login};

/// Time limit for a client to send its request.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// Longer requests are refused.
const LONGEST_REQUEST: usize = 8192;
/// Most headers of a request.
const MOST_HEADERS: usize = 64;

/// Reads a request, connects to the target that it names and answers.
pub(crate) async fn serve(
    mut client: Stream,
    login: Option<&Login>,
    far: &dyn Network,
) -> Result<(Stream, Stream), Refusal> {
    let mut received = Vec::with_capacity(1024);
    let request = timeout(REQUEST_LIMIT, read(&mut client, &mut received, login));
    let outcome = match request.await.unwrap_or(Err(Refusal::Silent)) {
        Ok((target, length)) => dial(far, &target).await.map(|target| (target, length)),
        Err(refusal) => Err(refusal),
    };
    let (mut target, length) = match outcome {
        Ok(connected) => connected,
        Err(refusal) => {
            // Whether the client still listens does not matter.
            let _ = client.write_all(response(refusal).as_bytes()).await;
            lingering::close(client).await;
            return Err(refusal);
        }
    };
    let established = client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n");
    if established.await.is_err() {
        target.close_by_reset();
        return Err(Refusal::Malformed);
    }
    // Bytes that the client sent without waiting for the answer.
    if target.write_all(&received[length..]).await.is_err() {
        client.close_by_reset();
        return Err(Refusal::TargetRefused);
    }
    Ok((client, target))
}

/// Reads until a request is complete; the target and the length of the request.
async fn read(
    client: &mut Stream,
    received: &mut Vec<u8>,
    login: Option<&Login>,
) -> Result<(Target, usize), Refusal> {
    loop {
        if let Some(request) = parse(received, login)? {
            return Ok(request);
        }
        if received.len() >= LONGEST_REQUEST {
            return Err(Refusal::Malformed);
        }
        let mut rest = client.take((LONGEST_REQUEST - received.len()) as u64);
        match rest.read_buf(received).await {
            Ok(0) | Err(_) => return Err(Refusal::Malformed),
            Ok(_) => {}
        }
    }
}

/// The target that a request names, and the request's length; `None` if it is incomplete.
fn parse(received: &[u8], login: Option<&Login>) -> Result<Option<(Target, usize)>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(received) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(Refusal::Malformed),
    };
    if request.method != Some("CONNECT") {
        return Err(Refusal::Unsupported);
    }
    if let Some(login) = login
        && !is_authorized(request.headers, login)
    {
        return Err(Refusal::WrongPassword);
    }
    let target = request.path.unwrap_or_default().parse();
    Ok(Some((target.map_err(|_| Refusal::Malformed)?, length)))
}

/// Returns whether the client gave user and password by the scheme Basic (RFC 7617).
fn is_authorized(headers: &[httparse::Header<'_>], login: &Login) -> bool {
    let is_header =
        |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case("Proxy-Authorization");
    let Some(header) = headers.iter().find(is_header) else {
        return false;
    };
    let Some((scheme, credentials)) = header.value.split_at_checked("Basic ".len()) else {
        return false;
    };
    let Ok(decoded) = STANDARD.decode(credentials.trim_ascii()) else {
        return false;
    };
    let colon = decoded.iter().position(|byte| *byte == b':');
    let Some((user, password)) = colon.and_then(|colon| decoded.split_at_checked(colon)) else {
        return false;
    };
    scheme.eq_ignore_ascii_case(b"Basic ") && login.matches(user, &password[1..])
}

fn response(refusal: Refusal) -> String {
    let (status, more) = match refusal {
        Refusal::Malformed => ("400 Bad Request", ""),
        Refusal::Denied | Refusal::Forbidden | Refusal::TargetDenied | Refusal::Prohibited => {
            ("403 Forbidden", "")
        }
        Refusal::Unsupported => ("405 Method Not Allowed", "Allow: CONNECT\r\n"),
        Refusal::WrongPassword => (
            "407 Proxy Authentication Required",
            "Proxy-Authenticate: Basic realm=\"convoy\"\r\n",
        ),
        Refusal::Silent => ("408 Request Timeout", ""),
        Refusal::TooMany
        | Refusal::TooManyOfPeer
        | Refusal::NoDescriptors
        | Refusal::TooMuchWaiting
        | Refusal::Replaced => ("503 Service Unavailable", ""),
        Refusal::TimedOut => ("504 Gateway Timeout", ""),
        Refusal::UnknownName
        | Refusal::TargetRefused
        | Refusal::Unreachable
        | Refusal::NoRoute
        | Refusal::NoSource => ("502 Bad Gateway", ""),
    };
    format!("HTTP/1.1 {status}\r\n{more}Content-Length: 0\r\nConnection: close\r\n\r\n")
}
