use clap::{CommandFactory, error::ErrorKind};
use convoy_config::{Offer, Side};
use convoy_tun::Switch;

use super::*;
use crate::{daemon::args::AeadChoice, logging::LogFormat};

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn an_interface_alone_starts_the_daemon_with_every_feature() {
    let cli = parse(&["wg0"]).unwrap();
    assert_eq!(cli.interface.unwrap().as_str(), "wg0");
    assert!(cli.command.is_none());
    assert!(!cli.daemon.foreground);
    assert_eq!(cli.daemon.options.gso, Switch::Auto);
    assert_eq!(cli.daemon.options.tun_offload, Switch::Auto);
    assert_eq!(cli.daemon.options.udp_gro, Switch::Auto);
    assert_eq!(cli.daemon.options.aead, AeadChoice::Auto);
    assert_eq!(cli.daemon.options.batch, 50);
    assert!(
        !cli.daemon.options.clamp_mss,
        "wg-quick's users do not expect it"
    );
    assert_eq!(cli.daemon.options.log_format, LogFormat::Auto);
}

#[test]
fn a_client_clamps_the_mss_unless_told_otherwise() {
    let up = |line: &[&str]| match parse(line).unwrap().command {
        Some(Command::Up(args)) => args,
        command => panic!("{command:?}"),
    };
    let args = up(&["up", "wg0"]);
    assert!(args.daemon.options.clamp_mss && !args.daemon.foreground);
    assert_eq!(args.file.to_str(), Some("wg0"));
    let args = up(&["up", "-f", "--clamp-mss", "off", "./wg0.conf"]);
    assert!(!args.daemon.options.clamp_mss && args.daemon.foreground);
}

#[test]
fn ports_of_a_tunnel_without_root_are_read_from_the_command_line() {
    let line = "up wg0 --userspace -L 8080:web.example:80 -L 127.0.0.1:53:[2001:db8::1]:53/udp \
                -R 22:127.0.0.1:22 --socks5 1080 --http-connect [::1]:3128 --allow 10.0.0.0/8,::1 \
                --deny 10.1.0.0/16 --buffer 8k --engine namespace";
    let Some(Command::Up(args)) = parse(
        &line
            .split(' ')
            .filter(|it| !it.is_empty())
            .collect::<Vec<_>>(),
    )
    .unwrap()
    .command
    else {
        panic!("another command");
    };
    let forwarding = args.userspace.forwarding().unwrap();
    let listeners = forwarding.listeners.iter();
    let listeners: Vec<_> = listeners
        .map(|it| (it.side, it.addresses[0].to_string(), it.offer.clone()))
        .collect();
    let tcp = |host: &str, port| Offer::Tcp(host.to_owned(), port);
    assert_eq!(
        listeners,
        [
            (
                Side::Host,
                "127.0.0.1:8080".to_owned(),
                tcp("web.example", 80)
            ),
            (
                Side::Host,
                "127.0.0.1:53".to_owned(),
                Offer::Udp("2001:db8::1".to_owned(), 53)
            ),
            (Side::Inside, "0.0.0.0:22".to_owned(), tcp("127.0.0.1", 22)),
            (Side::Host, "127.0.0.1:1080".to_owned(), Offer::Socks5),
            (Side::Host, "[::1]:3128".to_owned(), Offer::HttpConnect),
        ]
    );
    assert_eq!(
        (forwarding.access.allow.len(), forwarding.access.deny.len()),
        (2, 1)
    );
    assert_eq!(args.userspace.buffer, Some(8 << 10));
}

#[test]
fn ports_need_userspace_and_what_changes_the_host_excludes_it() {
    for line in [
        "up wg0 -L 8080:web.example:80",
        "up wg0 --socks5 1080",
        "up wg0 --buffer 8k",
        "up wg0 --engine namespace",
        "up wg0 --userspace --adopt",
        "up wg0 --userspace --metrics 127.0.0.1:9586",
        "up wg0 --userspace -L 8080",
        "up wg0 --userspace -R 8080:web.example:80/udp",
        "up wg0 --userspace --allow here",
    ] {
        parse(&line.split(' ').collect::<Vec<_>>()).unwrap_err();
    }
}

#[test]
fn down_wants_a_name_or_all() {
    for line in [&["down", "wg0"][..], &["down", "--all"]] {
        assert!(matches!(
            parse(line).unwrap().command,
            Some(Command::Down(_))
        ));
    }
    for line in [
        &["down"][..],
        &["down", "wg0", "--all"],
        &["up"],
        &["pause", "wg0", "--for", "soon"],
    ] {
        assert!(parse(line).is_err(), "{line:?}");
    }
}

#[test]
fn every_switch_is_accepted() {
    let line = "-f --gso off --tun-offload on --udp-gro off --aead ring --batch 1 --clamp-mss on \
                --log-format json wg0";
    let daemon = parse(&line.split(' ').collect::<Vec<_>>()).unwrap().daemon;
    assert!(daemon.foreground);
    assert_eq!(daemon.options.gso, Switch::Off);
    assert_eq!(daemon.options.tun_offload, Switch::On);
    assert_eq!(daemon.options.udp_gro, Switch::Off);
    assert_eq!(daemon.options.aead, AeadChoice::Ring);
    assert_eq!(daemon.options.batch, 1);
    assert!(daemon.options.clamp_mss);
    assert_eq!(daemon.options.log_format, LogFormat::Json);
}

#[test]
fn every_switch_has_an_environment_variable() {
    let command = Cli::command();
    let variables: Vec<_> = command
        .get_arguments()
        .filter(|arg| arg.get_long().is_some_and(|long| long != "foreground"))
        .map(|arg| (arg.get_long().unwrap(), arg.get_env().unwrap()))
        .collect();
    assert_eq!(variables.len(), 9);
    for (long, variable) in variables {
        let expected = format!("CONVOY_{}", long.replace('-', "_").to_uppercase());
        assert_eq!(variable, expected.as_str());
    }
}

#[test]
fn a_token_without_metrics_is_an_error() {
    parse(&["--metrics-token-file", "/run/token", "wg0"]).unwrap_err();
    let line = "--metrics 127.0.0.1:9586 --metrics-token-file token wg0";
    let daemon = parse(&line.split(' ').collect::<Vec<_>>()).unwrap().daemon;
    assert!(daemon.metrics.metrics_token_file.unwrap().is_absolute());
}

#[test]
fn a_batch_has_one_to_fifty_packets() {
    for wrong in ["0", "51", "-1", "many"] {
        let error = parse(&["--batch", wrong, "wg0"]).unwrap_err();
        let kinds = [ErrorKind::ValueValidation, ErrorKind::UnknownArgument];
        assert!(kinds.contains(&error.kind()), "{error}");
    }
}

#[test]
fn stats_needs_an_interface_of_its_own() {
    let cli = parse(&["stats", "wg0", "--json"]).unwrap();
    let Some(Command::Stats(args)) = cli.command else {
        panic!("{:?}", cli.command)
    };
    assert_eq!(args.interface.as_str(), "wg0");
    assert!(args.json);
    parse(&["stats"]).unwrap_err();
}

#[test]
fn an_interface_and_a_command_are_mutually_exclusive() {
    let error = parse(&["wg0", "stats", "wg0"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ArgumentConflict);
}

#[test]
fn an_interface_may_be_named_like_a_command() {
    for name in [
        "stats", "check", "genkey", "genpsk", "pubkey", "up", "down", "status", "help", "log",
    ] {
        let cli = parse(&["--", name]).unwrap();
        assert!(cli.command.is_none());
        assert_eq!(cli.interface.unwrap().as_str(), name);
    }
}

#[test]
fn an_empty_command_line_is_an_error() {
    parse(&[]).unwrap_err();
}

#[test]
fn an_interface_name_is_not_a_path() {
    for name in [
        "",
        ".",
        "..",
        "a/b",
        "a b",
        "a:b",
        "sixteen-bytes-xx",
        "a\n",
    ] {
        name.parse::<DeviceName>().unwrap_err();
    }
    for name in ["wg0", "fifteen-bytes-x", "größe", "-"] {
        name.parse::<DeviceName>().unwrap();
    }
}

#[cfg(feature = "measure")]
#[test]
fn every_command_of_the_documents_is_accepted() {
    let documents = [
        include_str!("../../../../README.md"),
        include_str!("../../../README.md"),
        include_str!("../../../../perf/README.md"),
        include_str!("../../../../benches/README.md"),
    ];
    let mut commands = 0;
    for line in documents.iter().flat_map(|it| it.lines()) {
        // A line of a listing, or code within a sentence.
        let listed = line.split(" #").next().map(str::trim).into_iter();
        let quoted = line.split('`').skip(1).step_by(2);
        for code in listed.chain(quoted) {
            let code = code.trim_start_matches("sudo ");
            let code = code.split(" | ").next().unwrap();
            let is_pattern = code.contains('…') || code.contains("IFACE");
            let words = code.strip_prefix("convoy ").filter(|_| !is_pattern);
            let Some(words) = words else { continue };
            let words: Vec<_> = words.split_whitespace().collect();
            if let Err(error) = parse(&words) {
                let lacks = ErrorKind::MissingRequiredArgument;
                assert_eq!(error.kind(), lacks, "{code}: {error}");
            }
            commands += 1;
        }
    }
    assert!(commands > 40, "{commands}");
}

fn parse(args: &[&str]) -> Result<Cli, clap::Error> {
    Cli::try_parse_from([&["convoy"], args].concat())
}
