use super::*;

#[tokio::test]
async fn the_port_of_an_earlier_supervisor_is_given_back_and_hooks_hear_that_it_is_lost() {
    let config = config();
    let mut forward = PortForward::default();
    forward.inherit(Some(former()), None);
    assert_eq!(forward.to_note(None), Some(former()), "still there");
    forward.keep(target([10, 9, 0, 1]));
    assert_eq!(forward.former, None);
    // There is no such interface.
    assert!(matches!(forward.changed().await, Change::Answer));
    assert!(forward.problem().is_some());
    assert!(forward.take_news().is_none());
    forward.run_hooks(&config);
    assert!(forward.runs_hooks(), "another gateway");
    assert_eq!(forward.to_note(Some(&former())), None);

    let mut forward = PortForward::default();
    forward.inherit(Some(former()), None);
    forward.end("none is wanted");
    assert_eq!(forward.former, None);
    forward.run_hooks(&config);
    assert!(forward.runs_hooks(), "none is wanted");
}

#[tokio::test]
async fn hooks_do_not_run_again_for_the_port_of_an_earlier_supervisor() {
    let mut forward = PortForward::default();
    forward.inherit(Some(former()), None);
    forward.keep(target([10, 2, 0, 1]));
    assert_eq!(
        forward.to_note(Some(&former())),
        Some(former()),
        "asked for"
    );
    assert_eq!(forward.of_hooks(Some(&former())), None);
    forward.run_hooks(&config());
    assert!(!forward.runs_hooks());
}

#[tokio::test]
async fn hooks_that_an_earlier_supervisor_still_owed_run() {
    let mut forward = PortForward::default();
    // It ran some of another port when it learnt of this one.
    forward.inherit(Some(former()), Some(4999));
    assert_eq!(forward.of_hooks(Some(&former())), Some(4999));
    forward.end("none is wanted");
    forward.run_hooks(&config());
    assert!(forward.runs_hooks());
    assert_eq!(forward.of_hooks(None), None);
    // It had lost the port.
    let mut forward = PortForward::default();
    forward.inherit(None, Some(4999));
    forward.run_hooks(&config());
    assert!(forward.runs_hooks());
}

fn former() -> ForwardedPort {
    let ForwardTarget { gateway, interface } = target([10, 2, 0, 1]);
    ForwardedPort {
        gateway,
        interface,
        port: 5000,
        address: None,
    }
}

fn target(gateway: [u8; 4]) -> ForwardTarget {
    ForwardTarget {
        gateway: gateway.into(),
        interface: "convoy-none".to_owned(),
    }
}

fn config() -> Config {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wg0.conf");
    let lines = "[Interface]\n#convoy: PostPortForward = true\n";
    std::fs::write(&path, lines).unwrap();
    convoy_config::read(&path).unwrap().config
}
