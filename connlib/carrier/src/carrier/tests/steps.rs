//! Servers that end the stream at each step of its opening, or stay silent there.

use std::sync::mpsc;

use nix::{
    libc,
    sys::socket::{setsockopt, sockopt},
};

use super::*;

/// A step at which the server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Accepted,
    HeardHello,
    /// Half of the server's part of the handshake is sent.
    SentHalf,
    SentAll,
    /// The handshake is over, and half of a frame is sent.
    Open,
}

const STEPS: [Step; 5] = [
    Step::Accepted,
    Step::HeardHello,
    Step::SentHalf,
    Step::SentAll,
    Step::Open,
];

#[tokio::test]
async fn a_reset_at_any_step_ends_the_stream() {
    for step in STEPS {
        let (why, frames) = ended(step, |stream| {
            let linger = libc::linger {
                l_onoff: 1,
                l_linger: 0,
            };
            setsockopt(&stream, sockopt::Linger, &linger).unwrap();
        })
        .await;
        let is_said = matches!(
            why,
            Closed::Broken(_) | Closed::Connecting(_) | Closed::Tls(..)
        );
        assert!(is_said, "{step:?}: {why:?}");
        assert_eq!(frames, 0, "{step:?}");
    }
}

#[tokio::test]
async fn an_end_at_any_step_ends_the_stream() {
    for step in STEPS {
        let (why, frames) = ended(step, |stream| {
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            // Until the client has gone: with bytes unread, closing would reset the stream.
            let _ = (&stream).read_to_end(&mut Vec::new());
        })
        .await;
        let words = match step {
            Step::Open => "the server has closed the connection",
            _ => "no TLS with relay.test: the server has closed the connection",
        };
        // The server has all of the handshake but its last part, which the client sends at once.
        let is_open = step == Step::SentAll && why == Closed::ByServer;
        assert!(is_open || why.to_string() == words, "{step:?}: {why}");
        assert_eq!(frames, 0, "{step:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_silent_at_any_step_costs_no_work() {
    for step in STEPS {
        let authority = Authority::new();
        let (told, is_there) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let (server, _) = serve_until(&authority, step, move |stream| {
            told.send(()).unwrap();
            let _ = may_go_on.recv();
            drop(stream);
        });
        let mut carrier = Carrier::open(server, Some(&authority.tls(NAME)), None);
        while is_there.try_recv().is_err() {
            super::step(&mut carrier).await;
        }
        // What was on its way is taken; then there is nothing to do, and nothing to wait for.
        while carrier.receive() || timeout(QUIET, carrier.ready(true)).await.is_ok() {
            carrier.flush();
        }
        assert!(!matches!(carrier.phase(), Phase::Closed(_)), "{step:?}");
        let is_open = matches!(step, Step::SentAll | Step::Open);
        assert_eq!(carrier.phase() == Phase::Open, is_open, "{step:?}");
        drop(go_on);
    }
}

/// Silence after which no news are on their way on this machine; more of them would not be missed.
const QUIET: Duration = Duration::from_millis(200);

/// Runs a client until `end` has ended its stream; returns the reason and the number of frames.
async fn ended(step: Step, end: impl FnOnce(TcpStream) + Send + 'static) -> (Closed, usize) {
    let authority = Authority::new();
    let (server, serving) = serve_until(&authority, step, end);
    let mut carrier = Carrier::open(server, Some(&authority.tls(NAME)), None);
    let why = closed(&mut carrier).await;
    let frames = carrier.frames().count();
    drop(carrier);
    serving.join().unwrap();
    (why, frames)
}

/// Serves one connection up to a step, then calls `end`.
fn serve_until(
    authority: &Authority,
    last: Step,
    end: impl FnOnce(TcpStream) + Send + 'static,
) -> (SocketAddr, thread::JoinHandle<()>) {
    let config = authority.server(CertificateParams::new([NAME.to_owned()]).unwrap());
    serve(move |mut stream| {
        let mut connection = ServerConnection::new(config).unwrap();
        if last == Step::Open {
            let mut tls = rustls::Stream::new(&mut connection, &mut stream);
            tls.write_all(&frame(1, 100)[..50]).unwrap();
            tls.flush().unwrap();
        } else if last != Step::Accepted {
            while connection.wants_read() && !connection.wants_write() {
                connection.read_tls(&mut stream).unwrap();
                connection.process_new_packets().unwrap();
            }
            let mut flight = Vec::new();
            while connection.wants_write() {
                connection.write_tls(&mut flight).unwrap();
            }
            let sent = match last {
                Step::HeardHello => 0,
                Step::SentHalf => flight.len() / 2,
                _ => flight.len(),
            };
            stream.write_all(&flight[..sent]).unwrap();
        }
        end(stream);
    })
}
