//! The two systems under one roof: the same machine, memory, program and page for both.

use crate::bench::peer::{self, Linux, MEASURE};
use crate::bench::plugin::{self, Instruments};
use crate::image::archive::Archive;
use crate::image::machine_type::MachineType;
use crate::machine::accelerator;
use crate::machine::emulator::{Accelerator, Drive, Forward, Machine};
use crate::machine::guest::Guest;
use crate::machine::testbed::Testbed;
use anyhow::{Context, Result, ensure};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use system::{Mount, System};

/// Of each guest, unless its rows need more.
pub const MEMORY_BYTES: u64 = 1 << 30;
/// Where the page is, and how large.
pub const PAGE_PATH: &str = "/www/file";
pub const PAGE_BYTES: usize = 4096;

/// Where a disk is seen, and what Linux loads for it.
pub const DISK_PATH: &str = measure_core::disk::FOLDER;
pub const DISK_MODULE: &str = "virtio_blk";

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Pelago,
    Linux,
}

impl Side {
    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Side::Pelago => "Pelago",
            Side::Linux => "Linux",
        }
    }
}

/// One boot.
pub struct Boot<'a> {
    pub machine: MachineType,
    pub cpus: u32,
    /// The program and its arguments; empty: the system alone. [`MEASURE`] stands for the measuring
    /// program in both.
    pub words: &'a [&'a str],
    /// Port of this machine, and the guest's that it leads to.
    pub port: Option<(u16, u16)>,
    /// What carries the frames, if it is not the emulator's own network.
    pub socket: Option<Arc<OwnedFd>>,
    /// An ext4 file system that the program sees at [`DISK_PATH`].
    pub drive: Option<Drive>,
    /// Count instructions by the emulator's plugin.
    pub instruments: Option<Instruments>,
    /// Let the host see which of the guest's pages were touched.
    pub shows_memory: bool,
}

impl Boot<'_> {
    /// The system alone.
    pub fn bare(machine: MachineType, cpus: u32) -> Boot<'static> {
        Boot {
            machine,
            cpus,
            words: &[],
            port: None,
            socket: None,
            drive: None,
            instruments: None,
            shows_memory: false,
        }
    }

    /// Makes the machine what this boot is to have.
    pub fn adjust(&self, machine: &mut Machine, memory_bytes: u64) {
        machine.machine = self.machine;
        machine.memory_bytes = memory_bytes;
        machine.shows_memory = self.shows_memory;
        let forward = |(host, guest)| Forward::local(host, guest);
        machine.forwards.extend(self.port.map(forward));
        machine.socket.clone_from(&self.socket);
        machine.drive.clone_from(&self.drive);
        if let Some(instruments) = &self.instruments {
            plugin::fit(machine, instruments.clone());
            // Without one our TCP has no address, and then no loopback either. What the host's
            // network adds is within 0.1 %.
            machine.has_card = true;
        }
    }
}

/// A Linux program's domain is called this and its number.
pub const LINUX: &str = "linux-";
/// Of so many Linux processes the proxy's functions are told by name.
const PROCESSES_NAMED: u32 = 64;

/// Both, built.
pub struct Systems {
    pelago: Testbed,
    /// The system that measures itself from inside.
    inside: Option<Testbed>,
    /// Or why there is none.
    pub linux: Result<Linux, String>,
    measure: PathBuf,
    /// Of each guest.
    memory_bytes: u64,
    /// So many functions of ours are printed under each counted row.
    pub functions: usize,
}

impl Systems {
    /// Builds everything. A Linux guest that cannot be had is no failure yet: our own column needs
    /// none.
    pub fn prepare(
        accel: accelerator::AccelChoice,
        inside: bool,
        memory_bytes: u64,
        functions: usize,
    ) -> Result<Systems> {
        let measure = peer::build_measure()?;
        let inside = if inside { Some(Testbed::with_system(accel, "bench.toml")?) } else { None };
        Ok(Systems {
            pelago: Testbed::new(accel)?,
            inside,
            linux: Linux::find(Some(&measure)).map_err(|error| format!("{error:#}")),
            measure,
            memory_bytes,
            functions,
        })
    }

    /// The measuring program.
    pub fn measure(&self) -> &Path {
        &self.measure
    }

    /// Our system.
    pub fn pelago(&self) -> &Testbed {
        &self.pelago
    }

    /// Memory of each guest.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// How guests run.
    pub fn accelerator(&self) -> Accelerator {
        self.pelago.accelerator()
    }

    /// Starts a guest.
    pub fn boot(&self, side: Side, boot: &Boot) -> Result<Guest> {
        match side {
            Side::Pelago => self.boot_pelago(&self.pelago, boot),
            Side::Linux => self.boot_linux(boot, &[]),
        }
    }

    /// Starts our system with a program of a root file system or, without one, of this machine;
    /// `fill` may add files.
    pub fn boot_server(&self, boot: &Boot, root: Option<&Path>, fill: impl FnOnce(&mut Archive)) -> Result<Guest> {
        let mount = Mount { path: DISK_PATH.into(), is_read_only: false };
        let testbed = boot.drive.as_ref().map(|_| self.pelago.with_volume(mount)).transpose()?;
        let testbed = testbed.as_ref().unwrap_or(&self.pelago).in_root(root);
        testbed.boot(boot.machine, boot.cpus, boot.words, |archive, machine| {
            fill(archive);
            boot.adjust(machine, self.memory_bytes);
            Ok(())
        })
    }

    /// The system that measures itself.
    pub fn inside(&self) -> Result<&Testbed> {
        self.inside.as_ref().context("the system for the rows inside was not built")
    }

    /// Starts it.
    pub fn boot_inside(&self, boot: &Boot) -> Result<Guest> {
        self.boot_pelago(self.inside()?, boot)
    }

    /// Starts another system of ours alone; `more` are words for its kernel.
    pub fn boot_other(&self, system: &System, boot: &Boot, more: &[String]) -> Result<Guest> {
        self.pelago.boot_system(system, boot.machine, boot.cpus, &[], |_, machine| {
            boot.adjust(machine, self.memory_bytes);
            machine.command_line.extend_from_slice(more);
            Ok(())
        })
    }

    /// Our programs, as they were built.
    pub fn images(&self) -> &[PathBuf] {
        self.pelago.images()
    }

    /// What the plugin calls our functions and components; nothing where none will be printed.
    pub fn names(&self, side: Side, cpus: u32) -> Result<String> {
        if side == Side::Linux || self.functions == 0 {
            return Ok(String::new());
        }
        let own = plugin::names(self.images(), self.pelago.system(), cpus)?;
        let proxy = |id| format!("component {} proxy\n", coherence::proxy_name(&format!("{LINUX}{id}")));
        let processes = (1..=PROCESSES_NAMED).map(proxy);
        Ok(own + &processes.collect::<String>())
    }

    fn boot_pelago(&self, testbed: &Testbed, boot: &Boot) -> Result<Guest> {
        let measure = self.measure.to_string_lossy();
        let words: Vec<&str> = boot.words.iter().map(|&word| if word == MEASURE { &*measure } else { word }).collect();
        testbed.boot(boot.machine, boot.cpus, &words, |root, machine| {
            root.file(&format!("root{PAGE_PATH}"), 0o644, page());
            boot.adjust(machine, self.memory_bytes);
            Ok(())
        })
    }

    /// `more` are further words of the kernel's command line.
    pub fn boot_linux(&self, boot: &Boot, more: &[&str]) -> Result<Guest> {
        self.boot_linux_filled(boot, more, |root| {
            root.file(PAGE_PATH, 0o644, page());
            Ok(())
        })
    }

    /// The same with other files.
    pub fn boot_linux_filled(
        &self,
        boot: &Boot,
        more: &[&str],
        fill: impl FnOnce(&mut Archive) -> Result<()>,
    ) -> Result<Guest> {
        let linux = self.linux.as_ref().map_err(|reason| anyhow::anyhow!("{reason}"))?;
        let with_disk = boot.drive.as_ref().map(|_| Linux::find(Some(&self.measure))).transpose()?;
        let with_disk = with_disk.map(|linux| linux.with_module(DISK_MODULE));
        let linux = with_disk.as_ref().unwrap_or(linux);
        let machine = linux.machine(boot.cpus, self.accelerator());
        linux.boot(machine, boot.words, |root, machine| {
            fill(root)?;
            machine.command_line.extend(more.iter().map(|&word| word.to_owned()));
            boot.adjust(machine, self.memory_bytes);
            Ok(())
        })
    }
}

/// Fails with one line if a guest's memory is not to be had: the emulator would end when the guest
/// touches it.
pub fn check_memory(memory_bytes: u64) -> Result<()> {
    let read = |path: &str| std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
    let (memory, limits) = (read("/proc/meminfo")?, read("/proc/self/limits")?);
    let (free, needed) = (free_bytes(&memory, &limits).context("proc(5) has changed")? >> 20, memory_bytes >> 20);
    ensure!(
        free >= needed,
        "{free} MiB of memory are left and a guest takes {needed} MiB; end other programs, or lift the limit (ulimit -v){}",
        if memory_bytes > MEMORY_BYTES {
            ", or ask for fewer cores (--cpus): memclone has 100 MiB for each"
        } else {
            ""
        }
    );
    Ok(())
}

/// What a new process may have: what is available, within the limit of its address space (proc(5)).
fn free_bytes(memory: &str, limits: &str) -> Option<u64> {
    let number = |text: &str, start: &str| -> Option<String> {
        let line = text.lines().find_map(|line| line.strip_prefix(start))?;
        line.split_whitespace().next().map(str::to_owned)
    };
    let available: u64 = number(memory, "MemAvailable:")?.parse().ok()?;
    let limit = number(limits, "Max address space")?.parse().unwrap_or(u64::MAX);
    Some((available << 10).min(limit))
}

fn page() -> Vec<u8> {
    vec![b'x'; PAGE_BYTES]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_is_available_within_the_limit() {
        let memory = "MemTotal:  24000000 kB\nMemAvailable:  2048 kB\n";
        let limits =
            |soft: &str| format!("Limit  Soft Limit  Hard Limit  Units\nMax address space  {soft}  unlimited  bytes\n");
        assert_eq!(free_bytes(memory, &limits("unlimited")), Some(2 << 20));
        assert_eq!(free_bytes(memory, &limits("4096")), Some(4096));
        assert_eq!(free_bytes("", ""), None);
    }
}
