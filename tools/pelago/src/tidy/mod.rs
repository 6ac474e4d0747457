//! House rules that the compiler does not know: where unsafe may stand, where the kernel may share,
//! how long a file may be, which way dependencies point, and that no path of somebody's machine is
//! in the tree. What the kernel may be about is in `tidy/kernel.rs`, what pages lean on in
//! `tidy/pages.rs`, what there may only be less of in `tidy/ratchets.rs`, and the page of the
//! kernel's calls in `tidy/calls.rs`.

mod calls;
pub mod check;
mod kernel;
mod pages;
mod ratchets;
pub mod size;

use crate::image::build;
use anyhow::{Context, Result};
use cargo_metadata::Metadata;
use std::path::{Path, PathBuf};

/// Folders whose crates may hold unsafe code; every other crate says `#![forbid(unsafe_code)]`.
const UNSAFE_FOLDERS: [&str; 26] = [
    "apps/bench",
    "apps/conform",
    "apps/cores",
    "apps/crew",
    "apps/fuzz",
    "kernel",
    "monitor",
    "lib/sys",
    // Assembly: components are compiled without vector registers.
    "lib/aes",
    "lib/crc32c",
    "lib/runtime",
    "lib/ring",
    "lib/channel",
    "lib/executor",
    "lib/threads",
    "lib/link",
    // One load that the emulator's plugin knows.
    "lib/mark",
    "lib/worker",
    // A worker that does not allocate.
    "lib/block-calls",
    // Bytes of frames, which cores share.
    "lib/buffers",
    "lib/virtio",
    "linux/proxy",
    // Speak the emulator's C interface.
    "tools/audit",
    "tools/emulator-api",
    "tools/plugin",
    "tools/measure",
];
/// Longer files have more than one idea.
const FILE_LINES_MAX: usize = 700;
/// Where whole-line comments end; rows of tables cannot be wrapped.
const COMMENT_COLUMNS_MAX: usize = 100;
const TEXT_ENDINGS: [&str; 8] = ["rs", "toml", "md", "sh", "ld", "s", "S", "txt"];
const SKIPPED_FOLDERS: [&str; 5] = [".git", "target", "out", ".toolchain", "node_modules"];
/// Where the kernel may hold what other cores write or read while it is written.
const SHARED_ROOMS: [&str; 5] = [
    // Wake bits, and words for others to read.
    "kernel/src/mailbox",
    // Objects made to be shared.
    "kernel/src/shared/",
    // Words of one writer each: what core 0 wants of others and how they stand, and which devices a
    // core has.
    "kernel/src/core_commands.rs",
    "kernel/src/devices/claims.rs",
    // Rings in memory of the programs that ask a kernel core.
    "kernel/src/polling.rs",
];
/// Words of code that have a use only where several cores write.
const SHARING: [&str; 8] = ["Mutex", "RwLock", "Lock", "Guard", "fence", "compiler_fence", "cmpxchg", "xadd"];
/// Code that runs as one thread, to the end of each request: what servers are and what they stand
/// on (fos, section 3.2.3).
const ALONE_ROOMS: [&str; 9] = [
    "drivers/",
    "servers/",
    "monitor/",
    "linux/",
    "contracts/",
    "lib/channel/",
    "lib/contract/",
    "lib/executor/",
    "lib/runtime/",
];
/// Words of code that waits for another thread of its own program.
const LOCKS: [&str; 6] = ["Mutex", "RwLock", "Condvar", "Barrier", "SpinLock", "OnceLock"];
/// Starts of paths that exist on one machine only. Split so that this file does not find itself.
const LOCAL_PATHS: [&str; 3] = [concat!("/ho", "me/"), concat!("/wo", "rk/"), concat!("/root/", ".")];
/// Layers from the bottom; a package depends only on its own layer or lower ones.
const LAYERS: [(&str, u8); 16] = [
    ("abi", 0),
    ("lib/system", 0),
    ("kernel", 1),
    // They speak `endpoint` and `monitor` themselves.
    ("lib/runtime", 2),
    ("lib/wiring", 2),
    // They map their stacks and registers where the runtime maps.
    ("lib/threads", 2),
    ("lib/virtio", 2),
    // It keeps what `files` and `descriptions` speak of.
    ("lib/open-files", 2),
    // It speaks of what `blocks` does.
    ("lib/block-calls", 2),
    ("lib/", 1),
    ("contracts", 2),
    // A library of the disk server, which is its component (decision 86).
    ("drivers/virtio-blk", 2),
    ("monitor", 3),
    ("servers/", 3),
    ("drivers/", 3),
    ("linux/", 3),
];

/// All breaches, as `path:line: what`.
pub fn findings(root: &Path, metadata: &Metadata) -> Result<Vec<String>> {
    // A commit that is judged has the lower counts in it.
    let writes = std::env::var_os("CI").is_none();
    let mut found = of_texts(root, writes)?;
    calls::check(root, writes, &mut found)?;
    check_unsafe(root, metadata, &mut found);
    check_layers(metadata, &mut found);
    Ok(found)
}

/// Breaches in the files below `root`; what there is less of than before is written down if
/// `writes`.
fn of_texts(root: &Path, writes: bool) -> Result<Vec<String>> {
    let (mut found, mut files, mut texts) = (Vec::new(), Vec::new(), Vec::new());
    list(root, &mut files)?;
    for file in &files {
        let name = file.strip_prefix(root).unwrap_or(file).to_string_lossy().into_owned();
        if let Ok(text) = std::fs::read_to_string(file) {
            check_text(&name, &text, &mut found);
            kernel::check(&name, &text, &mut found);
            pages::check(root, &name, &text, &mut found);
            texts.push((name, text));
        }
    }
    let counts = ratchets::counts(texts.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    ratchets::check(root, &counts, writes, &mut found)?;
    check_index(root, &files, &mut found);
    Ok(found)
}

/// Every decision has its line in the index.
fn check_index(root: &Path, files: &[PathBuf], found: &mut Vec<String>) {
    let folder = root.join("docs/decisions");
    let index = std::fs::read_to_string(folder.join("README.md")).unwrap_or_default();
    for name in files.iter().filter(|file| file.starts_with(&folder)).filter_map(|file| file.file_name()?.to_str()) {
        if name != "README.md" && !index.contains(&format!("]({name})")) {
            found.push(format!("docs/decisions/{name}:1: not in docs/decisions/README.md; add its line"));
        }
    }
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_symlink() || SKIPPED_FOLDERS.contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            list(&path, files)?;
        } else if name == "pelago" || path.extension().is_some_and(|end| TEXT_ENDINGS.iter().any(|known| end == *known))
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(())
}

fn check_text(name: &str, text: &str, found: &mut Vec<String>) {
    let rust = name.ends_with(".rs");
    let lines = text.lines().count();
    if rust && lines > FILE_LINES_MAX {
        found.push(format!("{name}:1: {lines} lines; split it, a file has at most {FILE_LINES_MAX}"));
    }
    if rust && !name.contains("/tests/") && !text.starts_with("//") {
        found.push(format!("{name}:1: the file does not open with what it is"));
    }
    let is_kernel = name.starts_with("kernel/src/") && !name.contains("/tests/") && !name.ends_with("_host.rs");
    let is_alone = !name.contains("/tests/") && ALONE_ROOMS.iter().any(|room| name.starts_with(room));
    let is_unshared = is_kernel && !SHARED_ROOMS.iter().any(|room| name.starts_with(room));
    for (number, line) in (1..).zip(text.lines()) {
        let is_comment = line.trim_start().starts_with("//") && !line.contains("! |") && !line.contains("/ |");
        if rust && is_comment && line.chars().count() > COMMENT_COLUMNS_MAX {
            found.push(format!("{name}:{number}: the comment passes column {COMMENT_COLUMNS_MAX}; wrap it"));
        }
        if is_unshared && let Some(word) = sharing(line) {
            found.push(format!(
                "{name}:{number}: `{word}`: each core's kernel is alone with its memory; what others see while it is written is in {}",
                SHARED_ROOMS.join(", ")
            ));
        }
        if is_alone && let Some(word) = words(line).find(|word| LOCKS.contains(word)) {
            found.push(format!(
                "{name}:{number}: `{word}`: a server is one thread; send a message, or keep the state in one task"
            ));
        }
        if LOCAL_PATHS.iter().any(|path| line.contains(path)) {
            found.push(format!("{name}:{number}: a path of one machine"));
        }
        if rust
            && ["todo!(", "unimplemented!(", "dbg!("]
                .iter()
                .any(|word| line.contains(word) && !line.contains(&format!("\"{word}")))
        {
            found.push(format!("{name}:{number}: unfinished code"));
        }
    }
}

/// The first word of a line of code that says that several cores write something.
fn sharing(line: &str) -> Option<&str> {
    let is_atomic = |word: &str| word.strip_prefix("Atomic").is_some_and(|rest| rest.starts_with(char::is_uppercase));
    words(line).find(|word| is_atomic(word) || SHARING.contains(word))
}

/// Words of a line's code.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split("//").next().unwrap_or("");
    code.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
}

fn check_unsafe(root: &Path, metadata: &Metadata, found: &mut Vec<String>) {
    for package in metadata.workspace_packages() {
        let folder = build::folder(metadata, package);
        if UNSAFE_FOLDERS.contains(&folder.as_str()) {
            continue;
        }
        for target in
            package.targets.iter().filter(|target| target.is_lib() || target.is_bin() || target.is_proc_macro())
        {
            let path = target.src_path.as_std_path();
            let text = std::fs::read_to_string(path).unwrap_or_default();
            if !text.contains("#![forbid(unsafe_code)]") {
                let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
                found.push(format!(
                    "{name}:1: the crate lacks #![forbid(unsafe_code)] and is not among those that may hold unsafe code"
                ));
            }
        }
    }
}

fn check_layers(metadata: &Metadata, found: &mut Vec<String>) {
    let layer = |folder: &str| LAYERS.iter().find(|(start, _)| folder.starts_with(start)).map(|(_, layer)| *layer);
    for package in metadata.workspace_packages() {
        let folder = build::folder(metadata, package);
        let Some(own) = layer(&folder) else { continue };
        for dependency in
            package.dependencies.iter().filter(|dependency| dependency.kind == cargo_metadata::DependencyKind::Normal)
        {
            let Some(path) = &dependency.path else { continue };
            let target = path.strip_prefix(&metadata.workspace_root).unwrap_or(path).to_string();
            let same_layer_outside = own == 3 && target != folder;
            if layer(&target).is_none_or(|other| other > own || (other == own && same_layer_outside)) {
                found.push(format!("{folder}/Cargo.toml:1: depends on {target}; arrows point from programs to contracts and lib, and from there to abi"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files;

    fn check(name: &str, text: &str) -> Vec<String> {
        let mut found = Vec::new();
        check_text(name, text, &mut found);
        found
    }

    #[test]
    fn each_rule_is_asked_of_each_file() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| files::write(&root.path().join(name), text.as_bytes()).unwrap();
        write("tools/pelago/ratchets.toml", "files-with-unsafe = 1\nwords-of-ours = 5\n");
        write("lib/x/src/lib.rs", "//! What it is.\nunsafe fn one() {}\n");
        assert_eq!(of_texts(root.path(), false).unwrap(), Vec::<String>::new());
        write("lib/x/src/more.rs", "no head, and unsafe { 1 }\n");
        write("kernel/src/start.rs", "//! Starts.\nfn restart_tcp() {}\n");
        write("docs/decisions/0001-x.md", "See [a](no-such-page.md).\n");
        let found = of_texts(root.path(), false).unwrap();
        let starts = ["lib/x/src/more.rs:1", "kernel/src/start.rs:2", "docs/decisions/0001-x.md:1: the link"];
        let more = ["tools/pelago/ratchets.toml:1: files-with-unsafe: 2 now", "docs/decisions/0001-x.md:1: not in"];
        for start in starts.into_iter().chain(more) {
            assert!(found.iter().any(|one| one.starts_with(start)), "{start}: {found:#?}");
        }
    }

    #[test]
    fn breaches_are_found() {
        assert_eq!(check("a/src/x.rs", "//! What it is.\nfn main() {}\n"), Vec::<String>::new());
        assert_eq!(check("a/src/x.rs", "fn main() {}\n").len(), 1);
        assert_eq!(check("a/README.md", &format!("see {}x\n", LOCAL_PATHS[0])).len(), 1);
        for code in ["use core::sync::atomic::AtomicU64;", "static A: Mutex<u8>;", "\"lock cmpxchg [rdi], rsi\","] {
            let text = format!("//! x\n{code}\n");
            assert_eq!(check("kernel/src/trap.rs", &text).len(), 1, "{code}");
            assert_eq!(check("kernel/src/shared/pool.rs", &text).len(), 0);
            assert_eq!(check("kernel/src/mailbox.rs", &text).len(), 0);
            assert_eq!(check("apps/conform/src/lib.rs", &text).len(), 0);
        }
        assert_eq!(check("servers/fs/src/lib.rs", "//! x\nuse std::sync::RwLock; // a lock\n").len(), 1);
        assert_eq!(check("servers/fs/src/lib.rs", "//! x\n// no RwLock\nlet kind = lock::SPIN;\n").len(), 0);
        assert_eq!(
            check("kernel/src/trap.rs", "//! x\nlet kind = lock::Kind::Spin; // no Mutex here\n"),
            Vec::<String>::new()
        );
        assert_eq!(check("a/src/x.rs", &format!("//! x\n{}", "\n".repeat(FILE_LINES_MAX))).len(), 1);
        let long = "x".repeat(COMMENT_COLUMNS_MAX);
        assert_eq!(check("a/src/x.rs", &format!("//! x\n    // {long}\nlet x = \"{long}\";\n")).len(), 1);
        assert_eq!(check("a/src/x.rs", &format!("//! | {long} |\n")).len(), 0);
    }
}
