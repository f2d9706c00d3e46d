//! `convoy speedtest` and `convoy profile`: the subcommands of [`convoy_perf`].

use convoy_perf::{
    profile::{self, ProfileArgs},
    speedtest::{self, SpeedtestArgs},
};

use crate::logging::{self, LogFormat};

pub(crate) fn speedtest(args: &SpeedtestArgs) -> anyhow::Result<()> {
    if args.is_server() {
        logging::init(LogFormat::Text, None)?;
    }
    speedtest::run(args).map_err(each_cause_once)
}

pub(crate) fn profile(args: &ProfileArgs) -> anyhow::Result<()> {
    profile::run(args).map_err(each_cause_once)
}

pub(crate) fn inside() -> anyhow::Result<()> {
    speedtest::run_inside().map_err(each_cause_once)
}

/// Joins the chain of causes into one message, since many messages already include their cause.
fn each_cause_once(error: impl Into<anyhow::Error>) -> anyhow::Error {
    let mut message = String::new();
    for cause in error.into().chain().map(ToString::to_string) {
        if !message.contains(&cause) {
            let separator = if message.is_empty() { "" } else { ": " };
            message = message + separator + &cause;
        }
    }
    anyhow::Error::msg(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_a_message_names_is_not_repeated() {
        let error = anyhow::Error::msg("No such file")
            .context("open the TUN: No such file (fix: modprobe)")
            .context("build the bed");
        let message = each_cause_once(error).to_string();
        assert_eq!(
            message,
            "build the bed: open the TUN: No such file (fix: modprobe)"
        );
    }
}
