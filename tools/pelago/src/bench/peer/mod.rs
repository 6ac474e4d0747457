//! The peer: a Linux guest on the same emulated machine, to be measured beside us.
//!
//! It is Debian's cloud kernel (`./pelago` unpacks the package into the cache, where apt has
//! verified it) and an initial RAM disk made here: a static busybox, the few modules of the network
//! card, the program `measure`, and a first script. Everything that favours Linux and costs no
//! honesty is set on its command line ([`COMMAND_LINE`]), and is kept with the results.
//!
//! The script speaks our own lines: `linux: ready` when the network is up, then the program's
//! output, then `pelago: exit N`.

mod package;
mod program;

pub use package::Package;
pub use program::build as build_measure;

use crate::image::archive::Archive;
use crate::image::machine_type::MachineType;
use crate::machine::emulator::{Accelerator, Machine};
use crate::machine::guest::Guest;
use anyhow::{Context, Result};
use std::path::Path;

/// Where the measuring program is, in both systems.
pub const MEASURE: &str = "/bin/measure";
/// What a guest that has its network says.
pub const READY: &str = "linux: ready";
/// The kernel's words, all in Linux's favour: no mitigations, page-table isolation or address
/// randomisation; pages are not cleared twice; no watchdogs, audit or security modules; no
/// accounting of stalls and no groups of sessions, which cost each switch; no forced preemption; a
/// clock that is one instruction; no message on the slow serial line.
const COMMAND_LINE: [&str; 18] = [
    "console=ttyS0",
    "quiet",
    "loglevel=0",
    "mitigations=off",
    "nokaslr",
    "init_on_alloc=0",
    "nowatchdog",
    "audit=0",
    "lsm=capability",
    "psi=0",
    "noautogroup",
    "preempt=none",
    "tsc=reliable",
    "clocksource=tsc",
    "random.trust_cpu=on",
    "numa_balancing=disable",
    "rcupdate.rcu_expedited=1",
    "panic=-1",
];
/// Under emulation: the counter's rate is QEMU's 1 GHz, which Linux would measure for a while and
/// on microvm cannot; and its interrupts work.
const COMMAND_LINE_EMULATED: [&str; 2] = ["tsc_early_khz=1000000", "no_timer_check"];
/// What the network card needs; what these need in turn they say themselves.
const MODULES: [&str; 2] = ["virtio_pci", "virtio_net"];
/// The address that the emulator's own DHCP server would give, and its router.
const NETWORK: &str =
    "ip link set lo up; ip addr add 10.0.2.15/24 dev eth0; ip link set eth0 up; ip route add default via 10.0.2.2";

/// What boots: made once, used for every boot.
pub struct Linux {
    package: Package,
    busybox: Vec<u8>,
    measure: Option<Vec<u8>>,
    /// What is loaded at boot, and what these need.
    modules: Vec<&'static str>,
}

impl Linux {
    /// Finds the kernel and busybox; `measure` is the measuring program, if it is to be there.
    pub fn find(measure: Option<&Path>) -> Result<Linux> {
        let busybox = std::env::var_os("PELAGO_BUSYBOX").context(
            "the Linux guest needs a static busybox and PELAGO_BUSYBOX names none; run `./pelago bench`, which fetches one",
        )?;
        Ok(Linux {
            package: Package::find(&crate::host::place::linux_package())?,
            busybox: crate::host::files::read(Path::new(&busybox))?,
            measure: measure.map(crate::host::files::read).transpose()?,
            modules: MODULES.to_vec(),
        })
    }

    /// The same that loads a module more.
    pub fn with_module(mut self, name: &'static str) -> Linux {
        self.modules.push(name);
        self
    }

    /// The kernel's words under that accelerator.
    pub fn command_line(accelerator: Accelerator) -> Vec<String> {
        let emulated = if accelerator == Accelerator::Tcg { &COMMAND_LINE_EMULATED[..] } else { &[] };
        COMMAND_LINE.iter().chain(emulated).map(|&word| word.to_owned()).collect()
    }

    /// The kernel's version, for the results.
    pub fn version(&self) -> &str {
        &self.package.version
    }

    /// A machine with this kernel; the archive and what else is wanted are the caller's to add.
    pub fn machine(&self, cpus: u32, accelerator: Accelerator) -> Machine {
        Machine {
            kernel: self.package.kernel.clone(),
            command_line: Linux::command_line(accelerator),
            ..Machine::new(MachineType::Q35, cpus, accelerator)
        }
    }

    /// The initial RAM disk. `words` are run by the first script when the network is up; none: the
    /// guest stays idle.
    pub fn archive(&self, words: &[&str]) -> Result<Archive> {
        let mut archive = Archive::default();
        for folder in ["dev", "proc", "sys", "tmp", "root"] {
            archive.folder(folder, 0o755);
        }
        archive.file("bin/busybox", 0o755, self.busybox.clone());
        if let Some(measure) = &self.measure {
            archive.file(MEASURE, 0o755, measure.clone());
        }
        let modules = self.package.modules(&self.modules)?;
        let names: Vec<_> = modules.iter().map(|(name, _)| name.as_str()).collect();
        archive.file("init", 0o755, script(&names, words).into_bytes());
        for (name, content) in modules {
            archive.file(&format!("modules/{name}.ko"), 0o644, content);
        }
        Ok(archive)
    }

    /// Boots `words` as [`Linux::archive`] has it; `fill` may add files and change the machine.
    pub fn boot(
        &self,
        machine: Machine,
        words: &[&str],
        fill: impl FnOnce(&mut Archive, &mut Machine) -> Result<()>,
    ) -> Result<Guest> {
        let mut machine = machine;
        let mut archive = self.archive(words)?;
        fill(&mut archive, &mut machine)?;
        let path =
            tempfile::NamedTempFile::new().context("cannot make a file for the initial RAM disk")?.into_temp_path();
        archive.write(&path)?;
        machine.archive = Some(path.to_path_buf());
        machine.check()?;
        let mut guest = Guest::start(&machine)?;
        guest.keep(path);
        Ok(guest)
    }
}

fn script(modules: &[&str], words: &[&str]) -> String {
    let load: String = modules.iter().map(|module| format!("insmod /modules/{module}.ko\n")).collect();
    let words: Vec<_> = words.iter().map(|word| crate::run::program::quoted(word)).collect();
    let rest = if words.is_empty() { "while true; do sleep 3600; done".to_owned() } else { words.join(" ") };
    format!(
        "#!/bin/busybox sh\n\
         export PATH=/bin HOME=/root\n\
         for name in mount insmod ip sleep poweroff; do /bin/busybox ln -s busybox /bin/$name; done\n\
         mount -t devtmpfs none /dev; mount -t proc none /proc; mount -t sysfs none /sys\n\
         {load}{NETWORK}\necho '{READY}'\n{rest}\necho \"pelago: exit $?\"\npoweroff -f\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_program_as_they_are() {
        let text = script(&["virtio", "virtio_net"], &["measure", "run", "a b"]);
        assert!(text.starts_with("#!/bin/busybox sh\n"), "{text}");
        assert!(text.contains("\nmeasure run 'a b'\n"), "{text}");
        assert!(text.contains("\ninsmod /modules/virtio.ko\ninsmod /modules/virtio_net.ko\n"), "{text}");
        assert!(script(&[], &[]).contains("sleep"));
    }
}
