//! Tells the instructions that matter from all others, by their bytes (Intel SDM volume 2, chapter
//! 2 and opcode maps).

/// An instruction as the plugin cares for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    /// Reads and writes its operand at once: one request for the line, though the emulator shows a
    /// read and a write.
    pub locked: bool,
    /// Handles one element after the other; accesses of one line are one.
    pub string: bool,
    /// Waits for an interrupt.
    pub halt: bool,
    /// Tells that this is a waiting loop.
    pub pause: bool,
    /// Changes the address space.
    pub space: bool,
    /// Loads `[rdi + displacement]` into EAX: may be a mark.
    pub mark: Option<i32>,
}

/// Reads one instruction.
pub fn decode(bytes: &[u8]) -> Instruction {
    let mut found = Instruction::default();
    if let [0x8b, 0x87, displacement @ ..] = bytes
        && let Ok(displacement) = displacement.try_into()
    {
        found.mark = Some(i32::from_le_bytes(displacement));
        return found;
    }
    let (mut lock, mut repeat) = (false, false);
    let mut rest = bytes;
    while let [prefix, after @ ..] = rest {
        match prefix {
            0xf0 => lock = true,
            0xf2 | 0xf3 => repeat = true,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0x40..=0x4f => {}
            _ => break,
        }
        rest = after;
    }
    found.locked = lock;
    match rest {
        [0xa4..=0xa7 | 0xaa..=0xaf | 0x6c..=0x6f, ..] => found.string = true,
        // XCHG with memory locks by itself.
        [0x86 | 0x87, modrm, ..] => found.locked |= modrm >> 6 != 3,
        [0xf4, ..] => found.halt = true,
        [0x90, ..] => found.pause = repeat,
        // MONITOR/MWAIT: the emulator's returns at once, like PAUSE.
        [0x0f, 0x01, 0xc9, ..] => found.pause = true,
        [0x0f, 0x22, modrm, ..] => found.space = modrm >> 3 & 7 == 3,
        _ => {}
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_few_are_found() {
        let plain = Instruction::default();
        let cases: &[(&[u8], Instruction)] = &[
            (&[0x90], plain),
            (&[0xf3, 0x90], Instruction { pause: true, ..plain }),
            (&[0xf4], Instruction { halt: true, ..plain }),
            (&[0xf3, 0xa4], Instruction { string: true, ..plain }),
            (&[0xf3, 0x48, 0xab], Instruction { string: true, ..plain }),
            // lock inc qword [rdi]; xchg [rdi], rax; xchg r10, r10
            (&[0xf0, 0x48, 0xff, 0x07], Instruction { locked: true, ..plain }),
            (&[0x48, 0x87, 0x07], Instruction { locked: true, ..plain }),
            (&[0x4d, 0x87, 0xd2], plain),
            // mov cr3, rax; mov cr4, rax
            (&[0x0f, 0x22, 0xd8], Instruction { space: true, ..plain }),
            (&[0x0f, 0x22, 0xe0], plain),
            // mov eax, [rdi + 0x51e5c0d1]
            (&[0x8b, 0x87, 0xd1, 0xc0, 0xe5, 0x51], Instruction { mark: Some(0x51e5_c0d1), ..plain }),
            (&[0x8b, 0x87], plain),
            (&[], plain),
        ];
        for (bytes, wanted) in cases {
            assert_eq!(decode(bytes), *wanted, "{bytes:x?}");
        }
    }
}
