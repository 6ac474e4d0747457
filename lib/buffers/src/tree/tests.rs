//! How high a tree is.

use super::*;

#[test]
fn a_level_more_is_there_for_a_key_more() {
    assert_eq!([1, 64, 65, 1 << 12, (1 << 12) + 1].map(levels), [1, 1, 2, 2, 3]);
    assert_eq!([1 << 60, (1 << 60) + 1, u64::MAX].map(levels), [10, 11, 11]);
}
