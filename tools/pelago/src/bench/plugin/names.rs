//! The names that the plugin gives to functions and components: symbols of the images that a build
//! leaves in `out/images`, and the system's description.

use crate::host::files;
use crate::image::description;
use anyhow::Result;
use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use system::System;

/// All functions of `images`, and which domain of `system` on a machine of `cpus` cores runs which.
/// See coherence's `names.rs` for the format.
pub fn of(images: &[PathBuf], system: &System, cpus: u32) -> Result<String> {
    let mut text = String::new();
    for image in images {
        add_image(&mut text, image)?;
    }
    for component in &system.components {
        // Monitors have one name on all cores.
        let is_monitor = component.name == description::MONITOR;
        let domains = if is_monitor { vec![(component.name.clone(), 0)] } else { component.domains(cpus) };
        for (name, _) in domains {
            let _ = writeln!(text, "component {name} {}", component.program);
        }
    }
    Ok(text)
}

fn add_image(text: &mut String, path: &Path) -> Result<()> {
    let data = files::read(path)?;
    let file = object::File::parse(&*data)?;
    // Writing to a String cannot fail.
    let _ = writeln!(text, "image {}", path.file_name().unwrap_or_default().to_string_lossy());
    let code: Vec<_> =
        file.sections().filter(|section| section.kind() == SectionKind::Text).map(|section| section.index()).collect();
    // Labels are assembly's functions; the compiler's own local ones have no name.
    let is_function = |symbol: &object::Symbol| {
        matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Label | SymbolKind::Unknown)
            && symbol.section_index().is_some_and(|section| code.contains(&section))
            && symbol.name().is_ok_and(|name| !name.is_empty() && !name.starts_with(".L"))
    };
    for symbol in file.symbols().filter(is_function) {
        let name = symbol.name().unwrap_or("?");
        let _ = writeln!(
            text,
            "{:x} {:x} {}",
            symbol.address(),
            symbol.size(),
            addr2line::demangle_auto(name.into(), None)
        );
    }
    Ok(())
}
