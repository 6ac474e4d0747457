//! Sizes as somebody writes them.

use anyhow::{Context, Result};

/// As much as an emulated processor can address.
const MIB_MAX: u64 = 1 << 20;

/// A number of bytes: digits, then K, M or G (powers of 1024) or nothing.
pub fn parse_size(text: &str) -> Result<u64> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().with_context(|| format!("`{text}` is no size; write for instance 512M"))?;
    number.checked_mul(1 << shift).with_context(|| format!("`{text}` is too large"))
}

/// The memory of a machine: as [`parse_size`], and a number without a unit is MiB.
pub fn parse_memory(text: &str) -> Result<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return parse_size(text);
    }
    let mib = parse_size(text)?;
    let bytes = mib.checked_mul(1 << 20).filter(|_| mib <= MIB_MAX);
    bytes.with_context(|| format!("{text} MiB are more than any machine has; write a unit, for instance 512M"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("512M").unwrap(), 512 << 20);
        assert_eq!(parse_size("1g").unwrap(), 1 << 30);
        for bad in ["", "M", "-1M", "1T", "99999999999999G"] {
            assert!(parse_size(bad).is_err() && parse_memory(bad).is_err(), "{bad}");
        }
        assert_eq!((parse_memory("512").unwrap(), parse_memory("1G").unwrap()), (512 << 20, 1 << 30));
        let bytes = parse_memory("536870912").unwrap_err().to_string();
        assert!(bytes.contains("write a unit"), "{bytes}");
    }
}
