//! Names the lines of a backtrace. The guest prints `bt: 0xADDRESS IMAGE`; here that becomes
//! function, file and line, from the unstripped image a build leaves in `out/images`.

use addr2line::Loader;
use std::collections::HashMap;

/// Images seen so far; an image that cannot be read is remembered as such.
#[derive(Default)]
pub struct Symbols {
    loaders: HashMap<String, Option<Loader>>,
}

impl Symbols {
    /// The line to show for a console line: with names added if it is one of a backtrace, else
    /// unchanged.
    pub fn describe(&mut self, line: &str) -> String {
        match parse(line).and_then(|(address, image)| self.frames(address, image)) {
            Some(frames) => format!("{line}{frames}"),
            None => line.to_owned(),
        }
    }

    fn frames(&mut self, address: u64, image: &str) -> Option<String> {
        let load = || {
            // The name comes from the guest: only a plain file name may reach the file system.
            let plain = image.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
            plain.then(|| Loader::new(crate::host::place::images().join(image)).ok()).flatten()
        };
        let loader = self.loaders.entry(image.to_owned()).or_insert_with(load).as_ref()?;
        let mut text = String::new();
        let mut frames = loader.find_frames(address).ok()?;
        while let Ok(Some(frame)) = frames.next() {
            let name = frame.function.as_ref().and_then(|name| name.demangle().ok().map(|name| name.into_owned()));
            text += &format!("\n    {}", name.unwrap_or_else(|| "?".into()));
            if let Some((file, line)) = frame.location.and_then(|place| place.file.zip(place.line)) {
                text += &format!(" at {}:{line}", shorten(file));
            }
        }
        if text.is_empty() {
            text = format!("\n    {}", loader.find_symbol(address)?);
        }
        Some(text)
    }
}

fn parse(line: &str) -> Option<(u64, &str)> {
    // The kernel's own lines, and those of a component about itself, which have its name in front.
    let of_component = || Some(line.strip_prefix("pelago: ")?.split_once(": bt: 0x")?.1);
    let (address, image) = line.strip_prefix("bt: 0x").or_else(of_component)?.split_once(' ')?;
    Some((u64::from_str_radix(address, 16).ok()?, image.trim()))
}

/// The path within the checkout; files of libraries keep their last parts.
fn shorten(file: &str) -> String {
    let root = format!("{}/", crate::host::place::root().display());
    file.strip_prefix(&root).unwrap_or(file).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_backtrace_lines_are_parsed() {
        assert_eq!(parse("bt: 0xffffffff80100010 kernel"), Some((0xffff_ffff_8010_0010, "kernel")));
        assert_eq!(parse("pelago: ip: bt: 0x1000 ip"), Some((0x1000, "ip")));
        for other in ["bt: kernel", "bt: 0xzz kernel", "bt: 0x10", "hello", ""] {
            assert_eq!(parse(other), None);
        }
        assert_eq!(Symbols::default().describe("bt: 0x10 ../../etc/passwd"), "bt: 0x10 ../../etc/passwd");
    }
}
