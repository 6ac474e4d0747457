//! Tier 0: the user's mistakes are told in one line on standard error, with what to do, and with a
//! status that is not zero.

use crate::host::child;
use crate::host::disk::DiskOption;
use crate::host::skip::Skip;
use crate::test::scenario::Scenario;
use anyhow::{Context, Result, bail, ensure};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

struct Case {
    name: &'static str,
    /// Words of the command line; `DIR` stands for the scenario's own folder, `PORT` for a port
    /// that is taken.
    words: &'static [&'static str],
    /// Must be in the line.
    says: &'static [&'static str],
}

const CASES: [Case; 25] = [
    Case { name: "no-program", words: &["run", "no-such-program"], says: &["no-such-program", "install"] },
    Case { name: "no-file", words: &["run", "DIR/none"], says: &["none", "give the path"] },
    Case { name: "not-executable", words: &["run", "DIR/text"], says: &["chmod +x"] },
    Case { name: "no-library", words: &["run", "DIR/lacks-library"], says: &["libx.so.6", "install"] },
    Case {
        name: "port-in-use",
        words: &["run", "-p", "PORT:80", "busybox", "true"],
        says: &["cannot listen", "choose another"],
    },
    Case { name: "little-memory", words: &["run", "-m", "16M", "busybox", "true"], says: &["too little", "give -m"] },
    Case {
        name: "little-memory-for-program",
        words: &["run", "-m", "80M", "DIR/node"],
        says: &["what node needs", "give -m"],
    },
    Case { name: "many-cores", words: &["run", "--cpus", "256", "busybox", "true"], says: &["choose fewer"] },
    Case { name: "bad-forward", words: &["run", "-p", "80", "busybox", "true"], says: &["HOST:GUEST"] },
    Case { name: "no-disk", words: &["run", "--disk", "DIR/none", "busybox"], says: &["no such file", ",size=4G"] },
    Case { name: "disk-path", words: &["run", "--disk", "DIR/none:/proc", "busybox"], says: &["the guest's own"] },
    Case { name: "small-disk", words: &["run", "--disk", "DIR/text", "busybox"], says: &["the least is 64M"] },
    Case { name: "disk-of-others", words: &["run", "--disk", "DIR/disk", "busybox"], says: &["an XFS file system"] },
    Case {
        name: "encrypted-disk",
        words: &["run", "--disk", "DIR/disk", "busybox"],
        says: &["LUKS2", "add ,key=FILE"],
    },
    Case {
        name: "disk-key",
        words: &["run", "--disk", "DIR/disk,key=DIR/text", "busybox"],
        says: &["text does not open it", "it was made with"],
    },
    Case {
        name: "plain-disk",
        words: &["run", "--disk", "DIR/disk,key=DIR/text", "busybox"],
        says: &["leave key= out"],
    },
    Case { name: "no-row", words: &["bench", "no-such-row"], says: &["no row", "--list"] },
    Case { name: "no-results", words: &["bench", "--from", "DIR/none"], says: &["cannot read", "none"] },
    Case { name: "no-results-format", words: &["bench", "--from", "DIR/text"], says: &["no results", "make it again"] },
    Case { name: "bench-many-cores", words: &["bench", "--cpus", "1,256", "getpid"], says: &["choose others"] },
    Case {
        name: "no-emulator",
        words: &["run", "busybox", "true"],
        says: &["qemu-system-x86_64 is missing", "install"],
    },
    Case { name: "no-plugins", words: &["bench", "--counts"], says: &["without support of plugins", "install"] },
    Case {
        name: "no-internals",
        words: &["bench", "--model", "coherence"],
        says: &["does not export cpu_exit, cpu_stop_current", "qemu_get_cpu, tb_flush", "install"],
    },
    Case {
        name: "bench-disk-full",
        words: &["bench", "--from", "DIR/results", "--json", "DIR/kept"],
        says: &["cannot write", "free some"],
    },
    Case { name: "bench-little-memory", words: &["bench", "getpid"], says: &["1024 MiB", "end other programs"] },
];

/// Cases with another emulator, or none.
const OTHER_EMULATOR: [&str; 3] = ["no-emulator", "no-plugins", "no-internals"];

/// Cases on a poor machine, as a shell can make one: what does not fit is refused to the tool.
const LIMITED: [(&str, &str); 2] =
    [("bench-disk-full", "trap '' XFSZ; ulimit -f 0"), ("bench-little-memory", "ulimit -v 900000")];

pub fn scenarios() -> Vec<Scenario> {
    CASES.iter().map(|case| Scenario::shared(0, format!("usage-errors/{}", case.name), move |_| check(case))).collect()
}

fn check(case: &Case) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    prepare(folder.path(), case)?;
    let listener = TcpListener::bind("0.0.0.0:0").context("no free port")?;
    let port = listener.local_addr()?.port().to_string();
    let directory = folder.path().display().to_string();
    let words = case.words.iter().map(|word| word.replace("DIR", &directory).replace("PORT", &port));
    let mut tool = Command::new(std::env::current_exe().context("cannot find myself")?);
    if let Some((_, limit)) = LIMITED.iter().find(|(name, _)| *name == case.name) {
        let own = tool;
        tool = Command::new("sh");
        tool.arg("-c").arg(format!("{limit}; exec \"$0\" \"$@\"")).arg(own.get_program());
    }
    tool.args(words).current_dir(crate::host::place::root());
    if OTHER_EMULATOR.contains(&case.name) {
        tool.env("PATH", folder.path().join("bin"));
    }
    let output = child::output(&mut tool, child::SHORT)?;
    let (told, printed) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    ensure!(!output.status.success(), "the status is 0");
    ensure!(printed.is_empty(), "it wrote to standard output: {printed}");
    ensure!(told.lines().count() == 1, "{} lines instead of one:\n{told}", told.lines().count());
    for words in case.says {
        ensure!(told.contains(words), "`{}` does not say `{words}`", told.trim());
    }
    Ok(())
}

fn prepare(folder: &Path, case: &Case) -> Result<()> {
    match case.name {
        "disk-of-others" => disk(folder, b"XFSB"),
        "encrypted-disk" => disk(folder, b"LUKS\xba\xbe\0\x02"),
        "disk-key" => made_disk(folder, true),
        "plain-disk" => made_disk(folder, false),
        "not-executable" | "no-results-format" | "small-disk" => {
            crate::host::files::write(&folder.join("text"), b"hello\n")
        }
        "bench-disk-full" => {
            crate::host::files::write(&folder.join("results"), crate::bench::SMALLEST_RESULTS.as_bytes())
        }
        "little-memory-for-program" => executable(&folder.join("node"), b"#!/bin/sh\n"),
        "no-library" => {
            let program = crate::host::path::find("ls").context("there is no ls")?;
            let mut data = crate::host::files::read(&program)?;
            let Some(place) = data.windows(10).position(|window| window == b"libc.so.6\0") else {
                bail!(Skip::Cannot(format!(
                    "{} does not use libc.so.6, so there is none to take away",
                    program.display()
                )));
            };
            data[place + 3] = b'x';
            executable(&folder.join("lacks-library"), &data)
        }
        // All programs that a build needs, but no emulator, or another program by its name.
        name if OTHER_EMULATOR.contains(&name) => {
            let bin = folder.join("bin");
            std::fs::create_dir(&bin).context("cannot make a folder")?;
            let path = std::env::var_os("PATH").unwrap_or_default();
            for entry in std::env::split_paths(&path).filter_map(|folder| folder.read_dir().ok()).flatten().flatten() {
                let name = entry.file_name();
                if name != crate::machine::emulator::PROGRAM {
                    // Earlier folders of PATH win, here too.
                    let _ = std::os::unix::fs::symlink(entry.path(), bin.join(name));
                }
            }
            if case.name == "no-plugins" {
                let other = crate::host::path::find("ls").context("there is no ls")?;
                std::os::unix::fs::symlink(other, bin.join(crate::machine::emulator::PROGRAM))
                    .context("cannot make a link")?;
            }
            if case.name == "no-internals" {
                export_the_interface_alone(&bin.join(crate::machine::emulator::PROGRAM))?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// A file of the least size for a disk.
fn disk(folder: &Path, start: &[u8]) -> Result<()> {
    let path = folder.join("disk");
    crate::host::files::write(&path, start)?;
    let file = std::fs::File::options().write(true).open(&path);
    file.and_then(|file| file.set_len(64 << 20)).context("cannot make a disk")
}

/// A disk as `run` makes it, encrypted or not, and a file that is not its key.
fn made_disk(folder: &Path, is_encrypted: bool) -> Result<()> {
    let text = folder.join("text");
    crate::host::files::write(&text, b"its key")?;
    let key = if is_encrypted { format!(",key={}", text.display()) } else { String::new() };
    let option: DiskOption = format!("{},size=64M{key}", folder.join("disk").display()).parse()?;
    option.check()?.made()?;
    crate::host::files::write(&text, b"secret\n")
}

/// A file that has the plugin interface, and nothing else of an emulator.
fn export_the_interface_alone(path: &Path) -> Result<()> {
    let source = path.with_extension("c");
    crate::host::files::write(&source, format!("void {}(void) {{}}\n", crate::bench::plugin::INTERFACE).as_bytes())?;
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-nostdlib", "-o"]).arg(path).arg(&source);
    let status = child::status(&mut compiler, child::SHORT);
    ensure!(status.context("cannot start cc")?.success(), "cc made no file of {}", source.display());
    Ok(())
}

fn executable(path: &Path, data: &[u8]) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    crate::host::files::write(path, data)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).context("cannot make it executable")
}
