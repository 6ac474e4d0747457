//! Why something did not run: what this machine lacks, and whether it could have it.

use crate::host::path;

/// The error of a scenario that did not run for what the machine lacks.
#[derive(Debug)]
pub enum Skip {
    /// The machine cannot have it. Neither passed nor failed.
    Cannot(String),
    /// A Debian package would bring it: a failure where this process may install one.
    Package { program: &'static str, package: &'static str },
    /// The set-up did not make this root of Debian's packages: a failure where it can.
    Root(&'static str),
    /// The set-up did not fetch this source: a failure where it can.
    Source(&'static str),
}

impl Skip {
    /// Nothing stands in the way but that nobody has installed the package.
    pub fn could_have_run(&self) -> bool {
        let has = |program: &str| path::find(program).is_some();
        match self {
            Skip::Cannot(_) => false,
            Skip::Package { .. } => nix::unistd::geteuid().is_root() && has("apt-get"),
            Skip::Root(_) | Skip::Source(_) => has("apt-get") && has("dpkg-deb"),
        }
    }
}

impl std::fmt::Display for Skip {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Skip::Cannot(why) => formatter.write_str(why),
            Skip::Package { program, package } => {
                write!(formatter, "there is no {program}; run: apt-get install {package}")
            }
            Skip::Root(name) => write!(formatter, "there is no root of {name}, which ./pelago test makes where it can"),
            Skip::Source(name) => {
                write!(formatter, "there is no source of {name}, which ./pelago test fetches where it can")
            }
        }
    }
}

impl std::error::Error for Skip {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_have_run_is_no_skip() {
        assert!(!Skip::Cannot("no such card".into()).could_have_run());
        let gdb = Skip::Package { program: "gdb", package: "gdb" };
        assert!(gdb.to_string().contains("apt-get install gdb"));
        assert_eq!(gdb.could_have_run(), nix::unistd::geteuid().is_root() && path::find("apt-get").is_some());
    }
}
