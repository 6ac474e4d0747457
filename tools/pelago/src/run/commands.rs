//! Commands to a running emulator, by its machine protocol (QMP): a line of JSON each way.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// An emulator that has not answered after so long never will.
const LIMIT: Duration = Duration::from_secs(15);

/// A connection; the machine was started with [`crate::machine::emulator::Machine::commands`].
pub struct Emulator {
    input: UnixStream,
    output: BufReader<UnixStream>,
}

impl Emulator {
    /// Connects at the machine's socket.
    pub fn connect(path: &Path) -> Result<Emulator> {
        let input = UnixStream::connect(path).context("the emulator takes no commands")?;
        input.set_read_timeout(Some(LIMIT))?;
        input.set_write_timeout(Some(LIMIT))?;
        let output = BufReader::new(input.try_clone()?);
        let mut emulator = Emulator { input, output };
        let greeting = emulator.line()?;
        ensure!(greeting.get("QMP").is_some(), "the emulator says {greeting}");
        emulator.command("qmp_capabilities", json!({}))?;
        Ok(emulator)
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.output.read_line(&mut line).context("the emulator does not answer")?;
        serde_json::from_str(&line).with_context(|| format!("the emulator says {line:?}"))
    }

    /// Carries a command out; events are passed over.
    pub fn command(&mut self, name: &str, arguments: Value) -> Result<Value> {
        writeln!(self.input, "{}", json!({ "execute": name, "arguments": arguments }))?;
        loop {
            let mut answer = self.line()?;
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = answer.get("error") {
                bail!("{name}: {error}");
            }
        }
    }

    /// What `core` sees now in the kernel's half of the address space, ascending.
    pub fn kernel_mappings(&mut self, core: u32) -> Result<Vec<Mapping>> {
        let arguments = json!({ "command-line": "info tlb", "cpu-index": core });
        let answer = self.command("human-monitor-command", arguments)?;
        mappings(answer.as_str().unwrap_or_default())
    }

    /// Memory as `core` sees it now.
    pub fn memory(&mut self, core: u32, address: u64, bytes: u64) -> Result<Vec<u8>> {
        // QMP's integers have a sign.
        self.saved("memsave", json!({ "val": address.cast_signed(), "size": bytes, "cpu-index": core }))
    }

    /// Memory by its physical address.
    pub fn physical(&mut self, address: u64, bytes: u64) -> Result<Vec<u8>> {
        self.saved("pmemsave", json!({ "val": address.cast_signed(), "size": bytes }))
    }

    /// What a command writes to the file that it is given.
    fn saved(&mut self, name: &str, mut arguments: Value) -> Result<Vec<u8>> {
        let file = tempfile::NamedTempFile::new().context("cannot make a file for the guest's memory")?;
        arguments["filename"] = json!(file.path());
        self.command(name, arguments)?;
        crate::host::files::read(file.path())
    }
}

/// Pages of one table that are shown in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Virtual address.
    pub address: u64,
    /// Physical address.
    pub place: u64,
    /// Bytes; of a large page not less than it has: the emulator does not tell 2 MiB from 1 GiB, so
    /// it is to the next one, at most 1 GiB.
    pub bytes: u64,
    pub is_writable: bool,
    pub is_executable: bool,
}

/// From lines `ADDRESS: PLACE FLAGS` (hexadecimal, and X for not executable, P for a large page, W
/// for writable).
fn mappings(text: &str) -> Result<Vec<Mapping>> {
    let read = |line: &str| {
        let (address, rest) = line.split_once(": ")?;
        let (place, flags) = rest.split_once(' ')?;
        let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
        Some(Mapping {
            address: number(address)?,
            place: number(place)?,
            bytes: if flags.contains('P') { 1 << 30 } else { 1 << 12 },
            is_writable: flags.contains('W'),
            is_executable: !flags.contains('X'),
        })
    };
    let read = |line: &str| read(line.trim()).with_context(|| format!("of translations the emulator says `{line}`"));
    let mut all: Vec<Mapping> = text.lines().map(read).collect::<Result<_>>()?;
    all.retain(|mapping| mapping.address >= 1 << 63);
    for index in 1..all.len() {
        let next = all[index].address;
        let mapping = &mut all[index - 1];
        mapping.bytes = mapping.bytes.min(next.saturating_sub(mapping.address));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn translations_are_read() {
        let text = "0000000000400000: 0000000001000000 X--DA--UW\r\nffff800000000000: 0000000000000000 XGPDA---W\r\n\
            ffff800000200000: 0000000000200000 XG-DA----\r\nffffffff80100000: 0000000000100000 -G--A----\r\n";
        let all = mappings(text).unwrap();
        let told: Vec<_> = all.iter().map(|it| (it.place, it.bytes, it.is_writable, it.is_executable)).collect();
        assert_eq!(told, [(0, 2 << 20, true, false), (2 << 20, 4096, false, false), (1 << 20, 4096, false, true)]);
        assert!(mappings("PG disabled").is_err());
    }
}
