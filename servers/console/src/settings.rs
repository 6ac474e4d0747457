//! Terminal settings: the kernel's `struct termios` of Linux x86-64 (asm-generic/termbits.h), 36
//! bytes as programs exchange it.
//!
//! Any 36 bytes are valid settings: bits without a meaning here are kept and given back, as Linux
//! does.

/// Bytes of the image: four words of flags, the line discipline's number, 19 control characters.
pub const IMAGE_BYTES: usize = 36;

/// Bits of [`Settings::input`].
pub mod input {
    /// ISTRIP.
    pub const STRIP_TO_7_BITS: u32 = 0x20;
    /// INLCR.
    pub const NEWLINE_TO_RETURN: u32 = 0x40;
    /// IGNCR.
    pub const IGNORE_RETURN: u32 = 0x80;
    /// ICRNL.
    pub const RETURN_TO_NEWLINE: u32 = 0x100;
    /// IXON.
    pub const STOP_AND_START: u32 = 0x400;
    /// IXANY.
    pub const ANY_STARTS: u32 = 0x800;
    /// IMAXBEL.
    pub const BELL_WHEN_FULL: u32 = 0x2000;
    /// IUTF8: erasing takes whole characters.
    pub const UTF8: u32 = 0x4000;
}

/// Bits of [`Settings::output`].
pub mod output {
    /// OPOST.
    pub const PROCESS: u32 = 0x1;
    /// ONLCR.
    pub const NEWLINE_TO_RETURN_NEWLINE: u32 = 0x4;
    /// OCRNL.
    pub const RETURN_TO_NEWLINE: u32 = 0x8;
    /// ONOCR.
    pub const NO_RETURN_AT_COLUMN_0: u32 = 0x10;
    /// ONLRET.
    pub const NEWLINE_RETURNS: u32 = 0x20;
    /// XTABS, two bits.
    pub const EXPAND_TABS: u32 = 0x1800;
}

/// Bits of [`Settings::local`].
pub mod local {
    /// ISIG.
    pub const SIGNALS: u32 = 0x1;
    /// ICANON.
    pub const CANONICAL: u32 = 0x2;
    /// ECHO.
    pub const ECHO: u32 = 0x8;
    /// ECHOE.
    pub const ECHO_ERASE: u32 = 0x10;
    /// ECHOK.
    pub const ECHO_KILL: u32 = 0x20;
    /// ECHONL.
    pub const ECHO_NEWLINE: u32 = 0x40;
    /// NOFLSH.
    pub const KEEP_ON_SIGNAL: u32 = 0x80;
    /// ECHOCTL.
    pub const ECHO_CONTROL: u32 = 0x200;
    /// ECHOKE.
    pub const ECHO_KILL_ERASES: u32 = 0x800;
    /// IEXTEN.
    pub const EXTENDED: u32 = 0x8000;
}

/// Indices of [`Settings::characters`].
pub mod character {
    /// VINTR.
    pub const INTERRUPT: usize = 0;
    /// VQUIT.
    pub const QUIT: usize = 1;
    /// VERASE.
    pub const ERASE: usize = 2;
    /// VKILL.
    pub const KILL: usize = 3;
    /// VEOF.
    pub const END_OF_FILE: usize = 4;
    /// VTIME, tenths of a second.
    pub const TIME: usize = 5;
    /// VMIN.
    pub const MINIMUM: usize = 6;
    /// VSTART.
    pub const START: usize = 8;
    /// VSTOP.
    pub const STOP: usize = 9;
    /// VSUSP.
    pub const SUSPEND: usize = 10;
    /// VEOL.
    pub const END_OF_LINE: usize = 11;
    /// VREPRINT.
    pub const REPRINT: usize = 12;
    /// VWERASE.
    pub const WORD_ERASE: usize = 14;
    /// VLNEXT.
    pub const LITERAL_NEXT: usize = 15;
    /// VEOL2.
    pub const END_OF_LINE_2: usize = 16;
}

/// The settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How bytes that come in are changed.
    pub input: u32,
    /// How bytes that go out are changed.
    pub output: u32,
    /// Speed and frame of the line; kept, without effect.
    pub control: u32,
    /// Echo, editing, signals.
    pub local: u32,
    /// Number of the line discipline; kept, without effect.
    pub discipline: u8,
    /// Control characters; 0 = that one is off.
    pub characters: [u8; 19],
}

impl Default for Settings {
    /// As Linux has it, with UTF-8, at 115200 baud 8N1.
    fn default() -> Settings {
        Settings {
            input: input::RETURN_TO_NEWLINE | input::STOP_AND_START | input::UTF8,
            output: output::PROCESS | output::NEWLINE_TO_RETURN_NEWLINE,
            control: 0x18b2,
            local: local::SIGNALS
                | local::CANONICAL
                | local::ECHO
                | local::ECHO_ERASE
                | local::ECHO_KILL
                | local::ECHO_CONTROL
                | local::ECHO_KILL_ERASES
                | local::EXTENDED,
            discipline: 0,
            characters: [3, 28, 127, 21, 4, 0, 1, 0, 17, 19, 26, 0, 18, 15, 23, 22, 0, 0, 0],
        }
    }
}

impl Settings {
    /// From the image; `None` if it has another length.
    pub fn from_image(image: &[u8]) -> Option<Settings> {
        let image: &[u8; IMAGE_BYTES] = image.try_into().ok()?;
        let word = |at: usize| u32::from_le_bytes([image[at], image[at + 1], image[at + 2], image[at + 3]]);
        let mut characters = [0; 19];
        characters.copy_from_slice(&image[17..]);
        Some(Settings {
            input: word(0),
            output: word(4),
            control: word(8),
            local: word(12),
            discipline: image[16],
            characters,
        })
    }

    /// The image.
    pub fn image(&self) -> [u8; IMAGE_BYTES] {
        let mut image = [0; IMAGE_BYTES];
        for (slot, word) in image.chunks_exact_mut(4).zip([self.input, self.output, self.control, self.local]) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        image[16] = self.discipline;
        image[17..].copy_from_slice(&self.characters);
        image
    }

    /// Is one of these bits of `input` set?
    pub fn on_input(&self, bits: u32) -> bool {
        self.input & bits != 0
    }

    /// Is one of these bits of `output` set?
    pub fn on_output(&self, bits: u32) -> bool {
        self.output & bits != 0
    }

    /// Is one of these bits of `local` set?
    pub fn on_local(&self, bits: u32) -> bool {
        self.local & bits != 0
    }

    /// Is `byte` the control character with this index? 0 switches a character off.
    pub fn is(&self, index: usize, byte: u8) -> bool {
        byte != 0 && self.characters[index] == byte
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_that_of_linux() {
        let image = Settings::default().image();
        assert_eq!(image[..4], 0x4500u32.to_le_bytes());
        assert_eq!(image[12..16], 0x8a3bu32.to_le_bytes());
        assert_eq!(image[17], 3, "VINTR is the first control character");
        assert_eq!(Settings::from_image(&image), Some(Settings::default()));
        assert_eq!(Settings::from_image(&image[1..]), None);
        let any: [u8; IMAGE_BYTES] = core::array::from_fn(|index| index as u8 * 7);
        assert_eq!(Settings::from_image(&any).map(|settings| settings.image()), Some(any));
    }
}
