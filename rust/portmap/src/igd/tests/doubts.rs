//! Routers that leave open what they did, or what they are.

use super::*;

#[tokio::test]
async fn a_mapping_for_good_without_an_answer_is_deleted() {
    let honest = honest("WANIPConnection:1", &[("Duration>600", 725)]);
    let router = Router::start(17, move |request| {
        match request.contains("<NewLeaseDuration>0<") {
            true => Answer::Nothing,
            false => honest(request),
        }
    });
    let router = router.await;
    let (ledger, mut seen) = Ledger::new(None);
    assert_eq!(router.ask_with(&ledger).await, None);
    let deleted = async {
        while !router.heard().last().is_some_and(|it| is_deletion(it)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(30), deleted).await.unwrap();
    let last = router.heard().pop().unwrap();
    assert!(last.contains("<NewExternalPort>51820<"), "{last}");
    let forgotten = seen.wait_for(|entry| entry.noted.is_none());
    timeout(Duration::from_secs(30), forgotten)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_mapping_for_good_that_cannot_be_deleted_stays_noted_and_can_be_withdrawn_later() {
    let honest = honest("WANIPConnection:1", &[("Duration>600", 725)]);
    let is_mute = Arc::new(Mutex::new(false));
    let mute = Arc::clone(&is_mute);
    let router = Router::start(37, move |request| {
        let mut mute = mute.lock().unwrap();
        *mute |= request.contains("<NewLeaseDuration>0<");
        match *mute {
            true => Answer::Nothing,
            false => honest(request),
        }
    });
    let router = router.await;
    let (ledger, seen) = Ledger::new(None);
    assert_eq!(router.ask_with(&ledger).await, None);
    // Its deletion is tried at once, in vain.
    let asks = |it: &String| it.contains("#GetSpecificPortMappingEntry\"");
    let tried = async {
        while !router.heard().iter().any(asks) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(30), tried).await.unwrap();
    ledger.failed(crate::Problem::Silent(router.gateway.address));
    let noted = seen.borrow().noted.clone().unwrap();
    assert_eq!(noted.external.to_string(), "198.51.100.7:51820");
    *is_mute.lock().unwrap() = false;
    crate::withdraw(&noted).await;
    assert!(is_deletion(router.heard().last().unwrap()));
}

#[tokio::test]
async fn a_router_that_is_not_connected_is_asked_for_no_port() {
    for (number, address) in [(18, "0.0.0.0"), (19, ""), (20, "239.1.1.1")] {
        let honest = honest("WANIPConnection:1", &[]);
        let told = format!(
            "<a><GetExternalIPAddressResponse/><NewExternalIPAddress>{address}</NewExternalIPAddress></a>"
        );
        let router = Router::start(number, move |request| {
            match request.contains("#GetExternalIPAddress\"") {
                true => Answer::Once(reply("200 OK", "", &told)),
                false => honest(request),
            }
        });
        let router = router.await;
        let refusal = Refusal::Reason("it is not connected");
        assert_eq!(router.ask().await, Some(Err(refusal)));
        let is_add = |it: &String| it.contains("#AddPortMapping\"");
        assert!(!router.heard().iter().any(is_add), "{address}");
    }
}

#[tokio::test]
async fn a_router_is_there_even_if_a_kill_switch_keeps_its_description_back() {
    let router = Router::start(21, |_| Answer::Never).await;
    assert!(is_there(&router.gateway, None).await);
    let router = Router::start(22, honest("WANIPConnection:1", &[])).await;
    assert!(is_there(&router.gateway, None).await);
    let router = Router::start(23, honest("WANCommonInterfaceConfig:1", &[])).await;
    assert!(!is_there(&router.gateway, None).await);
    assert!(!is_there(&gateway(24), None).await);
}

#[tokio::test]
async fn a_port_that_leads_to_somebody_else_by_now_is_not_deleted() {
    let entry = |client: &str, port: u16| {
        OWN_ENTRY
            .replace("127.0.0.1", client)
            .replace("51820", &port.to_string())
    };
    let cases = [
        (25, entry("127.0.0.1", 51820), true),
        (26, entry("127.0.0.2", 51820), false),
        (27, entry("127.0.0.1", 4000), false),
        // Some tell the name of a machine.
        (28, entry("laptop", 51820), true),
        (29, entry("laptop", 4000), false),
        (30, String::new(), false),
    ];
    for (first, service) in [(0, "WANIPConnection:1"), (100, "WANIPConnection:2")] {
        for (number, entry, is_deleted) in cases.clone() {
            let honest = honest(service, &[]);
            let router = Router::start(first + number, move |request| match honest(request) {
                Answer::Once(answer) if answer.contains(OWN_ENTRY) => {
                    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
                    Answer::Once(reply("200 OK", "", &body.replace(OWN_ENTRY, &entry)))
                }
                other => other,
            });
            assert_eq!(deletes(&router.await).await, is_deleted, "{number}");
        }
    }
}

#[tokio::test]
async fn a_port_is_deleted_if_the_router_cannot_say_whose_it_is() {
    let asks = "#GetSpecificPortMappingEntry\"";
    for (number, code, is_deleted) in [
        (31, 401, true),
        (32, 602, true),
        (33, 714, false),
        (34, 606, false),
        (35, 501, false),
    ] {
        let router = Router::start(number, honest("WANIPConnection:1", &[(asks, code)])).await;
        assert_eq!(deletes(&router).await, is_deleted, "{code}");
    }
}

#[tokio::test]
async fn a_port_noted_by_an_older_version_is_known_by_its_number_alone() {
    let router = Router::start(36, honest("WANIPConnection:1", &[])).await;
    let (grant, control) = router.ask().await.unwrap().unwrap();
    let noted = Control {
        client: None,
        ..control
    };
    router.withdraw(grant, noted).await;
    assert!(is_deletion(router.heard().last().unwrap()));
}

/// Returns whether a port that the router has granted is deleted when it is withdrawn.
async fn deletes(router: &Router) -> bool {
    let (grant, control) = router.ask().await.unwrap().unwrap();
    router.withdraw(grant, control).await;
    router.heard().iter().any(|it| is_deletion(it))
}

fn is_deletion(request: &str) -> bool {
    request.contains("#DeletePortMapping\"")
}
