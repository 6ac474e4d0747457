//! Hardware virtualisation or emulation? KVM may be there and yet hang or break a guest, so a probe
//! boot decides, once per boot of the host.

use crate::image::machine_type::MachineType;
use crate::machine::emulator::{Accelerator, Machine};
use crate::machine::guest::Guest;
use clap::ValueEnum;
use std::path::Path;
use std::time::Duration;

/// What the user asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AccelChoice {
    Auto,
    Kvm,
    Tcg,
}

const PROBE_LIMIT: Duration = Duration::from_secs(5);
/// A program says so: user mode and its calls work too. Under a KVM without the processor's own
/// virtualisation (`kvm_pvm`) the kernel comes up, and the first program's first call does not get
/// into it.
const PROBE_LINE: &str = "pelago: ready";

/// Decides, and says why.
pub fn choose(choice: AccelChoice) -> (Accelerator, String) {
    match choice {
        AccelChoice::Kvm => return (Accelerator::Kvm, "as was asked".into()),
        AccelChoice::Tcg => return (Accelerator::Tcg, "as was asked".into()),
        AccelChoice::Auto => {}
    }
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
    let (works, reason) = match device {
        Err(error) => (false, format!("/dev/kvm: {error}")),
        Ok(_) => {
            let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
            probe_once(&crate::host::place::cache().join("kvm-runs-programs"), boot.trim(), probe)
        }
    };
    (if works { Accelerator::Kvm } else { Accelerator::Tcg }, reason)
}

/// What `probe` finds, asked once per boot of the host, whose name is `boot`; `note` keeps the
/// answer. Without a name it is asked each time.
fn probe_once(note: &Path, boot: &str, probe: impl FnOnce() -> bool) -> (bool, String) {
    let answer = |works: bool| if works { format!("{boot}yes") } else { format!("{boot}no") };
    let reason = |works| if works { "the probe boot answered" } else { "the probe boot under KVM failed" }.to_owned();
    let known = std::fs::read_to_string(note).unwrap_or_default();
    for works in [true, false] {
        if !boot.is_empty() && known == answer(works) {
            return (works, reason(works));
        }
    }
    let works = probe();
    // Without the note the next run probes again: slower, not wrong.
    let _ = crate::host::files::write(note, answer(works).as_bytes());
    (works, reason(works))
}

fn probe() -> bool {
    let machine = Machine::new(MachineType::Q35, 1, Accelerator::Kvm);
    Guest::start_quietly(&machine).is_ok_and(|mut guest| guest.expect(PROBE_LINE, PROBE_LIMIT).is_ok())
}

#[cfg(test)]
mod tests {
    use super::probe_once;

    #[test]
    fn the_probe_decides_and_is_asked_once_per_boot_of_the_host() {
        let folder = tempfile::tempdir().unwrap();
        let note = folder.path().join("note");
        let never = || panic!("it is known");
        for works in [false, true] {
            let boot = format!("boot that finds {works}");
            assert_eq!(probe_once(&note, &boot, || works).0, works);
            assert_eq!(probe_once(&note, &boot, never).0, works);
        }
        assert!(!probe_once(&note, "another boot", || false).0, "a note of an earlier boot counts");
        for works in [true, false, true] {
            assert_eq!(probe_once(&note, "", || works).0, works, "a host without a name of its boot is believed");
        }
    }
}
