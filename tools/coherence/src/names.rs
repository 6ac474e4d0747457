//! Functions by address, for several programs and the kernel; and which program a component runs.
//!
//! The host tool writes a text, one fact a line: `image NAME`, then that image's functions as
//! `ADDRESS BYTES NAME` (hexadecimal; 0 bytes: up to the next), and `component NAME IMAGE`; a
//! component `*` stands for all that have no line. A Linux guest tells its kernel's functions
//! itself, as /proc/kallsyms has them.

use std::collections::HashMap;

/// A function of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId(u32);

/// The name of what lies in no known function.
const UNKNOWN: &str = "?";
/// The image of the code that runs at kernel privilege.
pub const KERNEL: &str = "kernel";
const ANY: &str = "*";

/// The component that the Linux proxy in a program's address space is, which begins with the
/// program's own name.
pub fn proxy_name(program: &str) -> String {
    format!("{program}/proxy")
}

#[derive(Debug, Default)]
struct Image {
    /// First address, address past the end, function; in order.
    functions: Vec<(u64, u64, FunctionId)>,
}

impl Image {
    /// Brings functions in order; those without a length, as assembly has them, reach to the next.
    fn sort(&mut self) {
        self.functions.sort();
        let starts: Vec<u64> = self.functions.iter().skip(1).map(|(start, _, _)| *start).collect();
        for ((start, end, _), next) in self.functions.iter_mut().zip(starts) {
            *end = if *end == *start { next } else { *end };
        }
    }
}

/// See the module's head.
#[derive(Debug)]
pub struct Names {
    images: HashMap<String, Image>,
    programs: HashMap<String, String>,
    functions: Vec<String>,
    known: HashMap<String, FunctionId>,
}

impl Default for Names {
    fn default() -> Names {
        let mut names =
            Names { images: HashMap::new(), programs: HashMap::new(), functions: Vec::new(), known: HashMap::new() };
        names.function(UNKNOWN);
        names
    }
}

impl Names {
    /// Reads the host tool's text.
    ///
    /// # Errors
    /// The number of the first line that cannot be read. Remedy: tool and plugin are of different
    /// builds; build both.
    pub fn parse(text: &str) -> Result<Names, usize> {
        let mut names = Names::default();
        let mut image = String::new();
        for (number, line) in (1..).zip(text.lines()) {
            let mut words = line.splitn(3, ' ');
            let (first, second, third) = (words.next(), words.next(), words.next());
            match (first, second, third) {
                (Some("image"), Some(name), None) => image = name.to_owned(),
                (Some("component"), Some(name), Some(program)) => {
                    names.programs.insert(name.to_owned(), program.to_owned());
                }
                (Some(address), Some(bytes), Some(name)) => {
                    let number_of = |text| u64::from_str_radix(text, 16).map_err(|_| number);
                    let (address, bytes) = (number_of(address)?, number_of(bytes)?);
                    let end = address.checked_add(bytes).ok_or(number)?;
                    let id = names.function(name);
                    names.images.entry(image.clone()).or_default().functions.push((address, end, id));
                }
                _ => return Err(number),
            }
        }
        names.images.values_mut().for_each(Image::sort);
        Ok(names)
    }

    /// Takes the kernel's functions from a text like /proc/kallsyms. Lines that are of no function
    /// are left out; so are functions without an address, which is how Linux answers a caller
    /// without the right to know.
    pub fn learn_kernel(&mut self, text: &str) {
        let mut starts: Vec<(u64, FunctionId)> = Vec::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else { continue };
            if let (Ok(address @ 1..), "t" | "T" | "w" | "W") = (u64::from_str_radix(address, 16), kind) {
                let id = self.function(name);
                starts.push((address, id));
            }
        }
        // Of several names of one address the first stays.
        starts.sort_by_key(|(address, _)| *address);
        starts.dedup_by_key(|(address, _)| *address);
        let ends = starts.iter().skip(1).map(|(address, _)| *address).chain([u64::MAX]);
        let functions = starts.iter().zip(ends).map(|(&(start, id), end)| (start, end, id)).collect();
        self.images.insert(KERNEL.to_owned(), Image { functions });
    }

    fn function(&mut self, name: &str) -> FunctionId {
        if let Some(&id) = self.known.get(name) {
            return id;
        }
        let id = FunctionId(self.functions.len() as u32);
        self.functions.push(name.to_owned());
        self.known.insert(name.to_owned(), id);
        id
    }

    /// The function of a component at an address.
    pub fn at(&self, component: &str, address: u64) -> FunctionId {
        let program = self.programs.get(component).or_else(|| self.programs.get(ANY)).map_or(component, String::as_str);
        let found = self.images.get(program).and_then(|image| {
            let next = image.functions.partition_point(|(start, _, _)| *start <= address);
            let (_, end, id) = image.functions[..next].last()?;
            (address < *end).then_some(*id)
        });
        found.unwrap_or(FunctionId(0))
    }

    /// Its name.
    pub fn name(&self, function: FunctionId) -> &str {
        &self.functions[function.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_component_and_address() {
        let text = "image bench\n1000 10 bench::b\n800 20 bench::a with space\ncomponent echo bench\ncomponent * other\nimage other\n1000 8 o";
        let names = Names::parse(text).unwrap();
        let at = |component, address| names.name(names.at(component, address)).to_owned();
        assert_eq!(at("echo", 0x1000), "bench::b");
        assert_eq!(at("echo", 0x81f), "bench::a with space");
        assert_eq!(at("anybody", 0x1007), "o");
        let assembly = Names::parse("image kernel\n10 0 entry\n30 8 next").unwrap();
        assert_eq!(assembly.name(assembly.at("kernel", 0x2f)), "entry");
        for (component, address) in [("echo", 0x820), ("echo", 0x1010), ("echo", 0), ("anybody", 0x800)] {
            assert_eq!(at(component, address), UNKNOWN);
        }
    }

    #[test]
    fn a_bad_line_is_told() {
        assert_eq!(Names::parse("image a\nzz 10 name").unwrap_err(), 2);
        assert_eq!(Names::parse("image a\nffffffffffffffff 10 name").unwrap_err(), 2);
        assert_eq!(Names::parse("word").unwrap_err(), 1);
    }

    #[test]
    fn linux_tells_its_own() {
        let mut names = Names::default();
        names.learn_kernel("ffffffff81000000 T _stext\nffffffff81000100 t dup\nffffffff81000100 t alias\n0 T hidden\nffffffff81000180 D data\nnoise\n");
        let at = |address| names.name(names.at(KERNEL, address)).to_owned();
        assert_eq!((at(0xffff_ffff_8100_00ff).as_str(), at(0xffff_ffff_8100_0200).as_str()), ("_stext", "dup"));
        assert_eq!(at(0x1000), UNKNOWN);
    }
}
