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
    assert_eq!(router.ask().await, None);
    let deleted = async {
        let is_deletion = |it: &String| it.contains("#DeletePortMapping\"");
        while !router.heard().last().is_some_and(is_deletion) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(30), deleted).await.unwrap();
    let last = router.heard().pop().unwrap();
    assert!(last.contains("<NewExternalPort>51820<"), "{last}");
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
