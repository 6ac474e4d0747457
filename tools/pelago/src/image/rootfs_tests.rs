//! What the guest's root directory gets.

use super::*;
use std::os::unix::fs::symlink;

fn seen(archive: &Archive, path: &str) -> Option<Vec<u8>> {
    archive.read(&in_root(path), u64::MAX).map(Result::unwrap)
}

#[test]
fn a_dynamic_program_brings_its_libraries() {
    let mut archive = Archive::default();
    let path = add_program(&mut archive, std::env::current_exe().unwrap().to_str().unwrap(), PATH).unwrap();
    assert!(archive.has_file(&in_root(&path)));
    assert!(archive.has_file("root/lib64/ld-linux-x86-64.so.2"));
    assert!(archive.has_file("root/lib/x86_64-linux-gnu/libc.so.6"));
}

#[test]
fn the_host_has_a_name_in_the_guest() {
    let mut base = Archive::default();
    add_base(&mut base);
    let mut bare = Archive::default();
    add_missing(&mut bare);
    for archive in [base, bare] {
        let hosts = String::from_utf8(seen(&archive, "etc/hosts").unwrap()).unwrap();
        assert!(hosts.lines().any(|line| line == "10.0.2.2 host"), "{hosts}");
    }
}

#[test]
fn what_is_missing_is_named() {
    let mut archive = Archive::default();
    let message = |name: &str, archive: &mut Archive| format!("{:#}", add_program(archive, name, PATH).unwrap_err());
    assert!(message("no-such-program-here", &mut archive).contains("in PATH"));
    assert!(message("/no/such/program", &mut archive).contains("/no/such/program"));
    assert!(message("/etc/passwd", &mut archive).contains("chmod"));
    let volume = Volume { host: "/no/such/folder".into(), guest: "/www".into() };
    assert!(format!("{:#}", add_volume(&mut archive, &volume).unwrap_err()).contains("give a file or folder"));
}

#[test]
fn a_program_behind_links_keeps_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(path("real/bin")).unwrap();
    std::fs::copy(std::env::current_exe().unwrap(), path("real/bin/program")).unwrap();
    symlink("real", path("folder")).unwrap();
    symlink("program", path("real/bin/name")).unwrap();
    let mut archive = Archive::default();
    let program = add_program(&mut archive, path("folder/bin/name").to_str().unwrap(), PATH).unwrap();
    assert!(archive.has_link(&in_root(path("folder").to_str().unwrap())));
    assert_eq!(archive.real(&in_root(&program)), archive.real(&in_root(path("real/bin/program").to_str().unwrap())));
    assert!(archive.has_file(&in_root(&program)));
}

#[test]
fn a_script_brings_what_runs_it() {
    let folder = tempfile::tempdir().unwrap();
    let script = |name: &str, line: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("{line}\nexit 0\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let mut archive = Archive::default();
    add_program(&mut archive, &script("one", "#!/usr/bin/env -S LANG=C sh -e"), PATH).unwrap();
    assert!(archive.has_file("root/usr/bin/env") && archive.has_file("root/usr/bin/sh"));
    let bad = add_program(&mut archive, &script("bad", "#!/usr/bin/env no-such-program"), PATH).unwrap_err();
    assert!(format!("{bad:#}").contains("no-such-program"), "{bad:#}");
    let mut archive = Archive::default();
    let (one, other) = (script("first", ""), script("other", ""));
    std::fs::write(&one, format!("#!{other}\n")).unwrap();
    std::fs::write(&other, format!("#!{one}\n")).unwrap();
    assert!(format!("{:#}", add_program(&mut archive, &one, PATH).unwrap_err()).contains("name each other"));
}

#[test]
fn a_volume_is_copied_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(path("usr/bin")).unwrap();
    std::fs::create_dir(path("empty")).unwrap();
    std::fs::write(path("usr/bin/page"), "hello").unwrap();
    std::fs::hard_link(path("usr/bin/page"), path("again")).unwrap();
    symlink("usr/bin", path("bin")).unwrap();
    let odd = path("").join(OsStr::from_bytes(b"f\xfcr"));
    std::fs::write(&odd, "odd").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
    let mut archive = Archive::default();
    add_base(&mut archive);
    archive.file("root/bin/base", 0o755, b"base".into());
    let volume: Volume = format!("{}:/", folder.path().display()).parse().unwrap();
    add_volume(&mut archive, &volume).unwrap();
    assert_eq!(seen(&archive, "bin/page").unwrap(), b"hello");
    assert_eq!(seen(&archive, "usr/bin/base").unwrap(), b"base");
    assert_eq!(seen(&archive, "again").unwrap(), b"hello");
    assert_eq!(seen(&archive, &file_name::to_text(b"f\xfcr")).unwrap(), b"odd");
    assert!(archive.has_folder("root/empty") && archive.has_link("root/bin") && !archive.has_file("root/socket"));
    let out = tempfile::NamedTempFile::new().unwrap();
    archive.write(out.path()).unwrap();
    assert!("site:www".parse::<Volume>().is_err() && ":/www".parse::<Volume>().is_err());
}

#[test]
fn what_a_volume_brought_is_run_from_there() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("bin")).unwrap();
    std::fs::copy("/bin/true", folder.path().join("bin/sh")).unwrap();
    let mut archive = Archive::default();
    add_volume(&mut archive, &format!("{}:/", folder.path().display()).parse().unwrap()).unwrap();
    assert_eq!(add_program(&mut archive, "/bin/sh", PATH).unwrap(), "/bin/sh");
    assert_eq!(seen(&archive, "bin/sh").unwrap(), std::fs::read("/bin/true").unwrap());
    assert!(archive.has_file("root/lib64/ld-linux-x86-64.so.2"));
}

#[test]
fn a_tree_comes_with_the_libraries_of_what_is_in_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    std::fs::copy("/bin/true", folder.path().join("sub/program")).unwrap();
    std::fs::write(folder.path().join("text"), "text").unwrap();
    let mut archive = Archive::default();
    add_with(&mut archive, folder.path(), PATH).unwrap();
    let at = folder.path().display();
    assert!(archive.has_file(&format!("root{at}/sub/program")) && archive.has_file(&format!("root{at}/text")));
    assert!(archive.has_file("root/lib/x86_64-linux-gnu/libc.so.6"));
    let problem = add_with(&mut archive, Path::new("/no/such/thing"), PATH).unwrap_err();
    assert!(format!("{problem:#}").contains("--with /no/such/thing"), "{problem:#}");
}

#[test]
fn a_folder_to_begin_in_must_be_there() {
    let mut archive = Archive::default();
    add_base(&mut archive);
    archive.link("root/www", "var/log");
    for good in ["/", "/tmp", "/www", "/var/log/"] {
        check_folder(&archive, good).unwrap();
    }
    for (bad, words) in [("/nosuch", "-v FOLDER:/nosuch"), ("www", "/www"), ("/etc/passwd", "no such folder")] {
        let problem = check_folder(&archive, bad).unwrap_err().to_string();
        assert!(problem.contains(words), "{problem}");
    }
}

#[test]
fn what_a_tree_has_below_a_library_is_no_lack() {
    // A program that needs the C library under another name, to which no path of the loader's
    // leads.
    let replaced = |bytes: Vec<u8>| {
        let at = bytes.windows(10).position(|word| word == b"libc.so.6\0").expect("it needs the C library");
        [&bytes[..at], b"libq.so.6\0".as_slice(), &bytes[at + 10..]].concat()
    };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(path("lib/server")).unwrap();
    std::fs::write(path("lib/part"), replaced(std::fs::read("/bin/true").unwrap())).unwrap();
    let part = text(&path("lib/part"));
    let problem =
        |archive: &mut Archive| View::new(archive, PATH).complete(&part).err().map(|problem| problem.to_string());
    let mut archive = Archive::default();
    add_with(&mut archive, folder.path(), PATH).unwrap();
    assert!(problem(&mut archive).is_some_and(|problem| problem.contains("libq.so.6 is missing")));
    // Beside it, or below another folder, it is not its own.
    std::fs::create_dir(path("other")).unwrap();
    std::fs::copy("/lib/x86_64-linux-gnu/libc.so.6", path("other/libq.so.6")).unwrap();
    add_with(&mut archive, folder.path(), PATH).unwrap();
    assert!(problem(&mut archive).is_some());
    std::fs::write(path("lib/server/libq.so.6"), "no library").unwrap();
    add_with(&mut archive, &path("lib"), PATH).unwrap();
    assert!(problem(&mut archive).is_some());
    std::fs::rename(path("other/libq.so.6"), path("lib/server/libq.so.6")).unwrap();
    let mut archive = Archive::default();
    add_with(&mut archive, &path("lib"), PATH).unwrap();
    assert_eq!(problem(&mut archive), None);
}
