//! The kernel's command line: words separated by blanks, `key=value` or bare `key`. Unknown words
//! are other people's and are ignored.

use crate::devices::virtio_mmio::number;

/// All values of `key`, in order.
pub fn values<'a>(line: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    line.split_ascii_whitespace().filter_map(move |word| word.strip_prefix(key)?.strip_prefix('='))
}

/// The number given for `key`; the last one wins, as with Linux.
pub fn number_of(line: &str, key: &str) -> Option<u64> {
    values(line, key).last().and_then(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let line = "pelago.ecam=0xe0000000 virtio_mmio.device=a virtio_mmio.device=b quiet pelago.ecamx=1";
        assert_eq!(number_of(line, "pelago.ecam"), Some(0xe000_0000));
        assert!(values(line, "virtio_mmio.device").eq(["a", "b"]));
        assert_eq!(number_of(line, "quiet"), None);
        assert_eq!(number_of("", "quiet"), None);
    }
}
