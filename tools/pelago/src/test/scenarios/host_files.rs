//! Tier 3: what `run` brings of the host, by running this very tool as a person does: trees of any
//! shape, packages, and what is said about it.

use super::cli::Running;
use crate::host::child;
use crate::host::skip::Skip;
use crate::test::scenario::Scenario;
use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsStr;
use std::fs::{File, FileTimes, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

/// A package, what is run of it, and what that says.
struct Case {
    package: &'static str,
    words: &'static [&'static str],
    says: &'static str,
}

/// Each starts or reads what its package alone tells of.
const PACKAGES: [Case; 4] = [
    Case {
        package: "perl",
        words: &["perl", "-MPOSIX=floor", "-MList::Util=sum", "-e", "print 'sum ', sum(floor(1.5), 2), qq(\n)"],
        says: "sum 3",
    },
    Case {
        package: "python3",
        words: &["python3", "-c", "import json, ctypes; print(json.dumps({'a': [1, 2]}))"],
        says: "{\"a\": [1, 2]}",
    },
    Case { package: "bash", words: &["bash", "-c", "set -- {1..3}; echo \"${#}: $(echo $*)\""], says: "3: 1 2 3" },
    Case {
        package: "make",
        words: &["make", "-f", "/dev/null", "--eval", "all: ; @echo made by $(MAKE) | cat", "all"],
        says: "made by /usr/bin/make",
    },
];

pub fn scenarios() -> Vec<Scenario> {
    let mut all = vec![
        Scenario::shared(3, "host-files/tree".into(), |_| tree()),
        Scenario::shared(3, "host-files/silence".into(), |_| silence()),
        Scenario::shared(3, "host-files/rootfs".into(), |_| root_file_system()),
    ];
    let packages = PACKAGES.iter();
    all.extend(
        packages.map(|case| Scenario::shared(3, format!("host-files/package/{}", case.package), |_| package(case))),
    );
    all
}

/// A tree with links to folders, files of two names, names that are no text, modes and times.
fn tree() -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let path = |name: &str| folder.path().join(name);
    let odd = folder.path().join(OsStr::from_bytes(b"f\xfcr"));
    let deep = "d/".repeat(100);
    for name in ["usr/bin", "empty", &deep] {
        std::fs::create_dir_all(path(name)).context("cannot make a folder")?;
    }
    for (path, content) in [(path("usr/bin/one"), "one\n"), (odd, "odd\n"), (path(&deep).join("end"), "deep\n")] {
        crate::host::files::write(&path, content.as_bytes())?;
    }
    std::fs::hard_link(path("usr/bin/one"), path("two"))?;
    symlink("usr/bin", path("bin"))?;
    std::fs::set_permissions(path("empty"), Permissions::from_mode(0o710))?;
    std::fs::set_permissions(path("two"), Permissions::from_mode(0o604))?;
    let times = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_234_567_890));
    for name in ["two", "empty"] {
        File::open(path(name))?.set_times(times)?;
    }
    let _socket = std::os::unix::net::UnixListener::bind(path("socket"))?;
    let script = format!(
        "echo \"bin: $(readlink /bin) $(cat /bin/one)\"; \
         echo \"two: $(stat -c '%a %h %Y' /two) $(cat /two)\"; \
         echo \"empty: $(stat -c '%a %Y' /empty) $(ls -A /empty | wc -l)\"; \
         echo \"odd: $(cat \"/$(printf 'f\\374r')\") $(echo /f*r | od -An -tx1 | tr -d ' ')\"; \
         echo \"deep: $(cat /{deep}end)\"; echo \"special: $(ls -d /socket 2>&1 | grep -c 'No such')\""
    );
    let volume = format!("{}:/", folder.path().display());
    let mut run = Running::start(&["--accel", "tcg", "-v", &volume, "busybox", "sh", "-c", &script], &[])?;
    run.expect("1 left out that are neither file, folder nor link")?;
    for line in [
        "bin: usr/bin one",
        "two: 604 2 1234567890 one",
        "empty: 710 1234567890 0",
        "odd: odd 2f66fc720a",
        "deep: deep",
    ] {
        let got = run.expect(line.split(' ').next().unwrap_or_default())?;
        ensure!(got == line, "`{got}` instead of `{line}`");
    }
    run.expect("special: 1")?;
    let status = run.finish()?;
    ensure!(status.success(), "{status}");
    Ok(())
}

/// A root file system is the guest's as it is: with its links, without this machine's files, and
/// with what `-v` lays on top.
fn root_file_system() -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let path = |name: &str| folder.path().join(name);
    for name in ["root/usr/bin", "root/opt/own", "more"] {
        std::fs::create_dir_all(path(name)).context("cannot make a folder")?;
    }
    let busybox = std::env::var_os("PELAGO_BUSYBOX").map(std::path::PathBuf::from).filter(|path| path.is_file());
    let busybox = busybox.ok_or(Skip::Package { program: "busybox", package: "busybox-static" })?;
    std::fs::copy(busybox, path("root/usr/bin/busybox")).context("cannot copy busybox")?;
    for (link, target) in [("bin", "usr/bin"), ("usr/bin/sh", "/bin/busybox"), ("usr/bin/ls", "busybox")] {
        symlink(target, path("root").join(link))?;
    }
    crate::host::files::write(&path("root/opt/own/run"), b"#!/bin/sh\necho \"runs: $0 $1 $(readlink /bin/sh)\"\n")?;
    std::fs::set_permissions(path("root/opt/own/run"), Permissions::from_mode(0o755))?;
    crate::host::files::write(&path("more/page"), b"page\n")?;
    let _socket = std::os::unix::net::UnixListener::bind(path("root/socket"))?;
    let (root, volume) = (path("root").display().to_string(), format!("{}:/opt", path("more").display()));
    let run = |words: &[&str]| {
        let options = ["--accel", "tcg", "-q", "--rootfs", &root, "-v", &volume];
        Running::start(&[&options, words].concat(), &[("LD_LIBRARY_PATH", "/lib")])
    };
    let mut own = run(&["-w", "/opt", "own/run", "word"])?;
    own.expect("runs: /opt/own/run word /bin/busybox")?;
    ensure!(own.finish()?.success(), "a script of the root fails");
    let script = "echo all: $(ls /) $(ls /opt); echo libraries: $LD_LIBRARY_PATH; ls /etc";
    let mut shell = run(&["sh", "-c", script])?;
    let all = shell.expect("all: ")?;
    ensure!(all == "all: bin dev etc opt proc run tmp usr own page", "the root directory has {all}");
    ensure!(shell.expect("libraries:")? == "libraries:", "this shell's libraries are told to the guest");
    ensure!(shell.finish()?.success(), "a shell of the root fails");
    let etc: Vec<_> = shell.seen.iter().skip(2).map(String::as_str).collect();
    ensure!(etc == ["hostname", "hosts", "resolv.conf"], "its /etc has {etc:?}");
    let mut missing = run(&["cat"])?;
    missing.expect("the root file system has no program `cat`")?;
    ensure!(missing.finish()?.code() == Some(125), "a program of this machine is run");
    Ok(())
}

/// One line at start and the program's own; none with `-q`; all with `--verbose`; mistakes are told
/// before anything is started.
fn silence() -> Result<()> {
    let told = |words: &[&str]| -> Result<Vec<String>> {
        let mut run = Running::start(&[words, &["--accel", "tcg", "busybox", "echo", "said"]].concat(), &[])?;
        let status = run.finish()?;
        ensure!(status.success(), "{status}: {:?}", run.seen);
        Ok(run.seen.clone())
    };
    ensure!(told(&["-q"])? == ["said"], "a quiet run says more");
    let plain = told(&[])?;
    let is_right = plain.len() == 2 && plain.iter().any(|line| line.starts_with("pelago: busybox; 2 cores, 512 MiB"));
    ensure!(is_right, "a plain run says {plain:?}");
    let all = told(&["--verbose"])?;
    ensure!(all.iter().any(|line| line == "pelago: ready"), "a run that tells all says {all:?}");
    for (words, wanted) in [
        (&["--bogus", "busybox"][..], "there is no option --bogus"),
        (&["-w", "/nosuch", "busybox", "ls"], "bring one, for instance -v FOLDER:/nosuch"),
        (&["-p", "53:53/sctp", "busybox", "ls"], "`sctp` is no protocol of the guest's"),
        (&["--package", "no-such-package", "busybox", "ls"], "apt-get install no-such-package"),
    ] {
        let mut run = Running::start(words, &[])?;
        run.expect(wanted)?;
        let status = run.finish()?;
        ensure!(status.code() == Some(125), "{status} for {words:?}");
    }
    Ok(())
}

/// A program of a package finds what it starts and reads.
fn package(case: &Case) -> Result<()> {
    let Case { package, words, says } = case;
    let known = child::output(Command::new("dpkg-query").args(["--show", package]), child::SHORT);
    if !known.is_ok_and(|output| output.status.success()) || !Path::new("/usr/bin").join(words[0]).exists() {
        bail!(Skip::Package { program: words[0], package });
    }
    let mut run = Running::start(&[&["--accel", "tcg", "-m", "1G", "--package", package][..], words].concat(), &[])?;
    run.expect(says)?;
    let status = run.finish()?;
    ensure!(status.success(), "{status}");
    Ok(())
}
