//! The unpacked package of a Linux kernel: `boot/vmlinuz-VERSION` and `lib/modules/VERSION`.

use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};

const REMEDY: &str = "run `./pelago bench` where Debian's package linux-image-cloud-amd64 can be downloaded, or unpack it \
                      (dpkg-deb -x) and set PELAGO_LINUX to that folder";

/// Longer chains of modules that need each other are a circle.
const MODULE_DEPTH_MAX: usize = 8;

/// What a package holds.
pub struct Package {
    pub kernel: PathBuf,
    pub version: String,
    modules: PathBuf,
}

impl Package {
    /// Looks into the folder where the package was unpacked.
    pub fn find(folder: &Path) -> Result<Package> {
        ensure!(folder.is_dir(), "the Linux kernel to measure beside us is missing: no {}; {REMEDY}", folder.display());
        let boot = folder.join("boot");
        let names = boot.read_dir().into_iter().flatten().flatten();
        let mut versions: Vec<String> =
            names.filter_map(|entry| Some(entry.file_name().to_str()?.strip_prefix("vmlinuz-")?.to_owned())).collect();
        versions.sort();
        let Some(version) = versions.pop() else {
            bail!("there is no vmlinuz-* in {}; remove {} and {REMEDY}", boot.display(), folder.display());
        };
        let kernel = boot.join(format!("vmlinuz-{version}"));
        // Newer Debian keeps modules under usr/.
        let places = ["lib", "usr/lib"].map(|lib| folder.join(lib).join("modules").join(&version));
        let modules = places.into_iter().find(|place| place.is_dir());
        let modules = modules.with_context(|| format!("{} has no modules of {version}; {REMEDY}", folder.display()))?;
        Ok(Package { kernel, version, modules })
    }

    /// The modules `wanted` and all they depend on, each after those it needs: name and content.
    pub fn modules(&self, wanted: &[&str]) -> Result<Vec<(String, Vec<u8>)>> {
        let mut loaded = Vec::new();
        wanted.iter().try_for_each(|name| self.add_module(name, MODULE_DEPTH_MAX, &mut loaded))?;
        Ok(loaded)
    }

    fn add_module(&self, name: &str, depth: usize, loaded: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
        if loaded.iter().any(|(other, _)| other == name) {
            return Ok(());
        }
        ensure!(depth > 0, "the modules of the Linux kernel {} need each other in a circle; {REMEDY}", self.version);
        let path = find_file(&self.modules, &format!("{name}.ko"))
            .with_context(|| format!("the Linux kernel {} has no module {name}; {REMEDY}", self.version))?;
        let content = crate::host::files::read(&path)?;
        dependencies(&content).iter().try_for_each(|needed| self.add_module(needed, depth - 1, loaded))?;
        loaded.push((name.to_owned(), content));
        Ok(())
    }
}

/// A module tells what it needs in its section .modinfo, strings ended by zero: `depends=a,b`
/// (Linux, Documentation/kbuild/modules.rst).
fn dependencies(module: &[u8]) -> Vec<String> {
    let strings = module.split(|&byte| byte == 0);
    let list = strings.filter_map(|string| string.strip_prefix(b"depends=")).find_map(|list| str::from_utf8(list).ok());
    list.unwrap_or_default().split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn find_file(folder: &Path, name: &str) -> Option<PathBuf> {
    let entries: Vec<_> = folder.read_dir().ok()?.flatten().collect();
    if let Some(entry) = entries.iter().find(|entry| entry.file_name() == name) {
        return Some(entry.path());
    }
    entries.iter().map(|entry| entry.path()).filter(|path| path.is_dir()).find_map(|folder| find_file(&folder, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let told = |path: &Path| Package::find(path).map(drop).unwrap_err().to_string();
        assert!(told(&folder.path().join("none")).contains("linux-image-cloud-amd64"));
        assert!(told(folder.path()).contains("vmlinuz"));
        std::fs::create_dir_all(folder.path().join("boot")).unwrap();
        std::fs::write(folder.path().join("boot/vmlinuz-6.1"), "").unwrap();
        assert!(told(folder.path()).contains("no modules of 6.1"));
        std::fs::create_dir_all(folder.path().join("lib/modules/6.1/kernel/net")).unwrap();
        let write = |name: &str, needs: &str| {
            let content = format!("head\0depends={needs}\0tail");
            std::fs::write(folder.path().join("lib/modules/6.1/kernel/net").join(name), content).unwrap();
        };
        write("a.ko", "b,c");
        write("b.ko", "c");
        write("c.ko", "");
        write("d.ko", "e");
        write("f.ko", "f");
        let package = Package::find(folder.path()).unwrap();
        let names: Vec<_> = package.modules(&["a", "b"]).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["c", "b", "a"]);
        assert!(package.modules(&["d"]).unwrap_err().to_string().contains("no module e"));
        assert!(package.modules(&["f"]).unwrap_err().to_string().contains("circle"));
    }
}
