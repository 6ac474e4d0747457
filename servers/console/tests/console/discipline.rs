//! The line discipline as a person sees it, and random input against its invariants.

use console_core::settings::{Settings, character, input, local};
use console_core::terminal::{Readable, Terminal, signal};

/// Types `bytes`; gives the echo and the signals.
fn typed(terminal: &mut Terminal, bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut echo = Vec::new();
    let signals = bytes.iter().filter_map(|byte| terminal.receive(*byte, &mut echo)).collect();
    (echo, signals)
}

fn raw(minimum: u8, tenths: u8) -> Settings {
    let mut settings = Settings { local: 0, input: 0, ..Settings::default() };
    settings.characters[character::MINIMUM] = minimum;
    settings.characters[character::TIME] = tenths;
    settings
}

#[test]
fn a_line_is_readable_when_it_ends_and_is_echoed() {
    let mut terminal = Terminal::default();
    assert_eq!(typed(&mut terminal, b"ls -l").0, b"ls -l");
    assert_eq!((terminal.readable(10), terminal.polls_readable()), (Readable::Wait, false));
    assert_eq!(typed(&mut terminal, b"\r").0, b"\r\n");
    assert_eq!((terminal.readable(10), terminal.polls_readable()), (Readable::Now, true));
    assert_eq!(terminal.take(100), b"ls -l\n");
}

#[test]
fn erasing_takes_characters_words_and_lines_back() {
    let mut terminal = Terminal::default();
    let (echo, _) = typed(&mut terminal, "aä\x7f".as_bytes());
    assert_eq!(echo, "aä\x08 \x08".as_bytes());
    typed(&mut terminal, b" one two  \x17x\n");
    assert_eq!(terminal.take(100), b"a one x\n");
    let (echo, _) = typed(&mut terminal, b"\x16\x01b\x15c\n");
    assert_eq!(echo, b"^\x08^Ab\x08 \x08\x08 \x08\x08 \x08c\r\n");
    assert_eq!(terminal.take(100), b"c\n");
    typed(&mut terminal, b"\x7f\x7f\x17\x15\n");
    assert_eq!(terminal.take(100), b"\n");
}

#[test]
fn a_tab_is_erased_whole() {
    let mut terminal = Terminal::default();
    let mut line = Vec::new();
    terminal.write(b"$ ", &mut line);
    let (echo, _) = typed(&mut terminal, b"\t\x7f");
    assert_eq!(echo, [b"\t".as_slice(), &b"\x08 \x08".repeat(6)].concat());
}

#[test]
fn keys_become_signals_and_forget_the_line() {
    let mut terminal = Terminal::default();
    let (echo, signals) = typed(&mut terminal, b"abc\x03d\x1ce\x1a");
    assert_eq!(signals, [signal::INTERRUPT, signal::QUIT, signal::STOP]);
    assert_eq!(echo, b"abc^Cd^\\e^Z");
    typed(&mut terminal, b"f\n");
    assert_eq!(terminal.take(10), b"f\n");
    let settings = Settings { local: Settings::default().local & !local::SIGNALS, ..Settings::default() };
    terminal.set(settings, false);
    assert_eq!(typed(&mut terminal, b"\x03\n").1, []);
    assert_eq!(terminal.take(10), b"\x03\n");
}

#[test]
fn control_d_is_the_end_of_the_file() {
    let mut terminal = Terminal::default();
    typed(&mut terminal, b"\x04");
    assert_eq!((terminal.readable(10), terminal.take(10)), (Readable::Now, Vec::new()));
    assert_eq!(terminal.readable(10), Readable::Wait);
    typed(&mut terminal, b"ab\x04cd\n");
    assert_eq!((terminal.take(10), terminal.take(10)), (b"ab".to_vec(), b"cd\n".to_vec()));
}

#[test]
fn output_stops_and_starts() {
    let mut terminal = Terminal::default();
    typed(&mut terminal, b"\x13");
    assert!(terminal.is_stopped());
    typed(&mut terminal, b"\x11");
    assert!(!terminal.is_stopped() && terminal.available() == 0);
}

#[test]
fn raw_reads_follow_minimum_and_time() {
    let mut terminal = Terminal::default();
    let mut now = |minimum, tenths, text: &[u8]| {
        terminal.set(raw(minimum, tenths), true);
        typed(&mut terminal, text);
        terminal.readable(10)
    };
    let limit = Readable::Within { limit_ns: 200_000_000 };
    assert_eq!(
        [now(0, 0, b""), now(1, 0, b""), now(0, 2, b""), now(3, 2, b"")],
        [Readable::Now, Readable::Wait, limit, Readable::Wait]
    );
    assert_eq!(
        [now(1, 0, b"a"), now(3, 0, b"ab"), now(3, 2, b"a"), now(3, 2, b"abc"), now(0, 2, b"a")],
        [Readable::Now, Readable::Wait, limit, Readable::Now, Readable::Now]
    );
    assert_eq!(terminal.take(10), b"a");
}

#[test]
fn changing_the_mode_keeps_what_was_typed() {
    let mut terminal = Terminal::default();
    typed(&mut terminal, b"abc");
    terminal.set(raw(1, 0), false);
    assert_eq!(terminal.take(2), b"ab");
    terminal.set(Settings::default(), false);
    assert_eq!(terminal.take(10), b"c");
    assert_eq!(terminal.readable(1), Readable::Wait);
}

fn with_input(bits: u32) -> Terminal {
    let mut terminal = Terminal::default();
    terminal.set(Settings { input: bits, ..Settings::default() }, false);
    terminal
}

fn with_local(bits: u32) -> Terminal {
    let mut terminal = Terminal::default();
    terminal.set(Settings { local: bits, ..Settings::default() }, false);
    terminal
}

#[test]
fn what_comes_in_is_changed_as_settings_say() {
    let read = |bits, bytes: &[u8]| {
        let mut terminal = with_input(bits);
        typed(&mut terminal, bytes);
        terminal.take(100)
    };
    assert_eq!(read(input::IGNORE_RETURN | input::RETURN_TO_NEWLINE, b"a\r\rb\n"), b"ab\n");
    assert_eq!(read(0, b"a\rb\n"), b"a\rb\n", "a return is a byte like any other");
    assert_eq!(read(input::NEWLINE_TO_RETURN, b"a\nb\x04"), b"a\rb");
    assert_eq!(read(input::STRIP_TO_7_BITS, b"\xe1\x62\x8a"), b"ab\n");
}

#[test]
fn other_settings_start_stopped_output_only_without_its_keys() {
    let mut terminal = Terminal::default();
    typed(&mut terminal, b"\x13");
    terminal.set(Settings { local: 0, ..Settings::default() }, false);
    assert!(terminal.is_stopped());
    terminal.set(Settings { input: 0, ..Settings::default() }, false);
    assert!(!terminal.is_stopped(), "no key would start it");
}

#[test]
fn a_poll_of_raw_input_waits_for_the_minimum_but_with_a_time_for_a_byte() {
    let mut terminal = Terminal::default();
    let mut polls = |minimum, tenths, text: &[u8]| {
        terminal.set(raw(minimum, tenths), true);
        typed(&mut terminal, text);
        terminal.polls_readable()
    };
    assert_eq!(
        [polls(3, 0, b"ab"), polls(3, 0, b"abc"), polls(0, 0, b""), polls(0, 0, b"a")],
        [false, true, false, true]
    );
    assert_eq!([polls(3, 2, b""), polls(3, 2, b"a")], [false, true]);
    terminal.set(Settings { characters: raw(9, 0).characters, ..Settings::default() }, true);
    typed(&mut terminal, b"\x04");
    assert!(terminal.polls_readable(), "an end of file is there to be read");
}

#[test]
fn without_echo_a_line_end_alone_may_show() {
    assert_eq!(typed(&mut with_local(local::CANONICAL | local::ECHO_NEWLINE), b"ab\x04c\n").0, b"\r\n");
    assert_eq!(typed(&mut with_local(local::CANONICAL), b"ab\n").0, b"");
    assert_eq!(typed(&mut with_local(local::ECHO_NEWLINE), b"ab\n").0, b"");
}

#[test]
fn a_control_character_shows_as_a_letter_or_sign() {
    assert_eq!(typed(&mut Terminal::default(), b"\x16\x7f\x16\x1b").0, b"^\x08^?^\x08^[");
}

#[test]
fn a_line_that_is_killed_and_not_wiped_ends_with_the_key() {
    let usual = Settings::default().local;
    let killed = |without: u32| {
        let mut terminal = with_local(usual & !without);
        let (echo, _) = typed(&mut terminal, b"ab\x15c\n");
        assert_eq!(terminal.take(10), b"c\n");
        echo
    };
    assert_eq!(killed(local::ECHO_ERASE), b"ab^U\r\nc\r\n");
    assert_eq!(killed(local::ECHO_KILL_ERASES), b"ab^U\r\nc\r\n");
    assert_eq!(killed(local::ECHO_KILL_ERASES | local::ECHO_KILL), b"ab^Uc\r\n");
}

#[test]
fn a_line_can_be_shown_again() {
    let mut terminal = Terminal::default();
    assert_eq!(typed(&mut terminal, b"a\tb\x12").0, b"a\tb^R\r\na\tb");
    assert_eq!(typed(&mut terminal, b"\x7f\x7f").0, [b"\x08 \x08".repeat(8)].concat());
}

/// xorshift64 (Marsaglia 2003): the same numbers in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[test]
fn random_bytes_and_settings_break_no_invariant() {
    use console_core::input::PENDING_MAX;
    for seed in 1..50 {
        let mut random = Random(seed);
        let mut terminal = Terminal::default();
        for _ in 0..3000 {
            let number = random.next();
            let mut line = Vec::new();
            match number % 100 {
                0 => {
                    let image: [u8; 36] = std::array::from_fn(|_| random.next() as u8);
                    terminal.set(Settings::from_image(&image).unwrap(), number & 0x1000 != 0);
                }
                1 => terminal.set(Settings::default(), false),
                2 => terminal.write(&number.to_le_bytes(), &mut line),
                3..=8 => {
                    let (wanted, available) = ((number >> 8) as usize % 5000, terminal.available());
                    let (readable, taken) = (terminal.readable(wanted), terminal.take(wanted));
                    assert!(taken.len() <= wanted.min(available.max(1)), "seed {seed}");
                    assert!(readable != Readable::Wait || taken.len() == available.min(wanted), "seed {seed}");
                }
                9 => (0..5000u32).for_each(|index| _ = terminal.receive(index as u8 | 0x40, &mut line)),
                // Mostly letters and the control characters of the default settings.
                _ => {
                    let keys = b"ab \t\n\r\x03\x04\x7f\x15\x16\x17\x12\x13\x11\xc3\xa4\x1a\x1c\x00";
                    terminal.receive(keys[(number >> 8) as usize % keys.len()], &mut line);
                    assert!(line.len() <= 40_000, "seed {seed}: echo of one byte is bounded by the longest line");
                }
            }
            assert!(terminal.available() <= PENDING_MAX, "seed {seed}");
        }
    }
}
