//! Rows of the measuring program on a disk with ext4, as it is or encrypted (LUKS2; in Linux by
//! dm-crypt). Each guest has a fresh one, with files that nobody has read yet, and the same sqlite.

use super::catalogue::{Entry, Made, Source};
use super::program::{self, Counting, Seen};
use super::results::{Results, Unit};
use super::systems::{Boot, DISK_MODULE, Side, Systems};
use crate::bench::counts::{self, Count};
use crate::bench::peer::Linux;
use crate::bench::plugin::{Mode, Plugin};
use crate::host::skip::Skip;
use crate::host::{child, files, path};
use crate::image::archive::Archive;
use crate::image::machine_type::MachineType;
use crate::image::rootfs;
use crate::machine::block::encrypted::Encrypted;
use crate::machine::block::image::Image;
use crate::machine::emulator::Drive;
use crate::machine::guest::Guest;
use anyhow::{Context, Result, ensure};
use luks::{Handover, SectorBytes};
pub use measure_core::disk::FOLDER;
use measure_core::disk::{COLD, COLD_BYTES};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use system::Mount;

/// Room for all that rows read and write, and a journal.
const DISK_BYTES: u64 = 192 << 20;
const SQLITE: &str = "sqlite3";
const DMSETUP: &str = "dmsetup";
/// The measuring program within Linux's root.
const MEASURE: &str = "/bin/measure";
/// What Linux loads for an encrypted disk: the cipher by the processor's instructions, and what it
/// is a mode of.
const MODULES_ENCRYPTED: [&str; 4] = ["aesni-intel", "xts", "dm-mod", "dm-crypt"];

/// Measures what was chosen on one system and adds it: times, or with a plugin instructions.
pub fn turn(
    systems: &Systems,
    chosen: &[&Entry],
    (side, cpus): (Side, u32),
    plugin: Option<&Plugin>,
    say: &dyn Fn(&str),
    results: &mut Results,
) {
    for wanted in [false, true] {
        let rows = chosen.iter().filter(|entry| entry.counts || plugin.is_none());
        let rows = rows.filter_map(|entry| match entry.source {
            Source::Disk { row, is_encrypted } if is_encrypted == wanted => Some((*entry, row)),
            _ => None,
        });
        let rows: Vec<_> = rows.collect();
        if rows.is_empty() {
            continue;
        }
        let names: Vec<&str> = rows.iter().map(|(_, row)| *row).collect();
        let kind = if wanted { "encrypted" } else { "plain" };
        let say = |what: &str| say(&format!("{kind} disk: {what}"));
        let boot = |left: &[&str]| -> Result<(Guest, tempfile::TempDir)> {
            let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
            let disk = Disk::make(folder.path(), wanted)?;
            let names = systems.names(side, cpus)?;
            let instruments = plugin.map(|plugin| plugin.instruments(Mode::Count, counts::TURN, &names)).transpose()?;
            let boot = Boot { instruments, ..Boot::bare(MachineType::Q35, cpus) };
            Ok((disk.boot(systems, side, boot, left)?, folder))
        };
        match plugin {
            Some(plugin) => {
                let counting = Counting { plugin, functions: systems.functions, of: Count::of };
                let counted = program::count(&names, &counting, |left| kept(boot(left)?), &say);
                for (name, column) in counted {
                    let entry = rows.iter().find(|(_, row)| *row == name);
                    entry.iter().for_each(|(entry, _)| {
                        results.add(entry.name, Unit::Instructions, cpus, side, column.clone());
                    });
                }
            }
            None => {
                let once = |left: &[&str], seen: &mut Seen| program::hear_times(&mut kept(boot(left)?)?, &say, seen);
                let seen = program::all(&names, once);
                for (entry, row) in rows {
                    let Some(given) = seen.given(row) else { continue };
                    results.add(entry.name, Unit::Ns, cpus, side, given.times(Made::AsItIs));
                    results.add(entry.name, Unit::Us, cpus, side, given.processor());
                }
            }
        }
    }
}

/// The disk's folder stays as long as the guest.
fn kept((mut guest, folder): (Guest, tempfile::TempDir)) -> Result<Guest> {
    guest.keep(folder);
    Ok(guest)
}

/// Makes a disk of that size with an ext4 file system, in which is what is in `tree`.
pub fn format(file: &Path, bytes: u64, tree: Option<&Path>) -> Result<()> {
    let image = std::fs::File::create(file).and_then(|file| file.set_len(bytes));
    image.with_context(|| format!("cannot make {}", file.display()))?;
    let program = "mkfs.ext4";
    let mkfs = path::find_of_root(program).ok_or(Skip::Package { program, package: "e2fsprogs" })?;
    let mut command = Command::new(mkfs);
    command.args(["-q", "-F", "-b", "4096", "-O", "64bit,metadata_csum", "-E"]);
    command.arg("lazy_itable_init=0,lazy_journal_init=0");
    if let Some(tree) = tree {
        command.arg("-d").arg(tree);
    }
    let made = child::output(command.arg(file), child::SHORT)?;
    ensure!(made.status.success(), "{program}: {}", String::from_utf8_lossy(&made.stderr));
    Ok(())
}

/// A fresh one.
struct Disk {
    file: PathBuf,
    handover: Option<Arc<Handover>>,
}

impl Disk {
    fn make(folder: &Path, is_encrypted: bool) -> Result<Disk> {
        let (tree, file) = (folder.join("tree"), folder.join("disk"));
        for (number, name) in COLD.iter().enumerate() {
            // No two blocks are alike, and none is zeros.
            let block = |at: u64| ((at << 8) + number as u64 + 1).to_le_bytes().repeat(512);
            let bytes: Vec<u8> = (0..COLD_BYTES / 4096).flat_map(block).collect();
            files::write(&tree.join(name), &bytes)?;
        }
        format(&file, DISK_BYTES, Some(&tree))?;
        std::fs::remove_dir_all(&tree).context("cannot remove a temporary folder")?;
        let mut handover = None;
        if is_encrypted {
            let inside = Image::read_file(&file)?;
            let disk = Encrypted::make(DISK_BYTES)?;
            disk.write_file(&inside, &file)?;
            handover = Some(disk.handover);
        }
        Ok(Disk { file, handover })
    }

    /// Boots with it, and with the measuring program, which is to do rows of these names.
    fn boot(&self, systems: &Systems, side: Side, boot: Boot, rows: &[&str]) -> Result<Guest> {
        let drive = Drive { file: self.file.clone(), is_read_only: false };
        let boot = Boot { drive: Some(drive), ..boot };
        let run = ["run".to_owned(), boot.cpus.to_string()];
        let run: Vec<&str> = run.iter().map(String::as_str).chain(rows.iter().copied()).collect();
        if side == Side::Linux {
            let mut linux = Linux::find(Some(systems.measure()))?.with_module(DISK_MODULE);
            if self.handover.is_some() {
                linux = MODULES_ENCRYPTED.into_iter().fold(linux, Linux::with_module);
            }
            let script = script(self.handover.as_deref());
            let words: Vec<&str> = ["busybox", "sh", "-c", &script, "sh"].into_iter().chain(run).collect();
            return linux.boot(linux.machine(boot.cpus, systems.accelerator()), &words, |archive, machine| {
                boot.adjust(machine, systems.memory_bytes());
                self.add_to_linux(archive, systems.measure())
            });
        }
        let mount = Mount { path: FOLDER.into(), is_read_only: false };
        let testbed = match &self.handover {
            Some(handover) => systems.pelago().with_encrypted_volume(mount, handover.clone())?,
            None => systems.pelago().with_volume(mount)?,
        };
        let measure = systems.measure().to_string_lossy();
        let words: Vec<&str> = [&*measure].into_iter().chain(run).collect();
        testbed.boot(boot.machine, boot.cpus, &words, |archive, machine| {
            add_sqlite(archive)?;
            boot.adjust(machine, systems.memory_bytes());
            Ok(())
        })
    }

    /// What stands in a root directory within its own.
    fn add_to_linux(&self, archive: &mut Archive, measure: &Path) -> Result<()> {
        for folder in ["root/dev", "root/proc", "root/tmp", &format!("root{FOLDER}")] {
            archive.folder(folder, 0o777);
        }
        archive.file(&format!("root{MEASURE}"), 0o755, files::read(measure)?);
        add_sqlite(archive)?;
        if self.handover.is_some() {
            rootfs::add_program(archive, DMSETUP, rootfs::PATH)?;
        }
        Ok(())
    }
}

/// Where this machine has none, its row is absent.
pub fn add_sqlite(archive: &mut Archive) -> Result<()> {
    let is_here = path::find(SQLITE).is_some();
    if is_here { rootfs::add_program(archive, SQLITE, rootfs::PATH).map(drop) } else { Ok(()) }
}

/// What Linux does with the words that follow: opens the disk, shows it, and has it measured.
fn script(handover: Option<&Handover>) -> String {
    let mut script = "for kind in devtmpfs proc; do busybox mount -t $kind none /root/${kind%tmpfs} || exit 1; done\n\
        export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\ndisk=/dev/vda\n"
        .to_owned();
    if let Some(handover) = handover {
        let table = table(handover);
        script += &format!(
            "/bin/busybox chroot /root dmsetup create --noudevsync --noudevrules disk --table '{table}' || exit 1\n\
             disk=/dev/dm-0\n"
        );
    }
    script += &format!(
        "/bin/busybox mount -t ext4 $disk /root{FOLDER} || exit 1\nexec /bin/busybox chroot /root {MEASURE} \"$@\"\n"
    );
    script
}

/// The device mapper's words (Linux, Documentation/admin-guide/device-mapper/dm-crypt.rst).
fn table(handover: &Handover) -> String {
    let segment = &handover.segment;
    let key = handover.key.bytes().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    let size = if segment.sector == SectorBytes::B4096 { " 1 sector_size:4096" } else { "" };
    let (sectors, tweak, first) = (segment.bytes / 512, segment.tweak, segment.offset / 512);
    format!("0 {sectors} crypt aes-xts-plain64 {key} {tweak} /dev/vda {first}{size}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use luks::{Segment, VolumeKey};

    #[test]
    fn the_device_mapper_is_told_what_the_header_says() {
        let key = VolumeKey::take(&mut std::array::from_fn(|at| at as u8));
        let segment =
            Segment { offset: 16 << 20, bytes: 1 << 20, sector: SectorBytes::B4096, tweak: 0, allows_discards: false };
        let told = script(Some(&Handover { key, segment }));
        let words = "0 2048 crypt aes-xts-plain64 000102";
        assert!(told.contains(words) && told.contains("3f 0 /dev/vda 32768 1 sector_size:4096'"), "{told}");
        assert!(told.contains("mount -t ext4 $disk /root/data"), "{told}");
        assert!(!script(None).contains("dmsetup"));
    }
}
