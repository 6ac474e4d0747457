//! `./pelago chaos kill COMPONENT`: breaks a component of a running instance.

use crate::machine::control;
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Options of `chaos`.
#[derive(Args)]
pub struct Options {
    #[command(subcommand)]
    action: Action,
    /// Process id of the `pelago run` meant, if several run
    #[arg(long, value_name = "PID", global = true)]
    run: Option<u32>,
}

#[derive(Subcommand)]
enum Action {
    /// End a component at once, as a crash does
    Kill { component: String },
    /// Make a component loop without answering
    Hang { component: String },
    /// Make a component wait for an event that never comes
    Block { component: String },
    /// Make a component access memory that is not mapped
    Fault { component: String },
    /// Make the workers of a component, which serve calls, answer none
    Worker { component: String },
}

/// Sends the request to the running instance and prints the reply.
pub fn run(options: &Options) -> Result<ExitCode> {
    let (verb, component) = match &options.action {
        Action::Kill { component } => ("kill", component),
        Action::Hang { component } => ("hang", component),
        Action::Block { component } => ("block", component),
        Action::Fault { component } => ("fault", component),
        Action::Worker { component } => ("worker", component),
    };
    if !component.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.') {
        bail!("`{component}` is no component's name; system/default.toml lists them");
    }
    control::ask(options.run, &format!("chaos {verb} {component}"))
}
