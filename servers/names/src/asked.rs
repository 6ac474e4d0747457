//! What a client was answered and may keep, so that it is told of changes to that and to nothing
//! else, once.
//!
//! Invariant: what was answered since the client was last told is in the set, or the client is owed
//! word that anything may have changed.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};

/// Contracts that are remembered for a client.
pub const CONTRACTS_MAX: usize = 256;
/// Stands for every contract.
pub const ANY: &str = "";

/// See the module's head.
#[derive(Default)]
pub struct Asked {
    contracts: BTreeSet<String>,
    is_owed: bool,
}

impl Asked {
    /// The client is being answered about that contract. `tell` as in [`Asked::changed`].
    pub fn answered(&mut self, contract: &str, tell: impl FnOnce(&str) -> bool) {
        if self.contracts.len() >= CONTRACTS_MAX {
            self.contracts.clear();
            self.is_owed = true;
        }
        if self.is_owed {
            self.is_owed = !tell(ANY);
        }
        self.contracts.insert(contract.to_string());
    }

    /// That contract has changed. `tell` sends word and says whether it could; what could not be
    /// sent is owed.
    pub fn changed(&mut self, contract: &str, tell: impl FnOnce(&str) -> bool) {
        if !self.contracts.remove(contract) {
            return;
        }
        if self.is_owed {
            self.contracts.clear();
        }
        self.is_owed = !tell(if self.is_owed { ANY } else { contract });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[derive(Default)]
    struct Client {
        asked: Asked,
        told: Vec<String>,
        is_full: bool,
    }

    impl Client {
        fn answered(&mut self, contract: &str) {
            let Client { asked, told, is_full } = self;
            asked.answered(contract, |what| send(told, *is_full, what));
        }

        fn changed(&mut self, contract: &str) {
            let Client { asked, told, is_full } = self;
            asked.changed(contract, |what| send(told, *is_full, what));
        }
    }

    fn send(told: &mut Vec<String>, is_full: bool, what: &str) -> bool {
        if !is_full {
            told.push(what.into());
        }
        !is_full
    }

    #[test]
    fn told_once_of_what_it_asked_and_of_nothing_else() {
        let mut client = Client::default();
        client.changed("files");
        client.answered("files");
        client.changed("names");
        assert!(client.told.is_empty());
        client.changed("files");
        client.changed("files");
        assert_eq!(client.told, ["files"]);
        client.answered("files");
        client.changed("files");
        assert_eq!(client.told, ["files", "files"]);
    }

    #[test]
    fn what_it_did_not_take_is_owed() {
        let mut client = Client::default();
        client.answered("files");
        client.answered("names");
        client.is_full = true;
        client.changed("files");
        client.is_full = false;
        client.changed("names");
        assert_eq!(client.told, [ANY]);
        client.answered("files");
        client.is_full = true;
        client.changed("files");
        client.is_full = false;
        client.answered("names");
        assert_eq!(client.told, [ANY, ANY]);
        client.changed("names");
        assert_eq!(client.told, [ANY, ANY, "names"], "nothing is owed any more");
    }

    #[test]
    fn a_client_that_asks_for_everything_is_told_to_drop_everything() {
        let mut client = Client::default();
        (0..CONTRACTS_MAX + 1).for_each(|number| client.answered(&number.to_string()));
        assert_eq!((client.told.as_slice(), client.asked.contracts.len()), (&[String::from(ANY)][..], 1));
    }
}
