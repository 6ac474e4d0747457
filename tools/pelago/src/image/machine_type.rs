//! The machines that the system is made for.

use clap::ValueEnum;

/// Machine types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MachineType {
    Q35,
    Microvm,
    MicrovmMmio,
}

impl MachineType {
    /// Those with PCI, for matrices.
    pub const ALL: [MachineType; 2] = [MachineType::Q35, MachineType::Microvm];

    /// As QEMU calls it.
    pub fn name(self) -> &'static str {
        match self {
            MachineType::Q35 => "q35",
            MachineType::Microvm => "microvm",
            MachineType::MicrovmMmio => "microvm-mmio",
        }
    }

    /// Its card's interrupt is a line, and lines are core 0's (`kernel/src/arch/x86_64/irq.rs`).
    pub fn has_line(self) -> bool {
        self == MachineType::MicrovmMmio
    }
}
