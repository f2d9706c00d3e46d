use clap::Parser;

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: SpeedtestArgs,
}

fn parse(line: &str) -> Result<SpeedtestArgs, clap::Error> {
    let words = std::iter::once("speedtest").chain(line.split_whitespace());
    Cli::try_parse_from(words).map(|cli| cli.args)
}

#[test]
fn without_arguments_every_test_runs_for_five_seconds() {
    let args = parse("").unwrap();
    assert_eq!(args.secs, 5);
    assert_eq!(args.tests(), Test::USUAL);
    assert!(args.switches().is_empty());
    assert!(args.conditions().veth_gso);
}

#[test]
fn tests_run_once_each_in_the_order_in_which_they_are_named() {
    let args = parse("--tests udp-512,tcp-16,tcp-up,udp-512,tcp-down").unwrap();
    let names: Vec<_> = args.tests().iter().map(Test::to_string).collect();
    assert_eq!(names, ["udp-512", "tcp-16", "tcp-up", "tcp-down"]);
}

#[test]
fn a_wrong_name_is_refused_with_the_names_that_there_are() {
    let refusal = parse("--tests tcp-up,tcp-65").unwrap_err().to_string();
    assert!(refusal.contains("'tcp-65'"), "{refusal}");
    assert!(refusal.contains("tcp-N of N = 1 to 64"), "{refusal}");
}

#[test]
fn a_tunnel_has_the_mtu_and_the_peers_that_are_asked_for() {
    let usual = parse("").unwrap().tunnel();
    assert_eq!((usual.tunnel_mtu, usual.cable_mtu), (1_420, 1_500));
    assert_eq!(usual.idle_peers, 0);
    let jumbo = parse("--mtu 8920 --peers 10000").unwrap().tunnel();
    assert_eq!((jumbo.tunnel_mtu, jumbo.cable_mtu), (8_920, 9_000));
    assert_eq!(jumbo.idle_peers, 9_999);
    assert_eq!(parse("--mtu 1280").unwrap().tunnel().cable_mtu, 1_500);
    for line in ["--mtu 575", "--mtu 65456", "--peers 0", "--peers 10001"] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn a_test_that_would_be_fragmented_is_refused_where_the_mtu_is_known() {
    assert!(parse("--tests udp-1392").unwrap().check().is_ok());
    assert!(parse("--tests udp-1393").unwrap().check().is_err());
    assert!(
        parse("--tests udp-8892 --mtu 8920")
            .unwrap()
            .check()
            .is_ok()
    );
    assert!(
        parse("--mtu 1000").unwrap().check().is_err(),
        "udp-1200 is usual"
    );
    let between_hosts = parse("--to 198.18.0.2 --tests udp-8892").unwrap();
    assert!(between_hosts.check().is_ok());
}

#[test]
fn the_daemons_switches_are_passed_through() {
    let args = parse("--gso off --tun-offload on --batch 7").unwrap();
    assert_eq!(
        args.switches(),
        ["--gso", "off", "--tun-offload", "on", "--batch", "7"]
    );
    assert!(parse("--batch 51").is_err());
}

#[test]
fn loss_comes_without_gso_on_the_veth_unless_asked_for() {
    let conditions = parse("--loss 0.5").unwrap().conditions();
    assert!(!conditions.veth_gso);
    assert_eq!(conditions.loss_percent, 0.5);
    assert!(
        parse("--loss 0.5 --veth-gso on")
            .unwrap()
            .conditions()
            .veth_gso
    );
    assert!(!parse("--veth-gso off").unwrap().conditions().veth_gso);
    assert!(parse("--loss 101").is_err());
    assert!(parse("--loss nan").is_err());
}

#[test]
fn a_profile_is_of_tcp_up_unless_told_and_of_daemons_of_this_machine() {
    assert_eq!(parse("--profile d").unwrap().tests(), [Test::TcpUp]);
    let args = parse("--profile d --tests udp-64 --compare gso").unwrap();
    assert_eq!(args.tests(), [Test::Udp(64)]);
    for line in [
        "--profile d --serve",
        "--profile d --to 10.0.0.1",
        "--profile d --compare gso --rounds 2",
        "--call-graph dwarf",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn a_comparison_measures_tcp_up_unless_told() {
    assert_eq!(parse("--compare gso").unwrap().tests(), [Test::TcpUp]);
    let args = parse("--compare shape --rounds 7 --tests udp-64").unwrap();
    assert_eq!((args.rounds, args.tests()), (7, vec![Test::Udp(64)]));
    assert!(parse("--compare nonsense").is_err());
}

#[test]
fn a_server_takes_an_address_or_none() {
    assert_eq!(
        parse("--serve").unwrap().serve,
        Some(IpAddr::from([0_u16; 8]))
    );
    let args = parse("--serve 198.18.0.1").unwrap();
    assert_eq!(args.serve, Some(IpAddr::from([198, 18, 0, 1])));
    assert!(parse("--serve --to 198.18.0.1").is_err());
}

#[test]
fn a_tunnel_that_is_up_takes_no_switches() {
    assert!(parse("--to 198.18.0.2 --secs 2 --tests tcp-up --json").is_ok());
    for option in ["--gso off", "--mtu 1420", "--peers 1", "--loss 1"] {
        for way in ["--to 198.18.0.2", "--serve"] {
            assert!(parse(&format!("{way} {option}")).is_err(), "{way} {option}");
        }
    }
    assert!(parse("--to 198.18.0.2 --compare gso").is_err());
}
