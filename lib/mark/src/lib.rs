//! Marks measured stretches for the emulator's plugin (tools/plugin); the same convention in Pelago
//! and in a Linux guest, at any privilege.
//!
//! A mark is one load with a displacement of ours, `mov eax, [rdi + KIND]`, whose address is that
//! of a [`Mark`]; the plugin finds it when the emulator translates the instruction, and reads the
//! record from guest memory. Without the plugin it is a load and nothing else. Deliberately unknown
//! here: what is counted.
#![no_std]

/// Displacements of the load. Random bits, so that no compiler makes them by chance.
pub mod kind {
    /// Measuring is about to begin: switches the plugin's instruments on.
    pub const ARM: i32 = 0x51e5_c0d0;
    /// A stretch begins on this core. Where nothing was armed it only arms, and is not recorded.
    pub const BEGIN: i32 = 0x51e5_c0d1;
    /// It ends. Instructions between the two loads count, the loads do not.
    pub const END: i32 = 0x51e5_c0d2;
    /// All that was measured may be written down now.
    pub const FINISH: i32 = 0x51e5_c0d3;
    /// Names of the system's functions, one a line, `ADDRESS TYPE NAME` as in Linux's
    /// /proc/kallsyms.
    pub const NAMES: i32 = 0x51e5_c0d4;
}

/// Bytes of a name.
pub const NAME_BYTES: usize = 40;

/// The record: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Mark {
    /// Operations in the stretch; NAMES: bytes of the text.
    operations: u64,
    /// 0: this core's events; 1: those of every core that is in no stretch of its own.
    every_core: u64,
    /// NAMES: address of the text.
    address: u64,
    /// UTF-8, filled up with zeros.
    name: [u8; NAME_BYTES],
}

const _: () = assert!(size_of::<Mark>() == 64);

impl Mark {
    /// A stretch of `operations` operations of this core. A long name is cut.
    pub fn new(name: &str, operations: u64) -> Mark {
        let mut mark = Mark { operations, every_core: 0, address: 0, name: [0; NAME_BYTES] };
        for (place, byte) in mark.name.iter_mut().zip(name.bytes()) {
            *place = byte;
        }
        mark
    }

    /// The same with what every core does meanwhile.
    pub fn of_every_core(self) -> Mark {
        Mark { every_core: 1, ..self }
    }

    /// The stretch begins.
    #[inline(always)]
    pub fn begin(&self) {
        load::<{ kind::BEGIN }>(self);
    }

    /// The stretch ends.
    #[inline(always)]
    pub fn end(&self) {
        load::<{ kind::END }>(self);
    }
}

/// A record as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Operations in the stretch, or bytes of the text.
    pub operations: u64,
    /// Whether it is of every core.
    pub every_core: bool,
    /// Of the text.
    pub address: u64,
    name: [u8; NAME_BYTES],
}

impl Content {
    /// From the bytes of a [`Mark`]; `None` if they are too few.
    pub fn parse(bytes: &[u8]) -> Option<Content> {
        let word = |index: usize| Some(u64::from_le_bytes(bytes.get(8 * index..8 * index + 8)?.try_into().ok()?));
        let name = bytes.get(24..24 + NAME_BYTES)?.try_into().ok()?;
        Some(Content { operations: word(0)?, every_core: word(1)? != 0, address: word(2)?, name })
    }

    /// The name; empty if it is not UTF-8.
    pub fn name(&self) -> &str {
        let end = self.name.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
        core::str::from_utf8(&self.name[..end]).unwrap_or("")
    }
}

/// Measuring is about to begin. Until then a guest runs at nearly full speed; do it when boot is
/// over.
pub fn arm() {
    load::<{ kind::ARM }>(&Mark::new("", 0));
}

/// Everything is measured.
pub fn finish() {
    load::<{ kind::FINISH }>(&Mark::new("", 0));
}

/// Tells the names of the system's functions. The text must stay until this returns.
pub fn names(text: &[u8]) {
    // Every page is touched, so that all of the text is in memory when the plugin reads it.
    let sum = text.iter().step_by(4096).fold(0u64, |sum, byte| sum + u64::from(*byte));
    core::hint::black_box(sum);
    load::<{ kind::NAMES }>(&Mark { address: text.as_ptr() as u64, ..Mark::new("", text.len() as u64) });
}

/// The compiler keeps order of memory around it, so measured code stays between its marks.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn load<const KIND: i32>(mark: &Mark) {
    let base = core::ptr::from_ref(mark).cast::<u8>().wrapping_offset(-(KIND as isize));
    // SAFETY: reads the first word of `mark`; the record was written before, since the block may
    // read memory.
    unsafe {
        core::arch::asm!("mov eax, dword ptr [rdi + {kind}]", kind = const KIND, in("rdi") base, out("eax") _, options(nostack, preserves_flags));
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    #[test]
    fn marks_are_harmless_and_names_fit() {
        let mark = super::Mark::new(&"x".repeat(100), 7).of_every_core();
        super::arm();
        mark.begin();
        mark.end();
        super::names(b"00000000 T start\n");
        super::finish();
        // SAFETY: a record is plain bytes without padding.
        let bytes = unsafe { core::slice::from_raw_parts((&raw const mark).cast::<u8>(), size_of_val(&mark)) };
        let content = super::Content::parse(bytes).unwrap();
        assert_eq!(
            (content.operations, content.every_core, content.name()),
            (7, true, &*"x".repeat(super::NAME_BYTES))
        );
        assert_eq!(super::Content::parse(&bytes[..60]), None);
    }
}
