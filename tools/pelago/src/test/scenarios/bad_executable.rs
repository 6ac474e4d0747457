//! Tier 4: executable files that are none: each gives its error to who wanted to start it, or a
//! signal to itself, and the machine lives.
//!
//! One boot: a program compiled here starts each file in a child and says how that ended. Host
//! tests go through many more damaged headers (`linux/proxy/src/image.rs`).

use crate::image::machine_type::MachineType;
use crate::test::scenario::{Bench, Scenario, with_console};
use crate::test::scenarios::bad_program::compile;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

const ENOENT: u32 = 2;
const E2BIG: u32 = 7;
const ENOEXEC: u32 = 8;
const EACCES: u32 = 13;
const ENOTDIR: u32 = 20;
const ENAMETOOLONG: u32 = 36;
const ELOOP: u32 = 40;
/// What the program adds to the number of a signal, here SIGSEGV.
const SIGSEGV: u32 = 1000 + 11;
/// ld.so's, where a library is missing.
const NO_LIBRARY: u32 = 127;

struct Case {
    path: String,
    data: Option<Vec<u8>>,
    ends: u32,
}

pub fn scenarios() -> Vec<Scenario> {
    [1, 2].map(|cpus| Scenario::shared(4, format!("bad-executable/{cpus}"), move |bench| check(bench, cpus))).into()
}

fn check(bench: &Bench, cpus: u32) -> Result<()> {
    let cases = cases()?;
    let program = compile(&starter(&cases))?;
    let guest = bench.boot(MachineType::Q35, cpus, &["busybox", "sh", "-c", "exec /try"], |root, _| {
        root.file("root/try", 0o755, program);
        root.file(&format!("root{LOADER}"), 0o755, crate::host::files::read(Path::new(LOADER))?);
        for case in &cases {
            if let Some(data) = &case.data {
                root.file(&format!("root{}", case.path), 0o755, data.clone());
            }
        }
        Ok(())
    })?;
    with_console(guest, |guest| {
        for (number, case) in cases.iter().enumerate() {
            let start = format!("tried {number}: ");
            let line = guest.expect(&start, LIMIT).with_context(|| format!("of {}", case.path))?;
            let told = line.rsplit(' ').next().unwrap_or_default();
            let shown = case.path.get(..40).unwrap_or(&case.path);
            ensure!(told == case.ends.to_string(), "{shown} ended with {told} instead of {}", case.ends);
        }
        let status = guest.finish(LIMIT)?;
        ensure!(status == 0, "status {status} instead of 0");
        Ok(())
    })
}

/// A good program with bytes put over it.
fn changed(good: &[u8], at: usize, with: &[u8]) -> Vec<u8> {
    let mut data = good.to_vec();
    data[at..at + with.len()].copy_from_slice(with);
    data
}

/// The program header of what the entry point lies in.
fn entry_part(good: &[u8], loads: &[usize]) -> usize {
    let word = |at: usize| good[at..at + 8].iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
    let entry = word(24);
    let holds = |at: &&usize| (word(**at + 16)..word(**at + 16) + word(**at + 40)).contains(&entry);
    loads.iter().find(holds).copied().unwrap_or(loads[0])
}

fn cases() -> Result<Vec<Case>> {
    const PT_LOAD: [u8; 4] = [1, 0, 0, 0];
    let good = compile("leave(0);")?;
    let headers: Vec<usize> = (0..usize::from(good[56])).map(|index| 64 + 56 * index).collect();
    let loads: Vec<usize> = headers.iter().copied().filter(|at| good[*at..at + 4] == PT_LOAD).collect();
    let first = *loads.first().context("the compiled program has nothing to load")?;
    let mut unloaded = good.clone();
    loads.iter().for_each(|at| unloaded[*at] = 0);
    let word = |at: usize, value: u64| changed(&good, at, &value.to_le_bytes());
    let shell = crate::host::path::find("ls").context("there is no ls")?;
    let files: Vec<(&str, Vec<u8>, u32)> = vec![
        ("good", good.clone(), 0),
        ("empty", Vec::new(), ENOEXEC),
        ("byte", vec![0x7f], ENOEXEC),
        ("text", b"neither program nor script\n".to_vec(), ENOEXEC),
        ("cut-header", good[..63].to_vec(), ENOEXEC),
        ("header-only", good[..64].to_vec(), ENOEXEC),
        ("cut-segments", good[..0x1000.min(good.len() / 2)].to_vec(), ENOEXEC),
        ("class-32", changed(&good, 4, &[1]), ENOEXEC),
        ("big-endian", changed(&good, 5, &[2]), ENOEXEC),
        ("object-file", changed(&good, 16, &[1]), ENOEXEC),
        ("other-machine", changed(&good, 18, &[3]), ENOEXEC),
        ("small-headers", changed(&good, 54, &[1, 0]), ENOEXEC),
        ("many-headers", changed(&good, 56, &[0xff, 0xff]), ENOEXEC),
        ("no-headers", changed(&good, 56, &[0, 0]), ENOEXEC),
        ("headers-far", word(32, 1 << 40), ENOEXEC),
        ("headers-wrap", word(32, u64::MAX - 8), ENOEXEC),
        ("nothing-to-load", unloaded, ENOEXEC),
        ("kernel-address", word(first + 16, 0xffff_8000_0000_0000), ENOEXEC),
        ("address-wraps", word(first + 16, u64::MAX - 0xfff), ENOEXEC),
        ("proxy-address", word(first + 16, 0x7200_0000_0000), ENOEXEC),
        ("file-bytes-far", word(first + 32, 1 << 40), ENOEXEC),
        ("offset-far", word(first + 8, 1 << 40), ENOEXEC),
        ("memory-huge", word(first + 40, u64::MAX), ENOEXEC),
        ("memory-large", word(first + 40, 1 << 39), ENOEXEC),
        ("entry-nowhere", word(24, 0x0dea_dbee_f000), ENOEXEC),
        ("entry-kernel", word(24, 0xffff_ffff_8010_0000), ENOEXEC),
        ("entry-no-address", word(24, 0x0000_8000_0000_0000), ENOEXEC),
        // Nothing of it may run: its code is mapped, but not to be executed.
        ("not-executable", changed(&good, entry_part(&good, &loads) + 4, &[4]), SIGSEGV),
        ("script-empty", b"#!\n".to_vec(), ENOEXEC),
        ("script-lost", b"#!/no/such/interpreter\n".to_vec(), ENOENT),
        ("script-loop", b"#!/bad/script-loop\n".to_vec(), ELOOP),
        ("script-folder", b"#!/bad\n".to_vec(), EACCES),
        ("no-library", crate::host::files::read(&shell)?, NO_LIBRARY),
    ];
    let file = |(name, data, ends): (&str, Vec<u8>, u32)| Case { path: format!("/bad/{name}"), data: Some(data), ends };
    let mut all: Vec<Case> = files.into_iter().map(file).collect();
    let paths = [
        ("/bad".to_owned(), EACCES),
        ("/bad/none".to_owned(), ENOENT),
        ("/bad/empty/x".to_owned(), ENOTDIR),
        ("/".to_owned() + &"a".repeat(5000), ENAMETOOLONG),
        ("/a".repeat(1000), ENAMETOOLONG),
        // As the starter has it: the last two with too many arguments and with too much
        // environment.
        ("/bad/good".to_owned(), E2BIG),
        ("/bad/good".to_owned(), E2BIG),
    ];
    all.extend(paths.map(|(path, ends)| Case { path, data: None, ends }));
    Ok(all)
}

/// Starts each path in a child, the last two with an enormous argument list or environment.
fn starter(cases: &[Case]) -> String {
    let paths: Vec<_> = cases.iter().map(|case| format!("\"{}\"", case.path)).collect();
    let (count, paths) = (cases.len(), paths.join(","));
    format!(
        r#"
    static const char *const paths[] = {{ {paths} }};
    static char much[100000];
    static const char *many[400], *few[2], *none[1];
    for (unsigned i = 0; i < sizeof much - 1; i++) much[i] = 'x';
    for (unsigned i = 0; i < 399; i++) many[i] = much;
    for (unsigned i = 0; i < {count}; i++) {{
        long child = call(57, 0, 0, 0, 0, 0, 0);
        few[0] = paths[i];
        if (child == 0) leave(-call(59, (long)paths[i], (long)(i == {count} - 2 ? many : few), (long)(i == {count} - 1 ? many : none), 0, 0, 0));
        int status = 0;
        call(61, child, (long)&status, 0, 0, 0, 0);
        unsigned ended = status & 0x7f ? 1000 + (status & 0x7f) : status >> 8 & 0xff;
        char line[32] = "tried ";
        unsigned end = 6;
        for (unsigned unit = 100; unit; unit /= 10) if (i >= unit || unit == 1) line[end++] = '0' + i / unit % 10;
        line[end++] = ':'; line[end++] = ' ';
        for (unsigned unit = 1000; unit; unit /= 10) if (ended >= unit || unit == 1) line[end++] = '0' + ended / unit % 10;
        line[end++] = '\n';
        call(1, 1, (long)line, end, 0, 0, 0);
    }}
    leave(0);"#
    )
}
