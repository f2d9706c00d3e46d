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
    assert_eq!(args.tests(), Test::value_variants());
    assert!(args.switches().is_empty());
    assert!(args.conditions().veth_gso);
}

#[test]
fn tests_are_chosen_by_the_names_that_the_report_has() {
    let args = parse("--tests udp-64,tcp-4,udp-1200,tcp-down,tcp-up").unwrap();
    let names: Vec<_> = args.tests().into_iter().map(Test::name).collect();
    assert_eq!(names, ["tcp-up", "tcp-down", "tcp-4", "udp-1200", "udp-64"]);
    assert!(parse("--tests tcp-5").is_err());
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
    assert_eq!(args.tests(), [Test::Udp64]);
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
    assert_eq!((args.rounds, args.tests()), (7, vec![Test::Udp64]));
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
    assert!(parse("--to 198.18.0.2 --gso off").is_err());
    assert!(parse("--to 198.18.0.2 --compare gso").is_err());
}
