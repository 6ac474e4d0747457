//! Builds the guest: compiles every program of the workspace for the bare target and packs the boot
//! archive.
//!
//! A guest program is a binary of a workspace member outside `tools/` and `sim/`; its name is the
//! binary's. `kernel` is what boots; of the rest, what the booted description can start goes to
//! `sbin/` of the archive. See docs/decisions/0001-build.md for why there is one build for all.

use crate::host::{cargo, child, files, place};
use crate::image::archive::Archive;
use crate::image::elf;
use anyhow::{Context, Result, bail};
use cargo_metadata::{Metadata, MetadataCommand, Package};
use std::path::{Path, PathBuf};
use std::process::Command;
use system::{PROGRAM_FOLDER, RUN_PATH, Run, SYSTEM_PATH, System};

/// The bare target.
pub const TARGET: &str = "x86_64-unknown-none";
/// The image that boots.
pub const KERNEL: &str = "kernel";

/// The workspace as cargo sees it.
pub fn workspace() -> Result<Metadata> {
    let manifest = place::root().join("Cargo.toml");
    MetadataCommand::new().manifest_path(manifest).no_deps().exec().context("the workspace's manifests are not sound")
}

/// What the compiler of the guest says of itself, `rustc --version`.
pub fn compiler() -> Result<String> {
    const REMEDY: &str = "`./pelago doctor` says what is missing";
    // As cargo chooses it.
    let program = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = child::output(Command::new(&program).arg("--version").current_dir(place::root()), child::SHORT);
    let output = output.with_context(|| format!("cannot start {}; {REMEDY}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().filter(|_| output.status.success());
    line.map(str::to_owned).with_context(|| format!("{} does not tell its version; {REMEDY}", program.display()))
}

/// The folder of a package, relative to the checkout.
pub fn folder(metadata: &Metadata, package: &Package) -> String {
    let folder = package.manifest_path.parent().unwrap_or(&metadata.workspace_root);
    folder.strip_prefix(&metadata.workspace_root).unwrap_or(folder).to_string()
}

/// True for packages that run on the host only.
pub fn is_host_only(metadata: &Metadata, package: &Package) -> bool {
    let folder = folder(metadata, package);
    folder.starts_with("tools/") || folder.starts_with("sim")
}

/// Packages with a program for the guest.
pub fn guest_packages(metadata: &Metadata) -> Vec<String> {
    let has_program =
        |package: &&Package| !is_host_only(metadata, package) && package.targets.iter().any(|target| target.is_bin());
    metadata.workspace_packages().into_iter().filter(has_program).map(|package| package.name.to_string()).collect()
}

/// Compiles the guest's programs, leaves `out/pelago.elf` and `out/images/*`, and returns the
/// images' paths.
pub fn build_programs() -> Result<Vec<PathBuf>> {
    build_packages(&guest_packages(&workspace()?))
}

/// The same of the kernel and what this system can start: after a change of what all stand on, the
/// others would double the wait.
pub fn build_programs_of(system: &System) -> Result<Vec<PathBuf>> {
    build_packages(&packages_of(&workspace()?, system))
}

/// Packages with the kernel and what the system can start. What no package has is left to
/// [`archive`], which names it.
fn packages_of(metadata: &Metadata, system: &System) -> Vec<String> {
    let is_meant = |name: &str| name == KERNEL || system.programs().contains(name);
    let has_one =
        |package: &&Package| package.targets.iter().any(|target| target.is_bin() && is_meant(target.name.as_str()));
    let meant = metadata.workspace_packages().into_iter().filter(has_one);
    meant.map(|package| package.name.to_string()).collect()
}

fn build_packages(packages: &[String]) -> Result<Vec<PathBuf>> {
    if packages.is_empty() {
        bail!("no workspace member has a program for the guest");
    }
    let words = ["build", "--quiet", "--release", "--bins", "--target", TARGET, "--target-dir", "target/guest"];
    let mut command = cargo::command(&words);
    command.args(packages.iter().flat_map(|package| ["-p", package]));
    let Some(artifacts) = cargo::build(command)? else {
        bail!("the guest did not build; the compiler's messages are above");
    };
    let programs: Vec<PathBuf> =
        artifacts.into_iter().filter_map(|artifact| artifact.executable).map(PathBuf::from).collect();
    programs.iter().map(|program| keep_image(program)).collect()
}

fn keep_image(program: &Path) -> Result<PathBuf> {
    let name = program.file_name().context("a program without a name")?;
    let image = place::images().join(name);
    let data = files::read(program)?;
    // An unchanged image keeps its time stamp, so that what is made from it need not be made again.
    if std::fs::read(&image).ok().as_ref() != Some(&data) {
        files::write(&image, &data)?;
    }
    if name == KERNEL {
        files::write(&place::kernel(), &elf::without_debug(&data)?)?;
    }
    Ok(image)
}

/// An archive with the system's programs, its description, and what to run; the root directory is
/// the caller's to add.
pub fn archive(images: &[PathBuf], system: &System, run: &Run) -> Result<Archive> {
    let mut archive = Archive::default();
    for (name, image) in programs(images, system)? {
        archive.file(&format!("{PROGRAM_FOLDER}/{name}"), 0o755, elf::without_debug(&files::read(image)?)?);
    }
    archive.file(SYSTEM_PATH, 0o644, system::encode(system));
    archive.file(RUN_PATH, 0o644, system::encode(run));
    Ok(archive)
}

/// What the system can start, by name.
fn programs<'s>(images: &'s [PathBuf], system: &'s System) -> Result<Vec<(&'s str, &'s Path)>> {
    let image = |name: &str| images.iter().find(|image| image.file_name().is_some_and(|file| file == name));
    let (mut found, mut lacking) = (Vec::new(), Vec::new());
    for name in system.programs() {
        match image(name) {
            Some(image) => found.push((name, image.as_path())),
            None => lacking.push(name),
        }
    }
    if !lacking.is_empty() {
        bail!("the system's description names programs that the workspace lacks: {}; correct it", lacking.join(", "));
    }
    Ok(found)
}

/// `./pelago build`.
pub fn build_everything() -> Result<()> {
    let images = build_programs()?;
    let system = crate::image::description::load(&place::root().join("system/default.toml"))?;
    let run = Run { working_directory: "/".into(), ..Run::default() };
    let mut archive = archive(&images, &system, &run)?;
    crate::image::rootfs::add_base(&mut archive);
    let path = place::out().join("boot.archive");
    archive.write(&path)?;
    println!("{}", place::kernel().display());
    println!("{} ({} KiB)", path.display(), archive.content_bytes() >> 10);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(name: &str) -> System {
        crate::image::description::load(&place::root().join("system").join(name)).unwrap()
    }

    #[test]
    fn a_run_builds_what_its_description_names() {
        let metadata = workspace().unwrap();
        let packages = packages_of(&metadata, &system("conform.toml"));
        let names = ["conform", "memory", "monitor", "names", "spawn", "supervisor"];
        let named: Vec<_> = ["kernel".into()].into_iter().chain(names.map(|name| format!("pelago-{name}"))).collect();
        assert!(packages.len() == named.len() && named.iter().all(|name| packages.contains(name)), "{packages:?}");
        let all = guest_packages(&metadata);
        let default = packages_of(&metadata, &system("default.toml"));
        assert!(default.len() < all.len() && default.iter().all(|name| all.contains(name)), "{default:?}");
        assert!(default.contains(&"pelago-proxy".into()), "{default:?}");
    }

    #[test]
    fn an_archive_has_what_its_description_names() {
        let images: Vec<PathBuf> =
            ["kernel", "monitor", "memory", "names", "spawn", "supervisor", "proxy", "conform", "bench"]
                .map(|name| Path::new("images").join(name))
                .into();
        let conform = system("conform.toml");
        let names: Vec<_> = programs(&images, &conform).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["conform", "memory", "monitor", "names", "spawn", "supervisor"]);
        let refusal = programs(&images, &system("default.toml")).unwrap_err().to_string();
        assert!(refusal.contains("lacks: console, fs, ip,") && !refusal.contains("proxy"), "{refusal}");
    }
}
