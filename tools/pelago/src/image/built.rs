//! Where a program that is tested or measured comes from: a root of Debian's packages, or a program
//! of ours (`scenarios/servers/`) that stands on another language's runtime. Those are built for
//! this machine where its compiler is there, with their outputs in the cache.

use crate::host::skip::Skip;
use crate::host::{cargo, child, place};
use anyhow::{Context, Result, bail, ensure};
use std::path::PathBuf;
use std::process::Command;

/// Where Go's own packages put it.
const GO: &str = "/usr/local/go/bin/go";
const TOKIO: &str = "tokio/Cargo.toml";

#[derive(Clone, Copy)]
pub enum Origin {
    /// A root of `tools/machine.sh`, by its name.
    Root(&'static str),
    /// A source file of `servers/`, without its ending; a static program.
    Go(&'static str),
    /// The same with the C library, which Go's runtime then starts its threads by.
    GoWithC(&'static str),
    /// A program of `servers/tokio`.
    Tokio(&'static str),
    /// A class of `servers/`, at `/classes` of a root with Debian's Java.
    Java(&'static str),
}

/// Makes a data base in `/data/base` of Debian's PostgreSQL if there is none, as a user of its own,
/// and becomes the server.
pub const POSTGRES: &str = include_str!("built/postgres.sh");

impl Origin {
    /// What `run` is to be told: of a root, options; else the program.
    pub fn words(self) -> Result<Vec<String>> {
        match self {
            Origin::Root(name) => {
                let root = place::test_root(name);
                if !root.is_dir() {
                    bail!(Skip::Root(name));
                }
                Ok(vec!["--rootfs".into(), root.display().to_string()])
            }
            Origin::Go(name) => go(name, "0"),
            Origin::GoWithC(name) => go(name, "1"),
            Origin::Tokio(name) => tokio(name),
            Origin::Java(name) => java(name),
        }
    }
}

fn source(name: &str) -> PathBuf {
    place::root().join("tools/pelago/src/test/scenarios/servers").join(name)
}

fn go(name: &str, with_c: &str) -> Result<Vec<String>> {
    let own = Some(PathBuf::from(GO)).filter(|path| path.is_file());
    let Some(go) = crate::host::path::find("go").or(own) else {
        bail!(Skip::Cannot("there is no go; install Go from https://go.dev or Debian's golang-go".into()));
    };
    let folder = place::cache().join("go");
    // Both of a name may be wanted at once.
    let program = folder.join(if with_c == "1" { format!("{name}-with-c") } else { name.to_owned() });
    let mut build = Command::new(go);
    build.arg("build").arg("-o").arg(&program).arg(source(&format!("{name}.go")));
    build.env("CGO_ENABLED", with_c).env("GOTOOLCHAIN", "local").env("GOFLAGS", "");
    build.env("GOCACHE", folder.join("cache")).env("GOPATH", folder.join("path"));
    let output = cargo::timed(|| child::output(&mut build, cargo::BUILD_LIMIT))?;
    ensure!(output.status.success(), "go build: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(vec![program.display().to_string()])
}

fn java(name: &str) -> Result<Vec<String>> {
    let Some(javac) = crate::host::path::find("javac") else {
        bail!(Skip::Package { program: "javac", package: "openjdk-17-jdk-headless" });
    };
    let classes = place::cache().join("java");
    let mut build = Command::new(javac);
    build.args(["--release", "17", "-d"]).arg(&classes).arg(source(&format!("{name}.java")));
    let output = cargo::timed(|| child::output(&mut build, cargo::BUILD_LIMIT))?;
    ensure!(output.status.success(), "javac: {}", String::from_utf8_lossy(&output.stderr).trim());
    let mut words = Origin::Root("java").words()?;
    words.extend(["-m".into(), "1500M".into(), "-v".into(), format!("{}:/classes", classes.display())]);
    Ok(words)
}

/// Its crates come from the registry, once.
fn tokio(name: &str) -> Result<Vec<String>> {
    let manifest = source(TOKIO);
    let words = |verb| [verb, "--quiet", "--locked", "--manifest-path"];
    let mut fetch = cargo::command(&words("fetch"));
    let output = cargo::timed(|| child::output(fetch.arg(&manifest), cargo::BUILD_LIMIT))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!(Skip::Cannot(format!("tokio cannot be fetched: {}", why.trim().lines().last().unwrap_or_default())));
    }
    let mut build = cargo::command(&words("build"));
    build.arg(&manifest).args(["--release", "--bin", name, "--target-dir"]).arg(place::cache().join("tokio"));
    let made = cargo::build(build)?.context("the programs on tokio do not build")?;
    let program =
        made.iter().find_map(|artifact| artifact.executable.as_ref().filter(|_| artifact.target.name == name));
    Ok(vec![program.context("cargo made no program")?.to_string()])
}
