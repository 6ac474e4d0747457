//! The host tool behind `./pelago`: the command line, and nothing else. Each sub-command is a
//! module.
//!
//! Exit status: that of the Linux program for `run`, 0 or 1 for the others, 125 where the tool
//! itself could not do its job. An error is one line that says what is wrong and what to do.

#![forbid(unsafe_code)]

mod bench;
mod host;
mod image;
mod machine;
mod run;
mod test;
mod tidy;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Status when the tool, not the program it ran, failed; the same as `docker run`.
const TOOL_FAILED: u8 = 125;

#[derive(Parser)]
#[command(name = "pelago", version, about = "Builds, boots, tests and measures Pelago.", arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Boot the system and run a Linux program of this machine in it
    Run(run::program::Options),
    /// Build the bootable ELF out/pelago.elf and its archive out/boot.archive
    Build {
        /// Also make out/pelago.iso, a disk image that boots by itself and runs the program given
        #[arg(long)]
        image: bool,
        #[command(flatten)]
        run: Box<run::program::Options>,
    },
    /// Run the unit tests and boot scenarios; the last line is `N passed, N failed`
    Test(test::testing::Options),
    /// Measure the system, and a Linux guest beside it
    Bench(bench::Options),
    /// Run the nodes' protocols under simulated delays, deaths and restarts
    Sim(test::sim::Options),
    /// Cut the power of a guest's disk at many moments of a run, and look what is left
    DiskTest(test::disk::Options),
    /// Check format, lints and the rules of the house
    Check,
    /// Show what this machine has, and what is missing
    Doctor,
    /// Kill or hang a component of the running system, to see it restarted
    Chaos(run::chaos::Options),
    /// List the components of the running system, and where each runs
    Components {
        /// Process id of the `pelago run` meant, if several run
        #[arg(long, value_name = "PID")]
        run: Option<u32>,
    },
    /// Show where each core's time went in the running system, and who paid for what each domain
    /// ran
    Acct {
        /// Process id of the `pelago run` meant, if several run
        #[arg(long, value_name = "PID")]
        run: Option<u32>,
    },
    /// List the cores of the running system: what each runs, who claimed it, and how long programs
    /// ran on it
    Cores {
        /// Process id of the `pelago run` meant, if several run
        #[arg(long, value_name = "PID")]
        run: Option<u32>,
    },
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        // Help and version are what was asked for.
        Err(error) if !error.use_stderr() => error.exit(),
        Err(error) => {
            eprintln!("pelago: {}; ./pelago --help lists the commands", first_paragraph(&error.to_string()));
            return ExitCode::from(TOOL_FAILED);
        }
    };
    let result = match arguments.command {
        Command::Run(options) => run::program::run(&options),
        Command::Build { image: true, run } => run::program::image(&run),
        Command::Build { image: false, .. } => image::build::build_everything().map(|()| ExitCode::SUCCESS),
        Command::Test(options) => test::testing::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Sim(options) => test::sim::run(&options),
        Command::DiskTest(options) => test::disk::run(&options),
        Command::Check => tidy::check::run(),
        Command::Doctor => run::doctor::run(),
        Command::Chaos(options) => run::chaos::run(&options),
        Command::Components { run } => machine::control::ask(run, "components"),
        Command::Acct { run } => machine::control::ask(run, "acct"),
        Command::Cores { run } => machine::control::ask(run, "cores"),
    };
    result.unwrap_or_else(|error| {
        eprintln!("pelago: {}", one_line(&format!("{error:#}")));
        ExitCode::from(TOOL_FAILED)
    })
}

/// Libraries draw errors over several lines; ours is one.
fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

fn first_paragraph(text: &str) -> String {
    one_line(text.trim_start_matches("error: ").split("\n\n").next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        <Arguments as clap::CommandFactory>::command().debug_assert();
    }
}
