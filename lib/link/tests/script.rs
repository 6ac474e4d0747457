//! What a build script tells Cargo and the linker. The test runs itself as that script.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Names the script, to the test that is to be it.
const SCRIPT: &str = "PELAGO_TEST_SCRIPT";

#[test]
fn bare_programs_are_linked_at_their_base_and_host_programs_as_ever() {
    match env::var(SCRIPT).as_deref() {
        Ok("component") => return pelago_link::component(),
        Ok("proxy") => return pelago_link::proxy(),
        _ => {}
    }
    for (script, base) in [("component", abi::layout::COMPONENT_BASE), ("proxy", abi::layout::PROXY_BASE)] {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(script);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let link_script = folder.join("link.ld");
        let said = told(script, "linux", &folder);
        assert!(said.contains("cargo:rerun-if-changed=build.rs\n") && !said.contains("link-arg"), "{said}");
        assert!(!link_script.exists());
        let said = told(script, "none", &folder);
        assert!(said.contains(&format!("cargo:rustc-link-arg-bins=-T{}\n", link_script.display())), "{said}");
        let text = fs::read_to_string(&link_script).unwrap();
        assert!(text.contains(&format!(". = {base:#x};\n")) && !text.contains("@BASE@;"), "{text}");
    }
}

/// What the script says when Cargo builds for that system.
fn told(script: &str, system: &str, folder: &Path) -> String {
    let mut test = Command::new(env::current_exe().unwrap());
    test.arg("--nocapture").env(SCRIPT, script).env("CARGO_CFG_TARGET_OS", system).env("OUT_DIR", folder);
    let output = test.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}
