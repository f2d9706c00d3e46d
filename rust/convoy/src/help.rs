//! `convoy help`: explains a command, or the keys of a configuration file.

use clap::{Args, Command, builder::StyledStr, error::ErrorKind};
use convoy_config::Key;
use convoy_process::print_to;

use crate::paragraph::fill;

/// The arguments of `convoy help`.
#[derive(Debug, Args)]
pub(crate) struct HelpArgs {
    /// A command, or `config`
    #[arg(value_name = "COMMAND|config")]
    pub(crate) topic: Option<String>,
}

/// Description of a configuration file, in paragraphs.
pub(crate) const CONFIGURATION: [&str; 2] = [
    "A tunnel is configured by /etc/wireguard/NAME.conf, a file of wg-quick(8), and by the [Peer] sections of \
     the files NAME.d/*.conf beside it. Keys that wg-quick lacks stand in comments, which it skips. \
     `convoy check NAME` shows what is wrong with a file.",
    "Sections, keys and words may be written in any case. `# friendly_name = X` in a [Peer] names the peer.",
];

/// Prints the help that was asked for; `all` is the command line.
pub(crate) fn run(args: &HelpArgs, mut all: Command) -> anyhow::Result<()> {
    let text = match args.topic.as_deref() {
        None => all.render_long_help(),
        Some(topic) if topic.eq_ignore_ascii_case("config") => configuration().into(),
        Some(topic) => of_command(topic, all),
    };
    print_to(anstream::stdout(), &text.ansi().to_string())
}

/// The help of one command; ends the process if there is none of that name.
fn of_command(name: &str, mut all: Command) -> StyledStr {
    all.build();
    match all.find_subcommand_mut(name) {
        Some(command) => command.render_long_help(),
        None => {
            let message = format!("there is no command `{name}`; `convoy --help` lists them");
            all.error(ErrorKind::InvalidSubcommand, message).exit()
        }
    }
}

/// All keys of a configuration file.
fn configuration() -> String {
    let mut text = CONFIGURATION
        .map(|paragraph| filled(paragraph, ""))
        .join("\n");
    let mut section = "";
    for key in convoy_config::keys() {
        if key.section_name() != section {
            section = key.section_name();
            text += &format!("\n{section}\n");
        }
        text += &format!("  {}\n", line(key));
        text += &filled(key.meaning, "      ");
        text += &filled(&format!("Default: {}", key.default), "      ");
    }
    text += "\nExample:\n";
    for line in convoy_config::EXAMPLE.lines() {
        text += format!("  {line}").trim_end();
        text += "\n";
    }
    text
}

/// Returns how a key is written, with its values in place of one.
pub(crate) fn line(key: &Key) -> String {
    format!("{} = {}", key.head(), key.values)
}

/// A paragraph whose lines are all indented.
fn filled(text: &str, indent: &str) -> String {
    fill(text, indent, indent) + "\n"
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn the_help_for_the_configuration_names_every_key_and_fits_a_terminal() {
        let text = configuration();
        for key in convoy_config::keys() {
            assert!(text.contains(&line(key)), "{}", key.name);
        }
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{text}");
        assert!(text.contains("  #convoy: KillSwitch = off, on or persistent\n      Whether"));
    }

    #[test]
    fn every_command_has_help_of_its_own() {
        for command in Cli::command().get_subcommands() {
            let text = of_command(command.get_name(), Cli::command()).to_string();
            let usage = format!("Usage: convoy {}", command.get_name());
            assert!(text.contains(&usage), "{text}");
        }
    }
}
