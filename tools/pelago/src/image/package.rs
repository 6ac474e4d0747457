//! Files of Debian packages that are installed on this machine.

use crate::host::child;
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What every package takes for granted without saying so (Debian Policy 3.8, "Essential"), as far
/// as programs start it: a shell and its tools.
const TAKEN_FOR_GRANTED: [&str; 2] = ["dash", "coreutils"];
/// What nothing in a guest reads.
const LEFT_OUT: [&str; 6] = [
    "/usr/share/doc/",
    "/usr/share/man/",
    "/usr/share/info/",
    "/usr/share/locale/",
    "/usr/share/lintian/",
    "/usr/share/doc-base/",
];
/// Where a package has what its programs read and do not name to the linker.
const READ_FOLDERS: [&str; 2] = ["/etc", "/usr/lib"];
const FORMAT: &str = "--showformat=${Package}\t${db:Status-Status}\t${Provides}\t${Pre-Depends}, ${Depends}\n";

/// Packages and what they name of others.
#[derive(Default)]
struct Installed {
    /// Alternatives of each dependency.
    needs: BTreeMap<String, Vec<Vec<String>>>,
    /// Names that stand for a package.
    provided: BTreeMap<String, String>,
}

/// Packages and all that they depend on.
pub fn closure(names: &[String]) -> Result<BTreeSet<String>> {
    if names.is_empty() {
        return Ok(BTreeSet::new());
    }
    Installed::read(&output("dpkg-query", &["--show", FORMAT])?).closure(names)
}

/// Lists the files of packages.
pub fn files(packages: &BTreeSet<String>) -> Result<Vec<PathBuf>> {
    if packages.is_empty() {
        return Ok(Vec::new());
    }
    let words: Vec<_> = ["--listfiles"].into_iter().chain(packages.iter().map(String::as_str)).collect();
    let list = output("dpkg-query", &words)?;
    let is_wanted =
        |path: &&str| path.starts_with('/') && *path != "/." && !LEFT_OUT.iter().any(|out| path.starts_with(out));
    Ok(list.lines().filter(is_wanted).map(PathBuf::from).collect())
}

/// The package that a program of this machine belongs to, if that has files below `/etc` or
/// `/usr/lib` which the guest lacks. `None` too where there is no dpkg.
pub fn lacking(program: &Path, is_in_guest: impl Fn(&Path) -> bool) -> Option<String> {
    let real = program.canonicalize().ok()?;
    // Packages of before /bin became a link have their files there.
    let before = Path::new("/").join(real.strip_prefix("/usr").unwrap_or(&real));
    let package = [&real, &before].into_iter().find_map(|path| owner(path))?;
    let list = output("dpkg-query", &["--listfiles", &package]).ok()?;
    let is_lacking = |path: &Path| READ_FOLDERS.iter().any(|folder| path.starts_with(folder)) && !is_in_guest(path);
    let mut files = list.lines().filter_map(|path| Path::new(path).canonicalize().ok());
    files.any(|path| path.is_file() && is_lacking(&path)).then_some(package)
}

/// The package that has this very file.
fn owner(path: &Path) -> Option<String> {
    // To dpkg-query these are more than themselves.
    let path = path.to_str().filter(|path| !path.contains(['*', '?', '[', '\\']))?;
    let found = output("dpkg-query", &["--search", path]).ok()?;
    of_search(&found, path)
}

/// The package in what `dpkg-query --search` says of a path.
fn of_search(text: &str, path: &str) -> Option<String> {
    let packages = text.lines().filter(|line| !line.starts_with("diversion ")).find_map(|line| {
        let (packages, found) = line.split_once(": ")?;
        (found == path).then_some(packages)
    });
    names(packages?, ',').next()
}

fn output(program: &str, words: &[&str]) -> Result<String> {
    let output = child::output(Command::new(program).args(words), child::SHORT);
    let output = output.with_context(|| format!("--package needs {program}, which Debian has; use --with PATH"))?;
    if !output.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Names of a list of packages, without versions and architectures.
fn names(list: &str, separator: char) -> impl Iterator<Item = String> {
    let name = |entry: &str| entry.split([' ', '(', ':']).find(|word| !word.is_empty()).map(str::to_owned);
    list.split(separator).filter_map(name)
}

impl Installed {
    fn read(text: &str) -> Installed {
        let mut installed = Installed::default();
        for line in text.lines() {
            let fields: Vec<_> = line.split('\t').collect();
            let [name, "installed", provides, needs] = fields[..] else { continue };
            names(provides, ',').for_each(|other| drop(installed.provided.insert(other, name.to_owned())));
            let needs = needs.split(',').map(|choice| names(choice, '|').collect::<Vec<_>>());
            installed.needs.insert(name.to_owned(), needs.filter(|choice| !choice.is_empty()).collect());
        }
        installed
    }

    /// The installed package that a name stands for.
    fn of<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        if self.needs.contains_key(name) { Some(name) } else { self.provided.get(name).map(String::as_str) }
    }

    /// Packages, what they need, and so on.
    fn closure(&self, wanted: &[String]) -> Result<BTreeSet<String>> {
        let mut rest = Vec::new();
        for name in wanted {
            let package = self.of(name).with_context(|| {
                format!("--package {name}: there is no such package on this machine; run: apt-get install {name}")
            })?;
            rest.push(package);
        }
        rest.extend(TAKEN_FOR_GRANTED.iter().filter_map(|name| self.of(name)));
        let mut all = BTreeSet::new();
        while let Some(package) = rest.pop() {
            if all.insert(package.to_owned()) {
                let needs = self.needs.get(package).into_iter().flatten();
                rest.extend(needs.filter_map(|choice| choice.iter().find_map(|name| self.of(name))));
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_a_file_is_is_read_without_diversions() {
        let found = "diversion by dash from: /bin/sh\ndiversion by dash to: /bin/sh.distrib\n\
            nginx-light:amd64, nginx-full: /usr/sbin/nginx\nnginx-doc: /usr/sbin/nginx/doc\n";
        assert_eq!(of_search(found, "/usr/sbin/nginx").as_deref(), Some("nginx-light"));
        assert_eq!((of_search(found, "/bin/sh"), of_search("", "/x")), (None, None));
        assert_eq!(lacking(Path::new("/no/such/program"), |_| false), None);
    }

    #[test]
    fn what_a_package_needs_is_followed() {
        let installed = Installed::read(
            "perl\tinstalled\tperl5\tperl-base (= 5), libperl5:any (>= 5) | other\n\
             perl-base\tinstalled\t\tlibc6 (>= 2), perl5\nlibperl5\tinstalled\t\t, \ngone\tnot-installed\t\t\n\
             libc6\tinstalled\tlibc\t\ndash\tinstalled\t\tlibc\n",
        );
        let all = installed.closure(&["perl".into()]).unwrap();
        assert_eq!(Vec::from_iter(&all), ["dash", "libc6", "libperl5", "perl", "perl-base"]);
        let problem = installed.closure(&["gone".into()]).unwrap_err().to_string();
        assert!(problem.contains("apt-get install gone"), "{problem}");
    }
}
