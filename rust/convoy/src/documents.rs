//! `convoy generate-documents`: man pages and shell completions, for packages.

mod man;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::{Shell, generate_to};

/// Too long for the name of an interface, so that it cannot hide one.
pub(crate) const COMMAND: &str = "generate-documents";

/// The arguments of the hidden `convoy generate-documents`.
#[derive(Debug, Args)]
pub(crate) struct GenerateDocumentsArgs {
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// Writes `man/convoy.1` and the like, and `completions/`, below a directory; `all` is the command line.
pub(crate) fn run(args: &GenerateDocumentsArgs, all: &Command) -> anyhow::Result<()> {
    let directory = |name: &str| -> anyhow::Result<_> {
        let path = args.directory.join(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(path)
    };
    let pages = directory("man")?;
    for (name, text) in man::pages(&shown(all))? {
        let path = pages.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    complete(&directory("completions")?, all)
}

fn complete(directory: &Path, all: &Command) -> anyhow::Result<()> {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut shown(all), "convoy", directory)
            .with_context(|| format!("cannot write to {}", directory.display()))?;
    }
    Ok(())
}

/// The program without its hidden commands and options, which the generators would list.
fn shown(all: &Command) -> Command {
    let commands = all.get_subcommands().filter(|it| !it.is_hide_set());
    let mut shown = without_hidden_options(all)
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .subcommands(commands.map(without_hidden_options));
    shown.build();
    shown
}

/// A command without its subcommands, too: clap can hide options, but not remove them.
fn without_hidden_options(command: &Command) -> Command {
    let options = command.get_arguments().filter(|it| !it.is_hide_set());
    // clap wants a name that lives as long as the process, which ends soon.
    let name: &str = Box::leak(Box::from(command.get_name()));
    let mut shown = Command::new(name).args(options);
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(about) = command.get_long_about() {
        shown = shown.long_about(about.clone());
    }
    if let Some(more) = command.get_after_help() {
        shown = shown.after_help(more.clone());
    }
    shown
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_command_has_a_page_and_is_completed_unless_it_is_hidden() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().to_owned();
        run(&GenerateDocumentsArgs { directory }, &Cli::command()).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name));
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            let is_shown = !command.is_hide_set();
            let page = read(&format!("man/convoy-{name}.1"));
            assert_eq!(page.is_ok(), is_shown, "{name}");
            for shell in ["convoy.bash", "_convoy", "convoy.fish"] {
                let text = read(&format!("completions/{shell}")).unwrap();
                assert_eq!(text.contains(name), is_shown, "{name} in {shell}");
            }
            let text = read("completions/convoy.fish").unwrap();
            let of_command = format!("using_subcommand {name}\"");
            let lines = text.lines().filter(|line| line.contains(&of_command));
            let lines: String = lines.map(|line| format!("{line}\n")).collect();
            let options = command.get_arguments().filter(|_| is_shown);
            for (option, long) in options.filter_map(|it| Some((it, it.get_long()?))) {
                let is_completed = lines.contains(&format!(" -l {long}"));
                assert_eq!(is_completed, !option.is_hide_set(), "{name} --{long}");
            }
        }
    }
}
