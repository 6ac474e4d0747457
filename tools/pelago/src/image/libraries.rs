//! Shared libraries of dynamic programs, found as their loader would: glibc's (ld.so(8)) or musl's.
//!
//! Looked through are what was brought in already and then the host, by the same paths, since each
//! file keeps its path.

use crate::image::elf;
use crate::image::rootfs::View;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// glibc's own, in Debian's order.
const DEFAULT_FOLDERS: [&str; 6] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];
/// As Debian's glibc is configured: `$LIB` and `$PLATFORM` of a path.
const LIB: &str = "lib/x86_64-linux-gnu";
const PLATFORM: &str = "x86_64";
const CONFIGURATION: &str = "/etc/ld.so.conf";
/// What ldconfig made of it; the loader looks nowhere else for configured folders.
const CACHE: &str = "/etc/ld.so.cache";
/// Files that include each other end here.
const INCLUDES_MAX: usize = 8;
const MUSL_DEFAULT: &str = "/lib:/usr/local/lib:/usr/lib";
/// Names that musl's loader answers itself (its `ldso/dynlink.c`, `reserved`), and the library's
/// own.
const MUSL_OWN: [&str; 8] = ["c", "pthread", "rt", "m", "dl", "util", "xnet", "c.musl-x86_64"];

/// Which loader a program has.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Loader {
    Glibc,
    /// Its path.
    Musl(String),
}

/// What is looked through for a program, and what was found.
struct Search<'v, 'a> {
    view: &'v mut View<'a>,
    loader: Loader,
    found: BTreeSet<String>,
}

/// Brings the libraries of the program or library at `path`, and its loader.
pub fn bring(view: &mut View, path: &str, data: &[u8]) -> Result<()> {
    let needs = elf::needs(data)?;
    let mut loader = Loader::Glibc;
    if let Some(interpreter) = &needs.interpreter {
        if !view.has_file(interpreter) {
            bail!("its dynamic loader {interpreter} is missing; install the package that has it");
        }
        view.bring(interpreter)?;
        if interpreter.contains("ld-musl") {
            loader = Loader::Musl(interpreter.clone());
        }
    }
    Search { view, loader, found: BTreeSet::new() }.all_of(path, &needs, &[])
}

impl Search<'_, '_> {
    /// Brings what `path` needs; `inherited` are the DT_RPATH folders of those that need it.
    fn all_of(&mut self, path: &str, needs: &elf::Needs, inherited: &[String]) -> Result<()> {
        let real = self.view.real(path);
        let origin = Path::new(&real).parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
        let expand = |folder: &String| expanded(folder, &origin);
        // One with a DT_RUNPATH has no other.
        let mut before: Vec<String> =
            if needs.run_path.is_empty() { needs.path.iter().map(expand).collect() } else { Vec::new() };
        before.extend_from_slice(inherited);
        let after: Vec<String> = needs.run_path.iter().map(expand).collect();
        for name in &needs.libraries {
            if self.is_the_loaders(name) {
                continue;
            }
            let name = expanded(name, &origin);
            let found = self.find(&name, &before, &after).or_else(|| self.find_own(&name, &origin));
            let (library, is_configured) = found.with_context(|| {
                format!("its shared library {name} is missing; install the package that has it or set LD_LIBRARY_PATH")
            })?;
            if is_configured && self.view.has_file(CACHE) {
                self.view.bring(CACHE)?;
            }
            if self.found.insert(library.clone()) {
                self.view.bring(&library)?;
                let data = self.view.read(&library)?;
                let problem = || format!("library {library}");
                let needs = elf::needs(&data).with_context(problem)?;
                self.all_of(&library, &needs, &before).with_context(problem)?;
            }
        }
        Ok(())
    }

    fn is_the_loaders(&self, name: &str) -> bool {
        let own = |name: &str| MUSL_OWN.iter().any(|own| name == format!("lib{own}.so"));
        matches!(self.loader, Loader::Musl(_)) && own(name.strip_suffix(".1").unwrap_or(name))
    }

    /// Where a library is, and whether only a configured folder has it.
    fn find(&self, name: &str, before: &[String], after: &[String]) -> Option<(String, bool)> {
        if name.contains('/') {
            return self.is_library(name).then(|| (name.to_owned(), false));
        }
        let environment: Vec<_> =
            std::env::var("LD_LIBRARY_PATH").unwrap_or_default().split(':').map(str::to_owned).collect();
        let own = before.iter().chain(&environment).chain(after);
        let in_folder = |folder: &str| {
            let path = format!("{}/{name}", folder.trim_end_matches('/'));
            (!folder.is_empty() && self.is_library(&path)).then_some(path)
        };
        if let Some(path) = own.map(String::as_str).find_map(in_folder) {
            return Some((path, false));
        }
        if let Loader::Musl(loader) = &self.loader {
            return self.musl_folders(loader).iter().find_map(|folder| in_folder(folder)).map(|path| (path, false));
        }
        if let Some(path) = DEFAULT_FOLDERS.into_iter().find_map(in_folder) {
            return Some((path, false));
        }
        self.configured(CONFIGURATION, 0).iter().find_map(|folder| in_folder(folder)).map(|path| (path, true))
    }

    /// A library that no path of the loader's leads to, in a folder below that of the file which
    /// needs it, and brought with it: a program that loads such files (a plug-in, Java's parts) has
    /// loaded what they need before them, by its path.
    fn find_own(&self, name: &str, origin: &str) -> Option<(String, bool)> {
        let path = self.view.find_below(origin, name)?;
        self.is_library(&path).then_some((path, false))
    }

    /// A library of another processor does not count.
    fn is_library(&self, path: &str) -> bool {
        self.view.has_file(path) && self.view.starts_with(path, elf::is_ours)
    }

    /// Of `/etc/ld-musl-x86_64.path`, beside which its loader's folder lies.
    fn musl_folders(&self, loader: &str) -> Vec<String> {
        let name = Path::new(loader).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let file = format!("/etc/{}.path", name.split(".so").next().unwrap_or_default());
        let text = self.view.read(&file).map(|data| String::from_utf8_lossy(&data).into_owned());
        let text = text.unwrap_or_else(|_| MUSL_DEFAULT.to_owned());
        text.split([':', '\n']).map(str::trim).filter(|folder| !folder.is_empty()).map(str::to_owned).collect()
    }

    /// Folders of a configuration file and of those that it includes.
    fn configured(&self, file: &str, depth: usize) -> Vec<String> {
        let Ok(data) = self.view.read(file) else { return Vec::new() };
        let mut folders = Vec::new();
        for line in String::from_utf8_lossy(&data).lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if let Some(pattern) = line.strip_prefix("include ").map(str::trim) {
                let pattern = Path::new(file).parent().unwrap_or(Path::new("/")).join(pattern);
                if depth < INCLUDES_MAX {
                    matches(&pattern).iter().for_each(|file| folders.extend(self.configured(file, depth + 1)));
                }
            } else if line.starts_with('/') {
                folders.push(line.to_owned());
            }
        }
        folders
    }
}

/// Files of the host that a pattern with a star in its last part stands for.
fn matches(pattern: &Path) -> Vec<String> {
    let name = pattern.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Some((start, end)) = name.split_once('*') else { return vec![pattern.to_string_lossy().into_owned()] };
    let folder = pattern.parent().unwrap_or(Path::new("/"));
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let is_match = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(start) && name.ends_with(end) && name.len() >= start.len() + end.len()
    };
    let mut all: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(is_match).collect();
    all.sort();
    all.iter().map(|path| path.to_string_lossy().into_owned()).collect()
}

fn expanded(text: &str, origin: &str) -> String {
    [("ORIGIN", origin), ("LIB", LIB), ("PLATFORM", PLATFORM)].iter().fold(text.to_owned(), |text, (name, value)| {
        text.replace(&format!("${{{name}}}"), value).replace(&format!("${name}"), value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::archive::Archive;

    #[test]
    fn words_of_a_path_are_replaced() {
        assert_eq!(expanded("$ORIGIN/../${LIB}", "/opt/x/bin"), "/opt/x/bin/../lib/x86_64-linux-gnu");
        assert_eq!(expanded("/usr/lib", "/opt"), "/usr/lib");
    }

    #[test]
    fn configured_folders_are_those_of_included_files_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        std::fs::create_dir(path("more")).unwrap();
        std::fs::write(path("conf"), "include more/*.conf\n/a # first\n").unwrap();
        std::fs::write(path("more/x.conf"), "/b\n\n/c\n").unwrap();
        std::fs::write(path("more/x.other"), "/d\n").unwrap();
        std::fs::write(path("circle"), "include circle\n/e\n").unwrap();
        let mut archive = Archive::default();
        let mut view = View::new(&mut archive, "");
        let search = Search { view: &mut view, loader: Loader::Glibc, found: BTreeSet::new() };
        assert_eq!(search.configured(&path("conf"), 0), ["/b", "/c", "/a"]);
        assert_eq!(search.configured(&path("circle"), 0).len(), INCLUDES_MAX + 1);
    }

    #[test]
    fn what_musl_has_in_its_loader_is_not_looked_for() {
        let mut archive = Archive::default();
        let mut view = View::new(&mut archive, "");
        let mut search =
            Search { view: &mut view, loader: Loader::Musl("/lib/ld-musl-x86_64.so.1".into()), found: BTreeSet::new() };
        assert!(search.is_the_loaders("libc.so") && search.is_the_loaders("libc.musl-x86_64.so.1"));
        assert!(!search.is_the_loaders("libz.so.1"));
        search.loader = Loader::Glibc;
        assert!(!search.is_the_loaders("libc.so"));
    }
}
