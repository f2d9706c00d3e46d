//! Routers on the loopback interface, each at an address of its own.

use std::sync::{Arc, Mutex};

use tokio::{task::JoinHandle, time::Instant};

use super::*;
use crate::exchange::{MAX_ANSWER, PORT};

const TARGET: Target = Target {
    port: 51820,
    mark: None,
};
const MEMORY: Memory = Memory {
    nonce: [7; 12],
    external: None,
    protocol: None,
};
const OUTSIDE: [u8; 4] = [198, 51, 100, 7];

#[tokio::test]
async fn a_router_with_pcp_forwards_the_port_and_withdraws_it() {
    let router = Router::start(1, |request| granted_by_pcp(request, 0)).await;
    let (mapping, lifetime) = router.ask().await.unwrap();
    assert_eq!(mapping.protocol, Protocol::Pcp);
    assert_eq!(mapping.external.to_string(), "198.51.100.7:51820");
    assert_eq!(lifetime, Duration::from_secs(120));
    withdraw(&mapping).await;
    let lifetimes = router.heard().into_iter().map(|it| it[4..8].to_vec());
    assert_eq!(lifetimes.collect::<Vec<_>>(), [[0, 0, 2, 0x58], [0; 4]]);
}

#[tokio::test]
async fn a_router_with_nat_pmp_alone_forwards_the_port_and_withdraws_it() {
    let router = Router::start(2, by_nat_pmp).await;
    let (mapping, _) = router.ask().await.unwrap();
    assert_eq!(mapping.protocol, Protocol::NatPmp);
    assert_eq!(mapping.external.to_string(), "198.51.100.7:4000");
    withdraw(&mapping).await;
    let last = router.heard().pop();
    let withdrawn = [0, 1, 0, 0, 0xca, 0x6c, 0, 0, 0, 0, 0, 0];
    assert_eq!(last.as_deref(), Some(&withdrawn[..]));
}

#[tokio::test]
async fn a_request_that_is_lost_is_sent_again_and_another_answer_ignored() {
    let count = Mutex::new(0);
    let router = Router::start(3, move |request| {
        let mut count = count.lock().unwrap();
        *count += 1;
        match *count {
            1 => Vec::new(),
            2 => b"hello".to_vec(),
            _ => granted_by_pcp(request, 0),
        }
    });
    let router = router.await;
    assert_eq!(router.ask().await.unwrap().0.protocol, Protocol::Pcp);
    assert_eq!(router.heard().len(), 3);
}

#[tokio::test]
async fn a_refusal_says_why_and_by_which_protocol() {
    let router = Router::start(4, |request| granted_by_pcp(request, 2)).await;
    let problem = router.ask().await.unwrap_err();
    let expected = "the router 127.53.51.4 refuses by PCP: it is not allowed";
    assert_eq!(problem.to_string(), expected);
}

#[tokio::test]
async fn a_router_without_a_port_for_this_is_not_waited_for() {
    let begun = Instant::now();
    let gateway = gateway(5);
    let problem = ask_by_udp(&gateway, TARGET, MEMORY).await.unwrap_err();
    assert_eq!(problem, Problem::Silent(gateway.address));
    let patience = Duration::from_millis(WAITS.iter().sum());
    assert!(begun.elapsed() < patience);
}

#[tokio::test]
async fn a_router_without_an_address_that_others_can_send_to_forwards_nothing() {
    let impossible = [
        [0, 0, 0, 0],
        [127, 0, 0, 1],
        [224, 0, 0, 1],
        [255, 255, 255, 255],
    ];
    for (number, address) in (6..).zip(impossible) {
        let router = Router::start(number, move |request| {
            let mut answer = granted_by_pcp(request, 0);
            answer[56..60].copy_from_slice(&address);
            answer
        });
        let router = router.await;
        let problem = router.ask().await.unwrap_err();
        assert_eq!(problem, Problem::NoAddress(router.gateway.address));
    }
}

#[tokio::test]
async fn a_port_that_is_forwarded_for_no_time_is_none() {
    let router = Router::start(10, |request| {
        let mut answer = granted_by_pcp(request, 0);
        answer[4..8].fill(0);
        answer
    });
    let problem = router.await.ask().await.unwrap_err();
    let expected = "the router 127.53.51.10 refuses by PCP: it forwards the port for no time";
    assert_eq!(problem.to_string(), expected);
}

#[tokio::test]
async fn a_router_that_has_started_anew_is_believed_as_before() {
    // Its time has gone backwards (RFC 6887 §8.5): the only mapping is renewed by the very request.
    let times = Mutex::new([1_000_000_u32, 3].into_iter());
    let router = Router::start(11, move |request| {
        let mut answer = granted_by_pcp(request, 0);
        let time = times.lock().unwrap().next().unwrap();
        answer[8..12].copy_from_slice(&time.to_be_bytes());
        answer
    });
    let router = router.await;
    let before = router.ask().await.unwrap();
    assert_eq!(router.ask().await.unwrap(), before);
}

fn granted_by_pcp(request: &[u8], result: u8) -> Vec<u8> {
    let mut answer = request.to_vec();
    answer[1] |= 0x80;
    answer[3] = result;
    answer[4..8].copy_from_slice(&120_u32.to_be_bytes());
    answer[56..60].copy_from_slice(&OUTSIDE);
    answer
}

fn by_nat_pmp(request: &[u8]) -> Vec<u8> {
    match request {
        [0, 0] => [&[0, 0x80, 0, 0, 0, 0, 0, 9], &OUTSIDE[..]].concat(),
        [0, 1, _, _, port @ ..] => {
            let head = [0, 0x81, 0, 0, 0, 0, 0, 9];
            [&head, &port[..2], &4000_u16.to_be_bytes(), &port[4..]].concat()
        }
        _ => vec![0, 0x80, 0, 1, 0, 0, 0, 9],
    }
}

/// A router that answers each request; an empty answer is not sent.
struct Router {
    gateway: Gateway,
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
    task: JoinHandle<()>,
}

impl Router {
    async fn start(number: u8, answer: impl Fn(&[u8]) -> Vec<u8> + Send + 'static) -> Self {
        let gateway = gateway(number);
        let socket = UdpSocket::bind((gateway.address, PORT)).await.unwrap();
        let heard = Arc::<Mutex<Vec<_>>>::default();
        let all = Arc::clone(&heard);
        let task = tokio::spawn(async move {
            let mut buffer = [0; MAX_ANSWER];
            loop {
                let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
                let request = &buffer[..length];
                all.lock().unwrap().push(request.to_vec());
                let answer = answer(request);
                if !answer.is_empty() {
                    socket.send_to(&answer, from).await.unwrap();
                }
            }
        });
        Self {
            gateway,
            heard,
            task,
        }
    }

    async fn ask(&self) -> Result<(Mapping, Duration), Problem> {
        ask(&self.gateway, TARGET, MEMORY, &Ledger::new(None).0).await
    }

    fn heard(&self) -> Vec<Vec<u8>> {
        self.heard.lock().unwrap().clone()
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn gateway(number: u8) -> Gateway {
    Gateway {
        address: [127, 53, 51, number].into(),
        interface: String::new(),
    }
}
