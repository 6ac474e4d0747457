//! How much code runs with the processor's privilege, and the budget for it (Corey section 7,
//! Barrelfish section 4.3).
//!
//! Counted are lines of code, without comments, blank lines, tests and assertions, of the kernel
//! and of what is linked into it of our own. Assertions are free, so that no check is left out to
//! save a line; how many there are for each 1,000 lines is told. The image whose text is measured
//! is the caller's to build.

use crate::host::files;
use anyhow::{Context, Result, ensure};
use object::{Object, ObjectSection, SectionKind};
use std::path::Path;

/// Folders whose code is privileged.
const PRIVILEGED: [&str; 2] = ["kernel/src", "lib/lock/src"];
/// Lines of code: what each room of the kernel has today, rounded up. Corey's kernel had 11,150 for
/// the objects of one paper; here are those of three more. What need not be privileged (probing,
/// placement, reading ELF, printing) is on its way out, and its terms fall when it has left.
const LINES_MAX: usize = {
    // `arch`: entry and exit, page tables, interrupts, timers, starting other processors.
    let processor = 2_130;
    // `boot`: the two ways in, memory and cores as the firmware tells them, an image for each node.
    let boot = 550;
    // `start`: a core's way to its first domain and back, the archive, reading ELF.
    let start = 480;
    // `trap`, `state`, `steps`, `clock`, `memory`, `core_local`, `hardware`: from event to event.
    let events = 550;
    // `calls`: arguments, rights and errors of some 90 calls.
    let calls = 1_780;
    // `objects`: the thirteen types; their faults, copies, revocation, ends in bounded steps.
    let objects = 4_730;
    // `scheduler`: queues, donation, groups that take turns, gangs, deadlines.
    let scheduler = 840;
    // `shared`: pools, and the segments and ranges of several cores in them.
    let shared = 1_390;
    // `lib/lock`: locks of four kinds, read sections, shootdown.
    let locks = 400;
    // `mailbox`, `core_commands`: the only words that cores write for each other besides.
    let other_cores = 220;
    // `devices`: PCI and MMIO devices found, claimed, and kept from memory.
    let devices = 400;
    // `polling`: a kernel core's rings.
    let kernel_cores = 180;
    // `log`, `trace`, `counters`, `backtrace`, `panic`: what the kernel tells.
    let telling = 250;
    let ways_in = processor + boot + start + events;
    let shares = shared + locks + other_cores;
    ways_in + calls + objects + scheduler + shares + devices + kernel_cores + telling
};
/// Bytes of text.
const TEXT_BYTES_MAX: u64 = {
    // A quarter of a core's second-level cache of 1 MiB: the rest is for programs.
    let cache = 256 << 10;
    // Calls of several steps, groups and waits on words of memory, until what need not be
    // privileged has left.
    let for_the_time_being = 16 << 10;
    // What 10 assertions for each 1,000 lines take: some 30 to 45 bytes each, most of them never
    // run.
    let assertions = 4 << 10;
    cache + for_the_time_being + assertions
};

/// Prints lines below `root` and bytes of the kernel's `image`; an error is what is over its
/// budget.
pub fn check(root: &Path, image: &Path) -> Result<()> {
    let mut code = Code::default();
    for folder in PRIVILEGED {
        code += code_below(&root.join(folder))?;
    }
    let lines = code.lines;
    let text = text_bytes(image)?;
    let said = format!("{} KiB of text (at most {})", text >> 10, TEXT_BYTES_MAX >> 10);
    let tenths = code.asserts * 10_000 / lines.max(1);
    let asserts = format!("{}.{} assertions per 1,000 lines", tenths / 10, tenths % 10);
    println!("     privileged code: {lines} lines (at most {LINES_MAX}), {asserts}, {said}");
    ensure!(lines <= LINES_MAX, "privileged code has {lines} lines, and the budget is {LINES_MAX}: move something out");
    ensure!(text > 0, "{} has no text: the budget judges nothing", image.display());
    ensure!(text <= TEXT_BYTES_MAX, "privileged code has {text} bytes of text, and the budget is {TEXT_BYTES_MAX}");
    Ok(())
}

/// What was counted.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
struct Code {
    /// Lines of code, without assertions.
    lines: usize,
    /// Assertions that are checked when the code runs.
    asserts: usize,
}

impl std::ops::AddAssign for Code {
    fn add_assign(&mut self, other: Code) {
        self.lines += other.lines;
        self.asserts += other.asserts;
    }
}

fn code_below(folder: &Path) -> Result<Code> {
    let mut code = Code::default();
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            code += code_below(&path)?;
        } else if is_counted(&name) && path.is_file() {
            code += code_of(&String::from_utf8_lossy(&files::read(&path)?));
        }
    }
    Ok(code)
}

fn is_counted(name: &str) -> bool {
    let is_for_the_host = ["_host.rs", "_tests.rs", "tests.rs"].iter().any(|end| name.ends_with(end));
    (name.ends_with(".rs") || name.ends_with(".s")) && !is_for_the_host
}

/// Counts the code of one file; tests inside a file are its end.
fn code_of(text: &str) -> Code {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or("");
    let mut code = Code::default();
    // How many parentheses of an assertion are open.
    let mut open = 0;
    let is_code = |line: &&str| !line.is_empty() && !line.starts_with("//") && !line.starts_with('#');
    for line in text.lines().map(str::trim).filter(is_code) {
        let at_compile_time = line.starts_with("const ");
        if open > 0 {
            open = parentheses(line, open);
        } else if let Some(assertion) = assertion(line) {
            code.asserts += usize::from(!at_compile_time);
            open = parentheses(assertion, 0);
        } else {
            code.lines += 1;
        }
    }
    code
}

/// The assertion that a line begins with, or that is all a constant is for.
fn assertion(line: &str) -> Option<&str> {
    let of_constant = ["const _: () = ", "const { "].iter().find_map(|start| line.strip_prefix(start));
    let line = of_constant.unwrap_or(line);
    let bare = line.strip_prefix("debug_").unwrap_or(line);
    ["assert!(", "assert_eq!(", "assert_ne!("].iter().any(|name| bare.starts_with(name)).then_some(line)
}

/// How many parentheses are open after a line. Those in strings and characters do not count; a
/// string of several lines is beyond this, and beyond the style of the code that is counted.
fn parentheses(line: &str, mut open: usize) -> usize {
    let mut in_string = false;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' if in_string => _ = characters.next(),
            '"' => in_string = !in_string,
            _ if in_string => {}
            // A character: one that is escaped, or one with its closing quote; else a lifetime.
            '\'' => {
                let mut ahead = characters.clone();
                let escaped = ahead.next() == Some('\\');
                if escaped {
                    ahead.next();
                }
                if ahead.next() == Some('\'') {
                    characters = ahead;
                }
            }
            '/' if characters.peek() == Some(&'/') => break,
            '(' => open += 1,
            ')' => open = open.saturating_sub(1),
            _ => {}
        }
    }
    open
}

fn text_bytes(image: &Path) -> Result<u64> {
    let data = files::read(image)?;
    let file = object::File::parse(&*data).with_context(|| format!("{} is no program", image.display()))?;
    Ok(file.sections().filter(|section| section.kind() == SectionKind::Text).map(|section| section.size()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_is_not_there_is_no_small_one() {
        let root = crate::host::place::root();
        assert!(check(&root, Path::new("/no/such/image")).is_err());
        assert!(check(&root, &root.join("Cargo.toml")).is_err());
    }

    #[test]
    fn code_is_counted_and_tests_are_not() {
        let text = "//! What.\n\nfn a() {\n    // why\n    b();\n}\n\n#[cfg(test)]\nmod tests {\n    fn c() {}\n}\n";
        assert_eq!(code_of(text), Code { lines: 3, asserts: 0 });
        assert!(is_counted("boot.s") && is_counted("trap.rs"));
        assert!(!is_counted("frames_tests.rs") && !is_counted("hardware_host.rs") && !is_counted("link.ld"));
    }
    #[test]
    fn assertions_are_no_lines_of_code() {
        let text = "\
fn a() {
    assert!(b() > 0, \"a bracket ( in a string\");
    debug_assert_eq!(
        c(b()), // a bracket ( in a comment
        ')' as u32,
        \"of several\\\" ( lines\",
    );
    assert!(
        d::<'static>(),
        \"of two arguments\"
    );
    e();
}
const _: () = assert!(size_of::<F>() == 64);
const { assert!(size_of::<G>() == 64) };
const SIZE: usize = 64;
    assertive();
";
        assert_eq!(code_of(text), Code { lines: 5, asserts: 3 });
    }
}
