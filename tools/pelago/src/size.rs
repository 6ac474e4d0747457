//! How much code runs with the processor's privilege, and the budget for it (Corey section 7,
//! Barrelfish section 4.3).
//!
//! Counted are lines of code, without comments, blank lines and tests, of the kernel and of what is
//! linked into it of our own. The text is that of the last image that was built.

use crate::{files, image, place};
use anyhow::{Context, Result, ensure};
use object::{Object, ObjectSection, SectionKind};
use std::path::Path;

/// Folders whose code is privileged.
const PRIVILEGED: [&str; 2] = ["kernel/src", "lib/lock/src"];
/// A tenth more than Corey's kernel with its 11,150 lines, for the objects of three more papers.
const LINES_MAX: usize = 12_500;
/// A quarter of a core's second-level cache.
const TEXT_BYTES_MAX: u64 = 256 << 10;

/// Prints lines and bytes; an error is what is over its budget.
pub fn check(root: &Path) -> Result<()> {
    let mut lines = 0;
    for folder in PRIVILEGED {
        lines += lines_below(&root.join(folder))?;
    }
    let image = place::images().join(image::KERNEL);
    let text = image.exists().then(|| text_bytes(&image)).transpose()?;
    let said = text.map_or("not built yet".into(), |bytes| {
        format!("{} KiB of text (at most {})", bytes >> 10, TEXT_BYTES_MAX >> 10)
    });
    println!("     privileged code: {lines} lines (at most {LINES_MAX}), {said}");
    ensure!(lines <= LINES_MAX, "privileged code has {lines} lines, and the budget is {LINES_MAX}: move something out");
    let text = text.unwrap_or(0);
    ensure!(text <= TEXT_BYTES_MAX, "privileged code has {text} bytes of text, and the budget is {TEXT_BYTES_MAX}");
    Ok(())
}

fn lines_below(folder: &Path) -> Result<usize> {
    let mut lines = 0;
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            lines += if name == "tests" { 0 } else { lines_below(&path)? };
        } else if is_counted(&name) {
            lines += lines_of(&String::from_utf8_lossy(&files::read(&path)?));
        }
    }
    Ok(lines)
}

fn is_counted(name: &str) -> bool {
    let is_for_the_host = ["_host.rs", "_tests.rs", "tests.rs"].iter().any(|end| name.ends_with(end));
    (name.ends_with(".rs") || name.ends_with(".s")) && !is_for_the_host
}

/// Lines of code; tests inside a file are its end.
fn lines_of(text: &str) -> usize {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or("");
    code.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("//") && !line.starts_with('#'))
        .count()
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
    fn code_is_counted_and_tests_are_not() {
        let text = "//! What.\n\nfn a() {\n    // why\n    b();\n}\n\n#[cfg(test)]\nmod tests {\n    fn c() {}\n}\n";
        assert_eq!(lines_of(text), 3);
        assert!(is_counted("boot.s") && is_counted("trap.rs"));
        assert!(!is_counted("frames_tests.rs") && !is_counted("hardware_host.rs") && !is_counted("link.ld"));
    }
}
