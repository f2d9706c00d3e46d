use std::{
    future::pending,
    net::SocketAddr,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

use super::*;
use crate::{
    counters::Refusal,
    network::{Guarded, Host, Kernel, Network as _},
    policy::Policy,
};

/// Behind 2001:db8:64::/96.
const LOOPBACK: &str = "2001:db8:64::127.0.0.1";
const PUBLIC: &str = "2001:db8:64::8.8.8.8";
const PREFIX: &str = "2001:db8:64::192.0.0.170";

/// A resolver with scripted answers that counts the questions.
#[derive(Debug, Default)]
struct Resolver {
    answer: Mutex<Said>,
    asked: AtomicUsize,
    network: AtomicU64,
}

#[derive(Clone, Debug, Default)]
enum Said {
    #[default]
    Nothing,
    Fails,
    /// With a lifetime in seconds.
    These(Vec<&'static str>, u64),
}

const HOUR: u64 = 3_600;

#[tokio::test(start_paused = true)]
async fn a_translator_with_a_prefix_of_its_own_leads_to_no_forbidden_address() {
    let (resolver, policy) = scene(Said::These(vec![PREFIX], HOUR));
    for (target, expected) in [
        (LOOPBACK, Err(Refusal::Forbidden)),
        ("2001:db8:64::10.0.0.1", Ok(())),
        ("2001:db8:64::198.51.100.9", Err(Refusal::TargetDenied)),
        (PUBLIC, Ok(())),
        // Not behind it.
        ("2001:db8:65::127.0.0.1", Ok(())),
        // A host of its prefix: it reads zeros.
        ("2001:db8:64::1", Ok(())),
    ] {
        assert_eq!(reach(&policy, target).await, expected, "{target}");
    }
    assert_eq!(resolver.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn prefixes_of_all_lengths_refuse_what_is_forbidden_within_them_alone() {
    for (named, forbidden, beside) in [
        (
            "2001:db8:c000:aa::",
            "2001:db8:7f00:1::",
            "2001:db9:7f00:1::",
        ),
        (
            "2001:db8:1c0:0:aa::",
            "2001:db8:17f:0:1::",
            "2001:db8:27f:0:1::",
        ),
        (
            "2001:db8:122:c000:0:aa00::",
            "2001:db8:122:7f00:0:100::",
            "2001:db8:123:7f00:0:100::",
        ),
        (
            "2001:db8:122:3c0:0:aa::",
            "2001:db8:122:37f:0:1::",
            "2001:db8:122:47f:0:1::",
        ),
        (
            "2001:db8:122:344:c0:0:aa00::",
            "2001:db8:122:344:7f:0:100::",
            "2001:db8:122:345:7f:0:100::",
        ),
        (PREFIX, LOOPBACK, "2001:db8:65::127.0.0.1"),
    ] {
        let (_, policy) = scene(Said::These(vec![named], HOUR));
        assert_eq!(reach(&policy, beside).await, Ok(()), "{beside}");
        let refused = Err(Refusal::Forbidden);
        assert_eq!(reach(&policy, forbidden).await, refused, "{forbidden}");
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_about_targets_that_no_translator_could_lead_astray() {
    let (resolver, policy) = scene(Said::Nothing);
    for target in [
        "8.8.8.8",
        "127.0.0.1",
        "::1",
        "64:ff9b::127.0.0.1",
        "2001:4860:4860::8888",
        "2001:db8::1",
    ] {
        let _ = reach(&policy, target).await;
    }
    assert_eq!(resolver.asked(), 0);
    assert!(Policy::default().discover(at(LOOPBACK)).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_silent_resolver_holds_up_the_first_flows_alone_and_is_asked_now_and_then() {
    let (resolver, policy) = scene(Said::Nothing);
    let begin = Instant::now();
    let both = tokio::join!(reach(&policy, LOOPBACK), reach(&policy, LOOPBACK));
    assert_eq!(both, (Ok(()), Ok(())));
    assert_eq!(begin.elapsed(), PATIENCE);
    for _ in 0..100 {
        assert_eq!(reach(&policy, LOOPBACK).await, Ok(()));
    }
    assert_eq!(begin.elapsed(), PATIENCE);
    assert_eq!(resolver.asked(), 1);
    // It is given up, and asked again beside the flows.
    for (pause, asked) in [(LIMIT, 1), (RETRY, 2)] {
        tokio::time::sleep(pause).await;
        let begin = Instant::now();
        assert_eq!(reach(&policy, LOOPBACK).await, Ok(()));
        assert_eq!(begin.elapsed(), Duration::ZERO);
        tokio::task::yield_now().await;
        assert_eq!(resolver.asked(), asked);
    }
}

#[tokio::test(start_paused = true)]
async fn a_resolver_that_fails_later_opens_nothing() {
    let (resolver, policy) = scene(Said::These(vec![PREFIX], HOUR));
    assert!(reach(&policy, LOOPBACK).await.is_err());
    for answer in [Said::Fails, Said::Nothing] {
        resolver.says(answer);
        tokio::time::sleep(2 * LONGEST_LIFE).await;
        assert!(reach(&policy, LOOPBACK).await.is_err());
        let other = "2001:db8:77::127.0.0.1";
        assert_eq!(reach(&policy, other).await, Ok(()));
        tokio::time::sleep(LIMIT).await;
        assert!(reach(&policy, LOOPBACK).await.is_err());
    }
    assert!(resolver.asked() >= 3);
}

#[tokio::test(start_paused = true)]
async fn an_answer_lives_as_long_as_it_says_within_bounds() {
    for (said, life) in [
        (0, SHORTEST_LIFE),
        (120, Duration::from_secs(120)),
        (u64::from(u32::MAX), LONGEST_LIFE),
    ] {
        let (resolver, policy) = scene(Said::These(vec![PREFIX], said));
        assert!(reach(&policy, LOOPBACK).await.is_err());
        resolver.says(Said::These(Vec::new(), said));
        tokio::time::sleep(life - Duration::from_millis(1)).await;
        assert_eq!(reach(&policy, "2001:db8:77::127.0.0.1").await, Ok(()));
        assert_eq!(resolver.asked(), 1, "{said}");
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(reach(&policy, "2001:db8:77::127.0.0.1").await, Ok(()));
        tokio::task::yield_now().await;
        assert_eq!(resolver.asked(), 2, "{said}");
        assert_eq!(reach(&policy, LOOPBACK).await, Ok(()));
    }
}

/// One of two servers may not know the translator.
#[tokio::test(start_paused = true)]
async fn another_answer_opens_nothing_before_the_first_has_outlived_itself() {
    let (resolver, policy) = scene(Said::These(vec![PREFIX], HOUR));
    assert!(reach(&policy, LOOPBACK).await.is_err());
    resolver.says(Said::These(vec!["2001:db8:77::192.0.0.170"], 60));
    resolver.network.store(1, Ordering::Relaxed);
    let other = "2001:db8:77::127.0.0.1";
    assert!(
        reach(&policy, other).await.is_err(),
        "asked in a new network, and waited for"
    );
    assert!(reach(&policy, LOOPBACK).await.is_err());
    assert_eq!(resolver.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_network_that_changes_during_the_question_is_asked_about_again() {
    let (resolver, policy) = scene(Said::Nothing);
    let change = async {
        tokio::time::sleep(PATIENCE / 2).await;
        resolver.network.store(1, Ordering::Relaxed);
        resolver.says(Said::These(vec![PREFIX], HOUR));
    };
    let (_, first) = tokio::join!(change, reach(&policy, LOOPBACK));
    assert_eq!(first, Ok(()));
    tokio::time::sleep(LIMIT).await;
    assert_eq!(resolver.asked(), 2);
    assert!(reach(&policy, LOOPBACK).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn of_many_prefixes_a_few_are_kept() {
    let (_, policy) = scene(Said::These(
        vec![
            "2001:db8:1::192.0.0.170",
            "2001:db8:2::192.0.0.170",
            "2001:db8:3::192.0.0.170",
            "2001:db8:4::192.0.0.170",
            "2001:db8:5::192.0.0.170",
            "2001:db8:6::192.0.0.170",
            "2001:db8:7::192.0.0.170",
            "2001:db8:8::192.0.0.170",
            "2001:db8:9::192.0.0.170",
        ],
        HOUR,
    ));
    let mut refused = 0;
    for number in 1..=9 {
        let target = format!("2001:db8:{number}::127.0.0.1");
        refused += usize::from(reach(&policy, &target).await.is_err());
    }
    assert_eq!(refused, MAX_TRANSLATORS);
}

impl Resolver {
    fn says(&self, answer: Said) {
        *self.answer.lock().unwrap() = answer;
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    fn ask(&self) -> Asking {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let said = self.answer.lock().unwrap().clone();
        Box::pin(async move {
            match said {
                Said::Nothing => pending().await,
                Said::Fails => Err(io::ErrorKind::ConnectionRefused.into()),
                Said::These(addresses, life) => Ok(Answer {
                    addresses: addresses.iter().map(|it| it.parse().unwrap()).collect(),
                    life: Duration::from_secs(life),
                }),
            }
        })
    }
}

fn scene(answer: Said) -> (Arc<Resolver>, Policy) {
    let resolver = Arc::new(Resolver::default());
    resolver.says(answer);
    let [asked, network] = [Arc::clone(&resolver), Arc::clone(&resolver)];
    let version = move || network.network.load(Ordering::Relaxed);
    let policy = Policy {
        deny: vec!["198.51.100.0/24".parse().unwrap()],
        translators: Translators::with(move || asked.ask(), version),
        ..Policy::default()
    };
    (resolver, policy)
}

/// Asks as a flow does before it begins.
async fn reach(policy: &Policy, target: &str) -> Result<(), Refusal> {
    let guarded = Guarded {
        network: Arc::new(Kernel(Host)),
        policy: policy.clone(),
        is_trusting: false,
    };
    if let Some(discovery) = guarded.discover(at(target)) {
        discovery.await;
    }
    guarded.check(at(target))
}

fn at(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), 80)
}
