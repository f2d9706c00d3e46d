use std::sync::Mutex;

use tokio::{
    io::duplex,
    time::{Instant, sleep},
};

use super::*;
use crate::network::{Answer, Datagrams, Listener};

/// A network in which an address answers after a time: well, or by refusing, or never.
#[derive(Debug)]
struct Slow {
    /// By address, in the order of the name's addresses.
    answers: Vec<(Duration, Option<ErrorKind>)>,
    begun: Instant,
    /// When each address was tried, in milliseconds.
    tried: Mutex<Vec<u128>>,
}

const NEVER: Duration = Duration::from_secs(1_000);

#[tokio::test(start_paused = true)]
async fn an_address_that_does_not_answer_costs_a_quarter_of_a_second() {
    let network = Slow::new([(NEVER, None), (ms(20), None), (ms(1), None)]);
    network.connects(270).await;
    assert_eq!(network.tried(), [0, 250]);
}

#[tokio::test(start_paused = true)]
async fn an_address_that_refuses_costs_nothing() {
    let refused = Some(ErrorKind::ConnectionRefused);
    let network = Slow::new([(ms(10), refused), (ms(20), None)]);
    network.connects(30).await;
    assert_eq!(network.tried(), [0, 10]);
}

#[tokio::test(start_paused = true)]
async fn the_first_answer_counts_although_a_later_address_was_tried() {
    let network = Slow::new([(ms(300), None), (NEVER, None)]);
    network.connects(300).await;
    assert_eq!(network.tried(), [0, 250]);
}

#[tokio::test(start_paused = true)]
async fn one_that_was_tried_earlier_may_answer_after_a_later_one_has_refused() {
    let refused = Some(ErrorKind::ConnectionRefused);
    let network = Slow::new([(ms(900), None), (ms(10), refused), (ms(10), refused)]);
    network.connects(900).await;
    assert_eq!(network.tried(), [0, 250, 260]);
}

#[tokio::test(start_paused = true)]
async fn if_all_refuse_the_last_reason_is_told_and_if_none_answers_it_ends() {
    let refused = Some(ErrorKind::ConnectionRefused);
    let network = Slow::new([(ms(1), refused), (ms(1), refused)]);
    assert_eq!(network.dial().await.unwrap_err(), Refusal::TargetRefused);
    let network = Slow::new([(NEVER, None), (NEVER, None)]);
    assert_eq!(network.dial().await.unwrap_err(), Refusal::TimedOut);
    assert!(network.begun.elapsed() <= LIMIT);
}

#[tokio::test(start_paused = true)]
async fn of_many_addresses_a_few_are_tried() {
    let network = Slow::new([(NEVER, None); 40]);
    network.dial().await.unwrap_err();
    assert_eq!(network.tried().len(), MOST_ADDRESSES);
}

#[tokio::test]
async fn an_ipv4_address_that_is_written_as_one_of_ipv6_is_that_of_ipv4() {
    let network = Slow::new([]);
    let target = "[::ffff:192.0.2.1]:80".parse().unwrap();
    let addresses = resolve(&network, &target).await.unwrap();
    assert_eq!(addresses, ["192.0.2.1:80".parse().unwrap()]);
}

impl Slow {
    fn new(answers: impl Into<Vec<(Duration, Option<ErrorKind>)>>) -> Self {
        Self {
            answers: answers.into(),
            begun: Instant::now(),
            tried: Mutex::default(),
        }
    }

    async fn dial(&self) -> Result<Stream, Refusal> {
        dial(self, &"a.example:80".parse().unwrap()).await
    }

    /// Requires that a connection is made after this many milliseconds.
    async fn connects(&self, after: u128) {
        self.dial().await.unwrap();
        assert_eq!(self.begun.elapsed().as_millis(), after);
    }

    fn tried(&self) -> Vec<u128> {
        self.tried.lock().unwrap().clone()
    }
}

impl Network for Slow {
    fn resolve<'a>(&'a self, _: &'a str, port: u16) -> Answer<'a, Vec<SocketAddr>> {
        let all = (0..self.answers.len()).map(move |index| ([192, 0, 2, index as u8], port).into());
        Box::pin(async move { Ok(all.collect()) })
    }

    fn connect(&self, to: SocketAddr) -> Answer<'_, Stream> {
        let IpAddr::V4(address) = to.ip() else {
            unreachable!("all are of IPv4");
        };
        let (time, error) = self.answers[usize::from(address.octets()[3])];
        let now = self.begun.elapsed().as_millis();
        self.tried.lock().unwrap().push(now);
        Box::pin(async move {
            sleep(time).await;
            match error {
                Some(kind) => Err(kind.into()),
                None => Ok(Stream::Other(Box::new(duplex(1).0))),
            }
        })
    }

    fn listen(&self, _: SocketAddr) -> Answer<'_, Listener> {
        unreachable!("nobody listens")
    }

    fn datagrams(&self, _: SocketAddr) -> Answer<'_, Datagrams> {
        unreachable!("nobody sends datagrams")
    }
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}
