//! A program's environment.

use crate::image::rootfs;
use anyhow::{Context, Result, bail};

/// What a program has of this shell's environment unasked. Libraries that were found by it are
/// found by it there, too.
pub fn inherited() -> Option<String> {
    std::env::var("LD_LIBRARY_PATH").ok().map(|folders| format!("LD_LIBRARY_PATH={folders}"))
}

/// The program's environment: a few defaults, then what the user set; the last value of a name
/// counts.
pub fn of(inherited: Option<String>, wishes: &[String]) -> Result<Vec<String>> {
    let mut variables =
        vec![format!("PATH={}", rootfs::PATH), "HOME=/root".into(), "TERM=linux".into(), "HOSTNAME=pelago".into()];
    variables.extend(inherited);
    for wish in wishes {
        let variable = match wish.split_once('=') {
            Some(("", _)) => bail!("-e {wish}: the variable has no name"),
            Some(_) => wish.clone(),
            None => format!(
                "{wish}={}",
                std::env::var(wish)
                    .with_context(|| format!("-e {wish}: this shell has no such variable; write {wish}=VALUE"))?
            ),
        };
        let name = variable.split('=').next().unwrap_or_default().to_owned() + "=";
        variables.retain(|other| !other.starts_with(&name));
        variables.push(variable);
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_of_a_variable_counts() {
        let variables = of(None, &["TERM=dumb".into(), "A=1".into(), "A=2".into()]).unwrap();
        assert!(
            variables.contains(&"TERM=dumb".into())
                && variables.contains(&"A=2".into())
                && !variables.contains(&"A=1".into())
        );
        assert!(of(None, &["=x".into()]).is_err() && of(None, &["NO_SUCH_VARIABLE_HERE".into()]).is_err());
    }
}
