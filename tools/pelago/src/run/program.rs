//! `./pelago run`: builds what changed, packs the program into an archive of its own, boots, and
//! connects console and control.

use crate::host::disk::{Disk, DiskOption};
use crate::host::size::parse_memory;
use crate::host::{place, terminal};
use crate::image::description::Part;
use crate::image::environment;
use crate::image::machine_type::MachineType;
use crate::image::origin::Origin;
use crate::image::rootfs::{self, Volume};
use crate::image::{build, container, description, disk_image, symbols};
use crate::machine::accelerator::{self, AccelChoice};
use crate::machine::console_filter::{ConsoleFilter, Detail};
use crate::machine::control;
use crate::machine::emulator::{Drive, Forward, Machine, Protocol};
use crate::machine::guest::{Event, Guest};
use crate::machine::passt::{self, Network, Passt};
use crate::machine::streams::{self, Streams};
use crate::run::stop::Stopper;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use system::{Component, Mount, Run, System};

/// How often a waiting tool looks whether Ctrl-C was pressed.
const WAKE_EVERY: Duration = Duration::from_millis(50);
/// Status after Ctrl-C: 128 and the signal's number, as shells have it.
const INTERRUPTED: u8 = 130;
const END_OF_INPUT: u8 = 0x04;
const DEFAULT_FORWARD: &str = "8080:80";

static INTERRUPT: AtomicBool = AtomicBool::new(false);
/// The status of a machine that was switched off from outside.
static STOPPED: AtomicU8 = AtomicU8::new(0);

/// Options of `run`.
#[derive(Args, Debug)]
#[command(trailing_var_arg = true)]
pub struct Options {
    /// Cores of the machine, 1 to 255
    #[arg(long, default_value_t = 2)]
    pub cpus: u32,
    /// Memory of the machine, for instance 512M or 2G; a number alone is MiB
    #[arg(short, long, value_name = "SIZE", default_value = "512M", value_parser = parse_memory)]
    pub memory: u64,
    /// Publish a port of this machine to the guest: [ADDRESS:]HOST:GUEST[/udp]; at 127.0.0.1 unless
    /// an address is given
    #[arg(short, long, value_name = "HOST:GUEST")]
    pub publish: Vec<Forward>,
    /// What leads published ports to the guest
    #[arg(long, value_enum, default_value = "passt")]
    pub network: Network,
    /// Copy a file or folder into the guest before it starts
    #[arg(short, long, value_name = "HOST:GUEST")]
    pub volume: Vec<Volume>,
    /// Copy a file or folder into the guest, to the same path, with the libraries that it needs
    #[arg(long, value_name = "PATH")]
    pub with: Vec<PathBuf>,
    /// Copy an installed Debian package into the guest, and those that it depends on, with the
    /// system users and the folders that their set-up made
    #[arg(long, value_name = "NAME")]
    pub package: Vec<String>,
    /// Keep a folder of the guest (/data) in a file of this machine, as an ext4 file system:
    /// FILE[:PATH][,size=SIZE][,key=FILE][,ro]; a missing file is made if there is a size, and
    /// encrypted (LUKS2) if there is a key; key=- asks for a passphrase
    #[arg(long, value_name = "FILE[:PATH]")]
    pub disk: Option<DiskOption>,
    /// Use this folder as the guest's root file system; PROGRAM is looked for in it
    #[arg(long, value_name = "DIR")]
    pub rootfs: Option<PathBuf>,
    /// Set an environment variable of the program; without =VALUE it has this shell's value
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Working directory of the program
    #[arg(short, long, value_name = "DIR", default_value = "/")]
    pub workdir: String,
    /// Kind of machine
    #[arg(long, value_enum, default_value = "q35")]
    pub machine: MachineType,
    /// Description of the system [default: system/default.toml]
    #[arg(long, value_name = "FILE")]
    pub system: Option<PathBuf>,
    /// Hardware virtualisation or emulation
    #[arg(long, value_enum, default_value = "auto")]
    pub accel: AccelChoice,
    /// Wait for a debugger at this port of 127.0.0.1 before the first instruction
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "1234")]
    pub gdb: Option<u16>,
    /// Print the program's output and errors only
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Print every line of the system, from the first
    #[arg(long)]
    pub verbose: bool,
    /// Print the exact emulator command instead of running it
    #[arg(long)]
    pub print: bool,
    /// Record all frames at the network card in this file
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// A program of this machine (path, or name in PATH), and its arguments
    #[arg(value_name = "PROGRAM", allow_hyphen_values = true)]
    pub program: Vec<String>,
}

impl Options {
    fn detail(&self) -> Detail {
        match (self.quiet, self.verbose) {
            (true, _) => Detail::Quiet,
            (_, true) => Detail::All,
            _ => Detail::Events,
        }
    }
}

/// Boots and runs. The status is the program's.
pub fn run(options: &Options) -> Result<ExitCode> {
    if let Some(word) = options.program.first().filter(|word| word.starts_with('-')) {
        bail!("run: there is no option {word}; ./pelago run --help lists them");
    }
    check_print(options)?;
    let folder = Instance::create()?;
    // A printed command is run later, so its archive stays, among the other things that a build
    // leaves.
    let archive = if options.print { place::out().join("run.archive") } else { folder.path().join("boot.archive") };
    let Prepared { mut machine, origin, disk } = prepare(options, &archive)?;
    machine.check()?;
    let (accelerator, reason) = accelerator::choose(options.accel);
    machine.accelerator = accelerator;
    if options.print {
        let words: Vec<_> = machine.arguments().iter().map(|word| quoted(word)).collect();
        println!("{} {}", crate::machine::emulator::PROGRAM, words.join(" "));
        return Ok(ExitCode::SUCCESS);
    }
    // Declared before the guest, so it ends after it.
    let _passt = forward_ports(&mut machine, options.network);
    // Nobody else of us has it until the guest has ended.
    let disk = disk.map(Disk::made).transpose()?;
    let is_carried = has_console_device(&system(options)?);
    let held = if is_carried { Some(streams::hold_signals()?) } else { None };
    let mut streams = if is_carried { Some(Streams::open()?) } else { None };
    if let (Some(handover), Some(streams)) = (disk.as_ref().and_then(Disk::handover), &mut streams) {
        streams.tell_key(&handover.encode()[..])?;
    }
    machine.streams = streams.as_ref().map(Streams::inherited).transpose()?.unwrap_or_default();
    ctrlc::set_handler(|| INTERRUPT.store(true, Ordering::Relaxed)).context("cannot catch Ctrl-C")?;
    if !options.quiet {
        eprintln!("pelago: {}", start(options, &machine, &reason, disk.as_ref()));
    }
    if let Some(port) = options.gdb {
        eprintln!(
            "pelago: waiting for a debugger; run: gdb {} -ex 'target remote 127.0.0.1:{port}'",
            place::images().join("kernel").display()
        );
    }
    let guest = Guest::start(&machine)?;
    let replies = control::serve(folder.path(), guest.input())?;
    let stopper = Stopper::of(&guest, machine.drive.is_some())?;
    if let (Some(streams), Some(held)) = (streams, held) {
        let has_program = !options.program.is_empty();
        let [input, output, _] = streams::terminals();
        let direct =
            Mutex::new(if has_program { terminal::Direct::enter_raw(output) } else { terminal::Direct::enter() });
        let direct = Arc::new(direct);
        let at_end = direct.clone();
        let running = streams.run(held, has_program, move |reason, status| {
            if let Ok(mut direct) = at_end.lock() {
                direct.take();
            }
            eprintln!("\npelago: {reason}");
            STOPPED.store(status, Ordering::Relaxed);
            stopper.stop();
        })?;
        let line_end = if has_program && input && output { "\r\n" } else { "\n" };
        let result = relay_system(guest, &replies, running, ConsoleFilter::new(options.detail()), line_end);
        if let Ok(mut direct) = direct.lock() {
            direct.take();
        }
        return Ok(ended(result?, options, origin.as_ref()));
    }
    let _direct = terminal::Direct::enter();
    forward_input(&guest);
    let status = relay(guest, &stopper, &replies, ConsoleFilter::new(options.detail()))?;
    Ok(ended(status, options, origin.as_ref()))
}

/// Starts what forwards the machine's ports; without it the emulator does.
fn forward_ports(machine: &mut Machine, network: Network) -> Option<Passt> {
    if machine.forwards.is_empty() || network == Network::Emulator {
        return None;
    }
    match passt::connect(&machine.forwards) {
        Ok((passt, socket)) => {
            machine.socket = Some(socket.into());
            Some(passt)
        }
        Err(problem) => {
            eprintln!(
                "pelago: the emulator's own network forwards the ports, which is slow for many clients at once: {problem:#}"
            );
            None
        }
    }
}

/// The program's status is the tool's; of a bad one a likely cause is told.
fn ended(status: u8, options: &Options, origin: Option<&Origin>) -> ExitCode {
    if !options.quiet
        && let Some(remedy) = origin.and_then(|origin| origin.remedy(status))
    {
        eprintln!("pelago: {remedy}");
    }
    ExitCode::from(status)
}

/// The line that says what was started.
fn start(options: &Options, machine: &Machine, reason: &str, disk: Option<&Disk>) -> String {
    let ports: Vec<_> = machine
        .forwards
        .iter()
        .map(|Forward { address, host, guest, protocol }| match address {
            address if *protocol == Protocol::Udp => format!("{address}:{host}/udp leads to its port {guest}"),
            address if address.is_loopback() => format!("http://localhost:{host}/ leads to its port {guest}"),
            address => format!("{address}:{host} leads to its port {guest}"),
        })
        .collect();
    let what = options.program.first().map_or("no program given, so it serves its own page", String::as_str);
    let (cpus, mib, by) = (machine.cpus, machine.memory_bytes >> 20, machine.accelerator.name());
    let ports = if ports.is_empty() { String::new() } else { format!("; {}", ports.join(", ")) };
    let disk = disk.map(|disk| format!("; {}", disk.in_words())).unwrap_or_default();
    format!("{what}; {cpus} cores, {mib} MiB, {by} ({reason}){ports}{disk}")
}

/// Does somebody in the system serve the streams' device?
fn has_console_device(system: &System) -> bool {
    let drives = |component: &Component| component.devices.iter().any(|kind| kind == "virtio-console");
    system.components.iter().any(drives)
}

/// Shows what the system says until the guest ends, while the streams go their own way.
fn relay_system(
    mut guest: Guest,
    replies: &control::Replies,
    running: streams::Running,
    mut filter: ConsoleFilter,
    line_end: &str,
) -> Result<u8> {
    let mut symbols = symbols::Symbols::default();
    loop {
        let Ok(event) = guest.next(WAKE_EVERY) else { continue };
        match event {
            Some(Event::Line { whole, .. }) => {
                filter.line(whole).into_iter().for_each(|line| eprint!("{}{line_end}", symbols.describe(&line)));
            }
            Some(Event::Reply(text)) => replies.deliver(text),
            Some(Event::Part(_) | Event::Exit(_)) => {}
            None => break,
        }
    }
    if let status @ 1.. = STOPPED.load(Ordering::Relaxed) {
        return Ok(status);
    }
    if let Some(status) = running.finish() {
        return Ok(status);
    }
    filter.rest().for_each(|line| eprint!("{}{line_end}", symbols.describe(&line)));
    let status = guest.finish(Duration::ZERO)?;
    Ok(status.clamp(0, 255) as u8)
}

/// Makes a disk image of what `run` with these options would boot (`./pelago build --image`).
pub fn image(options: &Options) -> Result<ExitCode> {
    if let Some(disk) = &options.disk {
        bail!("--disk {}: an image has no disk but the one it is on; leave --disk out", disk.file.display());
    }
    let archive = place::out().join("boot.archive");
    let Prepared { machine, .. } = prepare(options, &archive)?;
    let path = place::out().join("pelago.iso");
    disk_image::make(&archive, &machine.command_line, &path)?;
    println!("{}", path.display());
    Ok(ExitCode::SUCCESS)
}

/// What is to be booted.
struct Prepared {
    machine: Machine,
    /// Of a program of this machine, where it came from.
    origin: Option<Origin>,
    disk: Option<Disk>,
}

/// Looks at what was asked for, builds what changed and writes the archive.
fn prepare(options: &Options, archive_path: &std::path::Path) -> Result<Prepared> {
    let system = system(options)?;
    let disk = options.disk.as_ref().map(DiskOption::check).transpose()?;
    let mut root = crate::image::archive::Archive::default();
    match &options.rootfs {
        Some(folder) => container::add(&mut root, folder)?,
        None => rootfs::add_base(&mut root),
    }
    for volume in &options.volume {
        rootfs::add_volume(&mut root, volume)?;
    }
    let environment = environment::of(environment::inherited().filter(|_| options.rootfs.is_none()), &options.env)?;
    let path = environment.iter().find_map(|variable| variable.strip_prefix("PATH=")).unwrap_or_default().to_owned();
    rootfs::add_packages(&mut root, &options.package, &path)?;
    for wish in &options.with {
        rootfs::add_with(&mut root, wish, &path)?;
    }
    let mut run = Run { working_directory: options.workdir.clone(), environment, ..Run::default() };
    (run.terminals, run.window) = (streams::terminals(), streams::window());
    run.mount = options.disk.as_ref().map(|disk| Mount { path: disk.path.clone(), is_read_only: disk.is_read_only });
    if let Some((name, arguments)) = options.program.split_first() {
        run.arguments.push(match options.rootfs {
            Some(_) => container::find_program(&root, name, &path, &options.workdir)?,
            None => rootfs::add_program(&mut root, name, &path)?,
        });
        run.arguments.extend_from_slice(arguments);
    } else if let Some(folder) = &options.rootfs {
        bail!("--rootfs {}: name the program of it to run, for instance /bin/sh", folder.display());
    }
    rootfs::check_folder(&root, &options.workdir)?;
    // The user's mistakes above are told before anything is compiled.
    let images = build::build_programs_of(&system)?;
    let mut archive = build::archive(&images, &system, &run)?;
    archive.merge(root);
    archive.write(archive_path)?;
    let program = run.arguments.first().filter(|_| options.rootfs.is_none()).cloned();
    let mut forwards = options.publish.clone();
    if forwards.is_empty() && options.program.is_empty() {
        forwards.push(DEFAULT_FORWARD.parse()?);
    }
    let machine = Machine {
        memory_bytes: options.memory,
        archive: Some(archive_path.to_owned()),
        program: run.arguments.first().and_then(|path| path.rsplit('/').next()).map(str::to_owned),
        forwards,
        gdb: options.gdb,
        pcap: options.pcap.clone(),
        drive: options.disk.as_ref().map(drive).transpose()?,
        ..Machine::new(options.machine, options.cpus, crate::machine::emulator::Accelerator::Tcg)
    };
    let packages = options.package.clone();
    Ok(Prepared { machine, origin: program.map(|program| Origin { files: archive, program, packages }), disk })
}

/// A printed command has nobody who would hand the guest a key.
fn check_print(options: &Options) -> Result<()> {
    match &options.disk {
        Some(DiskOption { key: Some(_), file, .. }) if options.print => {
            bail!("--disk {}: a printed command has no key to give; leave --print out", file.display())
        }
        _ => Ok(()),
    }
}

/// The emulator's drive. Another folder may be the current one when a printed command is run.
fn drive(disk: &DiskOption) -> Result<Drive> {
    let file = std::path::absolute(&disk.file).with_context(|| format!("--disk {}", disk.file.display()))?;
    Ok(Drive { file, is_read_only: disk.is_read_only })
}

/// The system's description for what was asked for.
fn system(options: &Options) -> Result<System> {
    let path = options.system.clone().unwrap_or_else(|| place::root().join("system/default.toml"));
    let parts: &[Part] = match &options.disk {
        Some(DiskOption { key: Some(_), .. }) => &[Part::Disk, Part::Key],
        Some(_) => &[Part::Disk],
        None => &[],
    };
    let system = description::load_with(&path, parts)?;
    let drives = |kind: &String| kind == "virtio-blk";
    if let Some(disk) = &options.disk
        && !system.components.iter().any(|component| component.devices.iter().any(drives))
    {
        bail!("--disk {}: the system of {} has no use for a disk; leave one out", disk.file.display(), path.display());
    }
    let encrypts = |component: &Component| component.provides.iter().any(|contract| contract == "keys");
    if let Some(DiskOption { key: Some(_), file, .. }) = &options.disk
        && !(system.components.iter().any(encrypts) && has_console_device(&system))
    {
        bail!("--disk {}: the system of {} cannot encrypt; leave key= out", file.display(), path.display());
    }
    Ok(description::placed(system, options.machine))
}

/// Hands what is typed to the guest's console. The thread ends with the process: reading a terminal
/// cannot be interrupted.
fn forward_input(guest: &Guest) {
    let input = guest.input();
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut bytes = [0; 4096];
        let mut line_ended = true;
        while let Ok(count @ 1..) = stdin.read(&mut bytes) {
            line_ended = bytes[count - 1] == b'\n';
            // What the user types must not pass for a control request.
            let typed: Vec<u8> =
                bytes[..count].iter().copied().filter(|&byte| byte != crate::machine::guest::CONTROL).collect();
            if !input.send(&typed) {
                return;
            }
        }
        // The first of two ends a line that has no end yet, as on any terminal.
        input.send(if line_ended { &[END_OF_INPUT] } else { &[END_OF_INPUT, END_OF_INPUT] });
    });
}

/// Shows the console until the guest ends: the system's own lines on standard error, the program's
/// on standard output.
fn relay(
    mut guest: Guest,
    stopper: &Arc<Stopper>,
    replies: &control::Replies,
    mut filter: ConsoleFilter,
) -> Result<u8> {
    let mut symbols = symbols::Symbols::default();
    let mut is_interrupted = false;
    loop {
        if INTERRUPT.swap(false, Ordering::Relaxed) {
            eprintln!("\npelago: interrupted; the machine is switched off");
            is_interrupted = true;
            stopper.stop();
        }
        let Ok(event) = guest.next(WAKE_EVERY) else { continue };
        match event {
            Some(Event::Part(bytes)) => show(&bytes),
            Some(Event::Line { whole, .. }) if ["pelago: ", "bt: "].iter().any(|start| whole.starts_with(start)) => {
                filter.line(whole).into_iter().for_each(|line| eprintln!("{}", symbols.describe(&line)));
            }
            Some(Event::Line { mut rest, .. }) => {
                rest.push(b'\n');
                show(&rest);
            }
            Some(Event::Reply(text)) => replies.deliver(text),
            Some(Event::Exit(_)) => {}
            None => break,
        }
    }
    if is_interrupted {
        return Ok(INTERRUPTED);
    }
    filter.rest().for_each(|line| eprintln!("{}", symbols.describe(&line)));
    let status = guest.finish(Duration::ZERO)?;
    Ok(status.clamp(0, 255) as u8)
}

fn show(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    // A closed pipe behind us is no reason to stop the guest.
    let _ = out.write_all(bytes).and_then(|()| out.flush());
}

/// Removes folders of runs that could not: their process is gone, or another has its number.
fn remove_ended(base: &std::path::Path) {
    let Ok(folders) = std::fs::read_dir(base) else { return };
    for folder in folders.flatten().map(|entry| entry.path()) {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(id) = name.split('-').next().filter(|id| id.parse::<u32>().is_ok()) else { continue };
        let is_gone = !std::path::Path::new("/proc").join(id).exists();
        if is_gone || control::is_abandoned(&folder) {
            // It may be another user's; then it is theirs to remove.
            let _ = std::fs::remove_dir_all(&folder);
        }
    }
}

pub fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./,=:+@".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The folder of this run; removed with it.
struct Instance(tempfile::TempDir);

impl Instance {
    fn create() -> Result<Instance> {
        let base = place::instances();
        remove_ended(&base);
        let make = || -> std::io::Result<tempfile::TempDir> {
            std::fs::create_dir_all(&base)?;
            tempfile::Builder::new().prefix(&format!("{}-", std::process::id())).tempdir_in(&base)
        };
        let problem = || format!("cannot make a folder in {}; set XDG_RUNTIME_DIR", base.display());
        make().map(Instance).with_context(problem)
    }

    fn path(&self) -> &std::path::Path {
        self.0.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_ended_runs_are_removed_and_no_others() {
        let base = tempfile::tempdir().unwrap();
        let own = std::process::id();
        // No process has the largest number (proc(5), pid_max).
        let names = ["4294967295-gone", &format!("{own}-here"), &format!("{own}-refuses"), "notes"];
        names.iter().for_each(|name| std::fs::create_dir(base.path().join(name)).unwrap());
        drop(std::os::unix::net::UnixListener::bind(base.path().join(names[2]).join("control")).unwrap());
        remove_ended(base.path());
        let left = names.map(|name| base.path().join(name).exists());
        assert_eq!(left, [false, true, false, true]);
    }

    #[test]
    fn what_is_started_is_told_in_one_line() {
        let parse = |words: &[&str]| {
            <Options as clap::Args>::augment_args(clap::Command::new("run"))
                .try_get_matches_from(words)
                .map(|found| <Options as clap::FromArgMatches>::from_arg_matches(&found).unwrap())
        };
        let options = parse(&["run", "-p", "8080:80", "httpd", "-f", "--bogus"]).unwrap();
        assert_eq!(options.program, ["httpd", "-f", "--bogus"]);
        let mut machine = Machine::new(MachineType::Q35, 2, crate::machine::emulator::Accelerator::Tcg);
        machine.forwards = options.publish.clone();
        let line = start(&options, &machine, "as was asked", None);
        assert!(line.starts_with("httpd; 2 cores, 512 MiB") && line.contains("http://localhost:8080/"), "{line}");
        let bogus = run(&parse(&["run", "--bogus", "busybox"]).unwrap()).unwrap_err().to_string();
        assert!(bogus.contains("no option --bogus"), "{bogus}");
        assert!(parse(&["run", "-q", "--verbose", "busybox"]).is_err());
    }

    #[test]
    fn a_disk_is_looked_at_before_anything_is_built() {
        let folder = tempfile::tempdir().unwrap();
        let options = |rest: &str, system: &str| {
            let option = folder.path().join(rest).display().to_string();
            let system = place::root().join("system").join(system).display().to_string();
            <Options as clap::Args>::augment_args(clap::Command::new("run"))
                .try_get_matches_from(["run", "--system", &system, "--disk", &option, "busybox"])
                .map(|found| <Options as clap::FromArgMatches>::from_arg_matches(&found).unwrap())
        };
        assert!(options("new.img,size=1", "default.toml").unwrap_err().to_string().contains("the least is 64M"));
        let told = |rest: &str, system: &str| {
            let options = options(rest, system).unwrap();
            prepare(&options, &folder.path().join("archive")).map(drop).unwrap_err().to_string()
        };
        assert!(told("new.img", "default.toml").contains("add ,size=4G"));
        assert!(told("new.img", "conform.toml").contains("has no use for a disk"));
        assert!(told("new.img,size=64M,key=none", "disk.toml").contains("cannot encrypt"));
        assert!(!folder.path().join("archive").exists());
        let said = image(&options("new.img", "default.toml").unwrap()).unwrap_err().to_string();
        assert!(said.contains("leave --disk out"), "{said}");
    }

    #[test]
    fn printed_words_survive_a_shell() {
        assert_eq!(quoted("a b'c"), r"'a b'\''c'");
        assert_eq!(quoted("-smp"), "-smp");
    }
}
