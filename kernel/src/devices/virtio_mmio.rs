//! virtio-mmio windows, named on the kernel's command line in Linux's syntax:
//! `virtio_mmio.device=SIZE@BASE:LINE`.
//!
//! AML is not interpreted, so the command line is the only place that tells them. A window is
//! listed only if a device sits behind it (virtio 1.2, 4.2.2: magic "virt", version 2, device id
//! not 0).

use super::{Bar, DeviceInfo};
use crate::memory::{PAGE_BYTES, PhysAddr, PhysRange};

/// Hardware ids of windows count from here, above all PCI functions.
pub const FIRST_HWID: u32 = 0x1_0000;

const MAGIC: u32 = 0x7472_6976;
/// More lines than any machine has.
const LINES_MAX: u32 = 1024;
const REGISTERS_BYTES: u64 = 0x100;

/// A window as the command line gives it; nothing has been read from the device yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MmioWindow {
    /// Registers.
    pub registers: PhysRange,
    /// I/O APIC line.
    pub line: u32,
}

/// Decodes `SIZE@BASE:LINE[:ID]`; sizes may end in K or M, numbers may be hexadecimal with 0x.
pub fn decode(text: &str) -> Option<MmioWindow> {
    let (bytes, rest) = text.split_once('@')?;
    let (base, line) = rest.split_once(':')?;
    let line = line.split(':').next()?;
    let (bytes, base) = (number(bytes)?, number(base)?);
    let line = u32::try_from(number(line)?).ok()?;
    let inside_page = bytes <= PAGE_BYTES as u64 - base % PAGE_BYTES as u64;
    let placed = base.is_multiple_of(4) && (1 << 20..1 << 40).contains(&base) && inside_page;
    (placed && bytes >= REGISTERS_BYTES && line < LINES_MAX)
        .then(|| MmioWindow { registers: PhysRange::new(base, bytes), line })
}

/// A number as people and Linux write it: decimal or 0x..., with an optional K, M or G.
pub fn number(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 10),
        b'm' | b'M' => (&text[..text.len() - 1], 20),
        b'g' | b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let value = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => digits.parse().ok()?,
    };
    value.checked_mul(1 << shift)
}

/// Looks behind window number `index`; `read` reads a register by its byte offset.
pub fn probe(index: u32, window: MmioWindow, read: impl Fn(u64) -> u32) -> Option<DeviceInfo> {
    let (magic, version, id) = (read(0), read(4), read(8));
    if magic != MAGIC || !(1..=2).contains(&version) || id == 0 || id > 0xff {
        return None;
    }
    let mut device = DeviceInfo {
        hwid: FIRST_HWID + index,
        vendor: 0x1af4,
        device: 0x1040 + id as u16,
        line: Some(window.line),
        ..DeviceInfo::NONE
    };
    device.bars[0] = Bar { base: PhysAddr(window.registers.base.0), bytes: window.registers.bytes, is_mmio: true };
    Some(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_syntax() {
        let window = decode("512@0xfeb00e00:12").unwrap();
        assert_eq!(window, MmioWindow { registers: PhysRange::new(0xfeb0_0e00, 512), line: 12 });
        assert_eq!(decode("4K@0xd0000000:5:3").unwrap().registers.bytes, 4096);
        for bad in [
            "",
            "512",
            "512@",
            "512@0xfeb00e00",
            "0@0xfeb00e00:12",
            "512@0:12",
            "512@0xfeb00e00:x",
            "99999999999999999999G@0xfeb00e00:1",
            "4K@0xfeb00e00:1",
        ] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }

    #[test]
    fn probing() {
        let window = decode("512@0xfeb00e00:12").unwrap();
        let net = probe(3, window, |offset| [MAGIC, 2, 1][offset as usize / 4]).unwrap();
        assert_eq!((net.hwid, net.device, net.line), (0x1_0003, 0x1041, Some(12)));
        assert!(probe(0, window, |offset| [MAGIC, 2, 0][offset as usize / 4]).is_none());
        assert!(probe(0, window, |_| !0).is_none());
    }

    #[test]
    fn numbers_have_units_as_people_write_them() {
        let all = ["7", "0x1f", "4k", "4K", "3m", "3M", "2g", "2G", "0x2G"].map(number);
        let (mib, gib) = (1 << 20, 1 << 30);
        assert_eq!(all, [7, 0x1f, 4096, 4096, 3 * mib, 3 * mib, 2 * gib, 2 * gib, 2 * gib].map(Some));
        assert_eq!(["", "k", "0x", "7t", "0x7k1", "-1", "17179869184G"].map(number), [None; 7]);
    }

    #[test]
    fn lines_are_below_what_any_machine_has() {
        assert_eq!(decode("512@0xfeb00e00:1023").unwrap().line, 1023);
        assert_eq!(decode("512@0xfeb00e00:1024"), None);
    }

    /// What is behind a window says what it is, or nothing is there.
    #[test]
    fn only_a_device_that_says_so_is_behind_a_window() {
        let window = decode("512@0xfeb00e00:12").unwrap();
        let says = |magic: u32, version: u32, id: u32| {
            probe(2, window, |offset| [magic, version, id][offset as usize / 4])
                .map(|found| (found.vendor, found.device))
        };
        assert_eq!(says(MAGIC, 1, 2), Some((0x1af4, 0x1042)));
        assert_eq!(says(MAGIC, 2, 0xff), Some((0x1af4, 0x113f)));
        let lies =
            [(MAGIC + 1, 2, 2), (MAGIC, 0, 2), (MAGIC, 3, 2), (MAGIC, 2, 0), (MAGIC, 2, 0x100), (MAGIC, 2, 0x1_0001)];
        assert_eq!(lies.map(|(magic, version, id)| says(magic, version, id)), [None; 6]);
        let found = probe(2, window, |offset| [MAGIC, 2, 2][offset as usize / 4]).unwrap();
        let registers = Bar { base: PhysAddr(0xfeb0_0e00), bytes: 512, is_mmio: true };
        assert_eq!((found.hwid, found.line, found.bars[0]), (FIRST_HWID + 2, Some(12), registers));
        assert!(!found.is_pci());
    }
}
