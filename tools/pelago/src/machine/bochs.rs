//! The second emulator: Bochs, which models current processors with an x2APIC and the TSC-deadline
//! timer, as real machines have them and QEMU's emulation does not. It boots the disk image
//! (`disk_image`); it has no virtio devices, so a guest there has a serial line and no network.
//!
//! Bochs interprets one instruction after the other, all cores on one thread: seconds in the guest
//! are what its instructions make of them, and a machine takes a minute to boot.

use crate::machine::guest::Guest;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;

/// Its program; Debian's packages `bochs`, `bochsbios` and `vgabios`.
pub const PROGRAM: &str = "bochs";
/// A processor with x2APIC, TSC-deadline timer, SMEP and AVX2.
const PROCESSOR: &str = "corei7_haswell_4770";
/// How many instructions are a second of the guest's: its devices are then fast enough for the BIOS
/// and slow enough for the loader.
const INSTRUCTIONS_PER_SECOND: u32 = 50_000_000;

/// A machine.
pub struct Machine<'a> {
    /// Cores.
    pub cpus: u32,
    /// Memory in MiB.
    pub mebibytes: u64,
    /// What it boots from.
    pub image: &'a Path,
}

/// Starts it; what it writes to its serial line is the guest's console. Typed input does not reach
/// it.
pub fn start(machine: &Machine) -> Result<Guest> {
    ensure!(
        crate::host::path::find(PROGRAM).is_some(),
        "{PROGRAM} is missing; install it: apt-get install bochs bochsbios vgabios"
    );
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let (settings, orders) = (folder.path().join("bochsrc"), folder.path().join("orders"));
    crate::host::files::write(&settings, description(machine, folder.path()).as_bytes())?;
    // Debian's has the debugger built in, which waits for a word before it starts.
    crate::host::files::write(&orders, b"c\n")?;
    let mut command = Command::new(PROGRAM);
    command.arg("-q").arg("-f").arg(&settings).arg("-rc").arg(&orders);
    let mut guest = Guest::start_command(command, PROGRAM, "bochs bochsbios vgabios")?;
    guest.keep(folder);
    Ok(guest)
}

fn description(machine: &Machine, folder: &Path) -> String {
    let Machine { cpus, mebibytes, image } = machine;
    let (image, log) = (image.display(), folder.join("log"));
    format!(
        "cpu: model={PROCESSOR}, count={cpus}, ips={INSTRUCTIONS_PER_SECOND}, reset_on_triple_fault=0\n\
         memory: guest={mebibytes}, host={mebibytes}\n\
         romimage: file=/usr/share/bochs/BIOS-bochs-latest\n\
         vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest\n\
         ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14\n\
         ata0-master: type=cdrom, path={image}, status=inserted\n\
         boot: cdrom\n\
         com1: enabled=1, mode=file, dev=/dev/stdout\n\
         display_library: rfb, options=\"timeout=0\"\n\
         sound: driver=dummy\n\
         clock: sync=none\n\
         log: {}\n",
        log.display()
    )
}
