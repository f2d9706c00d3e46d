//! Gateways on the loopback interface, each at an address of its own.

use std::sync::{Arc, Mutex};

use super::*;
use crate::exchange::PORT;

const OUTSIDE: [u8; 4] = [198, 51, 100, 7];

#[tokio::test]
async fn a_port_is_granted_for_udp_and_tcp_and_given_back() {
    let gateway = Gateway::start(1, |request| grants(request, 4000, 60)).await;
    let (port, lease) = ask(&gateway.target, None).await.unwrap();
    assert_eq!((port.port, lease), (4000, LEASE));
    assert_eq!(port.address, Some(OUTSIDE.into()));
    // It is kept, and the address is known.
    ask(&gateway.target, Some(&port)).await.unwrap();
    withdraw_port(&port).await;
    let map = |operation, suggested: u16, lifetime: u8| {
        let [high, low] = suggested.to_be_bytes();
        vec![0, operation, 0, 0, 0, 1, high, low, 0, 0, 0, lifetime]
    };
    let expected = [
        map(1, 0, 60),
        map(2, 4000, 60),
        vec![0, 0],
        map(1, 4000, 60),
        map(2, 4000, 60),
        map(1, 0, 0),
        map(2, 0, 0),
    ];
    assert_eq!(gateway.heard(), expected);
}

#[tokio::test]
async fn an_answer_that_no_gateway_would_give_is_refused() {
    let lies: [(u8, u16, u32, &str); 4] = [
        (2, 0, 60, "it has the port 0"),
        (3, 4000, 0, "it forwards the port for less than 20 s"),
        (
            4,
            4000,
            u32::MAX,
            "it forwards the port for more than a day",
        ),
        (5, 4000, 19, "it forwards the port for less than 20 s"),
    ];
    for (number, port, lifetime, reason) in lies {
        let gateway = Gateway::start(number, move |request| grants(request, port, lifetime)).await;
        let address = gateway.target.gateway;
        let expected = ForwardProblem::Unbelievable {
            gateway: address,
            reason,
        };
        assert_eq!(ask(&gateway.target, None).await, Err(expected));
    }
}

#[tokio::test]
async fn two_ports_are_none() {
    let gateway = Gateway::start(6, |request| {
        let port = 4000 + u16::from(request[1]);
        grants(request, port, 60)
    });
    let gateway = gateway.await;
    let problem = ask(&gateway.target, None).await.unwrap_err();
    let expected = "the answer of the gateway 127.53.52.6 in the tunnel is refused: \
         it has one port for UDP and another for TCP";
    assert_eq!(problem.to_string(), expected);
}

#[tokio::test]
async fn a_refusal_says_why_and_for_which_protocol() {
    let gateway = Gateway::start(7, |request| match request[1] {
        2 => vec![0, 0x82, 0, 2],
        _ => grants(request, 4000, 60),
    });
    let gateway = gateway.await;
    let problem = ask(&gateway.target, None).await.unwrap_err();
    let expected =
        "the gateway 127.53.52.7 in the tunnel refuses a port for TCP: it is not allowed";
    assert_eq!(problem.to_string(), expected);
}

#[tokio::test]
async fn an_answer_from_another_address_is_not_heard() {
    let other = UdpSocket::bind(("127.53.52.9", PORT)).await.unwrap();
    let gateway = UdpSocket::bind(("127.53.52.8", PORT)).await.unwrap();
    let target = target(8);
    let answers = async {
        let mut request = [0; 64];
        loop {
            let (length, from) = gateway.recv_from(&mut request).await.unwrap();
            let answer = grants(&request[..length], 4000, 60);
            other.send_to(&answer, from).await.unwrap();
        }
    };
    let problem = tokio::select! {
        outcome = ask(&target, None) => outcome.unwrap_err(),
        () = answers => unreachable!(),
    };
    assert_eq!(problem, ForwardProblem::Silent(target.gateway));
}

#[tokio::test]
async fn a_port_is_kept_and_another_one_is_told_at_once() {
    let port = Arc::new(Mutex::new(4000));
    let granted = Arc::clone(&port);
    let gateway = Gateway::start(10, move |request| {
        let port = *granted.lock().unwrap();
        grants(request, port, 60)
    });
    let gateway = gateway.await;
    let mut kept = PortForwarding::begin(gateway.target.clone(), None);
    assert_eq!(kept.state(), ForwardState::Asking);
    kept.changed().await;
    let forwarded = |state| match state {
        ForwardState::Forwarded(port) => port.port,
        state => panic!("{state:?}"),
    };
    assert_eq!(forwarded(kept.state()), 4000);
    *port.lock().unwrap() = 4001;
    kept.ask_again();
    kept.changed().await;
    assert_eq!(forwarded(kept.state()), 4001);
    *port.lock().unwrap() = 0;
    kept.ask_again();
    kept.changed().await;
    assert!(matches!(kept.state(), ForwardState::Failed(_)));
}

#[test]
fn a_port_outlasts_whatever_leaves_open_whether_the_gateway_still_has_it() {
    let gateway = target(11).gateway;
    let refused = ForwardProblem::Refused {
        gateway,
        transport: Transport::Udp,
        reason: "it is not allowed",
    };
    let unbelievable = ForwardProblem::Unbelievable {
        gateway,
        reason: "it has the port 0",
    };
    for (problem, outlasts) in [
        (ForwardProblem::Silent(gateway), true),
        (system(std::io::ErrorKind::NetworkDown.into()), true),
        (refused, false),
        (unbelievable, false),
    ] {
        assert_eq!(problem.is_passing(), outlasts, "{problem}");
    }
}

#[test]
fn a_port_is_written_for_another_version_to_read() {
    let port = ForwardedPort {
        gateway: [10, 2, 0, 1].into(),
        interface: "wg0".to_owned(),
        port: 4000,
        address: None,
    };
    let text = r#"{"gateway":"10.2.0.1","interface":"wg0","port":4000,"address":null}"#;
    assert_eq!(serde_json::to_string(&port).unwrap(), text);
    assert_eq!(serde_json::from_str::<ForwardedPort>(text).unwrap(), port);
}

fn grants(request: &[u8], port: u16, lifetime: u32) -> Vec<u8> {
    match request {
        [0, 0] => [&[0, 0x80, 0, 0, 0, 0, 0, 9], &OUTSIDE[..]].concat(),
        [0, operation, ..] => {
            let head = [0, 0x80 | operation, 0, 0, 0, 0, 0, 9, 0, 0];
            let (port, lifetime) = (port.to_be_bytes(), lifetime.to_be_bytes());
            [&head, &port[..], &lifetime].concat()
        }
        _ => Vec::new(),
    }
}

/// A gateway that answers each request.
struct Gateway {
    target: ForwardTarget,
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
    task: JoinHandle<()>,
}

impl Gateway {
    async fn start(number: u8, answer: impl Fn(&[u8]) -> Vec<u8> + Send + 'static) -> Self {
        let target = target(number);
        let socket = UdpSocket::bind((target.gateway, PORT)).await.unwrap();
        let heard = Arc::<Mutex<Vec<_>>>::default();
        let all = Arc::clone(&heard);
        let task = tokio::spawn(async move {
            let mut buffer = [0; 64];
            loop {
                let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
                let request = &buffer[..length];
                all.lock().unwrap().push(request.to_vec());
                socket.send_to(&answer(request), from).await.unwrap();
            }
        });
        Self {
            target,
            heard,
            task,
        }
    }

    /// Returns the requests; one that was repeated, as its answer was late, counts once.
    fn heard(&self) -> Vec<Vec<u8>> {
        let mut heard = self.heard.lock().unwrap().clone();
        heard.dedup();
        heard
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn target(number: u8) -> ForwardTarget {
    ForwardTarget {
        gateway: [127, 53, 52, number].into(),
        interface: String::new(),
    }
}
